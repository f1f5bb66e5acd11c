/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of the guest: which host each is to, TLS or plain HTTP, and then requests. */
#pragma once

#include "egress/gateway.h"

#define GUESTS_MAX          512   /* connections at once */
#define GUEST_FIRST_BYTE_MS 10000 /* from connection to first byte */
#define GUEST_TLS_MS        10000
#define GUEST_HEAD_MS       15000 /* from the first byte of a request head to its last */
#define GUEST_IDLE_MS       90000 /* between requests */

/* Starts accepting on fd (redirected connections, listening), which is taken over also on failure.
 * NULL with e set. */
struct guests *guests_new(struct gateway *g, int fd, struct err *e);
void guests_free(struct guests *all); /* NULL is fine; cuts all connections */
