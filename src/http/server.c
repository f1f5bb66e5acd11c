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
#define STATUS_TIMEOUT   408

enum clock_for { CLOCK_STOPPED, CLOCK_IDLE, CLOCK_HEAD };

struct http_conn {
	struct stream *s; /* NULL when it is gone, never while there is an exchange */
	const struct http_server_ops *ops;
	void *user;
	struct http_limits limits;
	struct http_exchange *x;
	struct buf in;
	struct buf head; /* a response head while it is written */
	enum clock_for clock;
	unsigned busy; /* events being handled */
	bool taking;   /* conn_take() is at work */
	bool last;     /* the exchange is over, no further request is read */
	bool reset;    /* the end must look like a failure */
	bool dead;     /* for the user */
};

struct http_exchange {
	struct http_conn *c;
	struct http_head head;
	struct h1_body body;
	struct body_out out;
	const struct http_exchange_ops *ops;
	void *user;
	void *owned; /* released with the exchange */
	void (*release)(void *owned);
	bool reading;
	bool body_ended; /* told */
	bool continued;  /* 100 was sent, or is not asked for */
	bool started;
	bool whole; /* it ends where it starts: what is unread then stays so */
	bool keep_alive;
};

static const struct http_exchange_ops no_ops;

static void conn_free(struct http_conn *c)
{
	buf_done(&c->in);
	buf_done(&c->head);
	free(c);
}

static void exchange_free(struct http_exchange *x)
{
	if (x->owned)
		x->release(x->owned);
	http_head_done(&x->head);
	free(x);
}

/* Has the loop look at the connection, unless conn_take() will anyway. */
static void conn_poke(struct http_conn *c)
{
	if (!c->taking)
		stream_wake(c->s);
}

/* The exchange is answered. */
static void exchange_over(struct http_exchange *x, bool keep_alive)
{
	struct http_conn *c = x->c;
	c->x = NULL;
	if (!keep_alive)
		c->last = true;
	exchange_free(x);
	conn_poke(c);
}

static void conn_lose_exchange(struct http_conn *c)
{
	struct http_exchange *x = take_ptr(c->x);
	if (!x)
		return;
	const struct http_exchange_ops *ops = x->ops;
	void *user = x->user, *owned = take_ptr(x->owned);
	void (*release)(void *) = x->release;
	exchange_free(x);
	if (ops->gone)
		ops->gone(user);
	if (owned)
		release(owned);
}

static void conn_cut(struct http_conn *c)
{
	c->last = true;
	conn_lose_exchange(c);
}

static void conn_enter(struct http_conn *c)
{
	c->busy++;
}

