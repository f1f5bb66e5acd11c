/* SPDX-License-Identifier: Apache-2.0 */
/* TLS over real sockets: whom we trust, what we refuse, and that a cut is never taken for an end.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "http/client.h"
#include "http/server.h"
#include "http/tls.h"
#include "http_certs.h"
#include "http_peer.h"

#define LARGE (50u * 1024 * 1024) /* bytes */

static uv_loop_t loop;
static struct identity authority, leaf, expired, stranger, by_address;
static char *authority_pem;

/* What the server presents, and what it was asked for. */
struct site {
	const struct identity *id;
	bool refuse;
	bool demand;    /* a certificate of the client */
	char shown[64]; /* its common name */
	unsigned picked;
	bool named;
	char sni[256];
};

/* Any will do. */
static int on_shown(int ok, X509_STORE_CTX *store)
{
	SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
	struct site *site = SSL_get_ex_data(ssl, 0);
	(void)ok;
	X509 *cert = X509_STORE_CTX_get_current_cert(store);
	if (X509_STORE_CTX_get_error_depth(store) == 0)
		X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName, site->shown,
					  sizeof(site->shown));
	return 1;
}

static int pick(void *user, SSL *ssl, const char *sni)
{
	struct site *site = user;
	if (site->demand) {
		SSL_set_ex_data(ssl, 0, site);
		SSL_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, on_shown);
	}
	site->picked++;
	site->named = sni != NULL;
	snprintf(site->sni, sizeof(site->sni), "%s", sni ? sni : "");
	if (site->refuse)
		return -EACCES;
	assert_int_equal(SSL_use_certificate(ssl, site->id->cert), 1);
	assert_int_equal(SSL_use_PrivateKey(ssl, site->id->key), 1);
	return 0;
}

/* One end of a connection. */
struct end {
	struct stream *s; /* NULL when over */
	bool opened, eof, closed, drained, any, enough;
	bool pause; /* after each piece */
	size_t got, want;
	enum { NEVER, AT_OPENED, AT_DATA, AT_EOF } close_at;
	char text[64];
	struct err why;
};

static void leave(struct end *e, int at)
{
	if ((int)e->close_at != at)
		return;
	stream_close(e->s);
	e->s = NULL;
}

static void on_opened(void *user)
{
	struct end *e = user;
	assert_false(e->opened);
	e->opened = true;
	leave(e, AT_OPENED);
}

static void on_data(void *user, const uint8_t *p, size_t n)
{
	struct end *e = user;
	assert_true(e->opened && n > 0);
	for (size_t i = 0; i < n; i++) {
		if (e->got + i < sizeof(e->text) - 1)
			e->text[e->got + i] = (char)p[i];
		if (e->want && p[i] != (uint8_t)((e->got + i) % 251))
			fail_msg("byte %zu is wrong", e->got + i);
	}
	e->any = true;
	e->got += n;
	if (e->want && e->got >= e->want)
		e->enough = true;
	if (e->pause)
		stream_read(e->s, false);
	leave(e, AT_DATA);
}

static void on_eof(void *user)
{
	struct end *e = user;
	assert_false(e->eof);
	e->eof = true;
	leave(e, AT_EOF);
}

static void on_drained(void *user)
{
	struct end *e = user;
	e->drained = true;
}

static void on_closed(void *user, const struct err *why)
{
	struct end *e = user;
	assert_non_null(e->s);
	e->s = NULL;
	e->closed = true;
	e->why = *why;
}

static const struct stream_ops end_ops = {on_opened, on_data, on_eof, on_drained, on_closed};

static void end_open(struct end *e, int fd)
{
	*e = (struct end){0};
	e->s = stream_adopt(&loop, fd, &end_ops, e, NULL);
	assert_non_null(e->s);
	stream_read(e->s, true);
}

static void end_done(struct end *e)
{
	if (e->s)
		stream_close(e->s);
	e->s = NULL;
}

