/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS as a filter of a stream. OpenSSL reads and writes through a BIO of ours: it takes straight
 * from the bytes that the stream has just received (and from `held`, what an earlier loan left),
 * and puts straight into the stream's output, so that nothing is copied between and nothing is
 * buffered but what the user does not take.
 */
#include "http/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include "base/cleanup.h"
#include "http/stream_filter.h"
#include "http/tls_context.h"
#include "http/tls_session.h"

/* Bytes on the wire until the ClientHello is whole, give or take a record head. */
#define HELLO_MAX ((size_t)16 * 1024)
#define HELD_MAX  ((size_t)256 * 1024) /* bytes: a few receives of the stream */

struct tls_filter {
	struct stream_filter base;
	struct tls_context *ctx;
	SSL *ssl;
	const uint8_t *lent; /* by the stream, during a call */
	size_t lent_len;
	struct buf held;
	struct buf *out; /* of the stream, during a call */
	size_t taken;    /* bytes that OpenSSL has read, up to HELLO_MAX and a bit */
	struct tls_hello hello;
	char host[TLS_NAME_MAX + 1]; /* whom we call; "" on the server's side */
};

/* -- the wire, as OpenSSL sees it -- */

static int wire_read(BIO *bio, char *p, size_t n, size_t *ret_n)
{
	struct tls_filter *f = BIO_get_data(bio);
	BIO_clear_retry_flags(bio);
	if (f->held.len) {
		*ret_n = n < f->held.len ? n : f->held.len;
		memcpy(p, f->held.data, *ret_n);
		buf_consume(&f->held, *ret_n);
	} else if (f->lent_len) {
		*ret_n = n < f->lent_len ? n : f->lent_len;
		memcpy(p, f->lent, *ret_n);
		f->lent += *ret_n;
		f->lent_len -= *ret_n;
	} else {
		BIO_set_retry_read(bio);
		return 0;
	}
	if (f->taken <= HELLO_MAX)
		f->taken += *ret_n;
	return 1;
}

static int wire_write(BIO *bio, const char *p, size_t n, size_t *ret_n)
{
	struct tls_filter *f = BIO_get_data(bio);
	BIO_clear_retry_flags(bio);
	*ret_n = n;
	return f->out && buf_append(f->out, p, n) == 0;
}

static long wire_ctrl(BIO *bio, int cmd, long num, void *ptr)
{
	(void)bio, (void)num, (void)ptr;
	return cmd == BIO_CTRL_FLUSH;
}

static BIO *wire_new(struct tls_filter *f)
{
	struct tls_context *ctx = f->ctx;
	if (!ctx->wire) {
		ctx->wire = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "stream");
		if (!ctx->wire)
			return NULL;
		BIO_meth_set_read_ex(ctx->wire, wire_read);
		BIO_meth_set_write_ex(ctx->wire, wire_write);
		BIO_meth_set_ctrl(ctx->wire, wire_ctrl);
	}
	BIO *bio = BIO_new(ctx->wire);
	if (!bio)
		return NULL;
	BIO_set_data(bio, f);
	BIO_set_init(bio, 1);
	return bio;
}

/* -- the filter -- */

static struct tls_filter *of(struct stream_filter *f)
{
	return (struct tls_filter *)f;
}

static int tls_feed(struct stream_filter *base, const uint8_t *p, size_t n)
{
	struct tls_filter *f = of(base);
	f->lent = p;
	f->lent_len = n;
	return 0;
}

static int tls_keep(struct stream_filter *base)
{
	struct tls_filter *f = of(base);
	int r = buf_append(&f->held, f->lent, f->lent_len);
	f->lent = NULL;
	f->lent_len = 0;
	if (!f->held.len)
		buf_done(&f->held);
	return r;
}

/* Turns the result of an OpenSSL call into ours: -EAGAIN, 0 at the peer's orderly end,
 * -errno. */
