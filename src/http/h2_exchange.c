/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exchanges of HTTP/2. What its user writes is queued on the exchange, and nghttp2 takes it from
 * there when the peer's windows and the socket have room; what its user reads opens our windows
 * again, and nothing else does.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "http/h2_fields.h"
#include "http/h2_state.h"

/* -- life -- */

struct h2_exchange *h2_exchange_find(struct h2_conn *c, int32_t id)
{
	return nghttp2_session_get_stream_user_data(c->session, id);
}

struct h2_exchange *h2_exchange_new(struct h2_conn *c, int32_t id)
{
	struct h2_exchange *x = calloc(1, sizeof(*x));
	if (!x)
		return NULL;
	struct http_head none = {0};
	http_exchange_init(&x->base, &h2_kind, &c->base, &none);
	x->id = id;
	buf_init(&x->in, H2_STREAM_IN);
	h2_out_init(&x->out, H2_OUT_MAX);
	buf_init(&x->cookie, HTTP_HEAD_MAX);
	list_append(&c->streams, &x->link);
	c->idle_since = 0;
	nghttp2_session_set_stream_user_data(c->session, id, x);
	return x;
}

/* Bytes of a body are used: the peer may send as many more. */
static void open_windows(struct h2_conn *c, int32_t id, size_t n)
{
	if (n && id)
		nghttp2_session_consume(c->session, id, n);
	else if (n)
		nghttp2_session_consume_connection(c->session, n);
}

/* All of it but what is the user's. */
static void exchange_unlink(struct h2_exchange *x)
{
	struct h2_conn *c = h2_conn_of(x);
	if (c->next == &x->link)
		c->next = x->link.next;
	list_remove(&x->link);
	if (c->current == x)
		c->current = NULL;
	if (x->id)
		nghttp2_session_set_stream_user_data(c->session, x->id, NULL);
	if (list_empty(&c->streams))
		c->idle_since = h2_now(c);
	c->queued -= x->out.queue.len;
	open_windows(c, 0, x->in.len);
	buf_done(&x->in);
	h2_out_done(&x->out);
	buf_done(&x->cookie);
	http_fields_done(&x->fields);
	http_fields_done(&x->trailers);
	free(x->method);
	free(x->target);
	free(x->scheme);
	free(x->authority);
}

void h2_exchange_lose(struct h2_exchange *x)
{
	exchange_unlink(x);
	http_exchange_lose(&x->base, true);
}

/* The user is done with it. It is freed with its stream. */
static void exchange_over(struct h2_exchange *x)
{
	struct h2_conn *c = h2_conn_of(x);
	if (c->current == x)
		c->current = NULL;
	x->stage = H2_DONE;
	http_exchange_done(&x->base);
	open_windows(c, x->id, x->in.len);
	buf_done(&x->in);
	if (!x->id)
		h2_exchange_lose(x);
	h2_conn_poke(c);
}

void h2_exchange_reset(struct h2_exchange *x, uint32_t code)
{
	struct h2_conn *c = h2_conn_of(x);
	x->stage = H2_DONE;
	x->cut = true;
	c->queued -= x->out.queue.len;
	h2_out_done(&x->out);
	nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, x->id, code);
}

void h2_exchange_closed(struct h2_exchange *x)
{
	if (x->stage == H2_OPEN && x->sent_end)
		x->id = 0; /* all was said; its user will end it */
	else
		h2_exchange_lose(x);
}

void h2_exchange_sent_end(struct h2_exchange *x)
{
	x->sent_end = true;
	if (x->stage == H2_DONE && !x->ended_in && !x->brief)
		nghttp2_submit_rst_stream(h2_conn_of(x)->session, NGHTTP2_FLAG_NONE, x->id,
					  NGHTTP2_NO_ERROR);
}

/* -- what comes -- */

void h2_exchange_body(struct h2_exchange *x, const uint8_t *p, size_t n)
{
	struct h2_conn *c = h2_conn_of(x);
	int32_t id = x->id;
	if (x->stage == H2_OPEN && (!x->reading || x->in.len)) {
		if (buf_append(&x->in, p, n) < 0)
			nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, id,
						  NGHTTP2_INTERNAL_ERROR);
		return;
	}
	if (x->stage == H2_OPEN && x->base.ops->body)
		x->base.ops->body(x->base.user, p, n);
	open_windows(c, id, n);
}

