/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The line to spaced: configuration in, records out, acknowledgements in. What waits for a record
 * to be written waits here. When spaced dies, records are kept for the next one, which calls at the
 * listening socket. Protocol: docs/internals/gateway-control.md.
 */
#pragma once

#include <jansson.h>
#include <uv.h>

#include "base/err.h"
#include "base/list.h"
#include "egress/record.h"

#define CONTROL_MESSAGE_MAX (128UL * 1024)               /* bytes of what is said at once */
#define CONTROL_RECORD_MAX  (CONTROL_MESSAGE_MAX - 1024) /* bytes of one record */
#define CONTROL_ACK_MS      10000 /* a record not acknowledged by then was not written */
#define CONTROL_ALONE_MS    (10 * 60 * 1000)
/* Records on their way, and their bytes; past either, what would wait is refused. */
#define CONTROL_UNACKED_MAX   4096
#define CONTROL_UNACKED_BYTES (4UL * 1024 * 1024)

enum control_fd { CONTROL_TCP, CONTROL_DNS_UDP, CONTROL_DNS_TCP, CONTROL_FDS };

struct control;

struct control_ops {
	/* The configuration has come; the descriptors are the callee's. config is wiped afterwards.
	 */
	void (*config)(void *user, const json_t *config, int fds[CONTROL_FDS]);
	/* spaced sends another policy, or what changes one credential, once the gateway is ready;
	 * control_answer() is due before returning. message is wiped afterwards. */
	void (*policy)(void *user, const json_t *message);
	void (*secret)(void *user, const json_t *message);
	/* The socket has ended before the gateway was ready (ECONNRESET), or no spaced came for
	 * alone_ms after one had died (ETIMEDOUT), or a peer broke the protocol. */
	void (*ended)(void *user, const struct err *why);
};

/* Takes both descriptors over in any case: fd is connected, listen_fd listens for the spaced after
 * this one. NULL with e set. */
struct control *control_new(uv_loop_t *loop, int fd, int listen_fd, uint64_t alone_ms,
			    const struct control_ops *ops, void *user, struct err *e);
/* NULL is fine. Waiters are forgotten. Like all that has handles, it is gone after some turns of
 * the loop. */
void control_free(struct control *c);

/* Sends what was recorded and not sent yet, for nothing will be any more. Waits for spaced to read,
 * for a while. */
void control_finish(struct control *c);

/* Only from within config(). From ready on, the end of the socket is not ours. 0 or -errno. */
int control_ready(struct control *c);
int control_failed(struct control *c, const char *message);

/* Answers a message of that type, in the order of messages: done, or, with a text, not. It may be
 * lost with the line. 0 or -ENOMEM. */
int control_answer(struct control *c, const char *type, const char *message);

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
 * Sends the record at the end of this turn of the loop. With w, w->done follows from the loop:
 * written, or not within CONTROL_ACK_MS. Without, the record is on its way and nobody waits; for
 * what ends something that was recorded, so that their number is bounded. 0; -ENOBUFS past
 * CONTROL_UNACKED_MAX or _BYTES (with w alone); -EPIPE when it has ended; other -errno. On failure
 * there is no record and done is not called.
 */
int control_send(struct control *c, struct control_wait *w);

/* Waits no longer; harmless when w is not waiting. The record stands. */
void control_cancel(struct control_wait *w);
