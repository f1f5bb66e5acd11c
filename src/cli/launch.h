/* SPDX-License-Identifier: Apache-2.0 */
/* Reaching spaced: connecting to its socket, starting one where none answers. */
#pragma once

#include "cli/cli.h"

/* A connected, non-blocking socket, the caller's. Starts spaced when nothing listens. 0, or -errno
 * with e set. */
int launch_connect(const struct cli *cli, int *ret_fd, struct err *e);

/* As above, but never starts one: -ENOENT or -ECONNREFUSED then. */
int launch_connect_running(const struct cli *cli, int *ret_fd, struct err *e);

/* The path of our own program of that name: beside this executable, else where we were installed.
 * Heap; NULL: no memory. */
char *launch_find(const char *program);
