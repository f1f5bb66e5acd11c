/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of one gateway share: one process, one sandbox, one loop. */
#pragma once

#include <uv.h>

#include "egress/ca.h"
#include "egress/control.h"
#include "egress/names.h"
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
	struct secrets *secrets;
	struct names *names;
	struct resolver *resolver;
	struct ca *ca;
	struct upstreams *upstreams;
	struct dns *dns;
	struct guests *guests;
	const char *resolver_server; /* --resolver, or NULL */
	uint64_t request_id;         /* of the last request */
	bool ending;
	struct err failure; /* why the gateway ends; code 0 for a plain end */
};

/* Ends the gateway: for what it must not survive, like a record that was lost. */
void gateway_fail(struct gateway *g, const struct err *why);

/* Runs a gateway on the control socket until that ends. 0 or -errno with e set. */
int gateway_run(int control_fd, const char *resolver_server, struct err *e);