/* A client and a server that shake hands. */
struct pair {
	struct site site;
	struct end client, server;
	struct tls_context *client_ctx, *server_ctx;
};

static void begin(struct pair *p, const struct identity *id, const char *trust, const char *host)
{
	int fd[2];
	make_pair(fd);
	*p = (struct pair){.site = {.id = id}};
	struct err e = {0};
	p->client_ctx = tls_client_new(trust, true, &e);
	p->server_ctx = tls_server_new(pick, &p->site, &e);
	assert_non_null(p->client_ctx);
	assert_non_null(p->server_ctx);
	end_open(&p->client, fd[0]);
	end_open(&p->server, fd[1]);
	assert_int_equal(stream_tls_client(p->client.s, p->client_ctx, host, TLS_HTTP1, 5000, &e),
			 0);
	assert_int_equal(stream_tls_server(p->server.s, p->server_ctx, NULL, 0, 5000, &e), 0);
}

static void agree(struct pair *p)
{
	begin(p, &leaf, authority_pem, "api.example.com");
	wait_for(&loop, &p->client.opened);
	wait_for(&loop, &p->server.opened);
}

static void end_pair(struct pair *p)
{
	end_done(&p->client);
	end_done(&p->server);
	tls_context_free(p->client_ctx);
	tls_context_free(p->server_ctx);
	spin(&loop, 3);
	assert_int_equal(ERR_peek_error(), 0);
}

static int setup_all(void **state)
{
	(void)state;
	identity_make(&authority, NULL, NULL, 10);
	identity_make(&leaf, "DNS:api.example.com,DNS:*.wild.example.com", &authority, 10);
	identity_make(&expired, "DNS:api.example.com", &authority, -1);
	identity_make(&stranger, "DNS:api.example.com", NULL, 10);
	identity_make(&by_address, "IP:127.0.0.1", &authority, 10);
	authority_pem = identity_pem(&authority);
	return 0;
}

static int teardown_all(void **state)
{
	(void)state;
	free(authority_pem);
	struct identity *all[] = {&authority, &leaf, &expired, &stranger, &by_address};
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		identity_done(all[i]);
	return 0;
}

static int setup(void **state)
{
	(void)state;
	return uv_loop_init(&loop);
}

static int teardown(void **state)
{
	(void)state;
	loop_done(&loop);
	return 0;
}

/* -- agreement -- */

static void bytes_pass_both_ways_once_agreed(void **state)
{
	(void)state;
	struct pair p;
	begin(&p, &leaf, authority_pem, "API.Example.COM.");
	stream_write(p.client.s, "early", 5); /* waits for the handshake */
	wait_for(&loop, &p.server.any);
	assert_true(p.client.opened && p.server.opened);
	assert_string_equal(p.server.text, "early");
	assert_string_equal(p.site.sni, "api.example.com");
	assert_string_equal(stream_tls_sni(p.server.s), "api.example.com");
	assert_null(stream_tls_sni(p.client.s));
	assert_int_equal(p.site.picked, 1);
	stream_write(p.server.s, "answer", 6);
	wait_for(&loop, &p.client.any);
	assert_string_equal(p.client.text, "answer");
	end_pair(&p);
}

static void contexts_may_go_before_their_streams(void **state)
{
	(void)state;
	struct pair p;
	begin(&p, &leaf, authority_pem, "api.example.com");
	tls_context_free(p.client_ctx);
	tls_context_free(p.server_ctx);
	p.client_ctx = p.server_ctx = NULL;
	wait_for(&loop, &p.server.opened);
	end_pair(&p);
}

static void wildcard_names_one_label(void **state)
{
	(void)state;
	static const struct {
		const char *host;
		bool ok;
	} cases[] = {
		{"a.wild.example.com", true},
		{"wild.example.com", false},
		{"a.b.wild.example.com", false},
		{"leaf", false}, /* the CN is no name */
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct pair p;
		begin(&p, &leaf, authority_pem, cases[i].host);
		wait_for(&loop, cases[i].ok ? &p.client.opened : &p.client.closed);
		end_pair(&p);
	}
}

