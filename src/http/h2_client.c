/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of HTTP/2. What the user writes is queued on the call, and nghttp2 takes it from there when
 * the server's windows and the socket have room; what the user reads opens our windows again, and
 * nothing else does.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "http/h2_client_state.h"
#include "http/h2_fields.h"
#include "http/stream_filter.h"
#include "http/syntax.h"

/* -- life -- */

struct h2_client *h2_client_find(struct h2_session *h, int32_t id)
{
	return id ? nghttp2_session_get_stream_user_data(h->ng, id) : NULL;
}

/* Bytes of a body are used: the server may send as many more. */
static void open_windows(struct h2_client *c, size_t n)
{
	if (!n || !c->h)
		return;
	if (c->id)
		nghttp2_session_consume(c->h->ng, c->id, n);
	else
		nghttp2_session_consume_connection(c->h->ng, n);
}

/* Lets go of the stream and of what is buffered; what it has open is reset. */
static void client_unlink(struct h2_client *c)
{
	struct h2_session *h = c->h;
	open_windows(c, c->in.len);
	if (h && c->id) {
		nghttp2_session_set_stream_user_data(h->ng, c->id, NULL);
		nghttp2_submit_rst_stream(h->ng, NGHTTP2_FLAG_NONE, c->id, NGHTTP2_CANCEL);
	}
	c->id = 0;
	c->active = false;
	buf_done(&c->in);
	h2_out_done(&c->out);
	http_fields_done(&c->fields);
	if (h) {
		list_remove(&c->link);
		h->count--;
		c->h = NULL;
		h2_session_poke(h);
	}
}

void h2_client_enter(struct h2_client *c)
{
	c->busy++;
}

void h2_client_leave(struct h2_client *c)
{
	if (--c->busy == 0 && c->dead)
		free(c);
}

/* The call has failed: so has the client. */
static void client_over(struct h2_client *c, const struct err *why)
{
	bool told = c->active;
	client_unlink(c);
	if (!told)
		return; /* its user finds out when he calls */
	c->dead = true;
	c->ops->failed(c->user, why);
}

void h2_client_lost(struct h2_client *c, const struct err *why)
{
	h2_client_enter(c);
	c->id = 0;
	client_over(c, c->why.code ? &c->why : why);
	h2_client_leave(c);
}

void h2_client_fail(struct h2_client *c, int code, const char *text)
{
	if (!c->why.code)
		err_set(&c->why, code, "%s", text);
	if (c->h)
		c->h->due = true;
}

void h2_client_reset(struct h2_client *c, uint32_t code, const char *text)
{
	h2_client_fail(c, EBADMSG, text);
	nghttp2_submit_rst_stream(c->h->ng, NGHTTP2_FLAG_NONE, c->id, code);
}

/* -- what comes -- */

void h2_client_body(struct h2_client *c, const uint8_t *p, size_t n)
{
	h2_client_enter(c);
	if (!c->active || c->why.code) {
		open_windows(c, n);
	} else if (!c->reading || c->in.len) {
		if (buf_append(&c->in, p, n) < 0)
			h2_client_reset(c, NGHTTP2_INTERNAL_ERROR, "no memory for the response");
	} else {
		struct h2_session *h = c->h;
		int32_t id = c->id;
		c->ops->body(c->user, p, n);
		if (c->h)
			nghttp2_session_consume(h->ng, id, n);
		else
			nghttp2_session_consume_connection(h->ng, n);
	}
	h2_client_leave(c);
}

static void deliver_body(struct h2_client *c)
{
	auto_buf struct buf data = c->in;
	buf_init(&c->in, H2C_STREAM_IN);
	open_windows(c, data.len);
	c->ops->body(c->user, data.data, data.len);
}

static void deliver_end(struct h2_client *c)
{
	if (c->fields.count && c->ops->trailers) {
		c->ops->trailers(c->user, &c->fields);
		if (c->dead || !c->active)
			return;
	}
	client_unlink(c);
	c->ops->end(c->user);
}

void h2_client_deliver(struct h2_client *c)
{
	h2_client_enter(c);
	if (c->active && c->why.code) {
		client_over(c, &c->why);
	} else {
		if (c->active && c->head_seen && c->reading && c->in.len)
			deliver_body(c);
		if (c->active && c->out.owes && !c->out.queue.len) {
			c->out.owes = false;
			if (!c->out.whole && c->ops->drained)
				c->ops->drained(c->user);
		}
		if (c->active && c->head_seen && c->reading && !c->in.len && c->ended_in)
			deliver_end(c);
	}
	h2_client_leave(c);
}

static void h2_read(struct http_client *base, bool on)
{
	struct h2_client *c = (struct h2_client *)base;
	if (c->reading == on)
		return;
	c->reading = on;
	if (!on || !c->h)
		return;
	c->h->due = true;
	h2_session_poke(c->h);
}

/* -- what goes -- */

static ssize_t on_pull(nghttp2_session *s, int32_t id, uint8_t *to, size_t room, uint32_t *flags,
		       nghttp2_data_source *source, void *user)
{
	(void)source;
	struct h2_session *h = user;
	struct h2_client *c = h2_client_find(h, id);
	if (!c)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	ssize_t n = h2_out_pull(&c->out, s, id, to, room, flags);
	if (!c->out.queue.len)
		h->due |= c->out.owes;
	return n;
}

