/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One P-256 key serves all leaves of this process, so that a new name costs a signature and no key.
 * A leaf is bound to its host: a handshake that names another one is refused, and sessions cannot
 * be resumed across hosts, for each leaf has a TLS context of its own.
 */
#include "egress/ca.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/list.h"
#include "base/str.h"
#include "net/address.h"

#define RENEW_SECONDS 86400L /* a leaf with less than this left is made anew */
#define CN_MAX        64     /* bytes that a common name may have (RFC 5280 ub-common-name) */

struct ca {
	X509 *certificate;
	STACK_OF(X509) * chain; /* certificate, and what came behind it */
	EVP_PKEY *key;
	EVP_PKEY *leaf_key;
	struct list leaves; /* struct ca_leaf, least used first */
	size_t count;
};

struct ca_leaf {
	struct list link;
	unsigned refs;
	char *host;
	X509 *certificate;
	EVP_PKEY *key;
	STACK_OF(X509) * chain;
	struct tls_context *tls;
	char refused[CA_NAME_SIZE]; /* the name that a refused handshake asked for, until it is
				       taken */
};

/* Empties OpenSSL's error queue into e. */
static int openssl_error(struct err *e, const char *what)
{
	unsigned long code = ERR_peek_last_error();
	const char *reason = code ? ERR_reason_error_string(code) : NULL;
	ERR_clear_error();
	return err_set(e, EIO, "%s: %s", what, reason ? reason : "failed");
}

static int no_password(char *buf, int size, int writing, void *user)
{
	(void)buf, (void)size, (void)writing, (void)user;
	return -1;
}

static int ca_read_chain(struct ca *ca, const char *pem, struct err *e)
{
	BIO *bio = BIO_new_mem_buf(pem, -1);
	ca->chain = sk_X509_new_null();
	if (!bio || !ca->chain) {
		BIO_free(bio);
		return err_set(e, ENOMEM, "no memory");
	}
	for (X509 *x; (x = PEM_read_bio_X509(bio, NULL, no_password, NULL));) {
		if (!sk_X509_push(ca->chain, x)) {
			X509_free(x);
			break;
		}
	}
	BIO_free(bio);
	ERR_clear_error(); /* "no start line" is how the end shows */
	if (!sk_X509_num(ca->chain))
		return err_set(e, EINVAL, "no certificate in PEM form");
	ca->certificate = sk_X509_value(ca->chain, 0);
	return 0;
}

static int ca_read_key(struct ca *ca, const char *pem, struct err *e)
{
	BIO *bio = BIO_new_mem_buf(pem, -1);
	if (!bio)
		return err_set(e, ENOMEM, "no memory");
	ca->key = PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL);
	BIO_free(bio);
	if (!ca->key)
		return openssl_error(e, "private key");
	if (X509_check_ca(ca->certificate) != 1)
		return err_set(e, EINVAL, "the certificate is no authority's");
	if (X509_check_private_key(ca->certificate, ca->key) != 1)
		return openssl_error(e, "private key");
	return 0;
}

struct ca *ca_new(struct err *e)
{
	struct ca *ca = calloc(1, sizeof(*ca));
	if (!ca) {
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	list_init(&ca->leaves);
	ca->leaf_key = EVP_EC_gen("P-256");
	if (ca->leaf_key)
		return ca;
	openssl_error(e, "making a key");
	ca_free(ca);
	return NULL;
}

int ca_load(struct ca *ca, const char *certificates_pem, const char *key_pem, struct err *e)
{
	int r = ca_read_chain(ca, certificates_pem, e);
	return r < 0 ? r : ca_read_key(ca, key_pem, e);
}

void ca_free(struct ca *ca)
{
	if (!ca)
		return;
	list_for_each (it, &ca->leaves) {
		struct ca_leaf *leaf = list_entry(it, struct ca_leaf, link);
		list_remove(&leaf->link);
		ca_leaf_put(leaf);
	}
	sk_X509_pop_free(ca->chain, X509_free);
	EVP_PKEY_free(ca->key);
	EVP_PKEY_free(ca->leaf_key);
	free(ca);
}

static int set_serial(X509 *x)
{
	unsigned char bytes[16];
	BIGNUM *n = NULL;
	int ok = RAND_bytes(bytes, sizeof(bytes)) == 1;
	bytes[0] = (unsigned char)((bytes[0] & 0x7f) | 0x40); /* positive, and always as long */
	if (ok)
		n = BN_bin2bn(bytes, sizeof(bytes), NULL);
	ok = n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x));
	BN_free(n);
	return ok;
}

