/* SPDX-License-Identifier: Apache-2.0 */
/* The child's root directory. Called between clone3() and exec, so raw system calls only. Each 0 or
 * -errno. */
#pragma once

#include "jail/plan.h"

/* An empty tmpfs, attached somewhere for now; *ret_root is a descriptor of it. */
int root_new(int *ret_root);

/* What JAIL_DIR, JAIL_EMPTY, JAIL_FILE and JAIL_PROC say, in it. */
int root_put(int root, const struct jail_step *step);

/* Makes it the root directory and detaches all else. */
int root_enter(int root);

/* A detached mount of the file or directory behind dir_fd and path, read-only: a descriptor. Flags
 * of jail_file. */
int root_tree(int dir_fd, const char *path, unsigned flags);
