/* SPDX-License-Identifier: Apache-2.0 */
/* What server.c and reply.c share. */
#pragma once

#include "http/server.h"

/* Has owned released when x ends, in whichever way; at most one. */
void http_exchange_own(struct http_exchange *x, void *owned, void (*release)(void *owned));
