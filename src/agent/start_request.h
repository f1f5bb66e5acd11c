/* SPDX-License-Identifier: Apache-2.0 */
/* The message of process.Process/Start, checked and made ready for spawn(). */
#pragma once

#include <stdbool.h>

#include "agent/env.h"
#include "agent/settings.h"
#include "agent/user.h"
#include "base/doc.h"

struct start_request {
	json_t *root;      /* owns the strings */
	json_t *process;   /* borrowed from root: what List shows */
	const char **argv; /* NULL-terminated; borrowed strings */
	const char *cwd;   /* as sent, NULL when not */
	const char *tag;   /* NULL: none */
	json_t *envs;      /* NULL: none */
	bool want_stdin;
	bool want_pty;
};

/* Reads one JSON message. 0, -EINVAL, -ENOMEM with e set; ret is to be done with on success only.
 */
int start_request_read(const char *text, size_t n, struct start_request *ret, struct err *e);
void start_request_done(struct start_request *r);

/* What the process will see: the agent's and the user's variables, then those of /init, then its
 * own. */
int start_environment(const struct start_request *req, const struct settings *settings,
		      const struct user *user, struct env *ret, struct err *e);

/* Where it will run, a heap string. The default one is "/" when it is no directory. */
int start_directory(const struct start_request *req, const struct settings *settings,
		    const struct user *user, char **ret, struct err *e);
