/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jwt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/bio.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include "base/cleanup.h"
#include "base/doc.h"
#include "base/str.h"

#define RSA_BITS_MIN  2048
#define ES256_HALF    32   /* bytes of r and of s. RFC 7518, section 3.4 */
#define SIGNATURE_MAX 2048 /* bytes */

/* A key with a password is none for us: nobody is asked. */
static int no_password(char *text, int size, int writing, void *user)
{
	(void)text, (void)size, (void)writing, (void)user;
	return -1;
}

static bool on_p256(const EVP_PKEY *key)
{
	char group[64];
	return EVP_PKEY_get_utf8_string_param(key, OSSL_PKEY_PARAM_GROUP_NAME, group, sizeof(group),
					      NULL) &&
	       (str_eq(group, "prime256v1") || str_eq(group, "P-256"));
}

/* "RS256", "ES256", or NULL. */
static const char *algorithm(const EVP_PKEY *key)
{
	if (EVP_PKEY_is_a(key, "RSA") && EVP_PKEY_get_bits(key) >= RSA_BITS_MIN)
		return "RS256";
	return EVP_PKEY_is_a(key, "EC") && on_p256(key) ? "ES256" : NULL;
}

static int key_read(const char *pem, EVP_PKEY **ret, struct err *e)
{
	size_t n = strlen(pem);
	BIO *b = n <= INT32_MAX ? BIO_new_mem_buf(pem, (int)n) : NULL;
	EVP_PKEY *key = b ? PEM_read_bio_PrivateKey(b, NULL, no_password, NULL) : NULL;
	BIO_free(b);
	if (!key)
		return err_set(e, EINVAL, "is no private key in PEM form, without a password");
	if (!algorithm(key)) {
		EVP_PKEY_free(key);
		return err_set(e, EINVAL,
			       "must be an RSA key of %d bits or more, or an EC key on P-256",
			       RSA_BITS_MIN);
	}
	*ret = key;
	return 0;
}

int jwt_check_key(const char *pem, struct err *e)
{
	EVP_PKEY *key = NULL;
	int r = key_read(pem, &key, e);
	EVP_PKEY_free(key);
	return r;
}

/* base64url without padding: a heap string. */
static char *encode(const void *p, size_t n)
{
	char *text = malloc(base64_encoded_len(n) + 1);
	if (!text)
		return NULL;
	base64_encode(p, n, text);
	for (char *c = text; *c; c++) {
		if (*c == '+')
			*c = '-';
		else if (*c == '/')
			*c = '_';
		else if (*c == '=')
			*c = '\0';
	}
	return text;
}

static char *encode_json(const json_t *j)
{
	auto_free char *text = doc_to_text(j);
	return text ? encode(text, strlen(text)) : NULL;
}

/* The fixed form of an ECDSA signature that OpenSSL gave in DER. */
static bool es256_plain(const uint8_t *der, size_t n, uint8_t out[2 * ES256_HALF])
{
	ECDSA_SIG *sig = d2i_ECDSA_SIG(NULL, &der, (long)n);
	bool ok = sig && BN_bn2binpad(ECDSA_SIG_get0_r(sig), out, ES256_HALF) == ES256_HALF &&
		  BN_bn2binpad(ECDSA_SIG_get0_s(sig), out + ES256_HALF, ES256_HALF) == ES256_HALF;
	ECDSA_SIG_free(sig);
	return ok;
}

static char *signature_of(EVP_PKEY *key, const char *text)
{
	uint8_t raw[SIGNATURE_MAX], plain[2 * ES256_HALF];
	size_t n = sizeof(raw);
	EVP_MD_CTX *c = EVP_MD_CTX_new();
	bool ok = c && EVP_DigestSignInit(c, NULL, EVP_sha256(), NULL, key) == 1 &&
		  EVP_DigestSign(c, raw, &n, (const uint8_t *)text, strlen(text)) == 1;
	EVP_MD_CTX_free(c);
	if (!ok)
		return NULL;
	if (!EVP_PKEY_is_a(key, "EC"))
		return encode(raw, n);
	return es256_plain(raw, n, plain) ? encode(plain, sizeof(plain)) : NULL;
}

int jwt_sign(const char *pem, const char *key_id, const json_t *claims, char **ret, struct err *e)
{
	EVP_PKEY *key = NULL;
	int r = key_read(pem, &key, e);
	if (r < 0)
		return err_prefix(e, "key");
	auto_json json_t *head =
		json_pack("{s:s, s:s, s:s*}", "alg", algorithm(key), "typ", "JWT", "kid", key_id);
	auto_free char *first = head ? encode_json(head) : NULL;
	auto_free char *second = encode_json(claims);
	auto_free char *both = first && second ? str_printf("%s.%s", first, second) : NULL;
	auto_free char *signature = both ? signature_of(key, both) : NULL;
	EVP_PKEY_free(key);
	if (both && !signature)
		return err_set(e, EIO, "OpenSSL could not sign with the key");
	*ret = signature ? str_printf("%s.%s", both, signature) : NULL;
	return *ret ? 0 : err_set(e, ENOMEM, "no memory");
}
