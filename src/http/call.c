/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of client.h, by whichever version the connection speaks. */
#include "http/client_kind.h"

int http_client_call(struct http_client *c, const struct http_head *request, uint64_t timeout_ms,
		     const struct http_call_ops *ops, void *user)
{
	return c->kind->call(c, request, timeout_ms, ops, user);
}

ssize_t http_client_write(struct http_client *c, const void *p, size_t n)
{
	return c->kind->write(c, p, n);
}

int http_client_trailers(struct http_client *c, const struct http_fields *fields)
{
	return c->kind->trailers(c, fields);
}

int http_client_finish(struct http_client *c)
{
	return c->kind->finish(c);
}

void http_client_read(struct http_client *c, bool on)
{
	c->kind->read(c, on);
}

void http_client_set_ops(struct http_client *c, const struct http_call_ops *ops, void *user)
{
	c->kind->set_ops(c, ops, user);
}

bool http_client_reusable(const struct http_client *c)
{
	return c->kind->reusable(c);
}

void http_client_close(struct http_client *c)
{
	c->kind->close(c);
}

int http_client_detach(struct http_client *c, struct stream **ret, struct buf *ret_early)
{
	return c->kind->detach(c, ret, ret_early);
}

struct stream *http_client_stream(struct http_client *c)
{
	return c->kind->stream(c);
}

unsigned http_client_version(const struct http_client *c)
{
	return c->kind->version;
}
