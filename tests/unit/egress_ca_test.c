/* SPDX-License-Identifier: Apache-2.0 */
/* Leaf certificates verify strictly against the node's authority, for their host and no other. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "egress/ca.h"

#define HOUR 3600L

static void extend(X509 *x, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
	X509_EXTENSION *ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	assert_non_null(ext);
	assert_int_equal(X509_add_ext(x, ext, -1), 1);
	X509_EXTENSION_free(ext);
}

/* An authority, signed by issuer or by itself. */
static X509 *authority(const char *name, EVP_PKEY *key, X509 *issuer, EVP_PKEY *issuer_key,
		       long seconds, bool is_ca)
{
	X509 *x = X509_new();
	X509_set_version(x, X509_VERSION_3);
	ASN1_INTEGER_set(X509_get_serialNumber(x), issuer ? 2 : 1);
	X509_gmtime_adj(X509_getm_notBefore(x), -24 * HOUR);
	X509_gmtime_adj(X509_getm_notAfter(x), seconds);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
				   (const unsigned char *)name, -1, -1, 0);
	X509_set_issuer_name(x, X509_get_subject_name(issuer ? issuer : x));
	X509_set_pubkey(x, key);
	extend(x, issuer ? issuer : x, NID_basic_constraints,
	       is_ca ? "critical,CA:TRUE" : "critical,CA:FALSE");
	if (is_ca)
		extend(x, issuer ? issuer : x, NID_key_usage, "critical,keyCertSign");
	extend(x, issuer ? issuer : x, NID_subject_key_identifier, "hash");
	if (issuer)
		extend(x, issuer, NID_authority_key_identifier, "keyid:always");
	const EVP_MD *digest =
		EVP_PKEY_get_base_id(issuer_key) == EVP_PKEY_ED25519 ? NULL : EVP_sha256();
	assert_true(X509_sign(x, issuer_key, digest) > 0);
	return x;
}

static char *pem_of_certificate(X509 *x)
{
	BIO *bio = BIO_new(BIO_s_mem());
	PEM_write_bio_X509(bio, x);
	char *p;
	long n = BIO_get_mem_data(bio, &p);
	char *text = strndup(p, (size_t)n);
	BIO_free(bio);
	return text;
}

static char *pem_of_key(EVP_PKEY *key)
{
	BIO *bio = BIO_new(BIO_s_mem());
	PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL);
	char *p;
	long n = BIO_get_mem_data(bio, &p);
	char *text = strndup(p, (size_t)n);
	BIO_free(bio);
	return text;
}

struct fixture {
	EVP_PKEY *root_key, *key;
	X509 *root, *intermediate;
	char *pem, *key_pem;
};

static void fixture_init(struct fixture *f, const char *algorithm, long seconds)
{
	f->root_key = EVP_EC_gen("P-256");
	f->key = str_eq(algorithm, "EC") ? EVP_EC_gen("P-256")
					 : EVP_PKEY_Q_keygen(NULL, NULL, algorithm);
	f->root = authority("node", f->root_key, NULL, f->root_key, 365 * 24 * HOUR, true);
	f->intermediate = authority("sandbox", f->key, f->root, f->root_key, seconds, true);
	f->pem = pem_of_certificate(f->intermediate);
	f->key_pem = pem_of_key(f->key);
}

static void fixture_done(struct fixture *f)
{
	EVP_PKEY_free(f->root_key);
	EVP_PKEY_free(f->key);
	X509_free(f->root);
	X509_free(f->intermediate);
	free(f->pem);
	free(f->key_pem);
}

