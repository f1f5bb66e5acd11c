/* SPDX-License-Identifier: Apache-2.0 */
/* How calls name a process: "process": {"pid": …} or {"tag": …}. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "agent/process.h"
#include "base/doc.h"
#include "base/err.h"

struct selector {
	const char *tag; /* NULL: by pid; borrowed from the message */
	pid_t pid;
};

/* Reads a call's message (any JSON value). 0, or -EINVAL with e set. */
int selector_read(const json_t *message, struct selector *ret, struct err *e);

/* As process_by_pid() and process_by_tag(); e is set when it returns NULL. */
struct process *selector_find(const struct selector *s, struct processes *all, bool ended_too,
			      struct err *e);
