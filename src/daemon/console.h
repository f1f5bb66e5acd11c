/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's serial port: kept in DIR/console.log (its first CONSOLE_MAX bytes), watched for the
 * agent's ready line. */
#pragma once

#include <uv.h>

#include "base/err.h"

#define CONSOLE_MAX (256 * 1024) /* bytes; a guest that prints more prints it to nobody */

struct console;

/* ready(user) is called for each line that says so (NULL: nobody cares): a hint, from a guest that
 may lie.
 fd: our end of it, non-blocking, which is taken over, also on failure. */
struct console *console_open(uv_loop_t *loop, const char *dir, int fd, void (*ready)(void *user),
			     void *user, struct err *e);
void console_close(struct console *c); /* NULL is fine */

/* The last whole line, made printable; "" when there is none. Borrowed. */
const char *console_last_line(const struct console *c);
