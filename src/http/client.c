/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's side of a connection, one call at a time. What the user's flow of the body holds
 * back stays in `in` (one receive at most) and then in the socket, so that a response that was sent
 * before the connection broke is read before the break is told.
 *
 * Bytes beyond a response, and bytes that nobody asked for, make the connection useless: they could
 * be taken for the next response.
 */
#include "http/client.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "http/body_out.h"
#include "http/client_kind.h"
#include "http/h1.h"
#include "http/stream_filter.h"

#define INPUT_MAX        ((size_t)256 * 1024) /* bytes: a head, or one receive */
#define BUFFER_KEEP      ((size_t)8 * 1024)   /* bytes that an idle connection keeps allocated */
#define INTERIM_MAX      8                    /* responses 1xx before the final one */
#define STATUS_SWITCHING 101
#define STATUS_FINAL     200

struct h1_client {
	struct http_client base;
	struct stream *s; /* NULL when it is gone */
	void (*closed)(void *user);
	void *user;
	struct buf in;
	struct buf head; /* a request head while it is written */
	unsigned busy;   /* events being handled */
	bool dead;       /* for the user */
	bool spent;      /* no further call */
	bool eof;

	/* The call. */
	bool active;
	const struct http_call_ops *ops;
	void *call_user;
	bool is_head;   /* the method */
	bool upgrade;   /* asked for */
	bool head_seen; /* the final one */
	bool sent;      /* our body is whole */
	bool reading;
	bool keep_alive;
	unsigned interim;
	struct body_out out;
	struct h1_body body;

	/* During switched(). */
	const uint8_t *behind; /* the head */
	size_t behind_len;
};

static void client_free(struct h1_client *c)
{
	buf_done(&c->in);
	buf_done(&c->head);
	free(c);
}

/* Tells the user that the client is over. */
static void client_fail(struct h1_client *c, const struct err *why)
{
	if (c->dead)
		return;
	c->dead = true;
	if (c->s)
		stream_close(take_ptr(c->s));
	if (c->active)
		c->ops->failed(c->call_user, why);
	else if (c->closed)
		c->closed(c->user);
}

static void client_fail_text(struct h1_client *c, int code, const char *text)
{
	struct err why = {0};
	err_set(&why, code, "%s", text);
	client_fail(c, &why);
}

static void client_enter(struct h1_client *c)
{
	c->busy++;
}

static void client_leave(struct h1_client *c)
{
	if (--c->busy)
		return;
	if (c->dead) {
		client_free(c);
		return;
	}
	if (!c->in.len && c->in.cap > BUFFER_KEEP)
		buf_done(&c->in);
	stream_read(c->s, !c->active || !c->head_seen || c->reading);
}

/* -- the response -- */

/* The user takes the stream over, with the bytes behind the head. */
static void client_switch(struct h1_client *c, const struct http_head *head, const uint8_t *p,
			  size_t n)
{
	if (!c->upgrade || !c->ops->switched) {
		client_fail_text(c, EPROTO, "the server switched protocols unasked");
		return;
	}
	c->behind = p;
	c->behind_len = n;
	c->ops->switched(c->call_user, head);
	assert(c->dead);
}

static size_t client_take_head(struct h1_client *c, const uint8_t *p, size_t n)
{
	struct http_head head;
	ssize_t r = h1_read_response(p, n, c->is_head ? "HEAD" : "GET", &head);
	if (r == -EAGAIN)
		return 0;
	if (r < 0) {
		client_fail_text(c, (int)-r, "the response head is malformed");
		return 0;
	}
	if (head.status == STATUS_SWITCHING) {
		client_switch(c, &head, p + r, n - (size_t)r);
	} else if (head.status < STATUS_FINAL) {
		if (++c->interim > INTERIM_MAX)
			client_fail_text(c, EBADMSG, "too many interim responses");
	} else {
		c->head_seen = true;
		c->keep_alive = head.keep_alive;
		h1_body_init(&c->body, &head);
		stream_alarm(c->s, 0);
		c->ops->head(c->call_user, &head);
	}
	http_head_done(&head);
	return (size_t)r;
}