static void address_is_checked_and_sends_no_sni(void **state)
{
	(void)state;
	struct pair p;
	begin(&p, &by_address, authority_pem, "127.0.0.1");
	wait_for(&loop, &p.server.opened);
	assert_true(p.client.opened);
	assert_false(p.site.named);
	assert_null(stream_tls_sni(p.server.s));
	end_pair(&p);

	begin(&p, &by_address, authority_pem, "127.0.0.2");
	wait_for(&loop, &p.client.closed);
	end_pair(&p);
}

/* -- refusals, in words -- */

static void untrusted_certificates_are_refused_with_a_reason(void **state)
{
	(void)state;
	const struct {
		const struct identity *id;
		const char *host, *text;
	} cases[] = {
		{&stranger, "api.example.com",
		 "certificate of api.example.com is not trusted: self-signed certificate"},
		{&expired, "api.example.com",
		 "certificate of api.example.com is not trusted: it has expired"},
		{&leaf, "other.example.com",
		 "certificate of other.example.com is not trusted: it is for another name"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct pair p;
		begin(&p, cases[i].id, authority_pem, cases[i].host);
		stream_write(p.client.s, "secret", 6);
		wait_for(&loop, &p.client.closed);
		assert_string_equal(p.client.why.text, cases[i].text);
		assert_int_equal(p.client.why.code, EKEYREJECTED);
		assert_false(p.client.opened);
		wait_for(&loop, &p.server.closed); /* and the server hears why */
		assert_non_null(strstr(p.server.why.text, "the client refused TLS: "));
		assert_int_equal(p.server.got, 0);
		end_pair(&p);
	}
}

static void unknown_authority_is_refused(void **state)
{
	(void)state;
	struct pair p;
	char *pem = identity_pem(&stranger);
	begin(&p, &leaf, pem, "api.example.com");
	free(pem);
	wait_for(&loop, &p.client.closed);
	assert_string_equal(p.client.why.text, "certificate of api.example.com is not trusted: "
					       "issued by an unknown authority");
	end_pair(&p);
}

static void picked_refusal_is_an_alert_for_the_client(void **state)
{
	(void)state;
	struct pair p;
	begin(&p, &leaf, authority_pem, "api.example.com");
	p.site.refuse = true;
	wait_for(&loop, &p.client.closed);
	assert_string_equal(p.client.why.text, "api.example.com refused TLS: unrecognized name");
	wait_for(&loop, &p.server.closed);
	assert_false(p.server.opened || p.client.opened);
	end_pair(&p);
}

static void hosts_that_are_no_names_are_refused_at_once(void **state)
{
	(void)state;
	struct tls_context *ctx = tls_client_new(NULL, false, NULL);
	assert_non_null(ctx);
	static const char *const bad[] = {"", ".", ".example.com", "a..b", "a b", "-a.b", "1.2.3"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		int fd[2];
		make_pair(fd);
		struct end e;
		end_open(&e, fd[0]);
		assert_int_equal(stream_tls_client(e.s, ctx, bad[i], TLS_HTTP1, 100, NULL),
				 -EINVAL);
		end_done(&e);
		close(fd[1]);
	}
	tls_context_free(ctx);
}

static void trust_that_is_no_pem_is_refused(void **state)
{
	(void)state;
	static const char *const bad[] = {
		"", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct err e = {0};
		assert_null(tls_client_new(bad[i], true, &e));
		assert_int_equal(e.code, EINVAL);
	}
}

/* A client context with this certificate for the pair's; p->site goes on demanding one. */
static struct tls_context *certified(const struct identity *id, const char *key, struct err *e)
{
	struct tls_context *trust = tls_client_new(authority_pem, true, e);
	assert_non_null(trust);
	char *chain = identity_pem(id);
	struct tls_context *ctx = tls_client_certified(trust, chain, key, e);
	free(chain);
	tls_context_free(trust); /* what is trusted stays */
	return ctx;
}

static void certificate_is_shown_to_a_server_that_asks(void **state)
{
	(void)state;
	struct err e = {0};
	struct pair p;
	int fd[2];
	char *key = identity_key_pem(&stranger, NULL);
	for (int with = 0; with < 2; with++) {
		make_pair(fd);
		p = (struct pair){.site = {.id = &leaf, .demand = true}};
		p.client_ctx = with ? certified(&stranger, key, &e)
				    : tls_client_new(authority_pem, true, &e);
		p.server_ctx = tls_server_new(pick, &p.site, &e);
		assert_non_null(p.client_ctx);
		end_open(&p.client, fd[0]);
		end_open(&p.server, fd[1]);
		assert_int_equal(stream_tls_client(p.client.s, p.client_ctx, "api.example.com",
						   TLS_HTTP1, 5000, &e),
				 0);
		assert_int_equal(stream_tls_server(p.server.s, p.server_ctx, NULL, 0, 5000, &e), 0);
		wait_for(&loop, with ? &p.server.opened : &p.server.closed);
		assert_string_equal(p.site.shown, with ? "leaf" : "");
		end_pair(&p);
	}
	free(key);
}

static void certificate_and_key_must_fit(void **state)
{
	(void)state;
	char password[] = "secret";
	char *keys[] = {identity_key_pem(&leaf, NULL), identity_key_pem(&stranger, password),
			strdup("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
			strdup("")};
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		struct err e = {0};
		assert_null(certified(&stranger, keys[i], &e));
		assert_int_equal(e.code, EINVAL);
		assert_int_equal(ERR_peek_error(), 0);
		free(keys[i]);
	}
	struct err e = {0};
	struct tls_context *trust = tls_client_new(authority_pem, true, &e);
	assert_null(tls_client_certified(trust, "nonsense", "nonsense", &e));
	assert_int_equal(e.code, EINVAL);
	tls_context_free(trust);
}

/* -- hostile clients -- */

/* The first flight of an OpenSSL client that asks for what it likes. */
static size_t hello(uint8_t *out, size_t room, const char *sni, const char *alpn, int version)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	SSL_CTX_set_security_level(ctx, 0);
	if (version) {
		SSL_CTX_set_min_proto_version(ctx, TLS1_VERSION);
		SSL_CTX_set_max_proto_version(ctx, version);
	}
	SSL *ssl = SSL_new(ctx);
	BIO *in = BIO_new(BIO_s_mem()), *wire = BIO_new(BIO_s_mem());
	SSL_set_bio(ssl, in, wire);
	if (sni)
		SSL_set_tlsext_host_name(ssl, sni);
	if (alpn)
		SSL_set_alpn_protos(ssl, (const unsigned char *)alpn, (unsigned)strlen(alpn));
	SSL_set_connect_state(ssl);
	SSL_do_handshake(ssl);
	int n = BIO_read(wire, out, (int)room);
	assert_true(n > 0);
	SSL_free(ssl);
	SSL_CTX_free(ctx);
	ERR_clear_error();
	return (size_t)n;
}

