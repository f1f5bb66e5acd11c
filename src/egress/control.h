/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The socket to spaced: configuration in, records out, acknowledgements in. What waits for a record
 * to be written waits here. Protocol: docs/internals/gateway-control.md.
 */
#pragma once

#include <jansson.h>
#include <uv.h>

#include "base/err.h"
#include "base/list.h"
#include "egress/record.h"

#define CONTROL_MESSAGE_MAX (512UL * 1024) /* bytes of one message */
#define CONTROL_RECORD_MAX  (128UL * 1024) /* bytes of one record */
#define CONTROL_ACK_MS      10000          /* a record not acknowledged by then was not written */
#define CONTROL_UNACKED_MAX 4096 /* records on their way; past it, what would wait is refused */

enum control_fd { CONTROL_TCP, CONTROL_DNS_UDP, CONTROL_DNS_TCP, CONTROL_FDS };

struct control;

struct control_ops {
	/* The configuration has come; the descriptors are the callee's. config is wiped afterwards.
	 */
	void (*config)(void *user, const json_t *config, int fds[CONTROL_FDS]);
	/* The socket has ended, or the peer broke the protocol (why says which). */
	void (*ended)(void *user, const struct err *why);
};

/* Takes fd over. NULL with e set. */
struct control *control_new(uv_loop_t *loop, int fd, const struct control_ops *ops, void *user,
			    struct err *e);
/* NULL is fine. Waiters are forgotten. Like all that has handles, it is gone after some turns of
 * the loop. */
void control_free(struct control *c);

/* 0 or -errno. */
int control_ready(struct control *c);
int control_failed(struct control *c, const char *message);

/* Somebody who waits for a record to be written. Zero-initialised is idle. */
struct control_wait {
	void (*done)(struct control_wait *w, bool written);
	struct list link; /* private, like all below */
	uint64_t seq;
	uint64_t since_ms;
	bool active;
};

/* Begins a record of this kind; add members, then send it, before another is begun. */
struct record *control_record(struct control *c, const char *kind);

/*
 * Sends the record. With w, w->done follows from the loop: written, or not within CONTROL_ACK_MS.
 * Without, the record is on its way and nobody waits; for what ends something that was recorded, so
 * that their number is bounded. 0; -ENOBUFS past CONTROL_UNACKED_MAX (with w alone); -EPIPE when
 * spaced is gone; other -errno. On failure nothing was sent and done is not called.
 */
int control_send(struct control *c, struct control_wait *w);

/* Waits no longer; harmless when w is not waiting. The record stands. */
void control_cancel(struct control_wait *w);
