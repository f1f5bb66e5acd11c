/* SPDX-License-Identifier: Apache-2.0 */
/* Starting one program as a user of the guest. */
#pragma once

#include <sys/types.h>

#include "agent/user.h"
#include "base/err.h"

#define SPAWN_FILES_SOFT 1024   /* descriptors that a program may open at first, */
#define SPAWN_FILES_HARD 524288 /* and when it asks for more */

struct spawn_plan {
	char *const *argv; /* argv[0] is looked up in path unless it holds a slash */
	char *const *envp;
	const char *path; /* list of directories, "a:b" */
	const char *cwd;  /* absolute */
	const struct user *user;
	int stdio[3];    /* become descriptors 0, 1, 2; all others are closed in the program */
	int group_procs; /* cgroup.procs of the group that it runs in, -1: the caller's */
};

/*
 * Starts the program in a session of its own and returns when it runs: 0 with *ret_pid. (That would
 * be never in a group that is frozen.) On failure
 * there is no child, and e says what was wrong in words for the caller: -ENOENT (program or cwd),
 * -EACCES, -ENOTDIR, -E2BIG, -ENOEXEC and others of execve(2), -EAGAIN, -ENOMEM.
 */
int spawn(const struct spawn_plan *plan, pid_t *ret_pid, struct err *e);
