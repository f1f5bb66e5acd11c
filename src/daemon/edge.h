/* SPDX-License-Identifier: Apache-2.0 */
/* Requests with E2b-Sandbox headers: passed to the agent of that sandbox, bodies streamed both
 * ways. Starting a process goes through exec. */
#pragma once

#include "daemon/node.h"
#include "http/server.h"

/* True when the request carries either header and so is not the API's. */
bool edge_wants(const struct http_head *head);

void edge_serve(struct node *n, struct http_exchange *x);
