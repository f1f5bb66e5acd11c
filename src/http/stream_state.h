/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the stream share: its state, and what one of them does for another. */
#pragma once

#include "base/buf.h"
#include "base/list.h"
#include "http/stream.h"
#include "http/stream_filter.h"

#define STREAM_KEEP ((size_t)16 * 1024) /* bytes of buffer that an idle stream keeps */

enum stream_state {
	STREAM_CONNECTING,
	STREAM_HANDSHAKING,
	STREAM_OPEN,
	STREAM_LINGERING, /* the user is gone: send the rest, discard input until the peer's end */
	STREAM_CLOSED,    /* waiting for the loop to let go of the handles */
};

struct stream {
	uv_poll_t poll;
	uv_idle_t turn;
	uv_timer_t timer;
	unsigned handles; /* not yet closed */
	int fd;
	int events; /* that poll watches for */
	enum stream_state state;
	const struct stream_ops *ops;
	void *user;
	void (*wake)(void *user);
	void (*alarm)(void *user);
	struct stream_filter *filter;
	struct buf plain; /* under a filter: not yet encrypted */
	struct buf out;   /* for the socket */
	struct err why;   /* code is set: closed() is due */
	int send_error;   /* errno of a send: closed() is due when input is exhausted */
	bool connected;   /* connect() succeeded at once */
	bool reading;
	bool eof;     /* told to the user */
	bool fin;     /* the peer's side of the socket is at its end */
	bool broken;  /* the socket reports an error */
	bool blocked; /* the socket takes no more for now */
	bool shut;    /* by the user: nothing is written any more */
	bool ended;   /* close_notify is in out */
	bool fin_sent;
	bool drain_due;
	bool wake_due;
	bool filter_due;    /* the filter may have something without new input */
	bool detached;      /* the user is gone, what is queued still goes out */
	struct list detached_link;
	uint64_t deadline;  /* monotonic ms; 0: none. For opening, or for closing */
	uint64_t alarm_at;  /* likewise */
	uint64_t idle_ms;   /* 0: off */
	uint64_t moved_at;  /* when a byte last moved */
	uint64_t timer_due; /* 0: not armed */
	uint64_t bytes_in;
	uint64_t bytes_out;
	char peer[64]; /* for error texts */
};

extern const struct stream_ops stream_no_ops; /* for a user who is gone, or not there yet */

/* From stream.c. Has on_turn() called by the loop. */
void stream_want_turn(struct stream *s);

/* The first failure counts; closed() follows from the loop. */
void stream_fail(struct stream *s, int code, const char *what);

/* Makes the socket's events, and the timer, fit the state. */
void stream_watch(struct stream *s);
void stream_arm(struct stream *s);

void stream_moved(struct stream *s);             /* a byte did */
uint64_t stream_earlier(uint64_t a, uint64_t b); /* of two deadlines, 0: none */

/* From stream_out.c. Sends what can be sent; never calls the user. */
void stream_flush(struct stream *s);
