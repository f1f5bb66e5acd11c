/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates as RFC 5280 wants them: critical basicConstraints and keyUsage, key identifiers,
 * random serials. */
#include "daemon/ca.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#define DAY_S             (24L * 3600)
#define ROOT_DAYS         3650
#define INTERMEDIATE_DAYS 30
#define PEM_FILE_MAX      (64 * 1024)

struct ca {
	X509 *cert;
	EVP_PKEY *key;
	char *pem;
};

static int fail(struct err *e, const char *what)
{
	return err_set(e, EIO, "OpenSSL could not %s", what);
}

static char *bio_text(BIO *b)
{
	char *p;
	long n = BIO_get_mem_data(b, &p);
	return n < 0 ? NULL : strndup(p, (size_t)n);
}

static char *cert_to_pem(X509 *cert)
{
	BIO *b = BIO_new(BIO_s_mem());
	char *text = b && PEM_write_bio_X509(b, cert) ? bio_text(b) : NULL;
	BIO_free(b);
	return text;
}

static char *key_to_pem(EVP_PKEY *key)
{
	BIO *b = BIO_new(BIO_s_secmem());
	char *text = b && PEM_write_bio_PKCS8PrivateKey(b, key, NULL, NULL, 0, NULL, NULL)
			     ? bio_text(b)
			     : NULL;
	BIO_free(b);
	return text;
}

static bool set_serial(X509 *cert)
{
	uint8_t bytes[16];
	random_bytes(bytes, sizeof(bytes));
	bytes[0] = (uint8_t)((bytes[0] & 0x7f) | 0x40); /* positive, and always 16 bytes */
	BIGNUM *n = BN_bin2bn(bytes, sizeof(bytes), NULL);
	bool ok = n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(cert));
	BN_free(n);
	return ok;
}

static bool add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
	X509_EXTENSION *x = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	bool ok = x && X509_add_ext(cert, x, -1);
	X509_EXTENSION_free(x);
	return ok;
}

static bool set_name(X509 *cert, const char *common_name)
{
	X509_NAME *name = X509_get_subject_name(cert);
	return X509_NAME_add_entry_by_txt(name, "O", MBSTRING_UTF8, (const uint8_t *)"SPACE", -1,
					  -1, 0) &&
	       X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const uint8_t *)common_name,
					  -1, -1, 0);
}

/* A CA certificate for key; issuer and issuer_key NULL: signed by itself. */
static X509 *make_cert(EVP_PKEY *key, const char *common_name, X509 *issuer, EVP_PKEY *issuer_key,
		       long days)
{
	X509 *cert = X509_new();
	if (!cert)
		return NULL;
	X509 *signer = issuer ? issuer : cert;
	bool ok = X509_set_version(cert, X509_VERSION_3) && set_serial(cert) &&
		  set_name(cert, common_name) &&
		  X509_set_issuer_name(cert, X509_get_subject_name(signer)) &&
		  X509_gmtime_adj(X509_getm_notBefore(cert), -DAY_S) &&
		  X509_gmtime_adj(X509_getm_notAfter(cert), days * DAY_S) &&
		  X509_set_pubkey(cert, key) &&
		  add_extension(cert, signer, NID_basic_constraints,
				issuer ? "critical,CA:TRUE,pathlen:0" : "critical,CA:TRUE") &&
		  add_extension(cert, signer, NID_key_usage, "critical,keyCertSign,cRLSign") &&
		  add_extension(cert, signer, NID_subject_key_identifier, "hash") &&
		  (!issuer ||
		   add_extension(cert, signer, NID_authority_key_identifier, "keyid:always")) &&
		  X509_sign(cert, issuer ? issuer_key : key, EVP_sha256());
	if (ok)
		return cert;
	X509_free(cert);
	return NULL;
}

