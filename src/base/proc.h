/* SPDX-License-Identifier: Apache-2.0 */
/* Running another program to its end, without a shell. */
#pragma once

#include <stddef.h>
#include <stdint.h>
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

/* When a process was started: field 22 of /proc/PID/stat, clock ticks since the host's start. With
   its pid that names it for good: pids come again, pairs don't. 0 or -errno, -ESRCH when there is
   none. */
int proc_started(pid_t pid, uint64_t *ret);

/* A pidfd of the process of that pid and start. -ESRCH when it is gone, -EPERM when its real uid is
   another. */
int proc_find(pid_t pid, uint64_t started, uid_t uid);
