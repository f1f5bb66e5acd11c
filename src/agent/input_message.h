/* SPDX-License-Identifier: Apache-2.0 */
/* The message of process.Process/SendInput. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/doc.h"

enum input_kind {
	INPUT_UNKNOWN, /* neither of the two: some later version's */
	INPUT_STDIN,
	INPUT_PTY,
};

struct input_message {
	json_t *root; /* for "process" */
	enum input_kind kind;
	uint8_t *data; /* for INPUT_STDIN */
	size_t len;
};

/* Reads the body. 0, -EINVAL, -ENOMEM with e set; ret is to be done with on success only. */
int input_message_read(const char *body, size_t n, struct input_message *ret, struct err *e);
void input_message_done(struct input_message *m);
