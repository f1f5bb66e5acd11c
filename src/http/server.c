/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's side of a connection. Input is parsed where it was received; only what can't be used
 * yet (a partial head, a body that nobody reads, requests sent ahead) is copied to `in`, and past
 * INPUT_HIGH the socket is not read. A connection serves one exchange at a time.
 *
 * The end of the peer's sending while an exchange is open cancels it: a client that has gone can't
 * be told from one that only has nothing more to say, and clients of streams cancel by leaving.
 *
 * Each event is bracketed by conn_enter() and conn_leave(): whatever the user ends or closes
 * meanwhile is marked and acted upon there.
 */
#include "http/server.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "http/body_out.h"
#include "http/exchange.h"
#include "http/h1.h"
#include "http/stream_filter.h"

#define INPUT_HIGH       ((size_t)64 * 1024)  /* bytes unread; past this the socket waits */
#define INPUT_MAX        ((size_t)256 * 1024) /* bytes: that, one receive, what came before us */
#define BUFFER_KEEP      ((size_t)8 * 1024)   /* bytes that an idle connection keeps allocated */
#define CLOSE_TIMEOUT_MS 60000                /* for the peer to take what is queued at the end */
#define STATUS_SWITCHING 101
#define STATUS_TIMEOUT   408

enum clock_for { CLOCK_STOPPED, CLOCK_IDLE, CLOCK_HEAD };

struct h1_conn {
	struct http_conn base; /* s: never NULL while there is an exchange */
	const struct http_server_ops *ops;
	void *user;
	struct http_limits limits;
	struct h1_exchange *x;
	struct buf in;
	struct buf head; /* a response head while it is written */
	enum clock_for clock;
	unsigned busy; /* events being handled */
	bool taking;   /* conn_take() is at work */
	bool last;     /* the exchange is over, no further request is read */
	bool reset;    /* the end must look like a failure */
	bool dead;     /* for the user */
};

struct h1_exchange {
	struct http_exchange base;
	struct h1_body body;
	struct body_out out;
	bool reading;
	bool body_ended; /* told */
	bool continued;  /* 100 was sent, or is not asked for */
	bool started;
	bool keep_alive;
};

static const struct http_exchange_kind h1_kind;
static void exchange_abort(struct http_exchange *base);

static struct h1_conn *conn_of(struct http_conn *c)
{
	return (struct h1_conn *)c;
}

static struct h1_exchange *exchange_of(struct http_exchange *x)
{
	return (struct h1_exchange *)x;
}

static struct h1_conn *conn_with(const struct h1_exchange *x)
{
	return conn_of(x->base.conn);
}

static void exchange_free(struct h1_exchange *x)
{
	http_exchange_done(&x->base);
	free(x);
}

static void conn_free(struct h1_conn *c)
{
	buf_done(&c->in);
	buf_done(&c->head);
	free(c);
}

/* Has the loop look at the connection, unless conn_take() will anyway. */
static void conn_poke(struct h1_conn *c)
{
	if (!c->taking)
		stream_wake(c->base.s);
}

/* The exchange is answered. */
static void exchange_over(struct h1_exchange *x, bool keep_alive)
{
	struct h1_conn *c = conn_with(x);
	c->x = NULL;
	if (!keep_alive)
		c->last = true;
	exchange_free(x);
	conn_poke(c);
}

static void conn_lose_exchange(struct h1_conn *c)
{
	struct h1_exchange *x = take_ptr(c->x);
	if (x)
		http_exchange_lose(&x->base, true);
}

static void conn_cut(struct h1_conn *c)
{
	c->last = true;
	conn_lose_exchange(c);
}

static void conn_enter(struct h1_conn *c)
{
	c->busy++;
}

