/* SPDX-License-Identifier: Apache-2.0 */
/* What a request gets of a credential: the recipe applied. Pure; the time is given. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "vault/secret.h"
#include "vault/sigv4.h"

#define INJECTION_FIELDS_MAX 5

struct inject_field {
	const char *name, *value;
};

/* The request as it will be sent. All is borrowed. */
struct inject_request {
	const char *method;
	const char *host;                  /* the value of the Host field */
	const char *path;                  /* canonical, without the query */
	const char *query;                 /* without '?'; NULL: none */
	const struct inject_field *fields; /* as the guest sent them */
	size_t field_count;
	const char *payload; /* sigv4: what is to be signed for the body: hex SHA-256, or one of
				AWS's words; NULL for all other kinds */
	int64_t now_s;       /* Unix time */
};

struct injection {
	struct inject_field fields[INJECTION_FIELDS_MAX]; /* owned */
	size_t count;
	char *path, *query;       /* in place of the request's; NULL: as it was */
	bool used;                /* something of the credential is in it */
	struct sigv4_chain chain; /* sigv4 with signed chunks: what the first one follows */
};

/* 0; -EINVAL: what the guest sent can't be given this credential (e says why, for the guest);
   -ENOMEM. */
int inject(const struct secret *s, const struct inject_request *q, struct injection *ret,
	   struct err *e);
void injection_done(struct injection *i); /* wipes */

/* Each text in which a value of s, a present or a former one, is sent: as it is, and encoded with a
   user or for a query. each ends it by a negative result, which is then returned. -ENOMEM. */
int inject_spellings(const struct secret *s, const char *value,
		     int (*each)(void *user, const char *text, size_t len), void *user);

/* Whether a field that the guest sent stays behind: every known slot of a credential, and those
   that the recipe fills. A field that the recipe declares as its placeholder's slot does not: where
   the injection has it, that takes its place. */
bool inject_strips(const struct secret *s, const char *field);
bool inject_slot_declared(const struct secret *s, const char *field);

/* Whether the placeholder of s itself may stand in this field, or parameter of the query (name
   NULL: anywhere else), of a request that gets s. (A presigned URL for AWS is refused, but not as a
   leak.) */
bool inject_slot_field(const struct secret *s, const char *field);
bool inject_slot_query(const struct secret *s, const char *name);