/* extra: bytes were there beyond the response. */
static void client_end_call(struct h1_client *c, bool extra)
{
	c->active = false;
	c->spent = !c->keep_alive || !c->sent || extra || c->eof;
	c->ops->end(c->call_user);
}

/* Returns whether there may be more to do. */
static bool client_take_body(struct h1_client *c, const uint8_t *p, size_t n, size_t *used)
{
	if (!c->reading)
		return false;
	if (h1_body_done(&c->body)) {
		client_end_call(c, *used < n);
		return true;
	}
	const uint8_t *data;
	size_t len;
	ssize_t r = h1_body_read(&c->body, p + *used, n - *used, &data, &len);
	if (r < 0) {
		client_fail_text(c, (int)-r, "the response body is malformed");
		return false;
	}
	*used += (size_t)r;
	if (len)
		c->ops->body(c->call_user, data, len);
	return r > 0 || (!c->dead && h1_body_done(&c->body));
}

static size_t client_take(struct h1_client *c, const uint8_t *p, size_t n)
{
	size_t used = 0;
	while (!c->dead) {
		if (c->active && c->head_seen) {
			if (!client_take_body(c, p, n, &used))
				break;
			continue;
		}
		if (!c->active && used < n)
			client_fail_text(c, EPROTO, "the server sent what was not asked for");
		size_t r = c->active && used < n ? client_take_head(c, p + used, n - used) : 0;
		if (!r)
			break;
		used += r;
	}
	return used;
}

/* The server's end of the stream, once what came before it is used. */
static void client_take_end(struct h1_client *c)
{
	if (c->dead || !c->eof)
		return;
	bool readable = c->active && c->head_seen;
	if (readable && !c->reading)
		return;
	if (readable && c->body.framing == HTTP_TO_CLOSE)
		client_end_call(c, false);
	if (!c->active)
		client_fail_text(c, ECONNRESET, "the server closed the connection");
	else if (!c->head_seen)
		client_fail_text(c, ECONNRESET,
				 "the server closed the connection without a response");
	else
		client_fail_text(c, ECONNRESET,
				 "the server closed the connection within the response");
}

/* -- events of the stream -- */

static void on_data(void *user, const uint8_t *p, size_t n)
{
	struct h1_client *c = user;
	client_enter(c);
	bool fresh = !c->in.len;
	size_t used = fresh ? client_take(c, p, n) : 0;
	if (!c->dead) {
		if (buf_append(&c->in, p + used, n - used) < 0)
			client_fail_text(c, ENOMEM, "no memory for the response");
		else if (!fresh)
			buf_consume(&c->in, client_take(c, c->in.data, c->in.len));
	}
	client_leave(c);
}

static void on_wake(void *user)
{
	struct h1_client *c = user;
	client_enter(c);
	const uint8_t *p = c->in.len ? c->in.data : (const uint8_t *)"";
	buf_consume(&c->in, client_take(c, p, c->in.len));
	client_take_end(c);
	client_leave(c);
}

static void on_eof(void *user)
{
	struct h1_client *c = user;
	client_enter(c);
	c->eof = true;
	client_take_end(c);
	client_leave(c);
}

static void on_drained(void *user)
{
	struct h1_client *c = user;
	client_enter(c);
	if (c->active && !c->sent && c->ops->drained)
		c->ops->drained(c->call_user);
	client_leave(c);
}

static void on_alarm(void *user)
{
	struct h1_client *c = user;
	client_enter(c);
	if (c->active && !c->head_seen)
		client_fail_text(c, ETIMEDOUT, "no response in time");
	client_leave(c);
}

static void on_closed(void *user, const struct err *why)
{
	struct h1_client *c = user;
	client_enter(c);
	c->s = NULL;
	client_fail(c, why);
	client_leave(c);
}

static const struct stream_ops client_stream_ops = {
	.data = on_data,
	.eof = on_eof,
	.drained = on_drained,
	.closed = on_closed,
};

/* -- calls -- */

