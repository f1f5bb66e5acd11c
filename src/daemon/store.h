/* SPDX-License-Identifier: Apache-2.0 */
/* The node's records, in SQLite: which sandboxes there are, so that a new spaced knows what an old
 * one left; and which credentials, their values sealed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct store;

struct store_record {
	const char *id, *name, *state, *image;
	const char *command; /* JSON array */
	unsigned cpus;
	uint64_t memory_mib;
	uint64_t started_ms, ended_ms; /* wall clock; 0: not yet */
	int exit_code;                 /* valid when ended_ms is set; -1: none */
	const char *reason;            /* NULL: none */
	const char *detail;            /* JSON object: what else a later spaced needs; NULL: none */
};

struct store *store_open(const char *path, struct err *e);
void store_close(struct store *s);

/* Inserts or replaces. 0 or -errno. */
int store_put(struct store *s, const struct store_record *r, struct err *e);
int store_remove(struct store *s, const char *id, struct err *e);

/* Calls each for every record, oldest first; strings are valid during the call. */
int store_each(struct store *s, void (*each)(void *user, const struct store_record *r), void *user,
	       struct err *e);

/* A credential of the node's store (secrets.h). */
struct store_secret {
	const char *name, *definition; /* definition: JSON object, without values */
	const void *sealed;            /* NULL: no values */
	size_t sealed_len;
	uint64_t made_ms; /* wall clock */
};

/* Inserts or replaces, and returns when that is safe on disk. 0 or -errno. */
int store_put_secret(struct store *s, const struct store_secret *r, struct err *e);
int store_remove_secret(struct store *s, const char *name, struct err *e);

/* As store_each(), by name. */
int store_each_secret(struct store *s, void (*each)(void *user, const struct store_secret *r),
		      void *user, struct err *e);