/* Verifies as a strict client does: Python >= 3.13, for instance. X509_V_OK or the error. */
static int verify(const struct fixture *f, const X509 *leaf, const char *host)
{
	X509_STORE *store = X509_STORE_new();
	X509_STORE_CTX *ctx = X509_STORE_CTX_new();
	STACK_OF(X509) *chain = sk_X509_new_null();
	X509_STORE_add_cert(store, f->root);
	sk_X509_push(chain, f->intermediate);
	X509_STORE_CTX_init(ctx, store, (X509 *)(uintptr_t)leaf, chain);
	X509_VERIFY_PARAM *param = X509_STORE_CTX_get0_param(ctx);
	X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_X509_STRICT);
	X509_VERIFY_PARAM_set_purpose(param, X509_PURPOSE_SSL_SERVER);
	if (!X509_VERIFY_PARAM_set1_ip_asc(param, host))
		X509_VERIFY_PARAM_set1_host(param, host, 0);
	X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
	X509_verify_cert(ctx);
	int error = X509_STORE_CTX_get_error(ctx);
	X509_STORE_CTX_free(ctx);
	X509_STORE_free(store);
	sk_X509_free(chain);
	return error;
}

static struct ca *authority_of(const char *pem, const char *key_pem)
{
	struct err e = {0};
	struct ca *ca = ca_new(&e);
	if (!ca || ca_load(ca, pem, key_pem, &e) < 0)
		fail_msg("%s", e.text);
	return ca;
}

static void assert_refused(const char *pem, const char *key_pem)
{
	struct err e = {0};
	struct ca *ca = ca_new(&e);
	assert_non_null(ca);
	assert_true(ca_load(ca, pem, key_pem, &e) < 0);
	assert_true(e.text[0]);
	ca_free(ca);
}

static struct ca_leaf *leaf_of(struct ca *ca, const char *host)
{
	struct err e = {0};
	struct ca_leaf *leaf = ca_leaf_get(ca, host, &e);
	if (!leaf)
		fail_msg("%s", e.text);
	return leaf;
}

static void leaf_verifies_strictly_for_its_host_alone(void **state)
{
	(void)state;
	static const char *const algorithms[] = {"EC", "ED25519"};
	char longest[254];
	for (size_t i = 0; i < 253; i++)
		longest[i] = i % 50 == 49 ? '.' : 'a';
	longest[253] = '\0';
	for (size_t i = 0; i < sizeof(algorithms) / sizeof(algorithms[0]); i++) {
		struct fixture f;
		fixture_init(&f, algorithms[i], 30 * 24 * HOUR);
		struct ca *ca = authority_of(f.pem, f.key_pem);
		assert_non_null(ca);
		const char *const hosts[] = {"api.example.com", "a_b.example.com", "x", longest};
		for (size_t k = 0; k < sizeof(hosts) / sizeof(hosts[0]); k++) {
			struct ca_leaf *leaf = leaf_of(ca, hosts[k]);
			const X509 *x = ca_leaf_certificate(leaf);
			assert_int_equal(verify(&f, x, hosts[k]), X509_V_OK);
			assert_int_equal(verify(&f, x, "other.example.com"),
					 X509_V_ERR_HOSTNAME_MISMATCH);
			ca_leaf_put(leaf);
		}
		ca_free(ca);
		fixture_done(&f);
	}
}

static void leaf_of_an_address_is_for_that_address_alone(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f, "EC", 30 * 24 * HOUR);
	struct ca *ca = authority_of(f.pem, f.key_pem);
	const char *const hosts[] = {"10.1.2.3", "2001:db8::1"};
	for (size_t k = 0; k < sizeof(hosts) / sizeof(hosts[0]); k++) {
		struct ca_leaf *leaf = leaf_of(ca, hosts[k]);
		const X509 *x = ca_leaf_certificate(leaf);
		assert_int_equal(verify(&f, x, hosts[k]), X509_V_OK);
		assert_int_equal(verify(&f, x, "10.1.2.4"), X509_V_ERR_IP_ADDRESS_MISMATCH);
		assert_int_equal(verify(&f, x, "x.example.com"), X509_V_ERR_HOSTNAME_MISMATCH);
		ca_leaf_put(leaf);
	}
	ca_free(ca);
	fixture_done(&f);
}