static int h1_call(struct http_client *base, const struct http_head *request, uint64_t timeout_ms,
		   const struct http_call_ops *ops, void *user)
{
	struct h1_client *c = (struct h1_client *)base;
	if (c->active)
		return -EBUSY;
	if (c->spent || c->eof)
		return -EPIPE;
	struct http_head head = *request;
	head.minor = 1;
	head.keep_alive = true;
	int r = h1_write_request(&c->head, &head);
	if (r == -EMSGSIZE)
		return -EINVAL;
	if (r < 0)
		return r;
	ssize_t queued = stream_write(c->s, c->head.data, c->head.len);
	buf_consume(&c->head, c->head.len);
	if (queued < 0)
		return (int)queued;

	c->active = true;
	c->ops = ops;
	c->call_user = user;
	c->is_head = strcmp(request->method, "HEAD") == 0;
	c->upgrade = request->upgrade;
	c->head_seen = false;
	c->sent = head.framing == HTTP_NO_BODY;
	c->reading = true;
	c->keep_alive = false;
	c->interim = 0;
	c->out = (struct body_out){.framing = head.framing, .left = head.length};
	stream_alarm(c->s, timeout_ms);
	return 0;
}

static ssize_t h1_write(struct http_client *base, const void *p, size_t n)
{
	struct h1_client *c = (struct h1_client *)base;
	if (!c->active || c->sent)
		return -EPIPE;
	return body_out_write(&c->out, c->s, p, n);
}

static int h1_trailers(struct http_client *base, const struct http_fields *fields)
{
	(void)base, (void)fields; /* chunked ones are dropped, as those that come are */
	return 0;
}

static int h1_finish(struct http_client *base)
{
	struct h1_client *c = (struct h1_client *)base;
	if (!c->active)
		return -EPIPE;
	if (c->sent)
		return 0;
	int r = body_out_end(&c->out, c->s);
	if (r == 0)
		c->sent = true;
	return r;
}

static void h1_read(struct http_client *base, bool on)
{
	struct h1_client *c = (struct h1_client *)base;
	if (c->reading == on)
		return;
	c->reading = on;
	if (c->busy)
		return;
	if (on)
		stream_wake(c->s);
	else if (c->active && c->head_seen)
		stream_read(c->s, false);
}

static void h1_set_ops(struct http_client *base, const struct http_call_ops *ops, void *user)
{
	struct h1_client *c = (struct h1_client *)base;
	c->ops = ops;
	c->call_user = user;
}

static bool h1_reusable(const struct http_client *base)
{
	const struct h1_client *c = (const struct h1_client *)base;
	return c->s && !c->active && !c->spent && !c->eof;
}

static void h1_close(struct http_client *base)
{
	struct h1_client *c = (struct h1_client *)base;
	assert(!c->dead);
	c->dead = true;
	if (c->s)
		stream_close(take_ptr(c->s));
	if (!c->busy)
		client_free(c);
}

static int h1_detach(struct http_client *base, struct stream **ret, struct buf *ret_early)
{
	struct h1_client *c = (struct h1_client *)base;
	assert(!c->dead && c->busy);
	c->dead = true;
	*ret = take_ptr(c->s);
	buf_init(ret_early, c->behind_len);
	int r = buf_append(ret_early, c->behind, c->behind_len);
	if (r < 0)
		stream_close(take_ptr(*ret));
	return r;
}

static struct stream *h1_stream(struct http_client *base)
{
	return ((struct h1_client *)base)->s;
}

static const struct http_client_kind h1_client_kind = {
	.version = 1,
	.call = h1_call,
	.write = h1_write,
	.trailers = h1_trailers,
	.finish = h1_finish,
	.read = h1_read,
	.set_ops = h1_set_ops,
	.reusable = h1_reusable,
	.close = h1_close,
	.detach = h1_detach,
	.stream = h1_stream,
};

struct http_client *http_client_new(struct stream *s, void (*closed)(void *user), void *user)
{
	struct h1_client *c = calloc(1, sizeof(*c));
	if (!c) {
		stream_close(s);
		return NULL;
	}
	c->base.kind = &h1_client_kind;
	c->s = s;
	c->closed = closed;
	c->user = user;
	buf_init(&c->in, INPUT_MAX);
	buf_init(&c->head, HTTP_HEAD_MAX);
	stream_set_ops(s, &client_stream_ops, c);
	stream_set_hooks(s, on_wake, on_alarm);
	stream_read(s, true);
	return &c->base;
}
