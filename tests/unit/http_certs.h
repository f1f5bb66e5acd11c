/* SPDX-License-Identifier: Apache-2.0 */
/* Authorities and certificates made on the fly. */
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "http_loop.h"

struct identity {
	EVP_PKEY *key;
	X509 *cert;
};

static inline void identity_extend(X509 *cert, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
	X509_EXTENSION *ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	assert_non_null(ext);
	X509_add_ext(cert, ext, -1);
	X509_EXTENSION_free(ext);
}

/* san: "DNS:a,IP:127.0.0.1", NULL for an authority. issuer NULL: signed by itself. Valid from a day
 * ago for days. */
static inline void identity_make(struct identity *id, const char *san,
				 const struct identity *issuer, int days)
{
	static long serial = 1000;
	id->key = EVP_EC_gen("P-256");
	id->cert = X509_new();
	X509_set_version(id->cert, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(id->cert), serial++);
	X509_gmtime_adj(X509_getm_notBefore(id->cert), -86400L * 2);
	X509_time_adj_ex(X509_getm_notAfter(id->cert), days, 0, NULL);
	X509_set_pubkey(id->cert, id->key);
	X509_NAME *name = X509_get_subject_name(id->cert);
	const char *cn = san ? "leaf" : "test authority";
	X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)cn, -1, -1, 0);
	X509 *by = issuer ? issuer->cert : id->cert;
	X509_set_issuer_name(id->cert, X509_get_subject_name(by));
	identity_extend(id->cert, by, NID_basic_constraints,
			san ? "critical,CA:FALSE" : "critical,CA:TRUE");
	if (san)
		identity_extend(id->cert, by, NID_subject_alt_name, san);
	assert_true(X509_sign(id->cert, issuer ? issuer->key : id->key, EVP_sha256()) > 0);
}

static inline void identity_done(struct identity *id)
{
	EVP_PKEY_free(id->key);
	X509_free(id->cert);
}

static inline char *identity_text(BIO *out)
{
	char *p;
	long n = BIO_get_mem_data(out, &p);
	char *pem = strndup(p, (size_t)n);
	BIO_free(out);
	return pem;
}

/* The certificate as PEM, the caller's to free. */
static inline char *identity_pem(const struct identity *id)
{
	BIO *out = BIO_new(BIO_s_mem());
	PEM_write_bio_X509(out, id->cert);
	return identity_text(out);
}

/* Its key, encrypted with a password unless that is NULL. */
static inline char *identity_key_pem(const struct identity *id, char *password)
{
	BIO *out = BIO_new(BIO_s_mem());
	PEM_write_bio_PKCS8PrivateKey(out, id->key, password ? EVP_aes_128_cbc() : NULL, password,
				      password ? (int)strlen(password) : 0, NULL, NULL);
	return identity_text(out);
}
