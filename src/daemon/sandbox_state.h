/* SPDX-License-Identifier: Apache-2.0 */
/* What a sandbox is made of, for the three files that work on it: sandbox.c (states, record, end),
 * boot.c (from nothing to ready), restore.c (what an earlier spaced left). */
#pragma once

#include <uv.h>

#include "daemon/console.h"
#include "daemon/gateway.h"
#include "daemon/guest.h"
#include "daemon/sandbox.h"
#include "image/image.h"

#define SANDBOX_ID_SIZE    21 /* bytes, with the NUL */
#define SANDBOX_TOKEN_SIZE 33

struct sandbox {
	struct list link;
	struct node *node;
	struct sandbox_spec spec;
	char id[SANDBOX_ID_SIZE];
	char token[SANDBOX_TOKEN_SIZE];
	enum sandbox_state state;
	uint64_t started_ms, ended_ms;
	int exit_code;
	char *reason;
	char *dir;
	int seat; /* index of its uids, -1: none */

	struct image image;
	struct slot slot;
	int scratch_fd;
	struct console *console;
	struct tasklog *log;
	struct vmm *vmm;
	struct gateway *gateway;
	bool gateway_ready, agent_ready, killed;
	struct guest_call *init_call; /* while it runs */

	uv_timer_t timer; /* the boot's deadline; later, what brings on_stop_timer and
			     on_finish_timer */
	struct err why;   /* the first thing that went wrong */
	struct list links, waiters;
	const struct sandbox_ops *ops;
	void *user;
};

/* A bare object in the node's list, in SANDBOX_CREATING; takes spec over. NULL: no memory. */
struct sandbox *sandbox_new(struct node *n, struct sandbox_spec *spec);

/* The one place where the state changes; written to both records. */
void sandbox_go(struct sandbox *sb, enum sandbox_state to);

/* Opens the slot, starts gateway and monitor; the rest of the boot follows from the loop, up to
   ops->ready() or sandbox_stop(). 0 or -errno: what was started is for sandbox_stop() to end. */
int sandbox_boot(struct sandbox *sb, struct err *e);

/* One of its processes is gone while it stops: ends it when that was the last. */
void sandbox_maybe_finish(struct sandbox *sb);

/* Removes its directory, its record and itself; nothing else may be left of it. */
void sandbox_erase(struct sandbox *sb);