struct hostile {
	struct site site;
	struct tls_context *ctx;
	struct end server;
	struct peer peer;
};

static void face(struct hostile *h, uint64_t timeout_ms)
{
	int fd[2];
	make_pair(fd);
	*h = (struct hostile){.site = {.id = &leaf}};
	h->ctx = tls_server_new(pick, &h->site, NULL);
	end_open(&h->server, fd[0]);
	peer_open(&h->peer, &loop, fd[1]);
	assert_int_equal(stream_tls_server(h->server.s, h->ctx, NULL, 0, timeout_ms, NULL), 0);
}

static void turn_away(struct hostile *h)
{
	end_done(&h->server);
	peer_done(&h->peer);
	tls_context_free(h->ctx);
	spin(&loop, 3);
	assert_int_equal(ERR_peek_error(), 0);
}

static void malformed_sni_is_refused_before_a_certificate_is_picked(void **state)
{
	(void)state;
	static const char *const bad[] = {"a b",     "a..b", "-a.com", "a-.com",      ".com",
					  "1.2.3.4", "a/b",  "*.com",  "\xc3\xa9.com"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		uint8_t bytes[4096];
		size_t n = hello(bytes, sizeof(bytes), bad[i], NULL, 0);
		struct hostile h;
		face(&h, 5000);
		stream_write(h.peer.s, bytes, n);
		wait_for(&loop, &h.server.closed);
		assert_int_equal(h.site.picked, 0);
		assert_int_equal(h.server.why.code, EPROTO);
		wait_for(&loop, &h.peer.over);
		assert_int_equal(h.peer.heard.data[0], 21); /* an alert */
		assert_int_equal(h.peer.heard.data[6], SSL_AD_ILLEGAL_PARAMETER);
		turn_away(&h);
	}
}

