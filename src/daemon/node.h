/* SPDX-License-Identifier: Apache-2.0 */
/* What all of spaced shares: one node, one loop, one thread. */
#pragma once

#include <stdbool.h>
#include <uv.h>

#include "base/list.h"
#include "daemon/audit.h"
#include "daemon/ca.h"
#include "daemon/config.h"
#include "daemon/paths.h"
#include "daemon/store.h"
#include "vmm/vmm.h"

#define NODE_SANDBOXES_MAX 256 /* alive at once, with those that are kept ready */

/* Each place (place.h) has two uids of its own, its monitor's and its gateway's; no account has
 * them. From here on, where they are mapped. */
#define NODE_UID_BASE 1900000000u
#define NODE_UIDS     (2 * NODE_SANDBOXES_MAX)

struct node {
	uv_loop_t *loop;
	struct paths paths;
	struct config config;
	struct vmm_probe host;
	char *fingerprint; /* of host: which frozen machines can be used here */
	struct ca *ca;
	struct audit *audit;
	struct store *store;
	struct credentials *credentials; /* secrets.h */
	struct broker *broker;
	struct list sandboxes; /* struct sandbox, oldest first */
	struct list places;    /* struct place, all of them */
	struct list templates; /* struct template that somebody waits for, or that were verified */
	struct ready *ready;   /* prepared places, warm sandboxes (ready.h) */
	unsigned live;         /* sandboxes with processes */
	unsigned starting;     /* of these, on their way to running; templates being built count too */
	bool seat_taken[NODE_SANDBOXES_MAX];
	uid_t uid_base; /* of NODE_UIDS */
	bool closing; /* no new sandboxes */
	/* Called when the last living sandbox is gone; may be NULL. */
	void (*on_idle)(struct node *n);
};