static int set_validity(X509 *x, const X509 *authority)
{
	time_t now = time(NULL);
	time_t until = now + CA_LEAF_SECONDS;
	if (!ASN1_TIME_set(X509_getm_notBefore(x), now - CA_BACKDATE_SECONDS))
		return 0;
	if (X509_cmp_time(X509_get0_notAfter(authority), &until) < 0)
		return X509_set1_notAfter(x, X509_get0_notAfter(authority));
	return ASN1_TIME_set(X509_getm_notAfter(x), until) != NULL;
}

static int set_subject(X509 *x, const char *host)
{
	const char *name = strlen(host) <= CN_MAX ? host : "space";
	X509_NAME *subject = X509_get_subject_name(x);
	return X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name,
					  -1, -1, 0);
}

/* The name as a SAN has it: a literal address by its bytes. NULL: no memory. */
static GENERAL_NAME *san_name(const char *host)
{
	struct address a;
	bool literal = address_parse(host, &a) == 0;
	GENERAL_NAME *name = GENERAL_NAME_new();
	ASN1_STRING *value = literal ? ASN1_OCTET_STRING_new() : ASN1_IA5STRING_new();
	const void *bytes = literal ? (const void *)a.bytes : host;
	int n = !literal ? (int)strlen(host) : a.family == AF_INET ? 4 : 16;
	if (!name || !value || !ASN1_STRING_set(value, bytes, n)) {
		GENERAL_NAME_free(name);
		ASN1_STRING_free(value);
		return NULL;
	}
	GENERAL_NAME_set0_value(name, literal ? GEN_IPADD : GEN_DNS, value);
	return name;
}

static int add_san(X509 *x, const char *host)
{
	GENERAL_NAMES *names = sk_GENERAL_NAME_new_null();
	GENERAL_NAME *name = san_name(host);
	int ok = 0;
	if (names && name && sk_GENERAL_NAME_push(names, name)) {
		name = NULL;
		ok = X509_add1_ext_i2d(x, NID_subject_alt_name, names, 0, 0) == 1;
	}
	GENERAL_NAME_free(name);
	GENERAL_NAMES_free(names);
	return ok;
}

static int add_extensions(X509 *x, X509 *authority, const char *host)
{
	static const struct {
		int nid;
		const char *value;
	} list[] = {
		{NID_basic_constraints, "critical,CA:FALSE"},
		{NID_key_usage, "critical,digitalSignature"},
		{NID_ext_key_usage, "serverAuth"},
		{NID_subject_key_identifier, "hash"},
		{NID_authority_key_identifier, "keyid:always"},
	};
	X509V3_CTX ctx;
	X509V3_set_ctx(&ctx, authority, x, NULL, NULL, 0);
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		X509_EXTENSION *ext = X509V3_EXT_conf_nid(NULL, &ctx, list[i].nid, list[i].value);
		int ok = ext && X509_add_ext(x, ext, -1);
		X509_EXTENSION_free(ext);
		if (!ok)
			return 0;
	}
	return add_san(x, host);
}

static int sign(X509 *x, EVP_PKEY *key)
{
	int id = EVP_PKEY_get_base_id(key);
	bool own_digest = id == EVP_PKEY_ED25519 || id == EVP_PKEY_ED448;
	return X509_sign(x, key, own_digest ? NULL : EVP_sha256()) > 0;
}

static X509 *ca_issue(struct ca *ca, const char *host, struct err *e)
{
	X509 *x = X509_new();
	if (x && X509_set_version(x, X509_VERSION_3) && set_serial(x) &&
	    X509_set_issuer_name(x, X509_get_subject_name(ca->certificate)) &&
	    set_validity(x, ca->certificate) && set_subject(x, host) &&
	    X509_set_pubkey(x, ca->leaf_key) && add_extensions(x, ca->certificate, host) &&
	    sign(x, ca->key))
		return x;
	X509_free(x);
	openssl_error(e, "making a certificate");
	return NULL;
}