static void other_protocols_are_refused(void **state)
{
	(void)state;
	static const struct {
		const char *alpn;
		int version, alert;
	} cases[] = {
		{"\x02h3", 0, SSL_AD_NO_APPLICATION_PROTOCOL},
		{NULL, TLS1_1_VERSION, SSL_AD_PROTOCOL_VERSION},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		uint8_t bytes[4096];
		size_t n = hello(bytes, sizeof(bytes), "a.b", cases[i].alpn, cases[i].version);
		struct hostile h;
		face(&h, 5000);
		stream_write(h.peer.s, bytes, n);
		wait_for(&loop, &h.peer.over);
		assert_int_equal(h.peer.heard.data[6], cases[i].alert);
		assert_true(h.server.closed);
		turn_away(&h);
	}
}

static void hello_may_come_byte_by_byte_and_partly_early(void **state)
{
	(void)state;
	uint8_t bytes[4096];
	size_t n = hello(bytes, sizeof(bytes), "Split.Example.com", "\x02h2\x08http/1.1", 0);
	int fd[2];
	make_pair(fd);
	struct site site = {.id = &leaf};
	struct tls_context *ctx = tls_server_new(pick, &site, NULL);
	struct end server;
	struct peer peer;
	end_open(&server, fd[0]);
	peer_open(&peer, &loop, fd[1]);
	assert_int_equal(stream_tls_server(server.s, ctx, bytes, 100, 5000, NULL), 0);
	for (size_t i = 100; i < n; i++) {
		assert_int_equal(site.picked, 0);
		stream_write(peer.s, bytes + i, 1);
		spin(&loop, 3);
	}
	assert_int_equal(site.picked, 1);
	assert_string_equal(site.sni, "split.example.com");
	end_done(&server);
	peer_done(&peer);
	tls_context_free(ctx);
}

/* A server that looks at the first byte and only then decides for TLS, reading nothing more
 * meanwhile. */
struct sniffer {
	struct site site;
	struct tls_context *ctx;
	struct stream *s;
	struct http_conn *conn;
	bool over;
};

static void sniffed_request(void *user, struct http_exchange *x)
{
	(void)user;
	http_exchange_reply(x, 200, NULL, "sniffed", 7);
}

static void sniffed_closed(void *user)
{
	struct sniffer *f = user;
	f->over = true;
}

static const struct http_server_ops sniffed_ops = {.request = sniffed_request,
						   .closed = sniffed_closed};

static void sniff_opened(void *user)
{
	struct sniffer *f = user;
	f->conn = http_serve(f->s, NULL, 0, NULL, &sniffed_ops, f);
}

static void sniff(void *user, const uint8_t *p, size_t n)
{
	struct sniffer *f = user;
	assert_int_equal(p[0], 22);
	stream_read(f->s, false);
	assert_int_equal(stream_tls_server(f->s, f->ctx, p, n, 5000, NULL), 0);
}

static const struct stream_ops sniff_ops = {.opened = sniff_opened, .data = sniff};

