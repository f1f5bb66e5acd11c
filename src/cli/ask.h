/* SPDX-License-Identifier: Apache-2.0 */
/* A secret typed at the terminal that is our standard input. */
#pragma once

#include <stddef.h>

#include "base/err.h"

/*
 * Prints the prompt to standard error and reads one line that is not shown, without its newline,
 * into out[size]; it is the caller's to wipe. A signal that arrives meanwhile does what it does
 * when the terminal is as it was before. 0; -ENODATA: the input ended; -EMSGSIZE; -errno.
 */
int ask_hidden(const char *prompt, char *out, size_t size, struct err *e);
