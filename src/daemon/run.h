/* SPDX-License-Identifier: Apache-2.0 */
/* POST /run: one sandbox for one task, from the request to the last event. docs/api.md says what is
 * asked and answered. */
#pragma once

#include "daemon/node.h"
#include "daemon/sandbox.h"
#include "http/server.h"

/* Becomes the one who looks after a sandbox that is running and has nobody: its task goes on after a
   pause, a fork, or another spaced. */
void run_adopt(struct sandbox *sb);

/* body is the request's JSON; x is answered now or later. */
void run_serve(struct node *n, struct http_exchange *x, const char *body, size_t len);
