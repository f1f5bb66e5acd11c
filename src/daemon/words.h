/* SPDX-License-Identifier: Apache-2.0 */
/* What a jailed program says on its standard error: into spaced's own log, line by line. The
 * program gets a pipe, never the log itself, for who has taken the program over could empty the
 * log, forge it, or fill the disk with it. */
#pragma once

#include <uv.h>

#include "base/err.h"

#define WORDS_LINES_MAX 256 /* lines of one program; what it says beyond is dropped */

struct words;

/* name is put before each line, and copied. *ret_fd is the program's end, the caller's to close.
 * NULL with e set. */
struct words *words_open(uv_loop_t *loop, const char *name, int *ret_fd, struct err *e);

/* Logs what is still in the pipe, then lets go; NULL is fine. */
void words_close(struct words *w);
