/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of the guest: which host each is to, and whether it is served (HTTP, with TLS or
 * without) or passed on. */
#pragma once

#include "egress/gateway.h"

#define GUESTS_MAX          2048  /* connections at once */
#define GUEST_FIRST_BYTE_MS 10000 /* from connection to first byte */
#define GUEST_TLS_MS        10000
#define GUEST_BEHIND_HELLO  (64 * 1024) /* bytes: what came with a ClientHello's last */
#define GUEST_HEAD_MS       15000       /* from the first byte of a request head to its last */
#define GUEST_IDLE_MS       90000       /* between requests */
#define GUEST_STALL_MS      300000      /* HTTP/2: while an answer waits and none of it is taken */

/* Starts accepting on fd (redirected connections, listening), which is taken over also on failure.
 * NULL with e set. */
struct guests *guests_new(struct gateway *g, int fd, struct err *e);
/* NULL is fine; cuts all connections. why: for the records of tunnels. */
void guests_free(struct guests *all, const char *why);

/* The policy has changed: what is open and no longer allowed is cut. */
void guests_recheck(struct guests *all);
