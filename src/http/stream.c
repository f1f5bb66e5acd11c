/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams over a non-blocking socket and a uv_poll_t. Theory of operation:
 *
 * Input is received into the stack and handed up at once, so an idle stream owns no buffer. Output
 * is corked: small writes gather in `out` (under a filter, unencrypted in `plain`) until the loop's
 * next turn, so that a head and its body leave in one system call; large ones are sent from the
 * caller's memory together with what is corked.
 *
 * Three events drive a stream: the socket (on_poll), the turn (an idle handle, for all that must
 * not happen inside a user's call) and the timer (one for all deadlines, armed lazily: it may fire
 * early, never late). Each ends in stream_settle(), the only place where closed() is called.
 * Whoever calls the user looks at s->state afterwards: memory lives until the loop has closed the
 * handles, which is never before the event ends.
 *
 * When sending fails, what the peer had sent before is still read: it may be the reason.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/stream_state.h"

#define STREAM_CHUNK     ((size_t)64 * 1024) /* bytes received in one call */
#define STREAM_RECORD    ((size_t)16 * 1024) /* bytes of plaintext taken from a filter in one call */
#define STREAM_ROUNDS    4                   /* receive calls per event */
#define STREAM_LINGER_MS 1000                /* for the peer to read our last words */

static void no_data(void *user, const uint8_t *p, size_t n)
{
	(void)user, (void)p, (void)n;
}

const struct stream_ops stream_no_ops = {.data = no_data};

static void stream_settle(struct stream *s);
static void on_turn(uv_idle_t *h);

void stream_want_turn(struct stream *s)
{
	uv_idle_start(&s->turn, on_turn);
}

void stream_fail(struct stream *s, int code, const char *what)
{
	if (s->why.code)
		return;
	err_sys(&s->why, code, "%s", what);
	stream_want_turn(s);
}

/* -- closing -- */

/* Those whose user is gone: nobody else knows of them. */
static struct list detached = {&detached, &detached};

static void on_handle_closed(uv_handle_t *h)
{
	struct stream *s = h->data;
	if (--s->handles)
		return;
	if (s->filter)
		s->filter->ops->free(s->filter);
	buf_done(&s->plain);
	buf_done(&s->out);
	free(s);
}

static void stream_destroy(struct stream *s)
{
	s->state = STREAM_CLOSED;
	list_remove(&s->detached_link);
	uv_close((uv_handle_t *)&s->poll, on_handle_closed);
	uv_close((uv_handle_t *)&s->turn, on_handle_closed);
	uv_close((uv_handle_t *)&s->timer, on_handle_closed);
	close(s->fd);
	s->fd = -1;
}

/* -- time -- */

