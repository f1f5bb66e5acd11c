/* SPDX-License-Identifier: Apache-2.0 */
/* What a secret is made of, for the files of this room: secret.c (the set, and what happens to
 * one), entry.c (reading one), reach.c (whether a policy lets it be used). */
#pragma once

#include "vault/secret.h"
#include "vault/value.h"

#define SECRET_HOSTS_MAX 64  /* of one secret */
#define SECRET_PATHS_MAX 256 /* of one secret; methods too */
#define SECRET_WHY_MAX   256 /* bytes, with the NUL */
#define SECRET_PAST_MAX  8   /* former values */

struct secret_words {
	char **list;
	size_t count;
};

struct secret {
	char *name;
	enum secret_kind kind;
	struct secret_words hosts;   /* canonical names or patterns */
	struct secret_words methods; /* none: all */
	struct secret_words paths;   /* canonical patterns; none: all */
	struct secret_words placeholders;
	json_t *recipe; /* the member inject */
	struct value parts[SECRET_PARTS];
	struct value past[SECRET_PAST_MAX]; /* former values, of whatever part, the latest first:
					       they may still be good */
	struct secret_words past_hosts;     /* that it is for no longer, but was sent to */
	char unavailable[SECRET_WHY_MAX];   /* "": it has its values */
	bool revoked, canary;
	bool guessed; /* revoked for that */
	bool stray;   /* another sandbox's: only its placeholders, to be recognised */
	uint64_t ended;         /* revoked: the how-manieth of the set */
	bool counted, weighed;  /* there is a most of uses, of bytes */
	uint64_t uses, bytes;   /* the most */
	uint64_t used, charged; /* so far */
	uint64_t end_ms;        /* monotonic; 0: none */
	unsigned version;
};

/* Fills a zeroed secret from an entry. On failure too secret_done() frees it. 0, -EINVAL, -ENOMEM.
 */
int entry_read(struct secret *s, const json_t *entry, uint64_t now_ms, struct err *e);

/* The values of an entry or an update, or why there are none; the rest of s stays as it is, on
   failure all of it. */
int entry_read_values(struct secret *s, const json_t *entry, struct err *e);

/* Puts a value that is no longer used, which it takes over, among the former ones. */
void secret_retire(struct secret *s, struct value *v);

void secret_done(struct secret *s); /* wipes, frees what it holds */

/* Whether some rule of p (document is its own) opens each host of s; e says which it does not. */
int secret_check(const struct secret *s, const struct policy *p, const json_t *document,
		 struct err *e);

/* Whether some name matches both. */
bool patterns_overlap(const char *a, const char *b);
