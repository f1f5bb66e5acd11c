/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's side of a connection of HTTP/2, over libnghttp2. Each event is bracketed by
 * session_enter() and session_leave(): inside, nghttp2 reads and heads and bodies are told; at its
 * end what became due is told, and frames are taken from nghttp2 for as long as the socket has
 * room.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "http/h2_client_state.h"
#include "http/stream_filter.h"

#define CLOSE_TIMEOUT_MS 1000 /* for the server to take the GOAWAY */

uint64_t h2_session_now(const struct h2_session *h)
{
	return h->s ? uv_now(stream_loop(h->s)) : 0;
}

void h2_session_poke(struct h2_session *h)
{
	if (!h->gathering && h->s)
		stream_wake(h->s);
}

void h2_session_fail(struct h2_session *h, int code, const char *text)
{
	if (!h->why.code)
		err_set(&h->why, code, "%s", text);
	h2_session_poke(h);
}

bool h2_session_noise(struct h2_session *h)
{
	if (h2_bucket_charge(&h->noise, h2_session_now(h), H2C_NOISE_BURST, H2C_NOISE_RATE))
		return true;
	h2_session_fail(h, EPROTO, "the server floods");
	return false;
}

/* -- the bracket -- */

static void session_free(struct h2_session *h)
{
	nghttp2_session_del(h->ng);
	free(h);
}

static void session_pump(struct h2_session *h)
{
	while (h->s && stream_queued(h->s) < H2C_SOCKET_HIGH) {
		const uint8_t *p;
		ssize_t n = nghttp2_session_mem_send(h->ng, &p);
		if (n == 0 || !h->s) /* a user that is told of an end may have closed it */
			return;
		if (n < 0 || stream_write(h->s, p, (size_t)n) < 0) {
			h2_session_fail(h, EPROTO, "the connection can't be written to");
			return;
		}
	}
}

static void session_enter(struct h2_session *h)
{
	h->busy++;
	h->gathering = true;
}

/* Each client once, whatever the others' users do meanwhile. */
static void session_deliver(struct h2_session *h)
{
	struct list todo;
	list_init(&todo);
	list_move_all(&todo, &h->clients);
	h->due = false;
	while (!list_empty(&todo)) {
		struct h2_client *c = list_entry(todo.next, struct h2_client, link);
		list_remove(&c->link);
		list_append(&h->clients, &c->link);
		h2_client_deliver(c);
	}
}

static void session_settle(struct h2_session *h)
{
	if (h->due && !h->why.code)
		session_deliver(h);
	h->gathering = false;
	if (h->dead || h->why.code)
		return;
	session_pump(h);
	if (h->due && h->s)
		stream_wake(h->s);
	bool ends = (h->going && list_empty(&h->clients)) ||
		    (!nghttp2_session_want_read(h->ng) && !nghttp2_session_want_write(h->ng));
	if (ends)
		h2_session_fail(h, ECONNRESET, "the server closed the connection");
}

/* What waits for its turn in nghttp2 will never have it: the server has not seen it. */
static void session_turn_away(struct h2_session *h)
{
	h->going = true;
	list_for_each (it, &h->clients) {
		struct h2_client *c = list_entry(it, struct h2_client, link);
		if (c->active && c->id && !nghttp2_session_find_stream(h->ng, c->id))
			h2_client_fail(c, EAGAIN, "the request was not sent");
	}
}

/* Tells all that it is over. */
static void session_over(struct h2_session *h)
{
	session_turn_away(h);
	if (h->s && h->why.code == EPROTO) {
		nghttp2_session_terminate_session(h->ng, NGHTTP2_ENHANCE_YOUR_CALM);
		session_pump(h);
	}
	while (!list_empty(&h->clients))
		h2_client_lost(list_entry(h->clients.next, struct h2_client, link), &h->why);
	if (h->dead)
		return;
	h->dead = true;
	if (h->s)
		stream_close_gracefully(take_ptr(h->s), CLOSE_TIMEOUT_MS);
	if (h->closed)
		h->closed(h->user);
}

static void session_leave(struct h2_session *h)
{
	if (h->busy == 1 && !h->dead)
		session_settle(h);
	if (h->busy == 1 && !h->dead && h->why.code)
		session_over(h);
	if (--h->busy == 0 && h->dead)
		session_free(h);
}

/* -- what nghttp2 tells -- */

