/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of a process's event stream, as enveloped JSON appended to a buffer. They are
 * written by hand, not through a tree: output data is the agent's hottest path.
 * Source: docs/api.md, "Event streams".
 */
#pragma once

#include <sys/types.h>

#include "base/buf.h"

#define EVENT_DATA_MAX (32 * 1024) /* raw bytes in one data event */

/* All return 0, -EMSGSIZE or -ENOMEM; out is as before on failure. */
int event_start(struct buf *out, pid_t pid);
int event_keepalive(struct buf *out);

/* As many events as n bytes need; kind is "stdout" or "stderr". */
int event_data(struct buf *out, const char *kind, const void *p, size_t n);

/* How the process ended; status as waitpid() gives it. */
int event_end(struct buf *out, int status);

/* The last envelope: without error when code is NULL. message is made valid UTF-8. */
int event_stream_end(struct buf *out, const char *code, const char *message);
