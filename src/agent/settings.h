/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host tells the agent by POST /init: read here into a value, without effects, and kept
 * as the agent's settings. Members that we don't know are ignored, as the protocol grows.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/env.h"
#include "base/err.h"

#define SETTINGS_ENTROPY_MIN 32   /* bytes */
#define SETTINGS_ENTROPY_MAX 4096 /* bytes */

/* One request; what it did not name is NULL or unset. */
struct settings_request {
	bool has_env, has_time;
	bool thawed; /* a copy of the machine speaks to its new host for the first time */
	struct env env;
	int64_t time_ns; /* since 1970 */
	char *token;     /* empty: from now on none is asked for */
	char *user, *workdir;
	char *hostname, *machine_id, *sandbox_id;
	uint8_t *entropy;
	size_t entropy_len;
};

struct settings {
	struct env env; /* of every process */
	char *token;    /* NULL: none is asked for */
	char *user;     /* NULL: root */
	char *workdir;  /* NULL: the user's home */
	char *sandbox_id;
	int64_t time_ns; /* of the newest request that had one */
};

/* Reads the body of POST /init. 0, or -EINVAL, -ENOMEM with e set; ret is to be done with on
 * success only. */
int settings_read(const char *body, size_t n, struct settings_request *ret, struct err *e);
void settings_request_done(struct settings_request *r);

/* Takes over what r holds for the settings. A request older than the newest one changes nothing:
   false. What a thawed machine is told is never old: its new host's clock is the one that counts.
 */
bool settings_take(struct settings *s, struct settings_request *r);
void settings_done(struct settings *s);