static void deliver_body(struct h2_exchange *x)
{
	struct h2_conn *c = h2_conn_of(x);
	auto_buf struct buf data = x->in;
	int32_t id = x->id;
	buf_init(&x->in, H2_STREAM_IN);
	if (x->base.ops->body)
		x->base.ops->body(x->base.user, data.data, data.len);
	open_windows(c, id, data.len);
}

static void deliver_end(struct h2_exchange *x)
{
	struct h2_conn *c = h2_conn_of(x);
	struct http_fields trailers = x->trailers;
	x->trailers = (struct http_fields){0};
	if (trailers.count && x->base.ops->trailers)
		x->base.ops->trailers(x->base.user, &trailers);
	http_fields_done(&trailers);
	if (c->current != x || !x->reading)
		return;
	x->told_end = true;
	if (x->base.ops->body_end)
		x->base.ops->body_end(x->base.user);
}

void h2_exchange_deliver(struct h2_exchange *x)
{
	struct h2_conn *c = h2_conn_of(x);
	c->current = x;
	if (x->stage == H2_OPEN && x->reading && x->in.len)
		deliver_body(x);
	if (c->current == x && x->stage == H2_OPEN && x->reading && !x->in.len && x->ended_in &&
	    !x->told_end)
		deliver_end(x);
	if (c->current == x && x->stage == H2_OPEN && x->out.owes && !x->out.queue.len) {
		x->out.owes = false;
		if (x->base.ops->drained)
			x->base.ops->drained(x->base.user);
	}
	c->current = NULL;
}

static void h2_read(struct http_exchange *base, bool on)
{
	struct h2_exchange *x = (struct h2_exchange *)base;
	struct h2_conn *c = h2_conn_of(x);
	if (x->reading == on)
		return;
	x->reading = on;
	if (!on || x->told_end)
		return;
	if (!x->continued && !x->started && !x->ended_in) {
		nghttp2_nv go_on = {(uint8_t *)(uintptr_t) ":status", (uint8_t *)(uintptr_t) "100",
				    7, 3, NGHTTP2_NV_FLAG_NONE};
		nghttp2_submit_headers(c->session, NGHTTP2_FLAG_NONE, x->id, NULL, &go_on, 1, NULL);
	}
	x->continued = true;
	c->due = true;
	h2_conn_poke(c);
}

/* -- what goes -- */

static ssize_t on_pull(nghttp2_session *s, int32_t id, uint8_t *to, size_t room, uint32_t *flags,
		       nghttp2_data_source *source, void *user)
{
	(void)source;
	struct h2_conn *c = user;
	struct h2_exchange *x = h2_exchange_find(c, id);
	if (!x || (x->cut && !x->out.queue.len))
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	ssize_t n = h2_out_pull(&x->out, s, id, to, room, flags);
	if (n > 0) {
		c->queued -= (size_t)n;
		x->moved_ms = h2_now(c);
	}
	if (!x->out.queue.len)
		c->due |= x->out.owes;
	return n;
}

static void exchange_resume(struct h2_exchange *x)
{
	struct h2_conn *c = h2_conn_of(x);
	h2_out_resume(&x->out, c->session, x->id);
	h2_conn_poke(c);
}

static int submit_head(struct h2_exchange *x, unsigned status, const struct http_fields *fields,
		       const char *length)
{
	char code[12];
	struct h2_fields f;
	h2_fields_init(&f);
	snprintf(code, sizeof(code), "%u", status);
	h2_fields_put(&f, ":status", code, false);
	if (length)
		h2_fields_put(&f, "content-length", length, false);
	int r = fields ? h2_fields_add(&f, fields, 0) : 0;
	if (r == 0) {
		nghttp2_data_provider from = {.read_callback = on_pull};
		r = nghttp2_submit_response(h2_conn_of(x)->session, x->id, f.nv, f.count,
					    x->bare ? NULL : &from);
		r = r == 0 ? 0 : r == NGHTTP2_ERR_NOMEM ? -ENOMEM : -EINVAL;
	}
	h2_fields_done(&f);
	return r;
}