static void leaf_lives_for_days_and_never_longer_than_its_authority(void **state)
{
	(void)state;
	static const long lives[] = {30 * 24 * HOUR, HOUR};
	for (size_t i = 0; i < 2; i++) {
		struct fixture f;
		fixture_init(&f, "EC", lives[i]);
		struct ca *ca = authority_of(f.pem, f.key_pem);
		struct ca_leaf *leaf = leaf_of(ca, "a.example.com");
		const X509 *x = ca_leaf_certificate(leaf);
		int days, seconds;
		ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(x));
		long left = days * 24 * HOUR + seconds;
		assert_true(left <= CA_LEAF_SECONDS && left <= lives[i] && left > 0);
		assert_true(ASN1_TIME_compare(X509_get0_notAfter(x),
					      X509_get0_notAfter(f.intermediate)) <= 0);
		ASN1_TIME_diff(&days, &seconds, X509_get0_notBefore(x), NULL);
		assert_int_equal(days, 1);
		ca_leaf_put(leaf);
		ca_free(ca);
		fixture_done(&f);
	}
}

static void serials_differ(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f, "EC", 24 * HOUR);
	struct ca *ca = authority_of(f.pem, f.key_pem);
	struct ca_leaf *a = leaf_of(ca, "a.example.com"), *b = leaf_of(ca, "b.example.com");
	const ASN1_INTEGER *x = X509_get0_serialNumber(ca_leaf_certificate(a));
	const ASN1_INTEGER *y = X509_get0_serialNumber(ca_leaf_certificate(b));
	assert_int_not_equal(ASN1_INTEGER_cmp(x, y), 0);
	ca_leaf_put(a);
	ca_leaf_put(b);
	ca_free(ca);
	fixture_done(&f);
}

static void leaf_is_kept_until_others_push_it_out(void **state)
{
	(void)state;
	struct fixture f;
	char host[64];
	fixture_init(&f, "EC", 24 * HOUR);
	struct ca *ca = authority_of(f.pem, f.key_pem);
	struct ca_leaf *used = leaf_of(ca, "used.example.com"),
		       *old = leaf_of(ca, "old.example.com");
	for (int i = 0; i < CA_LEAVES_MAX - 1; i++) {
		snprintf(host, sizeof(host), "h%d.example.com", i);
		ca_leaf_put(leaf_of(ca, host));
		struct ca_leaf *again = leaf_of(ca, "used.example.com");
		assert_ptr_equal(again, used);
		ca_leaf_put(again);
	}
	/* Pushed out, and still whole for the one who holds it. */
	assert_int_equal(verify(&f, ca_leaf_certificate(old), "old.example.com"), X509_V_OK);
	struct ca_leaf *anew = leaf_of(ca, "old.example.com");
	assert_ptr_not_equal(anew, old);
	ca_leaf_put(anew);
	ca_leaf_put(old);
	ca_leaf_put(used);
	ca_free(ca);
	fixture_done(&f);
}

static void what_is_no_authority_is_refused(void **state)
{
	(void)state;
	struct fixture f;
	struct err e = {0};
	fixture_init(&f, "EC", 24 * HOUR);
	EVP_PKEY *other = EVP_EC_gen("P-256");
	X509 *plain = authority("plain", f.key, f.root, f.root_key, HOUR, false);
	auto_free char *plain_pem = pem_of_certificate(plain);
	auto_free char *other_pem = pem_of_key(other);
	assert_refused("", f.key_pem);
	assert_refused("no PEM", f.key_pem);
	assert_refused(f.pem, "");
	assert_refused(f.pem, other_pem);
	assert_refused(plain_pem, f.key_pem);
	assert_null(strstr(e.text, "PRIVATE"));
	X509_free(plain);
	EVP_PKEY_free(other);
	fixture_done(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(leaf_verifies_strictly_for_its_host_alone),
		cmocka_unit_test(leaf_of_an_address_is_for_that_address_alone),
		cmocka_unit_test(leaf_lives_for_days_and_never_longer_than_its_authority),
		cmocka_unit_test(serials_differ),
		cmocka_unit_test(leaf_is_kept_until_others_push_it_out),
		cmocka_unit_test(what_is_no_authority_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