uint64_t stream_earlier(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

static void on_timer(uv_timer_t *t);

void stream_arm(struct stream *s)
{
	uint64_t idle = s->idle_ms ? s->moved_at + s->idle_ms : 0;
	uint64_t due = stream_earlier(stream_earlier(s->deadline, s->alarm_at), idle);
	if (!due) {
		uv_timer_stop(&s->timer);
		s->timer_due = 0;
		return;
	}
	if (s->timer_due && s->timer_due <= due)
		return;
	uint64_t now = uv_now(s->timer.loop); /* what uv_timer_start counts from */
	uv_timer_start(&s->timer, on_timer, due > now ? due - now : 0, 0);
	s->timer_due = due;
}

static void stream_late(struct stream *s)
{
	if (s->detached) {
		stream_destroy(s);
		return;
	}
	err_set(&s->why, ETIMEDOUT, "%s%s%s timed out",
		s->state == STREAM_CONNECTING ? "connecting" : "TLS handshake",
		*s->peer ? (s->state == STREAM_CONNECTING ? " to " : " with ") : "", s->peer);
}

static void on_timer(uv_timer_t *t)
{
	struct stream *s = t->data;
	s->timer_due = 0;
	uint64_t now = clock_mono_ms();
	if (s->alarm_at && now >= s->alarm_at) {
		s->alarm_at = 0;
		s->alarm(s->user);
	}
	if (s->state == STREAM_CLOSED)
		return;
	if (s->deadline && now >= s->deadline) {
		s->deadline = 0;
		stream_late(s);
	} else if (s->idle_ms && now >= s->moved_at + s->idle_ms && !s->why.code) {
		err_set(&s->why, ETIMEDOUT, "connection idle for %llu ms",
			(unsigned long long)s->idle_ms);
	}
	if (s->state == STREAM_CLOSED)
		return;
	stream_arm(s);
	stream_settle(s);
}

void stream_moved(struct stream *s)
{
	if (s->idle_ms)
		s->moved_at = clock_mono_ms();
}

/* -- input -- */

static bool stream_wants_input(const struct stream *s)
{
	if (s->why.code || s->fin)
		return false;
	switch (s->state) {
	case STREAM_HANDSHAKING:
	case STREAM_LINGERING:
		return true;
	case STREAM_OPEN:
		return s->reading && !s->eof;
	case STREAM_CONNECTING:
	case STREAM_CLOSED:
		break;
	}
	return false;
}

static void stream_tell_eof(struct stream *s)
{
	s->eof = true;
	if (s->ops->eof)
		s->ops->eof(s->user);
}

static void stream_opened(struct stream *s)
{
	s->state = STREAM_OPEN;
	if (!s->detached)
		s->deadline = 0;
	stream_moved(s);
	stream_want_turn(s);
	if (s->ops->opened)
		s->ops->opened(s->user);
}

static void stream_handshake(struct stream *s)
{
	struct err e = {0};
	int r = s->filter->ops->handshake(s->filter, &s->out, &e);
	if (s->state == STREAM_CLOSED)
		return;
	if (r < 0 && r != -EAGAIN) {
		s->why = e;
		return;
	}
	stream_flush(s);
	if (r == 0)
		stream_opened(s);
}

static void stream_pull(struct stream *s)
{
	uint8_t plain[STREAM_RECORD];
	while (s->state == STREAM_OPEN && s->reading && !s->eof && !s->why.code) {
		struct err e = {0};
		ssize_t n = s->filter->ops->pull(s->filter, plain, sizeof(plain), &s->out, &e);
		if (n == -EAGAIN)
			return;
		if (n < 0)
			s->why = e;
		else if (n == 0)
			stream_tell_eof(s);
		else
			s->ops->data(s->user, plain, (size_t)n);
	}
}

/* Lets the filter work on what it has. */
static void stream_filter_run(struct stream *s)
{
	if (s->state == STREAM_HANDSHAKING && !s->why.code)
		stream_handshake(s);
	stream_pull(s);
	if (s->state != STREAM_CLOSED && s->out.len)
		stream_want_turn(s);
}

static void stream_input(struct stream *s, const uint8_t *p, size_t n)
{
	if (s->state == STREAM_LINGERING)
		return;
	if (!s->filter) {
		s->ops->data(s->user, p, n);
		return;
	}
	if (s->filter->ops->feed(s->filter, p, n) < 0) {
		stream_fail(s, ENOMEM, "receiving");
		return;
	}
	stream_filter_run(s);
	if (s->filter->ops->keep(s->filter) < 0 && s->state != STREAM_CLOSED)
		stream_fail(s, ENOMEM, "receiving");
}

static void stream_input_end(struct stream *s)
{
	s->fin = true;
	if (s->state == STREAM_LINGERING || s->eof)
		return;
	if (!s->filter)
		stream_tell_eof(s);
	else if (!s->why.code)
		err_set(&s->why, ECONNRESET,
			"connection cut%s%s: no TLS close_notify before its end",
			*s->peer ? " by " : "", s->peer);
}

static void stream_receive(struct stream *s)
{
	uint8_t chunk[STREAM_CHUNK];
	for (int i = 0; i < STREAM_ROUNDS && stream_wants_input(s); i++) {
		ssize_t n = recv(s->fd, chunk, sizeof(chunk), 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN && s->broken)
			stream_fail(s, s->send_error ? s->send_error : ECONNRESET,
				    "connection lost");
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			stream_fail(s, errno, "connection lost");
			return;
		}
		if (n == 0) {
			stream_input_end(s);
			return;
		}
		s->bytes_in += (uint64_t)n;
		stream_moved(s);
		stream_input(s, chunk, (size_t)n);
		if ((size_t)n < sizeof(chunk) && !s->broken)
			return;
	}
}

void stream_read(struct stream *s, bool on)
{
	if (s->reading == on)
		return;
	s->reading = on;
	if (!on)
		return;
	s->filter_due = s->filter != NULL;
	if (s->filter_due || s->broken)
		stream_want_turn(s);
	stream_watch(s);
}

/* -- events -- */

static void stream_connected(struct stream *s)
{
	int code = 0;
	socklen_t len = sizeof(code);
	if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &code, &len) < 0)
		code = errno;
	if (code) {
		err_sys(&s->why, code, "connecting to %s", s->peer);
		return;
	}
	if (s->filter)
		s->state = STREAM_HANDSHAKING;
	else
		stream_opened(s);
	if (s->state != STREAM_CLOSED && s->filter) {
		s->filter_due = true;
		stream_want_turn(s);
	}
}

static void on_poll(uv_poll_t *h, int status, int events);

/* Makes poll watch for what is needed. Events no longer needed are dropped when they fire, which
   spares system calls when reading is turned off and on again. */
static void stream_watch_exactly(struct stream *s, bool exactly)
{
	if (s->state == STREAM_CLOSED || s->broken)
		return;
	int want = 0;
	if (s->state == STREAM_CONNECTING)
		want = s->connected ? 0 : UV_WRITABLE;
	else
		want = (stream_wants_input(s) ? UV_READABLE : 0) | (s->blocked ? UV_WRITABLE : 0);
	if (want == s->events || (!exactly && (s->events & want) == want))
		return;
	int r = want ? uv_poll_start(&s->poll, want, on_poll) : uv_poll_stop(&s->poll);
	s->events = want;
	if (r < 0)
		stream_fail(s, -r, "polling");
}