static int on_begin_frame(nghttp2_session *s, const nghttp2_frame_hd *hd, void *user)
{
	(void)s;
	struct h2_session *h = user;
	bool ok = !h->dead && !h->why.code;
	if (!ok)
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	if (hd->type != NGHTTP2_CONTINUATION) {
		h->continuations = 0;
	} else if (++h->continuations > H2C_CONTINUATION) {
		h2_session_fail(h, EPROTO, "the server floods");
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	}
	if (hd->type == NGHTTP2_PUSH_PROMISE) { /* nghttp2 minds it only once SETTINGS are acked */
		h2_session_fail(h, EPROTO, "the server pushes what was not asked for");
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	}
	bool moves = hd->type == NGHTTP2_DATA || hd->type == NGHTTP2_HEADERS ||
		     hd->type == NGHTTP2_WINDOW_UPDATE || hd->type == NGHTTP2_CONTINUATION;
	return moves || h2_session_noise(h) ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static void session_settled(struct h2_session *h)
{
	bool first = !h->settled;
	h->settled = true;
	if (first && h->on_settings)
		h->on_settings(h->user);
}

static int on_frame_recv(nghttp2_session *s, const nghttp2_frame *frame, void *user)
{
	(void)s;
	struct h2_session *h = user;
	bool data = frame->hd.type == NGHTTP2_DATA, head = frame->hd.type == NGHTTP2_HEADERS;
	bool ends = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
	if (frame->hd.type == NGHTTP2_GOAWAY)
		session_turn_away(h);
	if (frame->hd.type == NGHTTP2_SETTINGS && !(frame->hd.flags & NGHTTP2_FLAG_ACK))
		session_settled(h);
	if (data && frame->hd.length == frame->data.padlen && !ends && !h2_session_noise(h))
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	struct h2_client *c = data || head ? h2_client_find(h, frame->hd.stream_id) : NULL;
	if (!c)
		return 0;
	h2_client_enter(c);
	if (ends)
		c->ended_in = h->due = true;
	if (head)
		h2_response_block(c);
	h2_client_leave(c);
	return h->dead ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_invalid_frame(nghttp2_session *s, const nghttp2_frame *frame, int error, void *user)
{
	(void)s, (void)error;
	struct h2_session *h = user;
	struct h2_client *c = h2_client_find(h, frame->hd.stream_id);
	if (c)
		h2_client_fail(c, EBADMSG, "the response is malformed");
	return h2_session_noise(h) ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_body(nghttp2_session *s, uint8_t flags, int32_t id, const uint8_t *p, size_t n,
		   void *user)
{
	(void)flags;
	struct h2_session *h = user;
	struct h2_client *c = h2_client_find(h, id);
	if (c)
		h2_client_body(c, p, n);
	else
		nghttp2_session_consume(s, id, n);
	return h->dead ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_stream_close(nghttp2_session *s, int32_t id, uint32_t error, void *user)
{
	(void)s;
	struct h2_client *c = h2_client_find(user, id);
	if (!c)
		return 0;
	c->id = 0;
	if (c->ended_in)
		return 0;
	if (error == NGHTTP2_REFUSED_STREAM && !c->head_seen) /* seen: that is a lie */
		h2_client_fail(c, EAGAIN, "the server refused the request unseen");
	else
		h2_client_fail(c, ECONNRESET, "the server reset the stream");
	return 0;
}

/* -- events of the stream -- */

static void on_data(void *user, const uint8_t *p, size_t n)
{
	struct h2_session *h = user;
	session_enter(h);
	ssize_t r = nghttp2_session_mem_recv(h->ng, p, n);
	if (r < 0 && !h->dead)
		h2_session_fail(h, r == NGHTTP2_ERR_NOMEM ? ENOMEM : EPROTO,
				"the server sent no valid HTTP/2");
	session_leave(h);
}

static void on_wake(void *user)
{
	struct h2_session *h = user;
	session_enter(h);
	session_leave(h);
}

static void on_alarm(void *user)
{
	struct h2_session *h = user;
	uint64_t now = h2_session_now(h), next = 0;
	session_enter(h);
	list_for_each (it, &h->clients) {
		struct h2_client *c = list_entry(it, struct h2_client, link);
		if (!c->active || !c->deadline_ms)
			continue;
		if (now >= c->deadline_ms)
			h2_client_fail(c, ETIMEDOUT, "no response in time");
		else if (!next || c->deadline_ms - now < next)
			next = c->deadline_ms - now;
	}
	stream_alarm(h->s, next);
	session_leave(h);
}

static void on_eof(void *user)
{
	struct h2_session *h = user;
	session_enter(h);
	if (h->due && !h->why.code)
		session_deliver(h);
	h2_session_fail(h, ECONNRESET, "the server closed the connection");
	session_leave(h);
}

static void on_closed(void *user, const struct err *why)
{
	struct h2_session *h = user;
	session_enter(h);
	h->s = NULL;
	h2_session_fail(h, why->code ? why->code : ECONNRESET, why->text);
	session_leave(h);
}

static const struct stream_ops session_stream_ops = {
	.data = on_data,
	.eof = on_eof,
	.drained = on_wake,
	.closed = on_closed,
};

/* -- the beginning -- */

static nghttp2_session_callbacks *callbacks_new(void)
{
	nghttp2_session_callbacks *cb;
	if (nghttp2_session_callbacks_new(&cb) < 0)
		return NULL;
	nghttp2_session_callbacks_set_on_begin_frame_callback(cb, on_begin_frame);
	nghttp2_session_callbacks_set_on_begin_headers_callback(cb, h2_response_begin);
	nghttp2_session_callbacks_set_on_header_callback(cb, h2_response_field);
	nghttp2_session_callbacks_set_on_invalid_header_callback(cb, h2_response_invalid);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame_recv);
	nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cb, on_invalid_frame);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_body);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
	return cb;
}

/* Our limits rather than nghttp2's defaults. 0, -ENOMEM. */
static int session_start(struct h2_session *h)
{
	static const nghttp2_settings_entry settings[] = {
		{NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
		{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, H2C_STREAM_IN},
		{NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HTTP_HEAD_MAX},
	};
	nghttp2_option *o = NULL;
	nghttp2_session_callbacks *cb = callbacks_new();
	int r = cb && nghttp2_option_new(&o) == 0 ? 0 : -ENOMEM;
	if (r == 0) {
		nghttp2_option_set_no_auto_window_update(o, 1);
		nghttp2_option_set_no_closed_streams(o, 1);
		r = nghttp2_session_client_new2(&h->ng, cb, h, o) == 0 ? 0 : -ENOMEM;
	}
	nghttp2_option_del(o);
	nghttp2_session_callbacks_del(cb);
	if (r < 0)
		return r;
	if (nghttp2_submit_settings(h->ng, NGHTTP2_FLAG_NONE, settings,
				    sizeof(settings) / sizeof(settings[0])) < 0 ||
	    nghttp2_session_set_local_window_size(h->ng, NGHTTP2_FLAG_NONE, 0, H2C_SESSION_IN) < 0)
		return -ENOMEM;
	return 0;
}

struct h2_session *h2_session_new(struct stream *s, void (*closed)(void *user), void *user)
{
	struct h2_session *h = calloc(1, sizeof(*h));
	if (!h || session_start(h) < 0) {
		if (h)
			session_free(h);
		stream_close(s);
		return NULL;
	}
	h->s = s;
	h->closed = closed;
	h->user = user;
	list_init(&h->clients);
	stream_set_ops(s, &session_stream_ops, h);
	stream_set_hooks(s, on_wake, on_alarm);
	stream_read(s, true);
	stream_wake(s);
	return h;
}

void h2_session_on_settings(struct h2_session *h, void (*told)(void *user))
{
	h->on_settings = told;
}

static bool session_lives(const struct h2_session *h)
{
	return !h->dead && !h->going && !h->why.code && h->s;
}

bool h2_session_pending(const struct h2_session *h)
{
	return session_lives(h) && !h->settled;
}

bool h2_session_usable(const struct h2_session *h)
{
	uint32_t most =
		nghttp2_session_get_remote_settings(h->ng, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
	if (!h->settled)
		most = 1;
	return session_lives(h) && h->count < H2C_CLIENTS_MAX && h->count < most &&
	       nghttp2_session_check_request_allowed(h->ng);
}

bool h2_session_idle(const struct h2_session *h)
{
	return !h->count;
}

struct http_client *h2_session_client(struct h2_session *h)
{
	struct h2_client *c = h2_session_usable(h) ? h2_client_new(h) : NULL;
	return c ? &c->base : NULL;
}

void h2_session_close(struct h2_session *h)
{
	assert(!h->dead && !h->count);
	h->dead = true;
	if (h->s)
		stream_close(take_ptr(h->s));
	if (!h->busy)
		session_free(h);
}
