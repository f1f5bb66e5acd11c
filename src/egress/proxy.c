/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A proxy is trusted to carry bytes, not to be well-behaved: its answer has a cap and one deadline
 * for all of it, and is read by the strict codec. The parsers are a function of the bytes alone.
 */
#include "egress/proxy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "http/h1.h"
#include "http/stream_filter.h"
#include "net/address.h"

#define ANSWER_MAX    (HTTP_HEAD_MAX + (64U << 10)) /* bytes: a head, or one receive behind it */
#define REQUEST_MAX   (2 * POLICY_HOST_MAX + 64)
#define SOCKS_VERSION 5
#define SOCKS_NAME    3
#define SOCKS_IPV4    1
#define SOCKS_IPV6    4

enum proxy_state { PROXY_ASKED, PROXY_GREETED, PROXY_ASKED_SOCKS };

struct proxy {
	struct stream *stream;
	enum proxy_state state;
	char host[POLICY_HOST_MAX];
	uint16_t port;
	struct buf in;
	const struct proxy_ops *ops;
	void *user;
};

int proxy_place(const char *url, struct proxy_place *ret)
{
	bool socks = str_starts(url, "socks5://");
	const char *place = strstr(url, "://");
	const char *colon = place ? strrchr(place + 3, ':') : NULL;
	uint64_t port;
	if (!colon || (!socks && !str_starts(url, "http://")) ||
	    str_to_u64(colon + 1, 1, UINT16_MAX, &port) < 0)
		return -EINVAL;
	place += 3;
	size_t n = (size_t)(colon - place);
	if (n >= 2 && place[0] == '[' && place[n - 1] == ']') {
		place++;
		n -= 2;
	}
	if (!n || n >= sizeof(ret->host))
		return -EINVAL;
	*ret = (struct proxy_place){.kind = socks ? PROXY_SOCKS5 : PROXY_HTTP,
				    .port = (uint16_t)port};
	memcpy(ret->host, place, n);
	return 0;
}

static void proxy_free(struct proxy *p)
{
	if (p->stream)
		stream_close(p->stream);
	buf_done(&p->in);
	free(p);
}

void proxy_cancel(struct proxy *p)
{
	if (p)
		proxy_free(p);
}

static void proxy_fail(struct proxy *p, int code, const char *text)
{
	struct err why;
	err_set(&why, code, "the proxy %s", text);
	if (p->stream)
		stream_close(take_ptr(p->stream));
	p->ops->done(p->user, NULL, NULL, &why);
	proxy_free(p);
}

/* The answer was yes, and took n bytes. */
static void proxy_through(struct proxy *p, size_t n)
{
	struct stream *s = take_ptr(p->stream);
	buf_consume(&p->in, n);
	stream_read(s, false);
	stream_alarm(s, 0);
	p->ops->done(p->user, s, &p->in, NULL);
	proxy_free(p);
}

/* -- HTTP CONNECT -- */

static void ask_http(struct proxy *p)
{
	char text[REQUEST_MAX];
	bool v6 = strchr(p->host, ':');
	const char *open = v6 ? "[" : "", *close = v6 ? "]" : "";
	int n = snprintf(text, sizeof(text),
			 "CONNECT %s%s%s:%u HTTP/1.1\r\nHost: %s%s%s:%u\r\n\r\n", open, p->host,
			 close, p->port, open, p->host, close, p->port);
	stream_write(p->stream, text, (size_t)n);
}

static void take_http(struct proxy *p)
{
	struct http_head head;
	/* As to a HEAD: a 2xx to CONNECT has no body, whatever it declares. */
	ssize_t r = h1_read_response(p->in.data, p->in.len, "HEAD", &head);
	if (r == -EAGAIN)
		return;
	if (r < 0) {
		proxy_fail(p, EPROTO, "sent no valid HTTP");
		return;
	}
	unsigned status = head.status;
	http_head_done(&head);
	char text[64];
	snprintf(text, sizeof(text), "answered %u", status);
	if (status / 100 == 2)
		proxy_through(p, (size_t)r);
	else
		proxy_fail(p, status == 407 ? EACCES : ECONNREFUSED, text);
}

/* -- SOCKS5 -- */

static void greet_socks(struct proxy *p)
{
	static const uint8_t greeting[] = {SOCKS_VERSION, 1, 0}; /* one method: none */
	stream_write(p->stream, greeting, sizeof(greeting));
}

