/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's side of a connection of HTTP/2, over libnghttp2. Each event is bracketed by
 * conn_enter() and conn_leave(): inside, nghttp2 reads and the users of exchanges are told; at its
 * end conn_settle() tells what became due, and takes frames from nghttp2 for as long as the socket
 * has room. What nghttp2 has in hand is therefore bounded by its windows, ours by the caps of
 * h2_state.h.
 *
 * What a peer can have us do for nothing is counted in two buckets: frames that move nothing, and
 * streams that were reset or refused (CVE-2023-44487). Past them the connection ends.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "http/h1.h"
#include "http/h2_state.h"
#include "http/stream_filter.h"

#define CLOSE_TIMEOUT_MS 10000 /* for the peer to take the GOAWAY */
#define STATUS_TIMEOUT   408
#define STATUS_TOO_MANY  429

uint64_t h2_now(const struct h2_conn *c)
{
	return c->base.s ? uv_now(stream_loop(c->base.s)) : 0;
}

/* -- what is too much -- */

static void conn_fault(struct h2_conn *c, uint32_t error, unsigned status)
{
	if (c->error)
		return;
	c->error = error;
	c->refused_with = status;
	h2_conn_poke(c);
}

void h2_conn_calm(struct h2_conn *c)
{
	conn_fault(c, NGHTTP2_ENHANCE_YOUR_CALM, STATUS_TOO_MANY);
}

bool h2_charge_noise(struct h2_conn *c)
{
	bool ok = h2_bucket_charge(&c->noise, h2_now(c), H2_NOISE_BURST, H2_NOISE_RATE);
	if (!ok)
		h2_conn_calm(c);
	return ok;
}

bool h2_charge_reset(struct h2_conn *c)
{
	bool ok = h2_bucket_charge(&c->resets, h2_now(c), H2_RESETS_BURST, H2_RESETS_RATE);
	if (!ok)
		h2_conn_calm(c);
	return ok;
}

/* -- the end -- */

static void conn_free(struct h2_conn *c)
{
	nghttp2_session_del(c->session);
	free(c);
}

static void conn_lose_all(struct h2_conn *c)
{
	while (!list_empty(&c->streams))
		h2_exchange_lose(list_entry(c->streams.next, struct h2_exchange, link));
}

/* Takes frames for as long as the socket has room. */
static void conn_pump(struct h2_conn *c)
{
	while (c->base.s && stream_queued(c->base.s) < H2_SOCKET_HIGH) {
		const uint8_t *p;
		ssize_t n = nghttp2_session_mem_send(c->session, &p);
		if (n == 0 || !c->base.s) /* gone() may have closed it */
			return;
		if (n < 0 || stream_write(c->base.s, p, (size_t)n) < 0) {
			c->last = true;
			return;
		}
	}
}

/* Says why, where that can still be said. */
static void conn_over(struct h2_conn *c)
{
	if (c->error && c->base.s)
		nghttp2_session_terminate_session(c->session, c->error);
	if (c->error && c->ops->refused)
		c->ops->refused(c->user, c->refused_with);
	conn_lose_all(c);
	if (c->dead)
		return;
	if (c->base.s) {
		conn_pump(c);
		stream_close_gracefully(take_ptr(c->base.s), CLOSE_TIMEOUT_MS);
	}
	c->dead = true;
	c->ops->closed(c->user);
}

/* -- the bracket -- */

void h2_conn_poke(struct h2_conn *c)
{
	if (!c->gathering && c->base.s)
		stream_wake(c->base.s);
}

static void conn_enter(struct h2_conn *c)
{
	c->busy++;
	c->gathering = true;
}

/* Tells each exchange what it is owed; more may become due meanwhile, for the next turn. */
static void conn_deliver(struct h2_conn *c)
{
	c->due = false;
	for (struct list *it = c->streams.next; it != &c->streams; it = c->next) {
		if (c->dead || c->last || c->error)
			break;
		c->next = it->next;
		h2_exchange_deliver(list_entry(it, struct h2_exchange, link));
	}
	c->next = NULL;
}

