/* SPDX-License-Identifier: Apache-2.0 */
/* One request of the guest, from its head to the end of its answer: judged, recorded, sent anew,
 * relayed. */
#pragma once

#include "base/buf.h"
#include "egress/deny.h"
#include "egress/gateway.h"
#include "egress/upstream.h"
#include "http/server.h"

enum request_state {
	REQUEST_NONE,
	REQUEST_REFUSING,  /* the record of a denial is on its way */
	REQUEST_RECORDING, /* the record of the decision is */
	REQUEST_DIALLING,
	REQUEST_RUNNING, /* sent; bodies flow */
};

/* Zero-initialised is none; used again for each request of a connection. All members are private.
 */
struct request {
	enum request_state state;
	struct gateway *g;
	struct http_exchange *x;
	struct policy_dest dest; /* canonical; path points to path */
	char *path;
	const char *query; /* inside the head of x; NULL: none */
	struct policy_verdict verdict;
	const struct secret *secret; /* NULL: none */
	struct control_wait wait;
	struct buf answer; /* while refusing: the body */
	unsigned answer_status;
	struct upstream_dial dial;
	struct upstream *upstream;
	bool recorded; /* an egress.request needs its egress.response */
	bool retried, answering;
	uint64_t id, since_us, bytes_up, bytes_down;
	unsigned status;
};

/* Takes charge of x, which came on a connection to origin (scheme, host, port). */
void request_start(struct request *r, struct gateway *g, const struct policy_dest *origin,
		   struct http_exchange *x);