static void ask_socks(struct proxy *p)
{
	uint8_t ask[REQUEST_MAX] = {SOCKS_VERSION, 1, 0};
	struct address a;
	size_t n = 3;
	if (address_parse(p->host, &a) == 0) {
		size_t len = a.family == AF_INET ? 4 : 16;
		ask[n++] = a.family == AF_INET ? SOCKS_IPV4 : SOCKS_IPV6;
		memcpy(ask + n, a.bytes, len);
		n += len;
	} else {
		size_t len = strlen(p->host);
		ask[n++] = SOCKS_NAME;
		ask[n++] = (uint8_t)len;
		memcpy(ask + n, p->host, len);
		n += len;
	}
	ask[n++] = (uint8_t)(p->port >> 8);
	ask[n++] = (uint8_t)p->port;
	stream_write(p->stream, ask, n);
	p->state = PROXY_ASKED_SOCKS;
}

static void take_greeting(struct proxy *p)
{
	if (p->in.len < 2)
		return;
	if (p->in.data[0] != SOCKS_VERSION) {
		proxy_fail(p, EPROTO, "does not speak SOCKS5");
	} else if (p->in.data[1] != 0) {
		proxy_fail(p, EACCES, "wants authentication");
	} else {
		buf_consume(&p->in, 2);
		ask_socks(p);
	}
}

/* Bytes of the answer, 0 when it is not whole. Its address means nothing to us. */
static size_t socks_answer_len(const uint8_t *p, size_t n)
{
	if (n < 5)
		return 0;
	size_t address = p[3] == SOCKS_IPV4 ? 4 : p[3] == SOCKS_IPV6 ? 16 : 1 + (size_t)p[4];
	size_t whole = 4 + address + 2;
	return n < whole ? 0 : whole;
}

static void take_socks(struct proxy *p)
{
	static const char *const words[] = {
		NULL,
		"failed",
		"does not allow it",
		"can't reach that network",
		"can't reach that host",
		"was refused by that host",
		"saw the connection time out",
	};
	const uint8_t *in = p->in.data;
	if (p->in.len >= 2 && (in[0] != SOCKS_VERSION || in[1])) {
		size_t code = in[0] == SOCKS_VERSION ? in[1] : 1;
		bool known = code < sizeof(words) / sizeof(words[0]);
		proxy_fail(p, code == 2 ? EACCES : ECONNREFUSED, words[known ? code : 1]);
		return;
	}
	if (p->in.len >= 4 && in[3] != SOCKS_IPV4 && in[3] != SOCKS_IPV6 && in[3] != SOCKS_NAME) {
		proxy_fail(p, EPROTO, "sent no valid SOCKS5");
		return;
	}
	size_t n = socks_answer_len(in, p->in.len);
	if (n)
		proxy_through(p, n);
}

/* -- the stream -- */

static void on_data(void *user, const uint8_t *bytes, size_t n)
{
	struct proxy *p = user;
	if (buf_append(&p->in, bytes, n) < 0) {
		proxy_fail(p, EMSGSIZE, "says too much");
		return;
	}
	switch (p->state) {
	case PROXY_ASKED:
		take_http(p);
		break;
	case PROXY_GREETED:
		take_greeting(p);
		break;
	case PROXY_ASKED_SOCKS:
		take_socks(p);
		break;
	}
}

static void on_eof(void *user)
{
	proxy_fail(user, ECONNRESET, "closed the connection");
}

static void on_closed(void *user, const struct err *why)
{
	struct proxy *p = user;
	p->stream = NULL;
	proxy_fail(p, why->code, "is gone");
}

static void on_alarm(void *user)
{
	proxy_fail(user, ETIMEDOUT, "does not answer");
}

static void on_wake(void *user)
{
	(void)user; /* none is asked for */
}

static const struct stream_ops stream_events = {
	.data = on_data,
	.eof = on_eof,
	.closed = on_closed,
};

struct proxy *proxy_start(struct stream *s, enum proxy_kind kind, const char *host, uint16_t port,
			  uint64_t timeout_ms, const struct proxy_ops *ops, void *user)
{
	struct proxy *p = calloc(1, sizeof(*p));
	if (!p) {
		stream_close(s);
		return NULL;
	}
	p->stream = s;
	p->state = kind == PROXY_SOCKS5 ? PROXY_GREETED : PROXY_ASKED;
	snprintf(p->host, sizeof(p->host), "%s", host);
	p->port = port;
	p->ops = ops;
	p->user = user;
	buf_init(&p->in, ANSWER_MAX);
	stream_set_ops(s, &stream_events, p);
	stream_set_hooks(s, on_wake, on_alarm);
	stream_alarm(s, timeout_ms);
	if (kind == PROXY_SOCKS5)
		greet_socks(p);
	else
		ask_http(p);
	stream_read(s, true);
	return p;
}
