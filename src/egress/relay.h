/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes both ways between two streams, unread: what tcp, TLS that is passed on, and WebSocket have
 * in common. */
#pragma once

#include "base/buf.h"
#include "http/stream.h"

/* Without a byte in either direction; what ends a peer that is gone, and one that reads nothing. */
#define RELAY_IDLE_MS (60 * 60 * 1000)

enum relay_side { RELAY_GUEST, RELAY_SERVER };

/* One end, open. */
struct relay_end {
	struct stream *stream;
	const void *early; /* what this end has sent already; copied */
	size_t early_len;
};

struct relay;

struct relay_ops {
	/* Asks before n bytes that a side sent are passed on. False with why set: they are not, and
	   the relay ends. It calls nothing of the relay. NULL: all pass. */
	bool (*allow)(void *user, enum relay_side from, size_t n, struct err *why);
	/* Passes on what a side sent, by relay_pass(), now or later, in other words of the same
	   length. False with why set: the relay ends. NULL: it passes as it is. */
	bool (*filter)(void *user, enum relay_side from, const uint8_t *p, size_t n,
		       struct err *why);
	/* The relay is over, why is NULL when both sides had finished. relay_bytes() still counts
	   during the call; the relay is gone after it. */
	void (*ended)(void *user, const struct err *why);
};

/*
 * Takes both streams over, also on failure. What one side can't take pauses the other; the end of
 * what one side sends is passed on, and the other may go on; a side that is cut cuts the other,
 * when that has what was sent to it. After idle_ms without a byte both are reset. No callback comes
 * from inside a call. NULL: no memory, and both streams are closed.
 */
struct relay *relay_start(const struct relay_end *guest, const struct relay_end *server,
			  uint64_t idle_ms, const struct relay_ops *ops, void *user);

/* To the other side, as sent by from: from within filter(), or for what it has kept back. What goes
 * wrong is told by ended(), from the loop. */
void relay_pass(struct relay *r, enum relay_side from, const uint8_t *p, size_t n);

/* Closes a stream so that its peer gets a reset, not an end that looks orderly. */
void relay_reset(struct stream *s);

/* Resets both; ended() is not called. NULL is fine. */
void relay_close(struct relay *r);

/* Bytes that a side sent and that were passed on. */
uint64_t relay_bytes(const struct relay *r, enum relay_side from);
