/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text from elsewhere on the user's terminal. Names, errors and records may hold what a guest
 * chose: control characters and what reorders text are shown as escapes, never sent.
 */
#pragma once

#include <stddef.h>
#include <stdio.h>

/* A heap copy of s[0 .. n) in which C0 and C1 controls, DEL, bidirectional controls and bytes that
   are no UTF-8 are written \n, \t, \xNN or \u{NNNN}. NULL: no memory. */
char *text_safe(const char *s, size_t n);

/* Prints s that way. */
void text_put(FILE *out, const char *s);
