/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the audit log holds of one sandbox, read from its beginning, a piece at a time, by a worker:
 * the log may be long, and holds the records of all sandboxes.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "daemon/node.h"

struct trail;

struct trail_ops {
	/* A record of the sandbox, and the line that it was, without its newline: from the worker.
	   What it touches is not touched elsewhere until read() or failed(). 0; else the reading
	   fails. */
	int (*line)(void *user, const json_t *record, const char *line, size_t n);
	/* From the loop: a piece was read. at_end: there was no more. found: the sandbox is on
	   record, as far as was read. */
	void (*read)(void *user, bool at_end, bool found);
	void (*failed)(void *user, const struct err *why);
};

/* ref: a sandbox's id, or a name that it was made with (then of all that had it). Nothing is read
 * yet. NULL with e set. */
struct trail *trail_open(struct node *n, const char *ref, const struct trail_ops *ops, void *user,
			 struct err *e);

/* Reads the next piece; not while one is being read. */
void trail_next(struct trail *t);

/* No callback follows from the loop; gone(user) when no line() does either, from here or from the
 * loop.
 */
void trail_close(struct trail *t, void (*gone)(void *user));