static int ca_save(const struct ca *ca, const char *crt, const char *key, struct err *e)
{
	char *text = key_to_pem(ca->key);
	if (!text)
		return fail(e, "write a key");
	/* The key first: a certificate without a key would never be replaced. */
	int r = file_write_atomic(key, text, strlen(text), 0600);
	OPENSSL_cleanse(text, strlen(text));
	free(text);
	if (r == 0)
		r = file_write_atomic(crt, ca->pem, strlen(ca->pem), 0644);
	return r < 0 ? err_sys(e, -r, "can't write the node's CA to %s", crt) : 0;
}

static int ca_make(struct ca *ca, const char *crt, const char *key, struct err *e)
{
	uint8_t tag[4];
	char hex[2 * sizeof(tag) + 1];
	random_bytes(tag, sizeof(tag));
	hex_encode(tag, sizeof(tag), hex);
	auto_free char *name = str_printf("SPACE node %s", hex);
	ca->key = EVP_EC_gen("P-256");
	ca->cert = ca->key && name ? make_cert(ca->key, name, NULL, NULL, ROOT_DAYS) : NULL;
	ca->pem = ca->cert ? cert_to_pem(ca->cert) : NULL;
	if (!ca->pem)
		return fail(e, "make the node's CA");
	return ca_save(ca, crt, key, e);
}

static int ca_load(struct ca *ca, const char *crt, const char *key, struct err *e)
{
	auto_free char *key_text = NULL;
	size_t crt_len, key_len;
	int r = file_read(crt, PEM_FILE_MAX, &ca->pem, &crt_len);
	if (r < 0)
		return err_sys(e, -r, "can't read %s", crt);
	r = file_read(key, PEM_FILE_MAX, &key_text, &key_len);
	if (r < 0)
		return err_sys(e, -r, "can't read %s", key);
	BIO *b = BIO_new_mem_buf(ca->pem, (int)crt_len);
	ca->cert = b ? PEM_read_bio_X509(b, NULL, NULL, NULL) : NULL;
	BIO_free(b);
	b = BIO_new_mem_buf(key_text, (int)key_len);
	ca->key = b ? PEM_read_bio_PrivateKey(b, NULL, NULL, NULL) : NULL;
	BIO_free(b);
	OPENSSL_cleanse(key_text, key_len);
	if (!ca->cert || !ca->key || X509_check_private_key(ca->cert, ca->key) != 1)
		return err_set(
			e, EBADMSG,
			"%s and its key don't belong together; remove both and build the images anew",
			crt);
	return 0;
}

struct ca *ca_open(const char *dir, struct err *e)
{
	auto_free char *crt = str_printf("%s/ca.crt", dir);
	auto_free char *key = str_printf("%s/ca.key", dir);
	struct ca *ca = calloc(1, sizeof(*ca));
	if (!crt || !key || !ca) {
		free(ca);
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	int r = access(crt, F_OK) == 0 ? ca_load(ca, crt, key, e) : ca_make(ca, crt, key, e);
	if (r == 0)
		return ca;
	ca_free(ca);
	return NULL;
}

void ca_free(struct ca *ca)
{
	if (!ca)
		return;
	X509_free(ca->cert);
	EVP_PKEY_free(ca->key);
	free(ca->pem);
	free(ca);
}

const char *ca_certificate(const struct ca *ca)
{
	return ca->pem;
}

int ca_issue(const struct ca *ca, const char *sandbox, char **ret_certificate, char **ret_key,
	     struct err *e)
{
	auto_free char *name = str_printf("SPACE sandbox %s", sandbox);
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *cert =
		key && name ? make_cert(key, name, ca->cert, ca->key, INTERMEDIATE_DAYS) : NULL;
	char *cert_pem = cert ? cert_to_pem(cert) : NULL;
	char *key_pem = cert ? key_to_pem(key) : NULL;
	X509_free(cert);
	EVP_PKEY_free(key);
	if (!cert_pem || !key_pem) {
		free(cert_pem);
		free(key_pem);
		return fail(e, "issue a sandbox's certificate");
	}
	*ret_certificate = cert_pem;
	*ret_key = key_pem;
	return 0;
}
