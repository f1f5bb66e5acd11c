/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of server.h, for whichever version of HTTP the exchange is of. */
#include "http/exchange.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "http/h1.h"

#define STATUS_TIMEOUT  408
#define STATUS_TOO_MANY 429

const struct http_exchange_ops http_exchange_untaken;

void http_exchange_init(struct http_exchange *x, const struct http_exchange_kind *kind,
			struct http_conn *conn, struct http_head *head)
{
	x->kind = kind;
	x->conn = conn;
	x->head = *head;
	*head = (struct http_head){0};
	x->ops = &http_exchange_untaken;
}

void http_exchange_done(struct http_exchange *x)
{
	void *owned = take_ptr(x->owned);
	if (owned)
		x->release(owned);
	http_head_done(&x->head);
	x->ops = &http_exchange_untaken;
}

void http_exchange_lose(struct http_exchange *x, bool free_it)
{
	const struct http_exchange_ops *ops = x->ops;
	void *user = x->user, *owned = take_ptr(x->owned);
	void (*release)(void *) = x->release;
	http_exchange_done(x);
	if (free_it)
		free(x);
	if (ops->gone)
		ops->gone(user);
	if (owned)
		release(owned);
}

void http_exchange_whole(struct http_exchange *x)
{
	x->whole = true;
}

void http_exchange_own(struct http_exchange *x, void *owned, void (*release)(void *owned))
{
	x->owned = owned;
	x->release = release;
}

const char *http_refusal_text(unsigned status)
{
	switch (status) {
	case STATUS_TIMEOUT:
		return "the request did not arrive in time";
	case STATUS_TOO_MANY:
		return "the connection asks for work without an end";
	case H1_METHOD_NOT_ALLOWED:
		return "this method is not served";
	case H1_URI_TOO_LONG:
		return "the request line is too long";
	case H1_EXPECTATION_FAILED:
		return "only Expect: 100-continue is known";
	case H1_FIELDS_TOO_LARGE:
		return "the header fields are too many or too long";
	case H1_NOT_IMPLEMENTED:
		return "this transfer coding is not known";
	case H1_VERSION:
		return "only HTTP/1.0 and HTTP/1.1 are served";
	default:
		return "the request is malformed";
	}
}

void http_conn_close(struct http_conn *c)
{
	c->close(c);
}

struct stream *http_conn_stream(struct http_conn *c)
{
	return c->s;
}

const struct http_head *http_exchange_head(const struct http_exchange *x)
{
	return &x->head;
}

struct http_conn *http_exchange_conn(const struct http_exchange *x)
{
	return x->conn;
}

unsigned http_exchange_version(const struct http_exchange *x)
{
	return x->kind->version;
}

void http_exchange_on(struct http_exchange *x, const struct http_exchange_ops *ops, void *user)
{
	x->ops = ops;
	x->user = user;
}

void http_exchange_read(struct http_exchange *x, bool on)
{
	x->kind->read(x, on);
}

int http_exchange_start(struct http_exchange *x, unsigned status, const struct http_fields *fields,
			enum http_framing framing, uint64_t length)
{
	return x->kind->start(x, status, fields, framing, length);
}

ssize_t http_exchange_write(struct http_exchange *x, const void *p, size_t n)
{
	return x->kind->write(x, p, n);
}

int http_exchange_trailers(struct http_exchange *x, const struct http_fields *fields)
{
	return x->kind->trailers(x, fields);
}

void http_exchange_end(struct http_exchange *x)
{
	x->kind->end(x);
}

void http_exchange_abort(struct http_exchange *x)
{
	x->kind->abort(x);
}

int http_exchange_switch(struct http_exchange *x, const struct http_fields *fields,
			 struct stream **ret, struct buf *ret_early)
{
	return x->kind->switch_over(x, fields, ret, ret_early);
}