static void conn_settle(struct h2_conn *c)
{
	if (c->due)
		conn_deliver(c);
	c->gathering = false;
	if (c->dead || c->error || c->last || !c->base.s)
		return;
	conn_pump(c);
	if (!c->base.s)
		return;
	bool writes = nghttp2_session_want_write(c->session);
	if (!writes &&
	    (!nghttp2_session_want_read(c->session) || (c->draining && list_empty(&c->streams))))
		c->last = true;
	else if (c->due)
		stream_wake(c->base.s);
}

static void conn_leave(struct h2_conn *c)
{
	if (c->busy == 1 && !c->dead)
		conn_settle(c);
	if (c->busy == 1 && !c->dead && (c->last || c->error || !c->base.s))
		conn_over(c);
	if (--c->busy == 0 && c->dead)
		conn_free(c);
}

static void conn_close(struct http_conn *base)
{
	struct h2_conn *c = (struct h2_conn *)base;
	assert(!c->dead);
	c->dead = true;
	if (base->s)
		stream_close(take_ptr(base->s));
	c->busy++;
	conn_lose_all(c);
	if (--c->busy == 0)
		conn_free(c);
}

/* -- what nghttp2 tells -- */

static int on_begin_frame(nghttp2_session *s, const nghttp2_frame_hd *hd, void *user)
{
	(void)s;
	struct h2_conn *c = user;
	if (c->dead || c->last || c->error)
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	bool ok = true;
	if (hd->type == NGHTTP2_CONTINUATION) {
		ok = ++c->continuations <= H2_CONTINUATION;
		if (!ok)
			h2_conn_calm(c);
	} else {
		c->continuations = 0;
		c->head_since = 0;
	}
	if (hd->type == NGHTTP2_RST_STREAM)
		ok = h2_charge_reset(c);
	else if (hd->type != NGHTTP2_DATA && hd->type != NGHTTP2_HEADERS &&
		 hd->type != NGHTTP2_WINDOW_UPDATE && hd->type != NGHTTP2_CONTINUATION)
		ok = h2_charge_noise(c);
	return ok ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_data_frame(struct h2_conn *c, const nghttp2_frame *frame)
{
	size_t n = frame->hd.length - frame->data.padlen;
	bool ends = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
	if (!n && !ends && !h2_charge_noise(c))
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	return 0;
}

static int on_frame_recv(nghttp2_session *s, const nghttp2_frame *frame, void *user)
{
	(void)s;
	struct h2_conn *c = user;
	bool head = frame->hd.type == NGHTTP2_HEADERS;
	if (frame->hd.type == NGHTTP2_DATA && on_data_frame(c, frame) < 0)
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	if (!head && frame->hd.type != NGHTTP2_DATA)
		return 0;
	if (head)
		c->head_since = 0;
	struct h2_exchange *x = h2_exchange_find(c, frame->hd.stream_id);
	if (!x || x->stage == H2_DONE)
		return 0;
	if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
		x->ended_in = c->due = true;
	if (x->stage == H2_HEAD)
		h2_request_complete(x);
	else if (x->fault) /* of trailers */
		nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, x->id,
					  NGHTTP2_PROTOCOL_ERROR);
	return c->dead ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_invalid_frame(nghttp2_session *s, const nghttp2_frame *frame, int error, void *user)
{
	(void)s, (void)error;
	struct h2_conn *c = user;
	if (c->dead || c->last)
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	if (frame->hd.type == NGHTTP2_HEADERS)
		c->head_since = 0;
	if (c->ops->refused)
		c->ops->refused(c->user, H1_BAD_REQUEST);
	return h2_charge_reset(c) ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_body(nghttp2_session *s, uint8_t flags, int32_t id, const uint8_t *p, size_t n,
		   void *user)
{
	(void)flags;
	struct h2_conn *c = user;
	struct h2_exchange *x = h2_exchange_find(c, id);
	if (x)
		h2_exchange_body(x, p, n);
	else
		nghttp2_session_consume(s, id, n);
	return c->dead ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_stream_close(nghttp2_session *s, int32_t id, uint32_t error, void *user)
{
	(void)s, (void)error;
	struct h2_conn *c = user;
	struct h2_exchange *x = h2_exchange_find(c, id);
	if (x)
		h2_exchange_closed(x);
	return 0;
}

static int on_frame_send(nghttp2_session *s, const nghttp2_frame *frame, void *user)
{
	(void)s;
	struct h2_conn *c = user;
	bool ends = (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) &&
		    frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
	struct h2_exchange *x = ends ? h2_exchange_find(c, frame->hd.stream_id) : NULL;
	if (x)
		h2_exchange_sent_end(x);
	return 0;
}

/* Frames of types that nobody knows: on_begin_frame() has counted them. */
static int on_extension(nghttp2_session *s, void **payload, const nghttp2_frame_hd *hd, void *user)
{
	(void)s, (void)payload, (void)hd, (void)user;
	return NGHTTP2_ERR_CANCEL;
}

/* -- events of the stream -- */

static void on_data(void *user, const uint8_t *p, size_t n)
{
	struct h2_conn *c = user;
	conn_enter(c);
	ssize_t r = nghttp2_session_mem_recv(c->session, p, n);
	if (r == NGHTTP2_ERR_FLOODED || r == NGHTTP2_ERR_TOO_MANY_CONTINUATIONS)
		h2_conn_calm(c);
	else if (r < 0 && !c->dead && !c->last)
		conn_fault(c,
			   r == NGHTTP2_ERR_NOMEM ? NGHTTP2_INTERNAL_ERROR : NGHTTP2_PROTOCOL_ERROR,
			   H1_BAD_REQUEST);
	conn_leave(c);
}

static void on_wake(void *user)
{
	struct h2_conn *c = user;
	conn_enter(c);
	conn_leave(c);
}

static void on_eof(void *user)
{
	struct h2_conn *c = user;
	conn_enter(c);
	c->last = true;
	conn_leave(c);
}

static void on_closed(void *user, const struct err *why)
{
	struct h2_conn *c = user;
	(void)why;
	conn_enter(c);
	c->base.s = NULL;
	conn_leave(c);
}

static const struct stream_ops conn_stream_ops = {
	.data = on_data,
	.eof = on_eof,
	.drained = on_wake,
	.closed = on_closed,
};

/* -- deadlines -- */

static uint64_t sooner(uint64_t a, uint64_t b)
{
	return !b || (a && a < b) ? a : b;
}

/* The time left of what began then; 0 where it has not begun or has no limit, else at least 1. */
static uint64_t left_of(uint64_t since, uint64_t limit, uint64_t now)
{
	if (!since || !limit)
		return 0;
	return now - since < limit ? limit - (now - since) : 1;
}

static bool is_over(uint64_t since, uint64_t limit, uint64_t now)
{
	return since && limit && now - since >= limit;
}

/*
 * One alarm for all deadlines. It is never further away than the shortest of the limits, so that
 * none which begins after it was set is missed, and nothing has to be set anew for each.
 */
static void conn_set_alarm(struct h2_conn *c)
{
	const struct http_limits *l = &c->limits;
	uint64_t now = h2_now(c);
	uint64_t next = sooner(sooner(l->head_timeout_ms, l->idle_timeout_ms), l->stall_timeout_ms);
	next = sooner(next, left_of(c->head_since, l->head_timeout_ms, now));
	next = sooner(next, left_of(c->idle_since, l->idle_timeout_ms, now));
	list_for_each (it, &c->streams) {
		const struct h2_exchange *x = list_entry(it, struct h2_exchange, link);
		if (x->out.queue.len)
			next = sooner(next, left_of(x->moved_ms, l->stall_timeout_ms, now));
	}
	stream_alarm(c->base.s, next);
}

static bool conn_stalls(const struct h2_conn *c, uint64_t now)
{
	list_for_each (it, &c->streams) {
		const struct h2_exchange *x = list_entry(it, struct h2_exchange, link);
		if (x->out.queue.len && is_over(x->moved_ms, c->limits.stall_timeout_ms, now))
			return true;
	}
	return false;
}

static void on_alarm(void *user)
{
	struct h2_conn *c = user;
	uint64_t now = h2_now(c);
	conn_enter(c);
	if (is_over(c->head_since, c->limits.head_timeout_ms, now)) {
		conn_fault(c, NGHTTP2_ENHANCE_YOUR_CALM, STATUS_TIMEOUT);
	} else if (conn_stalls(c, now)) {
		h2_conn_calm(c);
	} else if (is_over(c->idle_since, c->limits.idle_timeout_ms, now)) {
		nghttp2_session_terminate_session(c->session, NGHTTP2_NO_ERROR);
		c->last = true;
	} else {
		conn_set_alarm(c);
	}
	conn_leave(c);
}

/* -- the beginning -- */

static nghttp2_session_callbacks *callbacks_new(void)
{
	nghttp2_session_callbacks *cb;
	if (nghttp2_session_callbacks_new(&cb) < 0)
		return NULL;
	nghttp2_session_callbacks_set_on_begin_frame_callback(cb, on_begin_frame);
	nghttp2_session_callbacks_set_on_begin_headers_callback(cb, h2_on_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(cb, h2_on_header);
	nghttp2_session_callbacks_set_on_invalid_header_callback(cb, h2_on_invalid_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame_recv);
	nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cb, on_invalid_frame);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_body);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
	nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_send);
	nghttp2_session_callbacks_set_unpack_extension_callback(cb, on_extension);
	return cb;
}

/* Our limits rather than nghttp2's defaults. 0, -ENOMEM. */
static int conn_session(struct h2_conn *c)
{
	static const nghttp2_settings_entry settings[] = {
		{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, H2_STREAMS_MAX},
		{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, H2_STREAM_IN},
		{NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HTTP_HEAD_MAX},
	};
	nghttp2_option *o = NULL;
	nghttp2_session_callbacks *cb = callbacks_new();
	int r = cb && nghttp2_option_new(&o) == 0 ? 0 : -ENOMEM;
	if (r == 0) {
		nghttp2_option_set_no_auto_window_update(o, 1);
		nghttp2_option_set_no_closed_streams(o, 1);
		nghttp2_option_set_stream_reset_rate_limit(o, UINT32_MAX, UINT32_MAX); /* ours */
		for (unsigned type = NGHTTP2_CONTINUATION + 1; type <= UINT8_MAX; type++)
			nghttp2_option_set_user_recv_extension_type(o, (uint8_t)type);
		r = nghttp2_session_server_new2(&c->session, cb, c, o) == 0 ? 0 : -ENOMEM;
	}
	nghttp2_option_del(o);
	nghttp2_session_callbacks_del(cb);
	if (r < 0)
		return r;
	if (nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings,
				    sizeof(settings) / sizeof(settings[0])) < 0 ||
	    nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0, H2_CONN_IN) < 0)
		return -ENOMEM;
	return 0;
}

struct http_conn *http_serve_h2(struct stream *s, const struct http_limits *limits,
				const struct http_server_ops *ops, void *user)
{
	struct h2_conn *c = calloc(1, sizeof(*c));
	if (!c || conn_session(c) < 0) {
		if (c)
			conn_free(c);
		stream_close(s);
		return NULL;
	}
	c->base = (struct http_conn){.s = s, .close = conn_close};
	c->ops = ops;
	c->user = user;
	if (limits)
		c->limits = *limits;
	list_init(&c->streams);
	c->idle_since = h2_now(c);
	stream_set_ops(s, &conn_stream_ops, c);
	stream_set_hooks(s, on_wake, on_alarm);
	conn_set_alarm(c);
	stream_read(s, true);
	stream_wake(s);
	return &c->base;
}
