/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of one gateway share: one process, one sandbox, one loop. */
#pragma once

#include <uv.h>

#include "base/list.h"
#include "egress/ca.h"
#include "egress/control.h"
#include "egress/delay.h"
#include "egress/names.h"
#include "egress/quota.h"
#include "egress/resolver.h"
#include "policy/policy.h"
#include "vault/secret.h"

#define GATEWAY_QUEUE_HIGH \
	(64L * 1024) /* bytes queued on one connection; past it its source is paused */

struct upstreams;
struct dns;
struct guests;

struct gateway {
	uv_loop_t *loop;
	struct control *control;
	struct policy *policy;
	const struct policy
		*before; /* while what is open is judged again: the one before; or NULL */
	struct secrets *secrets;
	struct names *names;
	struct resolver *resolver;
	struct ca *ca;
	struct upstreams *upstreams;
	struct dns *dns;
	struct guests *guests;
	struct quotas *quotas;
	struct list requests; /* struct request, in no order */
	struct delay held;    /* bytes that may be the beginning of a value, but hardly */
	uv_timer_t lifetime;  /* until the next limit on it is reached */
	uv_signal_t term;
	const char *resolver_server; /* --resolver, or NULL */
	uint64_t request_id;         /* of the last request */
	uint64_t aws_held;           /* bytes: room taken by bodies that are held to be signed */
	uint64_t whole_held;         /* likewise, by bodies that are searched first */
	bool ending;
	struct err failure; /* why the gateway ends; code 0 for a plain end */
};

/* Ends the gateway: for what it must not survive, like a record that was lost. */
void gateway_fail(struct gateway *g, const struct err *why);

/* Has what is open judged again, from the loop: a credential has ended. */
void gateway_recheck_soon(struct gateway *g);

/* While what is open is judged again: whether another address, authority or proxy leads to host
 * now, so that what was dialled for it must not be used any more. */
bool gateway_way_changed(const struct gateway *g, const char *host);

/* Runs a gateway on the control socket and the one that listens for the next spaced. 0, also when
   SIGTERM ends it, or -errno with e set. */
int gateway_run(int control_fd, int listen_fd, const char *resolver_server, struct err *e);
