/* SPDX-License-Identifier: Apache-2.0 */
/* A client's Start of a process in a running sandbox: from the request to an exec whose events he
 * gets. */
#pragma once

#include "daemon/sandbox.h"
#include "http/server.h"

/* x is answered now or later. */
void start_serve(struct sandbox *sb, struct http_exchange *x);
