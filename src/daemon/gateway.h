/* SPDX-License-Identifier: Apache-2.0 */
/* spaced's end of a gateway process: starting it, writing its records, noticing its end. Protocol:
 * docs/internals/gateway-control.md */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "daemon/node.h"
#include "net/slot.h"

struct gateway;

struct gateway_ops {
	void (*ready)(void *user);
	/* Its process is gone, or it broke the protocol, or its records can't be written (it is
	 * killed then). The pointer is dead. */
	void (*exited)(void *user, const struct err *why);
};

/* Starts space-egress for a sandbox. policy and secrets are borrowed during the call; the
 * descriptors stay in the slot. NULL with e set. */
struct gateway *gateway_start(struct node *n, const char *sandbox, const struct slot *slot,
			      uid_t uid, const json_t *policy, const json_t *secrets,
			      const struct gateway_ops *ops, void *user, struct err *e);

/* Kills it at once; exited() follows. */
void gateway_kill(struct gateway *g);
