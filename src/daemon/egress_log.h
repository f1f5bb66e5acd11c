/* SPDX-License-Identifier: Apache-2.0 */
/* What the gateway of a sandbox decided, as an event stream: the audit log's records of it. */
#pragma once

#include <stdbool.h>

#include "daemon/node.h"
#include "http/server.h"

/* GET /sandboxes/REF/egress. ref: as trail_open() has it. follow: goes on until that sandbox, an
 * id, has ended. */
void egress_log_serve(struct node *n, struct http_exchange *x, const char *ref, bool follow);
