/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS contexts: what we offer and accept, whom we trust, and the words for what went wrong. A
 * server resumes no session: each connection of a guest is judged by its own handshake.
 */
#include "http/tls_context.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "base/cleanup.h"
#include "http/tls_session.h"

#define SECURITY_LEVEL 2 /* 112 bits: RSA from 2048 bits, no SHA-1 signatures */

static const unsigned char alpn_http11[] = "\x08http/1.1";
#define ALPN_LEN (sizeof(alpn_http11) - 1)

static const unsigned char alpn_server[] = "\x02h2\x08http/1.1"; /* in order of preference */

/* -- words -- */

static const char *verify_text(long result)
{
	switch (result) {
	case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
	case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
	case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
		return "issued by an unknown authority";
	case X509_V_ERR_HOSTNAME_MISMATCH:
	case X509_V_ERR_IP_ADDRESS_MISMATCH:
		return "it is for another name";
	case X509_V_ERR_CERT_HAS_EXPIRED:
		return "it has expired";
	case X509_V_ERR_CERT_NOT_YET_VALID:
		return "it is not valid yet";
	default:
		return X509_verify_cert_error_string(result);
	}
}

static int tls_error_text(SSL *ssl, unsigned long code, const char *peer, struct err *e)
{
	int reason = ERR_GET_REASON(code);
	if (ERR_GET_LIB(code) != ERR_LIB_SSL || !reason) {
		const char *text = ERR_reason_error_string(code);
		return err_set(e, EPROTO, "TLS with %s failed: %s", peer,
			       text ? text : "no memory");
	}
	if (reason > SSL_AD_REASON_OFFSET) {
		int alert = reason - SSL_AD_REASON_OFFSET;
		return err_set(e, EPROTO, "%s refused TLS: %s", peer,
			       SSL_alert_desc_string_long(alert));
	}
	switch (reason) {
	case SSL_R_CERTIFICATE_VERIFY_FAILED:
		return err_set(e, EKEYREJECTED, "certificate of %s is not trusted: %s", peer,
			       verify_text(SSL_get_verify_result(ssl)));
	case SSL_R_HTTP_REQUEST:
	case SSL_R_WRONG_VERSION_NUMBER:
		return err_set(e, EPROTO, "%s does not speak TLS here", peer);
	case SSL_R_CLIENTHELLO_TLSEXT:
	case SSL_R_CALLBACK_FAILED:
		return err_set(e, EPROTO, "no certificate for the name that %s asked for", peer);
	default:
		return err_set(e, EPROTO, "TLS with %s failed: %s", peer,
			       ERR_reason_error_string(code));
	}
}

int tls_error(SSL *ssl, const char *peer, struct err *e)
{
	int r = tls_error_text(ssl, ERR_peek_error(), peer ? peer : "the client", e);
	ERR_clear_error();
	return r;
}

/* -- names -- */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_label(const char *s, size_t n)
{
	if (!n || n > 63 || s[0] == '-' || s[n - 1] == '-')
		return false;
	for (size_t i = 0; i < n; i++)
		if (!(s[i] >= 'a' && s[i] <= 'z') && !is_digit(s[i]) && s[i] != '-' && s[i] != '_')
			return false;
	return true;
}

int tls_name_copy(const void *name, size_t n, char *out)
{
	const char *s = name;
	if (n && s[n - 1] == '.')
		n--;
	if (!n || n > TLS_NAME_MAX)
		return -EINVAL;
	char lower[TLS_NAME_MAX + 1] = {0};
	for (size_t i = 0; i < n; i++)
		lower[i] = s[i] >= 'A' && s[i] <= 'Z' ? (char)(s[i] | 0x20) : s[i];

	size_t start = 0, last = 0;
	for (size_t i = 0; i <= n; i++) {
		if (i < n && lower[i] != '.')
			continue;
		if (!is_label(lower + start, i - start))
			return -EINVAL;
		last = start;
		start = i + 1;
	}
	size_t digits = strspn(lower + last, "0123456789");
	if (digits == n - last)
		return -EINVAL;
	memcpy(out, lower, n + 1);
	return 0;
}

/* -- server -- */

