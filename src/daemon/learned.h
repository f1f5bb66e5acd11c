/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "daemon/node.h"
#include "http/server.h"

/* GET /sandboxes/REF/learned: the policy that learn.h makes of the sandbox's records. ref: as
 * trail_open() has it. */
void learned_serve(struct node *n, struct http_exchange *x, const char *ref);
