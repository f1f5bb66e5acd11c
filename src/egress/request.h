/* SPDX-License-Identifier: Apache-2.0 */
/* One request of the guest, from its head to the end of its answer: judged, recorded, sent anew,
 * relayed. */
#pragma once

#include "egress/gateway.h"
#include "http/server.h"

struct request; /* owns itself: it ends with its exchange, or with what the exchange became */

/* Whose connection it came on. It hears of requests that take the connection over, as WebSockets
 * do, and of no others. */
struct request_owner {
	void (*switched)(void *user); /* the connection is dead; what it became is the request's */
	void (*ended)(void *user);    /* that has ended, and is recorded */
};

/* Takes charge of x, which came on a connection to origin (scheme, host or address, port). */
void request_start(struct gateway *g, const struct policy_dest *origin, struct http_exchange *x,
		   const struct request_owner *owner, void *user);

/* The policy, the secrets, or what is left of a lifetime has changed: the request goes on under the
 * new ones, or is cut, and that is recorded. It may be gone then; no other is. */
void request_recheck(struct request *r);

/* All requests of the gateway; each as above. */
void requests_recheck(struct gateway *g);

/* Ends all; why: for their records. */
void requests_close(struct gateway *g, const char *why);
