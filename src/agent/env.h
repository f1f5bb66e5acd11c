/* SPDX-License-Identifier: Apache-2.0 */
/* Environments of processes: ordered lists of NAME=VALUE in which the last setting of a name wins.
 */
#pragma once

#include <stddef.h>

#include "base/doc.h"
#include "base/err.h"

#define ENV_VARIABLES_MAX 4096

struct env {
	char **list; /* NULL-terminated as execve() wants it; NULL while empty */
	size_t count;
};

/* Sets or replaces name. 0; -EINVAL when name is empty or holds '=', -E2BIG, -ENOMEM. */
int env_set(struct env *env, const char *name, const char *value);

/* The value, or NULL. */
const char *env_get(const struct env *env, const char *name);

/* Sets all members of a JSON object of strings (NULL: nothing to do). 0 or as env_set, -EINVAL for
   other values, with e set. */
int env_set_json(struct env *env, json_t *object, struct err *e);

/* Sets all variables of other. */
int env_set_all(struct env *env, const struct env *other);

void env_done(struct env *env);

static inline void cleanup_env(struct env *env)
{
	env_done(env);
}
#define auto_env __attribute__((cleanup(cleanup_env)))
