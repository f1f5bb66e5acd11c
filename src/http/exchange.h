/* SPDX-License-Identifier: Apache-2.0 */
/* What server.c and reply.c share. */
#pragma once

#include "http/server.h"

/* The response that is started next will be ended at once. */
void http_exchange_whole(struct http_exchange *x);

/* Has owned released when x ends, in whichever way; at most one. */
void http_exchange_own(struct http_exchange *x, void *owned, void (*release)(void *owned));