static void on_sniffed_reply(void *user, unsigned status, const char *body, size_t n,
			     const struct err *why)
{
	(void)n, (void)why;
	assert_int_equal(status, 200);
	assert_string_equal(body, "sniffed");
	*(bool *)user = true;
}

static void tls_may_start_inside_callbacks_on_either_side(void **state)
{
	(void)state;
	int fd[2];
	make_pair(fd);
	struct sniffer f = {.site = {.id = &leaf}};
	f.ctx = tls_server_new(pick, &f.site, NULL);
	f.s = stream_adopt(&loop, fd[0], &sniff_ops, &f, NULL);
	stream_read(f.s, true);
	struct tls_context *ctx = tls_client_new(authority_pem, true, NULL);
	struct stream *s = stream_adopt(&loop, fd[1], NULL, NULL, NULL);
	assert_int_equal(stream_tls_client(s, ctx, "api.example.com", TLS_HTTP1, 5000, NULL), 0);
	struct http_field field = {"Host", "api.example.com"};
	struct http_head head = {
		.method = (char[]){"GET"},
		.target = (char[]){"/"},
		.fields = {.list = &field, .count = 1},
	};
	bool done = false;
	http_client_fetch(http_client_new(s, NULL, NULL), &head, NULL, 0, 60, 5000,
			  on_sniffed_reply, &done);
	wait_for(&loop, &done);
	wait_for(&loop, &f.over);
	tls_context_free(ctx);
	tls_context_free(f.ctx);
}

static void endless_hello_is_refused(void **state)
{
	(void)state;
	struct hostile h;
	face(&h, 5000);
	/* Handshake records of 16384 bytes; the ClientHello claims 65535. */
	static uint8_t record[5 + 16384] = {22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff, 3, 3};
	stream_write(h.peer.s, record, sizeof(record));
	wait_for(&loop, &h.server.closed);
	assert_int_equal(h.server.why.code, EMSGSIZE);
	assert_int_equal(h.site.picked, 0);
	turn_away(&h);
}

static void plain_text_is_no_hello(void **state)
{
	(void)state;
	struct hostile h;
	face(&h, 5000);
	peer_say(&h.peer, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
	wait_for(&loop, &h.server.closed);
	assert_int_equal(h.server.why.code, EPROTO);
	assert_string_equal(h.server.why.text, "the client does not speak TLS here");
	turn_away(&h);
}

static void silent_client_meets_the_handshake_deadline(void **state)
{
	(void)state;
	struct hostile h;
	face(&h, 60);
	wait_for(&loop, &h.server.closed);
	assert_int_equal(h.server.why.code, ETIMEDOUT);
	turn_away(&h);
}

static void client_that_leaves_in_the_handshake_is_told(void **state)
{
	(void)state;
	struct hostile h;
	face(&h, 5000);
	peer_say(&h.peer, "\x16\x03\x01");
	stream_shutdown(h.peer.s);
	wait_for(&loop, &h.server.closed);
	assert_false(h.server.opened);
	turn_away(&h);
}

/* -- ends -- */

static void close_notify_is_an_end_and_writing_goes_on(void **state)
{
	(void)state;
	struct pair p;
	agree(&p);
	stream_write(p.client.s, "last", 4);
	stream_shutdown(p.client.s);
	wait_for(&loop, &p.server.eof);
	assert_string_equal(p.server.text, "last");
	assert_false(p.server.closed);
	stream_write(p.server.s, "after", 5);
	wait_for(&loop, &p.client.any);
	assert_string_equal(p.client.text, "after");
	end_pair(&p);
}

static void bare_end_is_a_cut(void **state)
{
	(void)state;
	struct pair p;
	agree(&p);
	stream_write(p.client.s, "half", 4);
	wait_for(&loop, &p.server.any);
	end_done(&p.client); /* no close_notify */
	wait_for(&loop, &p.server.closed);
	assert_false(p.server.eof);
	assert_int_equal(p.server.why.code, ECONNRESET);
	assert_non_null(strstr(p.server.why.text, "close_notify"));
	end_pair(&p);
}

static void paused_end_keeps_order(void **state)
{
	(void)state;
	struct pair p;
	agree(&p);
	p.server.pause = true;
	char bytes[40000];
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)(uint8_t)(i % 251);
	p.server.want = sizeof(bytes);
	stream_write(p.client.s, bytes, sizeof(bytes));
	stream_shutdown(p.client.s);
	wait_for(&loop, &p.server.any);
	while (!p.server.enough) {
		size_t before = p.server.got;
		spin(&loop, 10);
		assert_int_equal(p.server.got, before);
		p.server.any = false;
		stream_read(p.server.s, true);
		assert_int_equal(p.server.got, before); /* not inside the call */
		wait_for(&loop, &p.server.any);
	}
	assert_false(p.server.eof);
	stream_read(p.server.s, true);
	wait_for(&loop, &p.server.eof);
	end_pair(&p);
}

