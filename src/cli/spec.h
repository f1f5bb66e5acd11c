/* SPDX-License-Identifier: Apache-2.0 */
/* What people write for variables, secrets, policies, commands and places, made into the members of
 * a request. */
#pragma once

#include "base/doc.h"
#include "base/err.h"

/* Adds K=V, or K with our own value (nothing when we have none), to an object. 0 or -EINVAL. */
int spec_env(json_t *envs, const char *text, struct err *e);

/* As spec_env for each line of a file but empty ones and those that start with '#'. */
int spec_env_file(json_t *envs, const char *path, struct err *e);

/*
 * Adds {"name","hosts","value"} for NAME@host[,host] to an array; the value is our variable NAME.
 * For NAME alone {"name","stored"}: the node has it. -EINVAL when the spelling is wrong or the
 * variable is unset or empty; e never holds the value.
 */
int spec_secret(json_t *secrets, const char *text, struct err *e);

/* Adds what stands between commas to an array; what is for errors: "host". -EINVAL. */
int spec_list(json_t *list, const char *what, const char *text, struct err *e);

/* The user that --user names. A group of its own, as docker has it behind a colon, can't be given.
 * -EINVAL. */
int spec_user(const char *text, const char **ret, struct err *e);

/* {"name","text"} of a policy file; a new reference in *ret. */
int spec_policy(const char *path, json_t **ret, struct err *e);

/* {"cmd","args"} of a command with its arguments, argc > 0; a new reference in *ret. */
int spec_command(int argc, char **argv, json_t **ret, struct err *e);

/* One end of a copy. */
struct spec_place {
	char *sandbox; /* NULL: here */
	char *path;    /* "-" here: standard input or output */
};

/* Splits NAME:PATH; whatever has no sandbox's name before its first colon is a path here. 0,
 * -EINVAL, -ENOMEM. */
int spec_place(const char *text, struct spec_place *ret, struct err *e);
void spec_place_done(struct spec_place *p);
