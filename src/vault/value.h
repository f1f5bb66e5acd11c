/* SPDX-License-Identifier: Apache-2.0 */
/* Pages for what is secret: locked in memory, left out of core dumps, emptied in children, wiped
 * before they are given back; and a value in pages of its own. */
#pragma once

#include <stddef.h>

#include "base/err.h"

/* n bytes of zero. name is for the warning where they can't be locked; NULL: none. NULL: no memory.
 */
void *pages_new(size_t n, const char *name);
void pages_free(void *p, size_t n); /* wipes; NULL is fine */

struct value {
	char *text; /* len bytes and a NUL; NULL: none */
	size_t len;
};

/* A copy; what was there is wiped when that succeeds. name is for messages. 0 or -ENOMEM. */
int value_set(struct value *v, const char *text, size_t len, const char *name, struct err *e);
void value_done(struct value *v); /* wipes */