/* The one host name of the extension, into hello. Source: RFC 6066, section 3. */
static int read_sni(const unsigned char *p, size_t n, struct tls_hello *hello)
{
	if (n < 5 || (size_t)(p[0] << 8 | p[1]) != n - 2 || p[2] != TLSEXT_NAMETYPE_host_name ||
	    (size_t)(p[3] << 8 | p[4]) != n - 5)
		return -EINVAL;
	int r = tls_name_copy(p + 5, n - 5, hello->sni);
	hello->named = r == 0;
	return r;
}

static int on_client_hello(SSL *ssl, int *alert, void *arg)
{
	struct tls_context *ctx = arg;
	struct tls_hello *hello = SSL_get_app_data(ssl), now = {.seen = true};
	const unsigned char *p;
	size_t n;
	if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_server_name, &p, &n) == 1 &&
	    read_sni(p, n, &now) < 0) {
		*alert = SSL_AD_ILLEGAL_PARAMETER;
		return SSL_CLIENT_HELLO_ERROR;
	}
	if (hello->seen) { /* the second one, after a HelloRetryRequest */
		*alert = SSL_AD_ILLEGAL_PARAMETER;
		return strcmp(hello->sni, now.sni) == 0 ? SSL_CLIENT_HELLO_SUCCESS
							: SSL_CLIENT_HELLO_ERROR;
	}
	*hello = now;
	if (ctx->pick(ctx->pick_user, ssl, now.named ? hello->sni : NULL) < 0) {
		*alert = SSL_AD_UNRECOGNIZED_NAME;
		return SSL_CLIENT_HELLO_ERROR;
	}
	return SSL_CLIENT_HELLO_SUCCESS;
}