static int tls_result(struct tls_filter *f, int r, struct err *e)
{
	switch (SSL_get_error(f->ssl, r)) {
	case SSL_ERROR_WANT_READ:
		return -EAGAIN;
	case SSL_ERROR_ZERO_RETURN:
		return 0;
	case SSL_ERROR_SSL:
		return tls_error(f->ssl, *f->host ? f->host : NULL, e);
	default:
		ERR_clear_error();
		return err_set(e, ENOMEM, "no memory for TLS");
	}
}

/* Clearing the queue costs more than a look at it, which is nearly always empty. */
static void tls_forget_errors(void)
{
	if (ERR_peek_error())
		ERR_clear_error();
}

static int tls_handshake(struct stream_filter *base, struct buf *out, struct err *e)
{
	struct tls_filter *f = of(base);
	f->out = out;
	tls_forget_errors();
	int r = SSL_do_handshake(f->ssl);
	int result = r == 1 ? 0 : tls_result(f, r, e);
	f->out = NULL;
	if (r != 1 && result == 0)
		return err_set(e, ECONNRESET, "the peer ended the TLS handshake");
	if (result == -EAGAIN && f->ctx->server && !f->hello.seen && f->taken > HELLO_MAX)
		return err_set(e, EMSGSIZE, "the ClientHello is larger than %zu bytes", HELLO_MAX);
	return result;
}

/* Whether OpenSSL would find nothing to read. */
static bool tls_is_dry(const struct tls_filter *f)
{
	return !f->lent_len && !f->held.len && !SSL_has_pending(f->ssl) &&
	       !(SSL_get_shutdown(f->ssl) & SSL_RECEIVED_SHUTDOWN);
}

static ssize_t tls_pull(struct stream_filter *base, void *p, size_t n, struct buf *out,
			struct err *e)
{
	struct tls_filter *f = of(base);
	if (tls_is_dry(f))
		return -EAGAIN;
	f->out = out;
	tls_forget_errors();
	size_t got = 0;
	int r = SSL_read_ex(f->ssl, p, n, &got);
	ssize_t result = r == 1 ? (ssize_t)got : tls_result(f, r, e);
	f->out = NULL;
	return result;
}

static int tls_push(struct stream_filter *base, const void *p, size_t n, struct buf *out,
		    struct err *e)
{
	struct tls_filter *f = of(base);
	f->out = out;
	tls_forget_errors();
	size_t put;
	int r = SSL_write_ex(f->ssl, p, n, &put);
	int result = r == 1 ? 0 : tls_result(f, r, e);
	f->out = NULL;
	if (r == 1 || result < 0)
		return result == -EAGAIN ? err_set(e, EPROTO, "TLS can't write now") : result;
	return err_set(e, EPIPE, "the peer has ended TLS");
}

static int tls_finish(struct stream_filter *base, struct buf *out, struct err *e)
{
	struct tls_filter *f = of(base);
	f->out = out;
	tls_forget_errors();
	int r = SSL_shutdown(f->ssl);
	int result = r >= 0 ? 0 : tls_result(f, r, e);
	f->out = NULL;
	return result;
}

static void tls_free(struct stream_filter *base)
{
	struct tls_filter *f = of(base);
	SSL_free(f->ssl);
	tls_context_free(f->ctx);
	buf_done(&f->held);
	free(f);
}

static const struct stream_filter_ops tls_ops = {
	.feed = tls_feed,
	.keep = tls_keep,
	.handshake = tls_handshake,
	.pull = tls_pull,
	.push = tls_push,
	.finish = tls_finish,
	.free = tls_free,
};