/* Where the end of the connection is the end of the body, only a reset tells that it was cut. */
static void conn_reset(struct http_conn *c)
{
	struct linger now = {.l_onoff = 1};
	setsockopt(stream_fd(c->s), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	stream_close(take_ptr(c->s));
}

static void conn_over(struct http_conn *c)
{
	if (c->s && c->reset)
		conn_reset(c);
	else if (c->s)
		stream_close_gracefully(take_ptr(c->s), CLOSE_TIMEOUT_MS);
	c->dead = true;
	c->ops->closed(c->user);
}

static void conn_set_clock(struct http_conn *c)
{
	enum clock_for clock = c->x ? CLOCK_STOPPED : c->in.len ? CLOCK_HEAD : CLOCK_IDLE;
	if (clock == c->clock)
		return;
	c->clock = clock;
	stream_alarm(c->s, clock == CLOCK_IDLE   ? c->limits.idle_timeout_ms
			   : clock == CLOCK_HEAD ? c->limits.head_timeout_ms
						 : 0);
}

static void conn_leave(struct http_conn *c)
{
	if (--c->busy)
		return;
	if (!c->dead && !c->x && (c->last || !c->s)) {
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
	stream_read(c->s, c->in.len < INPUT_HIGH);
}

/* -- refusing -- */

static const char *refusal_text(unsigned status)
{
	switch (status) {
	case STATUS_TIMEOUT:
		return "the request did not arrive in time";
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

static void conn_refuse(struct http_conn *c, unsigned status)
{
	char body[256], head[256];
	int n = snprintf(body, sizeof(body), "{\"code\":%u,\"message\":\"%s\"}", status,
			 refusal_text(status));
	int h = snprintf(head, sizeof(head),
			 "HTTP/1.1 %u %s\r\nContent-Type: application/json\r\n"
			 "Content-Length: %d\r\nConnection: close\r\n\r\n",
			 status, http_reason(status), n);
	const struct iovec pieces[] = {{head, (size_t)h}, {body, (size_t)n}};
	stream_writev(c->s, pieces, 2);
	c->last = true;
	if (c->ops->refused)
		c->ops->refused(c->user, status);
}

/* -- requests -- */

static int conn_begin(struct http_conn *c, struct http_head *head)
{
	struct http_exchange *x = calloc(1, sizeof(*x));
	if (!x) {
		http_head_done(head);
		return -ENOMEM;
	}
	x->c = c;
	x->head = *head;
	x->ops = &no_ops;
	x->continued = !head->expect_continue;
	h1_body_init(&x->body, head);
	c->x = x;
	c->clock = CLOCK_STOPPED;
	stream_alarm(c->s, 0);
	c->ops->request(c->user, x);
	if (!c->dead && c->x == x && x->ops == &no_ops)
		http_exchange_abort(x);
	return 0;
}

/* Returns the bytes taken, 0 when more are needed or the connection is at its end. */
static size_t conn_take_head(struct http_conn *c, const uint8_t *p, size_t n)
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

static void conn_break(struct http_conn *c)
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
static bool conn_take_body(struct http_conn *c, const uint8_t *p, size_t n, size_t *used)
{
	struct http_exchange *x = c->x;
	if (!x->reading || x->body_ended)
		return false;
	if (h1_body_done(&x->body)) {
		x->body_ended = true;
		if (x->ops->body_end)
			x->ops->body_end(x->user);
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
	if (len && x->ops->body)
		x->ops->body(x->user, data, len);
	return r > 0 || len || (!c->dead && c->x == x && h1_body_done(&x->body));
}

/* Uses bytes of p[0 .. n) for as long as there is something to do; returns how many. */
static size_t conn_take(struct http_conn *c, const uint8_t *p, size_t n)
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
	struct http_conn *c = user;
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
	struct http_conn *c = user;
	conn_enter(c);
	const uint8_t *p = c->in.len ? c->in.data : (const uint8_t *)"";
	buf_consume(&c->in, conn_take(c, p, c->in.len));
	conn_leave(c);
}

static void on_eof(void *user)
{
	struct http_conn *c = user;
	conn_enter(c);
	conn_cut(c);
	conn_leave(c);
}

static void on_drained(void *user)
{
	struct http_conn *c = user;
	conn_enter(c);
	if (c->x && c->x->ops->drained)
		c->x->ops->drained(c->x->user);
	conn_leave(c);
}

static void on_alarm(void *user)
{
	struct http_conn *c = user;
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
	struct http_conn *c = user;
	(void)why;
	conn_enter(c);
	c->s = NULL;
	conn_lose_exchange(c);
	conn_leave(c);
}

static const struct stream_ops conn_stream_ops = {
	.data = on_data,
	.eof = on_eof,
	.drained = on_drained,
	.closed = on_closed,
};

struct http_conn *http_serve(struct stream *s, const uint8_t *early, size_t n,
			     const struct http_limits *limits, const struct http_server_ops *ops,
			     void *user)
{
	struct http_conn *c = calloc(1, sizeof(*c));
	if (c) {
		buf_init(&c->in, INPUT_MAX);
		buf_init(&c->head, HTTP_HEAD_MAX);
	}
	if (!c || buf_append(&c->in, early, n) < 0) {
		free(c);
		stream_close(s);
		return NULL;
	}
	c->s = s;
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
	return c;
}

void http_conn_close(struct http_conn *c)
{
	assert(!c->dead);
	c->dead = true;
	if (c->s)
		stream_close(take_ptr(c->s));
	c->busy++;
	conn_lose_exchange(c);
	if (!--c->busy)
		conn_free(c);
}

struct stream *http_conn_stream(struct http_conn *c)
{
	return c->s;
}

/* -- exchanges -- */

const struct http_head *http_exchange_head(const struct http_exchange *x)
{
	return &x->head;
}

struct http_conn *http_exchange_conn(const struct http_exchange *x)
{
	return x->c;
}

void http_exchange_on(struct http_exchange *x, const struct http_exchange_ops *ops, void *user)
{
	x->ops = ops;
	x->user = user;
}

void http_exchange_read(struct http_exchange *x, bool on)
{
	if (x->reading == on)
		return;
	x->reading = on;
	if (!on || x->body_ended)
		return;
	struct stream *s = x->c->s;
	if (!x->continued && !x->started && !h1_body_done(&x->body)) {
		static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
		stream_write(s, go_on, sizeof(go_on) - 1);
	}
	x->continued = true;
	conn_poke(x->c);
}

/* The framing that this peer can take for this response. */
static enum http_framing fit_framing(const struct http_exchange *x, unsigned status,
				     enum http_framing framing)
{
	bool bare = status == 204 || status == 304;
	if (bare && framing == HTTP_CHUNKED)
		return HTTP_NO_BODY;
	if (framing == HTTP_CHUNKED && x->head.minor == 0)
		return HTTP_TO_CLOSE;
	if (framing == HTTP_NO_BODY && !bare && strcmp(x->head.method, "HEAD") != 0)
		return HTTP_LENGTH;
	return framing;
}

/* Appends the head to c->head. */
static int exchange_head(struct http_exchange *x, unsigned status, const struct http_fields *fields,
			 enum http_framing framing, uint64_t length)
{
	if (x->started || status < 200 || status > 599 || framing == HTTP_TO_CLOSE)
		return -EINVAL;
	struct http_conn *c = x->c;
	struct http_head head = {
		.status = status,
		.minor = x->head.minor,
		.framing = fit_framing(x, status, framing),
		.length = framing == HTTP_LENGTH ? length : 0,
	};
	if (fields)
		head.fields = *fields;
	head.keep_alive = x->head.keep_alive && head.framing != HTTP_TO_CLOSE &&
			  (h1_body_done(&x->body) || (x->continued && !x->whole));
	int r = h1_write_response(&c->head, &head);
	if (r < 0)
		return r == -ENOMEM ? r : -EINVAL;
	x->started = true;
	x->keep_alive = head.keep_alive;
	x->out = (struct body_out){
		.framing = head.framing,
		.left = head.length,
		.drop = status == 204 || status == 304 || strcmp(x->head.method, "HEAD") == 0,
	};
	if (x->out.drop && framing != HTTP_LENGTH)
		x->out.framing = HTTP_CHUNKED; /* any amount is dropped */
	return 0;
}

int http_exchange_start(struct http_exchange *x, unsigned status, const struct http_fields *fields,
			enum http_framing framing, uint64_t length)
{
	int r = exchange_head(x, status, fields, framing, length);
	if (r < 0)
		return r;
	struct http_conn *c = x->c;
	ssize_t queued = stream_write(c->s, c->head.data, c->head.len);
	buf_consume(&c->head, c->head.len);
	return queued < 0 ? (int)queued : 0;
}

ssize_t http_exchange_write(struct http_exchange *x, const void *p, size_t n)
{
	if (!x->started)
		return -EINVAL;
	return body_out_write(&x->out, x->c->s, p, n);
}

void http_exchange_end(struct http_exchange *x)
{
	struct http_conn *c = x->c;
	if (!x->started || body_out_end(&x->out, c->s) < 0) {
		http_exchange_abort(x);
		return;
	}
	exchange_over(x, x->keep_alive && h1_body_done(&x->body));
}

void http_exchange_abort(struct http_exchange *x)
{
	x->c->reset = x->started && x->out.framing == HTTP_TO_CLOSE;
	exchange_over(x, false);
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