static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
		   const unsigned char *in, unsigned int in_len, void *arg)
{
	(void)ssl, (void)arg;
	unsigned char *chosen;
	if (SSL_select_next_proto(&chosen, out_len, alpn_server, sizeof(alpn_server) - 1, in,
				  in_len) != OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*out = chosen;
	return SSL_TLSEXT_ERR_OK;
}

/* -- both -- */

static struct tls_context *context_new(const SSL_METHOD *method, struct err *e)
{
	struct tls_context *ctx = calloc(1, sizeof(*ctx));
	if (ctx)
		ctx->ssl = SSL_CTX_new(method);
	if (!ctx || !ctx->ssl) {
		free(ctx);
		ERR_clear_error();
		err_set(e, ENOMEM, "no memory for TLS");
		return NULL;
	}
	ctx->refs = 1;
	SSL_CTX_set_min_proto_version(ctx->ssl, TLS1_2_VERSION);
	SSL_CTX_set_security_level(ctx->ssl, SECURITY_LEVEL);
	SSL_CTX_set_options(ctx->ssl, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
					      SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
	SSL_CTX_set_mode(ctx->ssl, SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_session_cache_mode(ctx->ssl, SSL_SESS_CACHE_OFF);
	return ctx;
}

struct tls_context *tls_server_new(int (*pick)(void *user, SSL *ssl, const char *sni), void *user,
				   struct err *e)
{
	struct tls_context *ctx = context_new(TLS_server_method(), e);
	if (!ctx)
		return NULL;
	ctx->server = true;
	ctx->pick = pick;
	ctx->pick_user = user;
	SSL_CTX_set_num_tickets(ctx->ssl, 0);
	SSL_CTX_set_client_hello_cb(ctx->ssl, on_client_hello, ctx);
	SSL_CTX_set_alpn_select_cb(ctx->ssl, on_alpn, NULL);
	return ctx;
}

static int trust(SSL_CTX *ssl, const char *pem, struct err *e)
{
	BIO *in = BIO_new_mem_buf(pem, -1);
	if (!in)
		return err_set(e, ENOMEM, "no memory for certificates");
	X509_STORE *store = SSL_CTX_get_cert_store(ssl);
	int count = 0, added = 1;
	for (X509 *cert; added && (cert = PEM_read_bio_X509(in, NULL, NULL, NULL)); count++) {
		added = X509_STORE_add_cert(store, cert);
		X509_free(cert);
	}
	BIO_free(in);
	bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
	ERR_clear_error();
	if (!count || !added || !ended)
		return err_set(e, EINVAL, "the certificates to trust are not valid PEM");
	return 0;
}

/* One that trusts nobody yet. */
static struct tls_context *client_new(struct err *e)
{
	struct tls_context *ctx = context_new(TLS_client_method(), e);
	if (!ctx)
		return NULL;
	ctx->sessions = tls_sessions_new(ctx->ssl);
	if (!ctx->sessions) {
		tls_context_free(ctx);
		err_set(e, ENOMEM, "no memory for TLS");
		return NULL;
	}
	SSL_CTX_set_verify(ctx->ssl, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_alpn_protos(ctx->ssl, alpn_http11, ALPN_LEN);
	X509_VERIFY_PARAM *param = SSL_CTX_get0_param(ctx->ssl);
	X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_PARTIAL_CHAIN);
	X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS |
						       X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
	return ctx;
}

struct tls_context *tls_client_new(const char *trust_pem, bool trust_pem_only, struct err *e)
{
	struct tls_context *ctx = client_new(e);
	if (!ctx)
		return NULL;
	if (!trust_pem_only && !SSL_CTX_set_default_verify_paths(ctx->ssl))
		err_set(e, EIO, "the system's trusted certificates can't be read");
	else if (!trust_pem || trust(ctx->ssl, trust_pem, e) == 0)
		return ctx;
	ERR_clear_error();
	tls_context_free(ctx);
	return NULL;
}

/* For an encrypted key: there is nobody to ask. */
static int no_password(char *out, int size, int writing, void *user)
{
	(void)out, (void)size, (void)writing, (void)user;
	return -1;
}

static int use_chain(SSL_CTX *ssl, BIO *in, struct err *e)
{
	int count = 0;
	bool used = true;
	for (X509 *cert; used && (cert = PEM_read_bio_X509(in, NULL, no_password, NULL)); count++) {
		used = (count ? SSL_CTX_add1_chain_cert(ssl, cert)
			      : SSL_CTX_use_certificate(ssl, cert)) == 1;
		X509_free(cert);
	}
	bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
	if (!count || !ended)
		return err_set(e, EINVAL, "the client certificate is not valid PEM");
	return used ? 0 : err_set(e, EINVAL, "the client certificate is too weak, or none");
}

static int use_key(SSL_CTX *ssl, BIO *in, struct err *e)
{
	EVP_PKEY *key = PEM_read_bio_PrivateKey(in, NULL, no_password, NULL);
	if (!key)
		return err_set(e, EINVAL,
			       "the client certificate's key is not valid PEM, or encrypted");
	bool fits = SSL_CTX_use_PrivateKey(ssl, key) == 1;
	EVP_PKEY_free(key);
	return fits ? 0 : err_set(e, EINVAL, "the key is not the client certificate's");
}

static int use_certificate(SSL_CTX *ssl, const char *chain, const char *key, struct err *e)
{
	BIO *chain_in = BIO_new_mem_buf(chain, -1), *key_in = BIO_new_mem_buf(key, -1);
	int r = chain_in && key_in ? 0 : err_set(e, ENOMEM, "no memory for a certificate");
	ERR_clear_error();
	if (r == 0)
		r = use_chain(ssl, chain_in, e);
	if (r == 0)
		r = use_key(ssl, key_in, e);
	ERR_clear_error();
	BIO_free(chain_in);
	BIO_free(key_in);
	return r;
}

struct tls_context *tls_client_certified(const struct tls_context *trust, const char *chain_pem,
					 const char *key_pem, struct err *e)
{
	struct tls_context *ctx = client_new(e);
	if (!ctx)
		return NULL;
	SSL_CTX_set1_cert_store(ctx->ssl, SSL_CTX_get_cert_store(trust->ssl));
	if (use_certificate(ctx->ssl, chain_pem, key_pem, e) == 0)
		return ctx;
	tls_context_free(ctx);
	return NULL;
}

struct tls_context *tls_context_get(struct tls_context *ctx)
{
	ctx->refs++;
	return ctx;
}

void tls_context_free(struct tls_context *ctx)
{
	if (!ctx || --ctx->refs)
		return;
	SSL_CTX_free(ctx->ssl);
	tls_sessions_free(ctx->sessions);
	BIO_meth_free(ctx->wire);
	free(ctx);
}
