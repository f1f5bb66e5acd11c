/* SPDX-License-Identifier: Apache-2.0 */
/* What a path in a request means. The same rules hold for files, processes and their directories.
 */
#pragma once

#include "base/err.h"

/*
 * Makes path absolute and lexically clean: an empty one is workdir (itself by these rules; home
 * when NULL or empty), "~" and "~/x" are in home, others that are relative start at home. *ret is a
 * heap string. 0; -EINVAL ("~other"), -ENAMETOOLONG, with e set; -ENOMEM.
 */
int path_resolve(const char *path, const char *home, const char *workdir, char **ret,
		 struct err *e);

/* Takes "//", "." and ".." out of an absolute path, in place, without looking at any file. */
void path_clean(char *path);
