/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An event stream from spaced, given to its user one event at a time. While the user is busy with
 * one the connection is not read, so that a slow reader of ours slows the task and memory stays
 * bounded.
 */
#pragma once

#include "base/buf.h"
#include "cli/api.h"

struct events_ops {
	/* One event, borrowed. Returns true to go on at once, false to be called again after
	 * events_resume(). */
	bool (*event)(void *user, json_t *event);
	/* The stream is over. why is NULL when it ended well; code then and when the connection
	   broke is NULL, else the code of the error that spaced sent. */
	void (*over)(void *user, const char *code, const struct err *why);
};

struct events {
	struct http_client *client; /* NULL once over */
	struct buf in;
	unsigned status;
	bool busy;    /* the user works on an event */
	bool pumping; /* inside the loop that delivers */
	bool over;
	const struct events_ops *ops;
	void *user;
};

/* Sends head with a body of n bytes on c, which it takes over, and delivers what comes. 0 or -errno
 * with e set. */
int events_start(struct events *ev, struct http_client *c, const struct http_head *head,
		 const void *body, size_t n, const struct events_ops *ops, void *user,
		 struct err *e);
void events_resume(struct events *ev);

/* Ends it at once; no callback follows. */
void events_close(struct events *ev);
