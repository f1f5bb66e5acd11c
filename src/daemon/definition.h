/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The definition of a credential: what it is for, how it is put in, where its value comes from
 * (docs/credentials.md). Decoded and judged before anything is made of it. Errors name the
 * credential and the member, and never hold a value.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define DEFINITION_TTL_MAX_MS (30ull * 24 * 3600 * 1000)

enum source_kind {
	SOURCE_ENV,     /* a variable of the caller, who sends its value */
	SOURCE_FILE,    /* policy file: the caller sends its contents; store: spaced reads it */
	SOURCE_STORED,  /* the node's store has it */
	SOURCE_VALUE,   /* given at `space secret set`, sealed */
	SOURCE_COMMAND, /* a program prints it */
	SOURCE_SYSTEMD, /* a file of spaced's credentials directory */
	SOURCE_OAUTH2,  /* an authorization server grants it */
};

enum definition_place {
	DEFINITION_IN_STORE,  /* value, file, command, systemd, oauth2 */
	DEFINITION_IN_POLICY, /* env (which is the default), file, stored, command, systemd */
};

struct definition {
	/* What of it makes a grant, as an entry without a value: name, hosts, methods?, paths?,
	   inject, canary?, uses?, bytes? (numbers), expiresMs? (its ttl, from the grant on). In a
	   policy hosts and inject may be missing where the source is stored: they are the
	   store's then. */
	json_t *entry;
	enum source_kind kind;
	json_t *source; /* the source's own members: {"env":…}, {"command":[…],"timeoutSeconds":10},
			   {"oauth2":{…}}, with every default filled in */
};

/* Reads one of this name; j holds no member "name", or the same. 0 with ret filled; -EINVAL,
 * -ENOMEM. */
int definition_read(const char *name, const json_t *j, enum definition_place place,
		    struct definition *ret, struct err *e);
void definition_done(struct definition *d);

const char *definition_name(const struct definition *d);
/* The kind: "bearer", …; NULL in a policy that leaves it to the store. */
const char *definition_inject(const struct definition *d);
const char *definition_source(const struct definition *d); /* the kind: "value", … */
bool definition_is_canary(const struct definition *d);

/* Whether two would make the same grant, whatever their sources. */
bool definition_same_grant(const struct definition *a, const struct definition *b);

/* Whether a gateway would take this value ("value" of an entry) for it. 0, -EINVAL. */
int definition_check_value(const struct definition *d, const json_t *value, struct err *e);
