/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a sandbox's secrets, read from our environment once more: spaced keeps none, so who
 * resumes or forks gives them again. */
#pragma once

#include "base/doc.h"
#include "base/err.h"

struct grant {
	const char *ref;       /* how the user called the sandbox */
	const json_t *only;    /* names, the others are left out; NULL: all that it was made with */
	const char *otherwise; /* what the user may do instead, for errors: "or …" */
};

/* Adds the name that --secret gives to an array, once. -EINVAL when it is none; e does not repeat
 * it. */
int grant_name(json_t *names, const char *text, struct err *e);

/*
 * [{"name","value"}] for a sandbox as the API shows it, a new reference; *ret_all tells whether
 * none was left out. -EINVAL when the sandbox has no secret of a name, -ENOENT when variables are
 * unset or empty (e names them all); e never holds a value.
 */
int grant_collect(const struct grant *g, const json_t *sandbox, json_t **ret, bool *ret_all,
		  struct err *e);
