/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ends, each the other's sink. What holds memory is the output of each stream: its source is
 * paused while more than GATEWAY_QUEUE_HIGH bytes wait there. Early bytes are passed from the loop,
 * before anything is read, so that the order holds and nobody is called from inside relay_start().
 */
#include "egress/relay.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include <linux/sockios.h>

#include "base/cleanup.h"
#include "egress/gateway.h"
#include "http/stream_filter.h"

#define LAST_WORDS_MS 10000 /* for the peers to take what is queued when both have finished */

struct end {
	struct relay *relay;
	struct end *other;
	struct stream *stream; /* NULL: gone */
	struct buf early;
	uint64_t bytes; /* passed on */
	bool finished;  /* sends no more */
};

struct relay {
	struct end ends[2]; /* by enum relay_side */
	const struct relay_ops *ops;
	void *user;
	bool started; /* the early bytes are passed on */
};

void relay_reset(struct stream *s)
{
	struct linger now = {.l_onoff = 1, .l_linger = 0};
	setsockopt(stream_fd(s), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	stream_close(s);
}

static void end_reset(struct end *end)
{
	if (end->stream)
		relay_reset(take_ptr(end->stream));
}

static void relay_free(struct relay *r)
{
	for (int i = 0; i < 2; i++) {
		end_reset(&r->ends[i]);
		buf_done(&r->ends[i].early);
	}
	free(r);
}

void relay_close(struct relay *r)
{
	if (r)
		relay_free(r);
}

static void relay_end(struct relay *r, const struct err *why)
{
	end_reset(&r->ends[RELAY_GUEST]);
	end_reset(&r->ends[RELAY_SERVER]);
	r->ops->ended(r->user, why);
	relay_free(r);
}

/* Writes to the other end. False: that failed. */
static bool end_write(struct end *from, const uint8_t *p, size_t n, struct err *why)
{
	ssize_t queued = stream_write(from->other->stream, p, n);
	if (queued < 0) {
		err_sys(why, (int)-queued, "passing bytes on");
		return false;
	}
	if (queued >= GATEWAY_QUEUE_HIGH)
		stream_read(from->stream, false);
	return true;
}

void relay_pass(struct relay *r, enum relay_side from, const uint8_t *p, size_t n)
{
	struct end *end = &r->ends[from];
	if (end->stream && end->other->stream)
		end_write(end, p, n, NULL);
}

/* Passes bytes of one end to the other. False: the relay is gone. */
static bool end_pass(struct end *from, const uint8_t *p, size_t n)
{
	struct relay *r = from->relay;
	enum relay_side side = from == &r->ends[RELAY_GUEST] ? RELAY_GUEST : RELAY_SERVER;
	struct err why;
	if (r->ops->allow && !r->ops->allow(r->user, side, n, &why)) {
		relay_end(r, &why);
		return false;
	}
	from->bytes += n;
	if (r->ops->filter ? !r->ops->filter(r->user, side, p, n, &why)
			   : !end_write(from, p, n, &why)) {
		relay_end(r, &why);
		return false;
	}
	return true;
}

static void end_data(void *user, const uint8_t *p, size_t n)
{
	end_pass(user, p, n);
}

static void end_eof(void *user)
{
	struct end *end = user;
	struct relay *r = end->relay;
	end->finished = true;
	if (!end->other->finished) {
		stream_shutdown(end->other->stream);
		return;
	}
	stream_close_gracefully(take_ptr(end->other->stream), LAST_WORDS_MS);
	stream_close_gracefully(take_ptr(end->stream), LAST_WORDS_MS);
	relay_end(r, NULL);
}

static void end_drained(void *user)
{
	struct end *end = user;
	if (end->relay->started)
		stream_read(end->other->stream, true);
}

/* Whether the peer has not yet confirmed all that was sent to it. */
static bool end_owes(const struct end *end)
{
	int unsent = 0;
	return stream_queued(end->stream) ||
	       (ioctl(stream_fd(end->stream), SIOCOUTQ, &unsent) == 0 && unsent);
}

/* A reset is passed on, but what was said before it is heard: a server that answers and then cuts
 * is no rare one. */
static void end_closed(void *user, const struct err *why)
{
	struct end *end = user;
	end->stream = NULL;
	if (why->code != ETIMEDOUT && (end->finished || end_owes(end->other)))
		stream_close_gracefully(take_ptr(end->other->stream), LAST_WORDS_MS);
	relay_end(end->relay, why);
}

static const struct stream_ops end_ops = {
	.data = end_data,
	.eof = end_eof,
	.drained = end_drained,
	.closed = end_closed,
};

/* Begins, from the loop: first what was read before, then what comes. */
static void end_wake(void *user)
{
	struct relay *r = ((struct end *)user)->relay;
	if (r->started)
		return;
	r->started = true;
	for (int i = 0; i < 2; i++)
		stream_read(r->ends[i].stream, true);
	for (int i = 0; i < 2; i++) {
		struct end *end = &r->ends[i];
		if (end->early.len && !end_pass(end, end->early.data, end->early.len))
			return;
		buf_done(&end->early);
	}
}

static void end_alarm(void *user)
{
	(void)user; /* none is set */
}

static int end_open(struct end *end, struct relay *r, const struct relay_end *from,
		    uint64_t idle_ms)
{
	struct stream *s = end->stream;
	stream_read(s, false);
	stream_alarm(s, 0);
	stream_set_hooks(s, end_wake, end_alarm);
	stream_set_ops(s, &end_ops, end);
	stream_set_idle_timeout(s, idle_ms);
	end->relay = r;
	buf_init(&end->early, from->early_len);
	return buf_append(&end->early, from->early, from->early_len);
}

struct relay *relay_start(const struct relay_end *guest, const struct relay_end *server,
			  uint64_t idle_ms, const struct relay_ops *ops, void *user)
{
	struct relay *r = calloc(1, sizeof(*r));
	if (!r) {
		stream_close(guest->stream);
		stream_close(server->stream);
		return NULL;
	}
	struct end *g = &r->ends[RELAY_GUEST], *s = &r->ends[RELAY_SERVER];
	r->ops = ops;
	r->user = user;
	g->other = s;
	s->other = g;
	g->stream = guest->stream;
	s->stream = server->stream;
	int failed_guest = end_open(g, r, guest, idle_ms);
	int failed_server = end_open(s, r, server, idle_ms);
	if (failed_guest < 0 || failed_server < 0) {
		relay_free(r);
		return NULL;
	}
	stream_wake(g->stream);
	return r;
}

uint64_t relay_bytes(const struct relay *r, enum relay_side from)
{
	return r->ends[from].bytes;
}