/* Where the end of the connection is the end of the body, only a reset tells that it was cut. */
static void conn_reset(struct h1_conn *c)
{
	struct linger now = {.l_onoff = 1};
	setsockopt(stream_fd(c->base.s), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	stream_close(take_ptr(c->base.s));
}

static void conn_over(struct h1_conn *c)
{
	if (c->base.s && c->reset)
		conn_reset(c);
	else if (c->base.s)
		stream_close_gracefully(take_ptr(c->base.s), CLOSE_TIMEOUT_MS);
	c->dead = true;
	c->ops->closed(c->user);
}

static void conn_set_clock(struct h1_conn *c)
{
	enum clock_for clock = c->x ? CLOCK_STOPPED : c->in.len ? CLOCK_HEAD : CLOCK_IDLE;
	if (clock == c->clock)
		return;
	c->clock = clock;
	stream_alarm(c->base.s, clock == CLOCK_IDLE   ? c->limits.idle_timeout_ms
				: clock == CLOCK_HEAD ? c->limits.head_timeout_ms
						      : 0);
}

static void conn_leave(struct h1_conn *c)
{
	if (--c->busy)
		return;
	if (!c->dead && !c->x && (c->last || !c->base.s)) {
		c->busy++;
		conn_over(c);
		c->busy--;
	}
	if (c->dead) {
		conn_free(c);
		return;
	}
	if (!c->in.len && c->in.cap > BUFFER_KEEP)
		buf_done(&c->in);
	conn_set_clock(c);
	stream_read(c->base.s, c->in.len < INPUT_HIGH);
}

/* -- refusing -- */

static void conn_refuse(struct h1_conn *c, unsigned status)
{
	char body[256], head[256];
	int n = snprintf(body, sizeof(body), "{\"code\":%u,\"message\":\"%s\"}", status,
			 http_refusal_text(status));
	int h = snprintf(head, sizeof(head),
			 "HTTP/1.1 %u %s\r\nContent-Type: application/json\r\n"
			 "Content-Length: %d\r\nConnection: close\r\n\r\n",
			 status, http_reason(status), n);
	const struct iovec pieces[] = {{head, (size_t)h}, {body, (size_t)n}};
	stream_writev(c->base.s, pieces, 2);
	c->last = true;
	if (c->ops->refused)
		c->ops->refused(c->user, status);
}

/* -- requests -- */

static int conn_begin(struct h1_conn *c, struct http_head *head)
{
	struct h1_exchange *x = calloc(1, sizeof(*x));
	if (!x) {
		http_head_done(head);
		return -ENOMEM;
	}
	http_exchange_init(&x->base, &h1_kind, &c->base, head);
	x->continued = !x->base.head.expect_continue;
	h1_body_init(&x->body, &x->base.head);
	c->x = x;
	c->clock = CLOCK_STOPPED;
	stream_alarm(c->base.s, 0);
	c->ops->request(c->user, &x->base);
	if (!c->dead && c->x == x && x->base.ops == &http_exchange_untaken)
		exchange_abort(&x->base);
	return 0;
}

/* Returns the bytes taken, 0 when more are needed or the connection is at its end. */
static size_t conn_take_head(struct h1_conn *c, const uint8_t *p, size_t n)
{
	struct http_head head;
	enum h1_fault fault;
	ssize_t r = h1_read_request(p, n, &head, &fault);
	if (r == -EAGAIN)
		return 0;
	if (r == -EBADMSG)
		conn_refuse(c, fault);
	else if (r < 0 || conn_begin(c, &head) < 0)
		c->last = true;
	return r < 0 ? 0 : (size_t)r;
}

static void conn_break(struct h1_conn *c)
{
	bool answer = !c->x->started;
	conn_lose_exchange(c);
	if (c->dead)
		return;
	if (answer)
		conn_refuse(c, H1_BAD_REQUEST);
	c->last = true;
}

/* Returns whether there may be more to do. */
static bool conn_take_body(struct h1_conn *c, const uint8_t *p, size_t n, size_t *used)
{
	struct h1_exchange *x = c->x;
	if (!x->reading || x->body_ended)
		return false;
	if (h1_body_done(&x->body)) {
		x->body_ended = true;
		if (x->base.ops->body_end)
			x->base.ops->body_end(x->base.user);
		return true;
	}
	const uint8_t *data;
	size_t len;
	ssize_t r = h1_body_read(&x->body, p + *used, n - *used, &data, &len);
	if (r < 0) {
		conn_break(c);
		return false;
	}
	*used += (size_t)r;
	if (len && x->base.ops->body)
		x->base.ops->body(x->base.user, data, len);
	return r > 0 || len || (!c->dead && c->x == x && h1_body_done(&x->body));
}

/* Uses bytes of p[0 .. n) for as long as there is something to do; returns how many. */
static size_t conn_take(struct h1_conn *c, const uint8_t *p, size_t n)
{
	size_t used = 0;
	c->taking = true;
	while (!c->dead) {
		if (c->x) {
			if (!conn_take_body(c, p, n, &used))
				break;
			continue;
		}
		size_t r = c->last || used == n ? 0 : conn_take_head(c, p + used, n - used);
		if (!r)
			break;
		used += r;
	}
	c->taking = false;
	return used;
}

/* -- events of the stream -- */

static void on_data(void *user, const uint8_t *p, size_t n)
{
	struct h1_conn *c = user;
	conn_enter(c);
	bool fresh = !c->in.len;
	size_t used = fresh ? conn_take(c, p, n) : 0;
	if (!c->dead && !c->last) {
		if (buf_append(&c->in, p + used, n - used) < 0)
			conn_cut(c);
		else if (!fresh)
			buf_consume(&c->in, conn_take(c, c->in.data, c->in.len));
	}
	conn_leave(c);
}

static void on_wake(void *user)
{
	struct h1_conn *c = user;
	conn_enter(c);
	const uint8_t *p = c->in.len ? c->in.data : (const uint8_t *)"";
	buf_consume(&c->in, conn_take(c, p, c->in.len));
	conn_leave(c);
}

static void on_eof(void *user)
{
	struct h1_conn *c = user;
	conn_enter(c);
	conn_cut(c);
	conn_leave(c);
}

static void on_drained(void *user)
{
	struct h1_conn *c = user;
	conn_enter(c);
	if (c->x && c->x->base.ops->drained)
		c->x->base.ops->drained(c->x->base.user);
	conn_leave(c);
}

static void on_alarm(void *user)
{
	struct h1_conn *c = user;
	if (c->x)
		return;
	conn_enter(c);
	if (c->in.len)
		conn_refuse(c, STATUS_TIMEOUT);
	c->last = true;
	conn_leave(c);
}

static void on_closed(void *user, const struct err *why)
{
	struct h1_conn *c = user;
	(void)why;
	conn_enter(c);
	c->base.s = NULL;
	conn_lose_exchange(c);
	conn_leave(c);
}

static const struct stream_ops conn_stream_ops = {
	.data = on_data,
	.eof = on_eof,
	.drained = on_drained,
	.closed = on_closed,
};

/* -- exchanges -- */

static void exchange_read(struct http_exchange *base, bool on)
{
	struct h1_exchange *x = exchange_of(base);
	if (x->reading == on)
		return;
	x->reading = on;
	if (!on || x->body_ended)
		return;
	if (!x->continued && !x->started && !h1_body_done(&x->body)) {
		static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
		stream_write(base->conn->s, go_on, sizeof(go_on) - 1);
	}
	x->continued = true;
	conn_poke(conn_with(x));
}

/* The framing that this peer can take for this response. */
static enum http_framing fit_framing(const struct h1_exchange *x, unsigned status,
				     enum http_framing framing)
{
	bool bare = status == 204 || status == 304;
	if (bare && framing == HTTP_CHUNKED)
		return HTTP_NO_BODY;
	if (framing == HTTP_CHUNKED && x->base.head.minor == 0)
		return HTTP_TO_CLOSE;
	if (framing == HTTP_NO_BODY && !bare && strcmp(x->base.head.method, "HEAD") != 0)
		return HTTP_LENGTH;
	return framing;
}

/* Appends the head to c->head. */
static int exchange_head(struct h1_exchange *x, unsigned status, const struct http_fields *fields,
			 enum http_framing framing, uint64_t length)
{
	if (x->started || status < 200 || status > 599 || framing == HTTP_TO_CLOSE)
		return -EINVAL;
	struct h1_conn *c = conn_with(x);
	struct http_head head = {
		.status = status,
		.minor = x->base.head.minor,
		.framing = fit_framing(x, status, framing),
		.length = framing == HTTP_LENGTH ? length : 0,
	};
	if (fields)
		head.fields = *fields;
	head.keep_alive = x->base.head.keep_alive && head.framing != HTTP_TO_CLOSE &&
			  (h1_body_done(&x->body) || (x->continued && !x->base.whole));
	int r = h1_write_response(&c->head, &head);
	if (r < 0)
		return r == -ENOMEM ? r : -EINVAL;
	x->started = true;
	x->keep_alive = head.keep_alive;
	x->out = (struct body_out){
		.framing = head.framing,
		.left = head.length,
		.drop = status == 204 || status == 304 || strcmp(x->base.head.method, "HEAD") == 0,
	};
	if (x->out.drop && framing != HTTP_LENGTH)
		x->out.framing = HTTP_CHUNKED; /* any amount is dropped */
	return 0;
}

static int exchange_start(struct http_exchange *base, unsigned status,
			  const struct http_fields *fields, enum http_framing framing,
			  uint64_t length)
{
	struct h1_exchange *x = exchange_of(base);
	int r = exchange_head(x, status, fields, framing, length);
	if (r < 0)
		return r;
	struct h1_conn *c = conn_with(x);
	ssize_t queued = stream_write(c->base.s, c->head.data, c->head.len);
	buf_consume(&c->head, c->head.len);
	return queued < 0 ? (int)queued : 0;
}

static ssize_t exchange_write(struct http_exchange *base, const void *p, size_t n)
{
	struct h1_exchange *x = exchange_of(base);
	if (!x->started)
		return -EINVAL;
	return body_out_write(&x->out, base->conn->s, p, n);
}

static int exchange_trailers(struct http_exchange *base, const struct http_fields *fields)
{
	(void)base, (void)fields; /* chunked ones are dropped, as those that come are */
	return 0;
}

static void exchange_end(struct http_exchange *base)
{
	struct h1_exchange *x = exchange_of(base);
	struct h1_conn *c = conn_with(x);
	if (!x->started || body_out_end(&x->out, c->base.s) < 0) {
		exchange_abort(base);
		return;
	}
	exchange_over(x, x->keep_alive && h1_body_done(&x->body));
}

static void exchange_abort(struct http_exchange *base)
{
	struct h1_exchange *x = exchange_of(base);
	conn_with(x)->reset = x->started && x->out.framing == HTTP_TO_CLOSE;
	exchange_over(x, false);
}

static int exchange_switch(struct http_exchange *base, const struct http_fields *fields,
			   struct stream **ret, struct buf *ret_early)
{
	struct h1_exchange *x = exchange_of(base);
	struct h1_conn *c = conn_with(x);
	struct http_head head = {
		.status = STATUS_SWITCHING, .minor = 1, .fields = *fields, .upgrade = true};
	if (x->started || c->busy || x->base.head.minor != 1 || x->body.framing != HTTP_NO_BODY)
		return -EINVAL;
	int r = h1_write_response(&c->head, &head);
	if (r < 0)
		return r == -ENOMEM ? r : -EINVAL;
	ssize_t queued = stream_write(c->base.s, c->head.data, c->head.len);
	buf_consume(&c->head, c->head.len);
	if (queued < 0)
		return (int)queued;
	*ret = take_ptr(c->base.s);
	*ret_early = c->in;
	buf_init(&c->in, 0);
	c->x = NULL;
	exchange_free(x);
	conn_free(c);
	return 0;
}

static const struct http_exchange_kind h1_kind = {
	.version = 1,
	.read = exchange_read,
	.start = exchange_start,
	.write = exchange_write,
	.trailers = exchange_trailers,
	.end = exchange_end,
	.abort = exchange_abort,
	.switch_over = exchange_switch,
};

/* -- the connection -- */

static void conn_close(struct http_conn *base)
{
	struct h1_conn *c = conn_of(base);
	assert(!c->dead);
	c->dead = true;
	if (base->s)
		stream_close(take_ptr(base->s));
	c->busy++;
	conn_lose_exchange(c);
	if (!--c->busy)
		conn_free(c);
}

struct http_conn *http_serve(struct stream *s, const uint8_t *early, size_t n,
			     const struct http_limits *limits, const struct http_server_ops *ops,
			     void *user)
{
	struct h1_conn *c = calloc(1, sizeof(*c));
	if (c) {
		buf_init(&c->in, INPUT_MAX);
		buf_init(&c->head, HTTP_HEAD_MAX);
	}
	if (!c || buf_append(&c->in, early, n) < 0) {
		free(c);
		stream_close(s);
		return NULL;
	}
	c->base = (struct http_conn){.s = s, .close = conn_close};
	c->ops = ops;
	c->user = user;
	if (limits)
		c->limits = *limits;
	stream_set_ops(s, &conn_stream_ops, c);
	stream_set_hooks(s, on_wake, on_alarm);
	conn_set_clock(c);
	stream_read(s, true);
	if (n)
		stream_wake(s);
	return &c->base;
}
