/* SPDX-License-Identifier: Apache-2.0 */
/* A program that prints a credential. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * Runs argv (NULL at its end; looked up in a PATH of ours) without a shell, in a process group of
 * its own, with an environment of PATH, HOME and LANG alone, standard input and error from and to
 * /dev/null, until it ends, or timeout_ms have passed, or stop_fd is readable (-1: never). Then the
 * whole group is killed. *ret is what it printed, of *ret_len bytes and a NUL: a heap block of max
 * + 1 bytes, the caller's to wipe. 0; -ECANCELED; -ETIMEDOUT, -EFBIG, -EIO (it failed), or why it
 * could not start. e never holds anything of what it printed.
 */
int command_output(const char *const *argv, uint64_t timeout_ms, int stop_fd, size_t max,
		   char **ret, size_t *ret_len, struct err *e);
