/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a task printed: its events (data, start, end) as envelopes in DIR/task.log. Past TASKLOG_MAX
 * the file becomes task.log.1 and a new one starts, so that a chatty task keeps at least its last
 * TASKLOG_MAX bytes and never more than twice that.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "http/server.h"

#define TASKLOG_MAX (16u << 20) /* bytes */

struct tasklog;

struct tasklog *tasklog_open(const char *dir, struct err *e);
void tasklog_close(struct tasklog *l); /* readers end */

/* Appends an event (a JSON message). A full disk drops it, once with a warning: a task is not
 * stopped for its log. */
void tasklog_append(struct tasklog *l, const void *payload, size_t n);

bool tasklog_is_empty(const struct tasklog *l);

/* No more will come: readers that follow reach the end. */
void tasklog_finish(struct tasklog *l);

/* Answers x with what the log of DIR holds as an event stream; follow: goes on until
 * tasklog_finish(). */
void tasklog_serve(struct tasklog *l, struct http_exchange *x, bool follow);