static void closing_inside_any_callback_is_the_last_of_it(void **state)
{
	(void)state;
	for (int at = AT_OPENED; at <= AT_EOF; at++) {
		for (int side = 0; side < 2; side++) {
			struct pair p;
			begin(&p, &leaf, authority_pem, "api.example.com");
			struct end *e = side ? &p.server : &p.client;
			struct end *other = side ? &p.client : &p.server;
			e->close_at = at;
			stream_write(other->s, "x", 1);
			stream_shutdown(other->s);
			wait_for(&loop, at == AT_OPENED ? &e->opened
					: at == AT_DATA ? &e->any
							: &e->eof);
			assert_null(e->s);
			spin(&loop, 10);
			assert_false(e->closed);
			end_pair(&p);
		}
	}
}

/* -- bulk -- */

struct pump {
	struct end end; /* first: it is also what end_ops know */
	size_t sent, most_queued;
	bool done;
};

static void pump_more(void *user)
{
	struct pump *p = user;
	uint8_t chunk[50000];
	while (p->sent < LARGE) {
		size_t n = LARGE - p->sent < sizeof(chunk) ? LARGE - p->sent : sizeof(chunk);
		for (size_t i = 0; i < n; i++)
			chunk[i] = (uint8_t)((p->sent + i) % 251);
		ssize_t queued = stream_write(p->end.s, chunk, n);
		assert_true(queued >= 0);
		p->sent += n;
		if ((size_t)queued > p->most_queued)
			p->most_queued = (size_t)queued;
		if (queued > STREAM_QUEUE_HIGH)
			return;
	}
	if (!p->done)
		stream_shutdown(p->end.s);
	p->done = true;
}

static const struct stream_ops pump_ops = {on_opened, on_data, on_eof, pump_more, on_closed};

static void large_transfer_is_bounded_and_whole(void **state)
{
	(void)state;
	struct pair p;
	agree(&p);
	struct pump w = {.end = p.client};
	p.client.s = NULL;
	stream_set_ops(w.end.s, &pump_ops, &w);
	p.server.want = LARGE;
	stream_read(p.server.s, false);
	pump_more(&w);
	spin(&loop, 50);
	assert_true(w.sent < LARGE / 10);
	stream_read(p.server.s, true);
	wait_for(&loop, &p.server.eof);
	assert_int_equal(p.server.got, LARGE);
	assert_true(w.most_queued < STREAM_QUEUE_HIGH + 64 * 1024);
	end_done(&w.end);
	end_pair(&p);
}

/* -- HTTP over it -- */

struct service {
	struct site site;
	struct tls_context *ctx;
	struct http_conn *conn;
	bool closed;
};

static void answer(void *user, struct http_exchange *x)
{
	struct service *v = user;
	http_exchange_reply(x, 200, "text/plain", v->site.sni, strlen(v->site.sni));
}

static void service_closed(void *user)
{
	struct service *v = user;
	v->conn = NULL;
	v->closed = true;
}

static const struct http_server_ops service_ops = {.request = answer, .closed = service_closed};

