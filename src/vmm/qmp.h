/* SPDX-License-Identifier: Apache-2.0 */
/*
 * QMP, QEMU's control protocol: JSON objects, one a line. A sans-I/O codec, and a client that runs
 * it on a loop over a stream socket. QEMU may have been taken over by its guest: what it says is
 * bounded and checked. Source: QEMU, docs/interop/qmp-spec.rst.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/buf.h"
#include "base/err.h"

#define QMP_LINE_MAX  65536 /* bytes of one message; what we ask for has answers far below */
#define QMP_NAME_SIZE 48
#define QMP_CALLS_MAX 20 /* commands in flight */

enum qmp_kind {
	QMP_GREETING,
	QMP_RETURN,
	QMP_ERROR,
	QMP_EVENT,
};

struct qmp_msg {
	enum qmp_kind kind;
	uint64_t id;              /* of the command answered; 0 when the message names none */
	char name[QMP_NAME_SIZE]; /* event, or class of error */
	char text[160];           /* ERROR: description, printable ASCII */
	json_t *data;             /* RETURN: the value; EVENT: its data or NULL; else NULL */
};

void qmp_msg_done(struct qmp_msg *m);

struct qmp_decoder {
	struct buf in;  /* private */
	size_t scanned; /* private: bytes of in known to hold no newline */
};

void qmp_decoder_init(struct qmp_decoder *d);
void qmp_decoder_done(struct qmp_decoder *d);

/* Gives it bytes. 0; -EMSGSIZE when more than QMP_LINE_MAX are waiting; -ENOMEM. Drain with
 * qmp_next() before the next. */
int qmp_feed(struct qmp_decoder *d, const void *p, size_t n);

/* Takes out one message, to be released with qmp_msg_done(). 0; -EAGAIN (feed more); -EBADMSG with
 * e set, for good. */
int qmp_next(struct qmp_decoder *d, struct qmp_msg *ret, struct err *e);

/* A command's line as a heap string. arguments: an object, borrowed, or NULL. NULL when there is no
 * memory. */
char *qmp_encode(uint64_t id, const char *command, json_t *arguments);

struct qmp_client;

struct qmp_handlers {
	void (*greeting)(void *user);
	void (*event)(void *user, const char *name, const json_t *data);
	/* Control is lost, once: end of file, malformed input. Unanswered calls have had
	 * reply(NULL). */
	void (*lost)(void *user, const struct err *why);
	/* After qmp_client_close(): the client is no longer used by the loop. */
	void (*closed)(void *user);
};

/* msg: RETURN or ERROR; NULL: the connection ended before. */
typedef void (*qmp_reply_fn)(void *user, const struct qmp_msg *msg);

struct qmp_client {
	uv_poll_t poll; /* all private */
	int fd;
	struct qmp_decoder in;
	const struct qmp_handlers *handlers;
	void *user;
	uint64_t last_id;
	struct {
		uint64_t id; /* 0: free */
		qmp_reply_fn reply;
		void *user;
	} calls[QMP_CALLS_MAX];
};

/* Starts reading fd, a stream socket, which the client owns from then on. handlers is kept by
   reference. 0 or -errno, with nothing taken and nothing to close. */
int qmp_client_open(struct qmp_client *c, uv_loop_t *loop, int fd,
		    const struct qmp_handlers *handlers, void *user);

/* Sends a command, with a copy of descriptor pass_fd unless -1. arguments is borrowed. 0; -EBUSY
   past QMP_CALLS_MAX; -EAGAIN when QEMU doesn't read; -EPIPE, -ENOMEM. reply follows on success
   only. */
int qmp_client_call(struct qmp_client *c, const char *command, json_t *arguments, int pass_fd,
		    qmp_reply_fn reply, void *user);

/* Handles now what has arrived, at most some 64 KiB, without waiting. */
void qmp_client_read(struct qmp_client *c);

/* Stops, silently; handlers->closed follows from the loop. */
void qmp_client_close(struct qmp_client *c);