/* Called during each handshake. Source: RFC 6066, section 3, for the refusal. */
static int leaf_pick(void *user, SSL *ssl, const char *sni)
{
	struct ca_leaf *leaf = user;
	if (sni && !str_eq(sni, leaf->host)) {
		snprintf(leaf->refused, sizeof(leaf->refused), "%s", sni);
		return -EACCES;
	}
	if (SSL_use_certificate(ssl, leaf->certificate) != 1 ||
	    SSL_use_PrivateKey(ssl, leaf->key) != 1 || SSL_set1_chain(ssl, leaf->chain) != 1)
		return -EIO;
	return 0;
}

static void leaf_free(struct ca_leaf *leaf)
{
	tls_context_free(leaf->tls);
	X509_free(leaf->certificate);
	EVP_PKEY_free(leaf->key);
	sk_X509_pop_free(leaf->chain, X509_free);
	free(leaf->host);
	free(leaf);
}

static struct ca_leaf *leaf_new(struct ca *ca, const char *host, struct err *e)
{
	struct ca_leaf *leaf = calloc(1, sizeof(*leaf));
	if (!leaf) {
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	list_init(&leaf->link);
	leaf->refs = 1;
	leaf->host = strdup(host);
	leaf->chain = X509_chain_up_ref(ca->chain);
	if (EVP_PKEY_up_ref(ca->leaf_key))
		leaf->key = ca->leaf_key;
	if (!leaf->host || !leaf->chain || !leaf->key)
		err_set(e, ENOMEM, "no memory");
	else if ((leaf->certificate = ca_issue(ca, host, e)))
		leaf->tls = tls_server_new(leaf_pick, leaf, e);
	if (!leaf->tls) {
		leaf_free(leaf);
		return NULL;
	}
	return leaf;
}

/* Whether a new one would live longer, and soon has to. */
static bool leaf_expires(const struct ca *ca, const struct ca_leaf *leaf)
{
	const ASN1_TIME *end = X509_get0_notAfter(leaf->certificate);
	time_t soon = time(NULL) + RENEW_SECONDS;
	return X509_cmp_time(end, &soon) < 0 &&
	       ASN1_TIME_compare(end, X509_get0_notAfter(ca->certificate)) < 0;
}

static void ca_drop(struct ca *ca, struct ca_leaf *leaf)
{
	list_remove(&leaf->link);
	ca->count--;
	ca_leaf_put(leaf);
}

struct ca_leaf *ca_leaf_get(struct ca *ca, const char *host, struct err *e)
{
	struct ca_leaf *leaf = NULL;
	for (struct list *it = ca->leaves.prev; it != &ca->leaves && !leaf; it = it->prev) {
		struct ca_leaf *candidate = list_entry(it, struct ca_leaf, link);
		if (str_eq(candidate->host, host))
			leaf = candidate;
	}
	if (leaf && leaf_expires(ca, leaf)) {
		ca_drop(ca, leaf);
		leaf = NULL;
	}
	if (leaf) {
		list_remove(&leaf->link);
	} else {
		leaf = leaf_new(ca, host, e);
		if (!leaf)
			return NULL;
		if (ca->count == CA_LEAVES_MAX)
			ca_drop(ca, list_entry(ca->leaves.next, struct ca_leaf, link));
		ca->count++;
	}
	list_append(&ca->leaves, &leaf->link);
	leaf->refs++;
	return leaf;
}

void ca_leaf_put(struct ca_leaf *leaf)
{
	if (leaf && !--leaf->refs)
		leaf_free(leaf);
}

struct tls_context *ca_leaf_tls(struct ca_leaf *leaf)
{
	return leaf->tls;
}

bool ca_leaf_refused(struct ca_leaf *leaf, char ret_sni[CA_NAME_SIZE])
{
	snprintf(ret_sni, CA_NAME_SIZE, "%s", leaf->refused);
	leaf->refused[0] = '\0';
	return ret_sni[0];
}

const X509 *ca_leaf_certificate(const struct ca_leaf *leaf)
{
	return leaf->certificate;
}
