/* SPDX-License-Identifier: Apache-2.0 */
/* Running another program to its end, without a shell. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

/* Runs argv (looked up in PATH, standard input from /dev/null, output to ours) and waits. 0; -EIO
   with e set when it could not start, was killed, or exited with a status other than 0. */
int proc_run(const char *const *argv, struct err *e);

/* As proc_run, and keeps standard output: a NUL-terminated heap string of at most max bytes, -EFBIG
 * past that. */
int proc_output(const char *const *argv, size_t max, char **ret_text, struct err *e);

/* Closes every descriptor >= first that is not in keep (sorted
   ascending). For a child between fork and exec. */
void proc_close_fds(int first, const int *keep, size_t count);