static void client_resume(struct h2_client *c)
{
	h2_out_resume(&c->out, c->h->ng, c->id);
	h2_session_poke(c->h);
}

static int submit(struct h2_client *c, const struct http_head *r)
{
	const char *host = http_fields_get(&r->fields, "Host");
	char digits[24];
	struct h2_fields f;
	if (!host || !r->target || !r->method || http_method_barred(r->method) || r->upgrade ||
	    r->framing == HTTP_TO_CLOSE)
		return -EINVAL;
	h2_fields_init(&f);
	h2_fields_put(&f, ":method", r->method, false);
	h2_fields_put(&f, ":scheme", "https", false);
	h2_fields_put(&f, ":authority", host, false);
	h2_fields_put(&f, ":path", r->target, r->secret_target);
	snprintf(digits, sizeof(digits), "%llu", (unsigned long long)r->length);
	if (r->framing == HTTP_LENGTH)
		h2_fields_put(&f, "content-length", digits, false);
	int failed = h2_fields_add(&f, &r->fields, r->secret_fields);
	if (failed == 0) {
		nghttp2_data_provider from = {.read_callback = on_pull};
		int32_t id = nghttp2_submit_request(c->h->ng, NULL, f.nv, f.count,
						    r->framing == HTTP_NO_BODY ? NULL : &from, c);
		failed = id > 0 ? 0 : id == NGHTTP2_ERR_NOMEM ? -ENOMEM : -EPIPE;
		c->id = id > 0 ? id : 0;
	}
	h2_fields_done(&f);
	return failed;
}

static int h2_call(struct http_client *base, const struct http_head *request, uint64_t timeout_ms,
		   const struct http_call_ops *ops, void *user)
{
	struct h2_client *c = (struct h2_client *)base;
	if (c->active)
		return -EBUSY;
	if (c->spent || !c->h || c->h->going || !c->h->s)
		return -EPIPE;
	int r = submit(c, request);
	if (r < 0)
		return r;
	c->spent = c->active = c->reading = true;
	c->ops = ops;
	c->user = user;
	c->is_head = strcmp(request->method, "HEAD") == 0;
	c->out.framing = request->framing;
	c->out.left = request->length;
	c->out.whole = request->framing == HTTP_NO_BODY;
	if (timeout_ms) {
		c->deadline_ms = h2_session_now(c->h) + timeout_ms;
		stream_alarm(c->h->s, 1);
	}
	h2_session_poke(c->h);
	return 0;
}

static ssize_t h2_write(struct http_client *base, const void *p, size_t n)
{
	struct h2_client *c = (struct h2_client *)base;
	if (!c->active)
		return -EPIPE;
	ssize_t queued = h2_out_write(&c->out, p, n);
	if (queued > 0)
		client_resume(c);
	return queued;
}

static int h2_trailers(struct http_client *base, const struct http_fields *fields)
{
	return h2_out_trailers(&((struct h2_client *)base)->out, fields);
}

static int h2_finish(struct http_client *base)
{
	struct h2_client *c = (struct h2_client *)base;
	if (!c->active)
		return -EPIPE;
	if (c->out.whole)
		return 0;
	if (!h2_out_is_complete(&c->out))
		return -EPIPE;
	c->out.whole = true;
	client_resume(c);
	return 0;
}

static void h2_set_ops(struct http_client *base, const struct http_call_ops *ops, void *user)
{
	struct h2_client *c = (struct h2_client *)base;
	c->ops = ops;
	c->user = user;
}

static bool h2_reusable(const struct http_client *base)
{
	const struct h2_client *c = (const struct h2_client *)base;
	return !c->spent && c->h && c->h->s && !c->h->going;
}

static void h2_close(struct http_client *base)
{
	struct h2_client *c = (struct h2_client *)base;
	assert(!c->dead);
	c->dead = true;
	client_unlink(c);
	if (!c->busy)
		free(c);
}

static int h2_detach(struct http_client *base, struct stream **ret, struct buf *ret_early)
{
	(void)base, (void)ret, (void)ret_early;
	return -ENOTSUP; /* switched() is never called */
}

static struct stream *h2_stream(struct http_client *base)
{
	struct h2_client *c = (struct h2_client *)base;
	return c->h ? c->h->s : NULL;
}

static const struct http_client_kind h2_client_kind = {
	.version = 2,
	.call = h2_call,
	.write = h2_write,
	.trailers = h2_trailers,
	.finish = h2_finish,
	.read = h2_read,
	.set_ops = h2_set_ops,
	.reusable = h2_reusable,
	.close = h2_close,
	.detach = h2_detach,
	.stream = h2_stream,
};

struct h2_client *h2_client_new(struct h2_session *h)
{
	struct h2_client *c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->base.kind = &h2_client_kind;
	c->h = h;
	buf_init(&c->in, H2C_STREAM_IN);
	h2_out_init(&c->out, H2C_OUT_MAX);
	list_append(&h->clients, &c->link);
	h->count++;
	return c;
}
