/* SPDX-License-Identifier: Apache-2.0 */
/* What a start does, as pure data: made from a jail_spec before anything is opened or started, and
 * printable. jail.c does what it says, in its order, and nothing else. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "jail/jail.h"

/* Those that the parent does, then the child's. */
enum jail_op {
	JAIL_TREE,  /* descriptor value becomes a mount of its own, read-only */
	JAIL_CLONE, /* with the flags that are value */

	JAIL_SIGNALS,
	JAIL_SESSION,
	JAIL_NETNS,
	JAIL_CGROUPNS,
	JAIL_PRIVATE, /* no mount is shared with the outside */
	JAIL_LOCK,    /* the host's mounts read-only: for one without a root directory of its own */
	JAIL_ROOT,    /* an empty root directory */
	JAIL_DIR,     /* path in it */
	JAIL_FILE,    /* path in it is path of the host; value: jail_file's flags */
	JAIL_EMPTY,   /* path in it, an empty file */
	JAIL_PROC,
	JAIL_PIVOT, /* into it; nothing of the host's is left */
	JAIL_CHDIR,
	JAIL_DESCRIPTORS,
	JAIL_PROGRAM,
	JAIL_LIMIT, /* resource value to most */
	JAIL_BOUNDING,
	JAIL_IDENTITY, /* uid and gid value */
	JAIL_CAPABILITIES,
	JAIL_PARENT,
	JAIL_PRIVILEGES,
	JAIL_FILTER,
	JAIL_EXEC,
};

struct jail_step {
	enum jail_op op;
	const char *path; /* in the plan's text, or the spec's */
	uint64_t value;
	uint64_t most;
};

struct jail_plan {
	struct jail_step *steps;
	size_t count;
	char *text; /* where paths of directories are */
};

/* Fills ret, to be released with jail_plan_done(); it borrows from spec. 0; -EINVAL for a spec that
 * no process may be started with; -ENOMEM. e says so. */
int jail_plan_make(const struct jail_spec *spec, struct jail_plan *ret, struct err *e);
void jail_plan_done(struct jail_plan *plan);

/* A step as a line without its end, cut when it is longer than size. */
void jail_step_text(const struct jail_step *step, char *out, size_t size);

/* The whole as lines; a heap string. NULL: no memory. */
char *jail_plan_text(const struct jail_plan *plan);
