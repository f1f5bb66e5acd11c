/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Users of the guest, read from its own /etc/passwd and /etc/group: the agent is static, so
 * that getpwnam() and its plug-ins are out of reach, and the files belong to the image anyway.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

#define USER_GROUPS_MAX 256           /* supplementary groups of one user; more are an error */
#define USER_FILE_MAX   (1024 * 1024) /* bytes of /etc/passwd or /etc/group */

struct user {
	char *name;
	char *home;  /* absolute */
	char *shell; /* absolute */
	uid_t uid;
	gid_t gid;
	gid_t *groups; /* all groups, gid first */
	size_t group_count;
};

/*
 * Finds name in the texts of the two files, or the user with that uid when no name matches and
 * name is a number. "root" is known even where the files don't have it. Lines that make no sense
 * are skipped. 0, -ENOENT, -E2BIG (too many groups), -ENOMEM; ret is the caller's to user_done().
 */
int user_find(const char *passwd, const char *group, const char *name, struct user *ret);

/* As user_find, on the files. A missing file counts as empty. 0 or -errno. */
int user_load(const char *name, struct user *ret);

void user_done(struct user *u);

static inline void cleanup_user(struct user *u)
{
	user_done(u);
}
#define auto_user __attribute__((cleanup(cleanup_user)))

/*
 * Does file operations as u: file-system ids, groups and no capability, for this thread alone,
 * until user_leave(). Nothing else may run in between. 0 or -errno (nothing is changed then).
 */
int user_enter(const struct user *u);
void user_leave(void); /* ends the process when the way back is barred */
