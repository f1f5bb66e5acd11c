/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit log: JSON lines in DIR/audit.jsonl, each with "seq", "time", "kind", mostly "sandbox",
 * and "prev", the SHA-256 of the line before (without its newline). DIR/head holds the number and
 * hash of the last line, so that a cut tail shows too. A record counts as written when write(2) has
 * taken it; a host that loses power may lose the last seconds.
 */
#pragma once

#include <stdint.h>

#include "base/doc.h"
#include "base/err.h"
#include "base/list.h"

struct audit;

/* Opens or makes the log, for one writer at a time. A torn last line (the host went down in the
 * middle of it) is cut off and recorded; so is a log that does not end as its head says. NULL on
 * failure. */
struct audit *audit_open(const char *dir, struct err *e);
void audit_close(struct audit *a);

/* Queues a record: members (a reference is taken over; NULL: none) may not name seq, time, sandbox,
   kind or prev. sandbox may be NULL. 0, -ENOMEM, -EINVAL, -E2BIG. */
int audit_add(struct audit *a, const char *sandbox, const char *kind, json_t *members);

/* Writes what is queued, all or nothing. 0, or -errno with e set: then nothing may happen that
 * depends on the record. */
int audit_flush(struct audit *a, struct err *e);

/* Both at once. */
int audit_write(struct audit *a, const char *sandbox, const char *kind, json_t *members,
		struct err *e);

/* Who is told whenever records were written: from within whatever wrote them. */
struct audit_watcher {
	struct list link;
	void (*written)(void *user);
	void *user;
};
void audit_watch(struct audit *a, struct audit_watcher *w);
void audit_unwatch(
	struct audit_watcher *w); /* harmless for an initialised one that does not watch */

struct audit_verdict {
	bool ok;
	uint64_t records;
	uint64_t line; /* where it first fails, from 1 */
	char problem[256];
	char head[65];
};

/* Reads a whole log and checks every link. 0 with ret filled, or -errno when it can't be read. */
int audit_verify(const char *dir, struct audit_verdict *ret, struct err *e);

/* Calls each(user, line, len) (newline included) for the records of one sandbox (its id, or a name
   it was made with), or for all when ref is NULL. 0, -errno, or the first negative value from each.
 */
int audit_each(const char *dir, const char *ref,
	       int (*each)(void *user, const char *line, size_t len), void *user, struct err *e);