static struct tls_filter *tls_new(struct tls_context *ctx, struct err *e)
{
	struct tls_filter *f = calloc(1, sizeof(*f));
	if (!f) {
		err_set(e, ENOMEM, "no memory for TLS");
		return NULL;
	}
	f->base.ops = &tls_ops;
	f->ctx = tls_context_get(ctx);
	buf_init(&f->held, HELD_MAX);
	f->ssl = SSL_new(ctx->ssl);
	BIO *wire = f->ssl ? wire_new(f) : NULL;
	if (!wire) {
		tls_free(&f->base);
		ERR_clear_error();
		err_set(e, ENOMEM, "no memory for TLS");
		return NULL;
	}
	SSL_set_bio(f->ssl, wire, wire);
	SSL_set_app_data(f->ssl, &f->hello);
	if (ctx->server)
		SSL_set_accept_state(f->ssl);
	else
		SSL_set_connect_state(f->ssl);
	return f;
}

int stream_tls_server(struct stream *s, struct tls_context *ctx, const uint8_t *early, size_t n,
		      uint64_t timeout_ms, struct err *e)
{
	struct tls_filter *f = ctx->server ? tls_new(ctx, e) : NULL;
	if (!f)
		return ctx->server ? -ENOMEM : err_set(e, EINVAL, "not a server's TLS context");
	if (buf_append(&f->held, early, n) < 0) {
		tls_free(&f->base);
		return err_set(e, ENOMEM, "no memory for TLS");
	}
	return stream_set_filter(s, &f->base, timeout_ms, e);
}

static int set_host(struct tls_filter *f, const char *host)
{
	struct in6_addr address;
	X509_VERIFY_PARAM *param = SSL_get0_param(f->ssl);
	bool is_address =
		inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
	if (is_address) {
		strncpy(f->host, host, TLS_NAME_MAX);
		return X509_VERIFY_PARAM_set1_ip_asc(param, host) ? 0 : -ENOMEM;
	}
	if (tls_name_copy(host, strlen(host), f->host) < 0)
		return -EINVAL;
	return SSL_set1_host(f->ssl, f->host) && SSL_set_tlsext_host_name(f->ssl, f->host)
		       ? 0
		       : -ENOMEM;
}

static int set_protocols(struct tls_filter *f, unsigned protocols)
{
	static const unsigned char both[] = "\x02h2\x08http/1.1";
	const unsigned char *from = protocols & TLS_HTTP2 ? both : both + 3;
	unsigned n = (protocols & TLS_HTTP2 ? 3 : 0) + (protocols & TLS_HTTP1 ? 9 : 0);
	return SSL_set_alpn_protos(f->ssl, from, n) == 0 ? 0 : -ENOMEM;
}

int stream_tls_client(struct stream *s, struct tls_context *ctx, const char *host,
		      unsigned protocols, uint64_t timeout_ms, struct err *e)
{
	struct tls_filter *f = ctx->server ? NULL : tls_new(ctx, e);
	if (!f)
		return ctx->server ? err_set(e, EINVAL, "not a client's TLS context") : -ENOMEM;
	int r = set_host(f, host);
	if (r == 0)
		r = set_protocols(f, protocols);
	if (r < 0) {
		tls_free(&f->base);
		ERR_clear_error();
		return err_set(e, -r,
			       r == -EINVAL ? "not a host name: %s" : "no memory for TLS: %s",
			       host);
	}
	tls_sessions_offer(ctx->sessions, f->ssl, f->host);
	return stream_set_filter(s, &f->base, timeout_ms, e);
}

const char *stream_tls_sni(const struct stream *s)
{
	struct stream_filter *base = stream_get_filter(s);
	if (!base || base->ops != &tls_ops || !of(base)->hello.named)
		return NULL;
	return of(base)->hello.sni;
}

enum tls_protocol stream_tls_protocol(const struct stream *s)
{
	struct stream_filter *base = stream_get_filter(s);
	const unsigned char *chosen = NULL;
	unsigned n = 0;
	if (base && base->ops == &tls_ops)
		SSL_get0_alpn_selected(of(base)->ssl, &chosen, &n);
	return n == 2 && memcmp(chosen, "h2", 2) == 0 ? TLS_HTTP2 : TLS_HTTP1;
}
