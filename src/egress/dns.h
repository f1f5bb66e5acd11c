/* SPDX-License-Identifier: Apache-2.0 */
/* The DNS responder: allowed names get synthetic addresses, all others do not exist, nothing is
 * forwarded. */
#pragma once

#include "egress/gateway.h"

#define DNS_PENDING_MAX 256 /* questions whose records are on their way; more are dropped */
#define DNS_RATE        200 /* questions a second, */
#define DNS_BURST       400 /* with so many at once */
#define DNS_NEW_RATE    10  /* names a second that only a wildcard allows and that are new, */
#define DNS_NEW_BURST   512 /* with so many at once; NAMES_MAX in all */
#define DNS_TTL_S       60
#define DNS_STREAMS_MAX 32    /* TCP connections at once */
#define DNS_STREAM_MS   10000 /* for so long without a byte */

/* Starts answering on both sockets, which are taken over also on failure. NULL with e set. */
struct dns *dns_new(struct gateway *g, int udp_fd, int tcp_fd, struct err *e);
void dns_free(struct dns *d); /* NULL is fine; what waits is dropped */
