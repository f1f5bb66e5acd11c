/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP API on the unix socket: docs/api.md. */
#pragma once

#include "base/err.h"
#include "daemon/node.h"

struct api;

/* Listens on the node's socket (mode 0600). The caller holds the node's lock, so an old socket file
 * is dead and replaced. NULL with e set. */
struct api *api_listen(struct node *n, struct err *e);

/* Stops listening and closes every connection. */
void api_close(struct api *a);
