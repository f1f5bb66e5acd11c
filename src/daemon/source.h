/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where values come from: one look at a source, in the calling thread (source_read) or in one of a
 * few threads of its own (source_start), for each may take its time: a hanging program must keep
 * nobody else waiting. No error holds anything of what a source gave.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "daemon/definition.h"

#define SOURCE_TEXT_MAX  (64 * 1024)     /* bytes that a file or program gives */
#define SOURCE_THREADS   8               /* at once; what is more waits its turn */
#define SOURCE_REREAD_MS (5 * 60 * 1000) /* for how long one without an expiry is good */

struct source_value {
	json_t *value;       /* as an entry's "value": owned */
	uint64_t expires_ms; /* wall clock; 0: it does not say */
	json_t *rotated;     /* NULL, or values (as given at `space secret set`) in place of the old
				ones; to be stored before value is used. Owned */
};

void source_value_done(struct source_value *v);

/* For those that read what a source says: seconds of life, a number or digits, from now_ms on; 0 or
   -EINVAL. And -EAGAIN with e set for what has expired already. */
int source_life(const json_t *j, uint64_t now_ms, uint64_t *ret_ms);
int source_expired(uint64_t expires_ms, uint64_t now_ms, struct err *e);

/*
 * values: what was given at `space secret set`, an object. stop_fd: readable when we are to give
 * up; -1: never. 0; -ECANCELED: told to give up; -EACCES: asking again will not help, something
 * must be set anew; any other: it may be better later. ret is filled in any case, for rotated may
 * be set on failure too. e does not name the credential.
 */
int source_read(const struct definition *d, const json_t *values, int stop_fd,
		struct source_value *ret, struct err *e);

struct source_threads; /* those of a node */
struct source_fetch;   /* one look */

/* NULL with e set. */
struct source_threads *source_threads_new(uv_loop_t *loop, struct err *e);

/* Stops what can be stopped, waits for the rest and has it done (from here); what waits for its
 * turn is dropped. NULL is fine. */
void source_threads_free(struct source_threads *t);

/* done is called once, from the loop: why is NULL, or says why there is no v->value; it may take
   members of v. d and
   values are copied. NULL: no memory; done is not called. */
typedef void (*source_done)(void *user, struct source_value *v, const struct err *why);
struct source_fetch *source_start(struct source_threads *t, const struct definition *d,
				  json_t *values, source_done done, void *user);

/* Nobody waits for it any more: done is not called, and it is stopped. Not for those that bring
 * values to be stored (oauth_rotates). */
void source_stop(struct source_fetch *f);