void stream_watch(struct stream *s)
{
	stream_watch_exactly(s, false);
}

static void on_poll(uv_poll_t *h, int status, int events)
{
	struct stream *s = h->data;
	if (status < 0) {
		s->broken = true;
		s->blocked = false;
		s->events = 0;
		events = UV_READABLE | UV_WRITABLE;
	}
	if (s->state == STREAM_CONNECTING) {
		stream_connected(s);
	} else {
		if (events & UV_WRITABLE) {
			s->blocked = false;
			stream_flush(s);
			if (!stream_queued(s))
				stream_want_turn(s);
		}
		if (events & UV_READABLE)
			stream_receive(s);
	}
	if (s->state == STREAM_CLOSED)
		return;
	stream_watch_exactly(s, true);
	stream_settle(s);
}

static void stream_after_send_error(struct stream *s)
{
	if (stream_wants_input(s)) {
		s->broken = true;
		uv_poll_stop(&s->poll);
		s->events = 0;
		stream_receive(s);
	}
	if (s->state == STREAM_CLOSED || s->why.code)
		return;
	if (stream_wants_input(s))
		stream_want_turn(s);
	else
		stream_fail(s, s->send_error, "connection lost");
}

static void stream_tell_drained(struct stream *s)
{
	if (!s->drain_due || stream_queued(s) || s->send_error || s->state != STREAM_OPEN)
		return;
	s->drain_due = false;
	if (s->ops->drained)
		s->ops->drained(s->user);
}

static void stream_turn(struct stream *s)
{
	if (s->wake_due) {
		s->wake_due = false;
		s->wake(s->user);
	}
	if (s->state == STREAM_CONNECTING && s->connected)
		stream_connected(s);
	if (!s->filter_due || s->state == STREAM_CONNECTING || s->state == STREAM_CLOSED)
		return;
	s->filter_due = false;
	stream_filter_run(s);
}

static void on_turn(uv_idle_t *h)
{
	struct stream *s = h->data;
	uv_idle_stop(h);
	stream_turn(s);
	if (s->state == STREAM_CLOSED)
		return;
	stream_flush(s);
	stream_tell_drained(s);
	if (s->state == STREAM_CLOSED)
		return;
	if (s->send_error)
		stream_after_send_error(s);
	else if (s->broken)
		stream_receive(s);
	if (s->state == STREAM_CLOSED)
		return;
	stream_watch(s);
	stream_settle(s);
}

static void stream_detach(struct stream *s)
{
	s->ops = &stream_no_ops;
	s->detached = s->shut = true;
	s->idle_ms = s->alarm_at = 0;
	s->wake_due = false;
	list_remove(&s->detached_link);
	list_append(&detached, &s->detached_link);
}

/* The user has been told, or is gone: last words, then the end. */
static void stream_linger(struct stream *s, uint64_t ms)
{
	uint64_t due = clock_mono_ms() + ms;
	s->state = STREAM_LINGERING;
	buf_done(&s->plain);
	stream_detach(s);
	s->drain_due = false;
	s->deadline = stream_earlier(s->deadline, due);
	stream_flush(s);
	stream_watch(s);
	stream_arm(s);
}

/* Ends an event: failure and the end of a graceful close happen here. */
static void stream_settle(struct stream *s)
{
	if (s->state == STREAM_CLOSED)
		return;
	if (s->state == STREAM_LINGERING) {
		bool lost = s->why.code || s->send_error || s->broken;
		if (lost || (s->fin_sent && s->fin))
			stream_destroy(s);
		return;
	}
	if (s->why.code) {
		const struct stream_ops *ops = s->ops;
		struct err why = s->why;
		if (s->filter && s->out.len && !s->broken && !s->send_error) {
			s->why.code = 0;
			s->deadline = 0;
			stream_linger(s, STREAM_LINGER_MS);
		} else {
			stream_destroy(s);
		}
		if (ops->closed)
			ops->closed(s->user, &why);
		return;
	}
	if (!s->detached || !s->fin_sent)
		return;
	if (s->fin)
		stream_destroy(s);
	else
		stream_linger(s, STREAM_LINGER_MS);
}

void stream_close(struct stream *s)
{
	assert(s->state != STREAM_CLOSED);
	s->ops = &stream_no_ops;
	stream_destroy(s);
}

void stream_close_gracefully(struct stream *s, uint64_t timeout_ms)
{
	if (s->why.code || s->send_error || s->broken) {
		stream_close(s);
		return;
	}
	stream_detach(s);
	s->reading = true;
	s->deadline = clock_mono_ms() + timeout_ms;
	stream_arm(s);
	stream_watch(s);
	stream_want_turn(s);
}

void stream_close_detached(const uv_loop_t *loop)
{
	list_for_each (it, &detached) {
		struct stream *s = list_entry(it, struct stream, detached_link);
		if (stream_loop(s) == loop)
			stream_destroy(s);
	}
}