struct fetched {
	bool done;
	unsigned status;
	char body[64];
	struct err why;
};

static void on_fetched(void *user, unsigned status, const char *body, size_t n,
		       const struct err *why)
{
	struct fetched *f = user;
	f->done = true;
	f->status = status;
	snprintf(f->body, sizeof(f->body), "%.*s", (int)n, body ? body : "");
	if (why)
		f->why = *why;
}

static void fetch_over_tls(struct fetched *f, struct service *v, const char *host)
{
	int fd[2];
	make_pair(fd);
	*f = (struct fetched){0};
	*v = (struct service){.site = {.id = &leaf}};
	v->ctx = tls_server_new(pick, &v->site, NULL);
	struct tls_context *ctx = tls_client_new(authority_pem, true, NULL);
	struct stream *a = stream_adopt(&loop, fd[0], NULL, NULL, NULL);
	struct stream *b = stream_adopt(&loop, fd[1], NULL, NULL, NULL);
	assert_int_equal(stream_tls_server(a, v->ctx, NULL, 0, 5000, NULL), 0);
	assert_int_equal(stream_tls_client(b, ctx, host, TLS_HTTP1, 5000, NULL), 0);
	v->conn = http_serve(a, NULL, 0, NULL, &service_ops, v);
	struct http_client *c = http_client_new(b, NULL, NULL);
	struct http_field field = {"Host", (char *)(uintptr_t)host};
	struct http_head head = {
		.method = (char[]){"GET"},
		.target = (char[]){"/"},
		.fields = {.list = &field, .count = 1},
	};
	assert_int_equal(http_client_fetch(c, &head, NULL, 0, 60, 5000, on_fetched, f), 0);
	wait_for(&loop, &f->done);
	wait_for(&loop, &v->closed);
	tls_context_free(ctx);
	tls_context_free(v->ctx);
}

static void http_runs_over_tls(void **state)
{
	(void)state;
	struct fetched f;
	struct service v;
	fetch_over_tls(&f, &v, "api.example.com");
	assert_int_equal(f.status, 200);
	assert_string_equal(f.body, "api.example.com");
}

static void http_call_fails_with_the_reason_of_tls(void **state)
{
	(void)state;
	struct fetched f;
	struct service v;
	fetch_over_tls(&f, &v, "other.example.com");
	assert_int_equal(f.status, 0);
	assert_string_equal(f.why.text, "certificate of other.example.com is not trusted: "
					"it is for another name");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(bytes_pass_both_ways_once_agreed),
		TEST(contexts_may_go_before_their_streams),
		TEST(wildcard_names_one_label),
		TEST(address_is_checked_and_sends_no_sni),
		TEST(untrusted_certificates_are_refused_with_a_reason),
		TEST(unknown_authority_is_refused),
		TEST(picked_refusal_is_an_alert_for_the_client),
		TEST(hosts_that_are_no_names_are_refused_at_once),
		TEST(trust_that_is_no_pem_is_refused),
		TEST(certificate_is_shown_to_a_server_that_asks),
		TEST(certificate_and_key_must_fit),
		TEST(malformed_sni_is_refused_before_a_certificate_is_picked),
		TEST(other_protocols_are_refused),
		TEST(hello_may_come_byte_by_byte_and_partly_early),
		TEST(tls_may_start_inside_callbacks_on_either_side),
		TEST(endless_hello_is_refused),
		TEST(plain_text_is_no_hello),
		TEST(silent_client_meets_the_handshake_deadline),
		TEST(client_that_leaves_in_the_handshake_is_told),
		TEST(close_notify_is_an_end_and_writing_goes_on),
		TEST(bare_end_is_a_cut),
		TEST(paused_end_keeps_order),
		TEST(closing_inside_any_callback_is_the_last_of_it),
		TEST(large_transfer_is_bounded_and_whole),
		TEST(http_runs_over_tls),
		TEST(http_call_fails_with_the_reason_of_tls),
	};
	return cmocka_run_group_tests(tests, setup_all, teardown_all);
}