static int h2_start(struct http_exchange *base, unsigned status, const struct http_fields *fields,
		    enum http_framing framing, uint64_t length)
{
	struct h2_exchange *x = (struct h2_exchange *)base;
	const char *method = base->head.method;
	char digits[24];
	if (x->started || status < 200 || status > 599 || framing == HTTP_TO_CLOSE)
		return -EINVAL;
	bool none = status == 204 || status == 304 || (method && strcmp(method, "HEAD") == 0);
	bool declared = framing == HTTP_LENGTH && status != 204;
	x->bare = none || framing == HTTP_NO_BODY;
	snprintf(digits, sizeof(digits), "%llu", (unsigned long long)length);
	int r = submit_head(x, status, fields, declared ? digits : NULL);
	if (r < 0)
		return r;
	x->started = true;
	x->out.framing = none ? HTTP_CHUNKED /* any amount is dropped */ : framing;
	x->out.left = length;
	x->out.drop = x->bare;
	h2_conn_poke(h2_conn_of(x));
	return 0;
}

static ssize_t h2_write(struct http_exchange *base, const void *p, size_t n)
{
	struct h2_exchange *x = (struct h2_exchange *)base;
	struct h2_conn *c = h2_conn_of(x);
	if (!x->started)
		return -EINVAL;
	size_t before = x->out.queue.len;
	ssize_t queued = h2_out_write(&x->out, p, n);
	if (queued <= (ssize_t)before)
		return queued;
	if (!before)
		x->moved_ms = h2_now(c);
	c->queued += n;
	exchange_resume(x);
	return queued + (c->queued > H2_OUT_HIGH ? STREAM_QUEUE_HIGH : 0);
}

static int h2_trailers(struct http_exchange *base, const struct http_fields *fields)
{
	return h2_out_trailers(&((struct h2_exchange *)base)->out, fields);
}

static bool is_complete(const struct h2_exchange *x)
{
	return x->started && h2_out_is_complete(&x->out);
}

/* What is queued still goes out; then the stream ends, or is cut. */
static void exchange_finish(struct h2_exchange *x, bool cut)
{
	x->cut = cut;
	x->out.whole = !cut;
	x->stage = H2_DONE;
	if (x->sent_end && x->id)
		h2_exchange_sent_end(x);
	exchange_resume(x);
	exchange_over(x);
}

static void h2_abort(struct http_exchange *base)
{
	struct h2_exchange *x = (struct h2_exchange *)base;
	struct h2_conn *c = h2_conn_of(x);
	bool fixed = x->bare || x->out.framing == HTTP_LENGTH;
	if (fixed && is_complete(x)) {
		/* It was answered in full; the connection is what is not to go on. */
		nghttp2_submit_goaway(c->session, NGHTTP2_FLAG_NONE,
				      nghttp2_session_get_last_proc_stream_id(c->session),
				      NGHTTP2_NO_ERROR, NULL, 0);
		c->draining = true;
		exchange_finish(x, false);
	} else if (x->started) {
		exchange_finish(x, true);
	} else {
		h2_exchange_reset(x, NGHTTP2_INTERNAL_ERROR);
		exchange_over(x);
	}
}

static void h2_end(struct http_exchange *base)
{
	struct h2_exchange *x = (struct h2_exchange *)base;
	if (is_complete(x))
		exchange_finish(x, false);
	else
		h2_abort(base);
}

static int h2_switch(struct http_exchange *base, const struct http_fields *fields,
		     struct stream **ret, struct buf *ret_early)
{
	(void)base, (void)fields, (void)ret, (void)ret_early;
	return -ENOTSUP; /* the connection is not the exchange's alone */
}

const struct http_exchange_kind h2_kind = {
	.version = 2,
	.read = h2_read,
	.start = h2_start,
	.write = h2_write,
	.trailers = h2_trailers,
	.end = h2_end,
	.abort = h2_abort,
	.switch_over = h2_switch,
};
