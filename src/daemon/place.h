/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A place: what a machine needs around it, made before it is known what for. A seat (two uids), a
 * slot, a gateway process without a policy, a monitor process without a machine, an empty disk, a
 * directory. It becomes a sandbox's when one starts, resumes or is forked, and ends with it.
 */
#pragma once

#include <stdbool.h>
#include <uv.h>

#include "base/err.h"
#include "base/list.h"
#include "daemon/console.h"
#include "daemon/gateway.h"
#include "daemon/node.h"
#include "http/stream.h"
#include "net/slot.h"
#include "vmm/vmm.h"

#define PLACE_ID_SIZE 21 /* bytes, with the NUL */

struct place_ops {
	void (*gateway_ready)(void *user); /* may be NULL */
	/* The sandbox uses its network; may be NULL. */
	void (*active)(void *user);
	/* A record of its gateway, as of gateway_ops; may be NULL. */
	void (*recorded)(void *user, const json_t *event);
	/* One of its processes ended unasked: the place is of no more use, kill it. */
	void (*lost)(void *user, const struct err *why);
	/* After place_kill(): no process is left. p is yours to release. */
	void (*gone)(void *user);
};

struct place {
	struct list link; /* for whoever has it */
	struct list all;  /* in the node's */
	struct node *node;
	char id[PLACE_ID_SIZE];
	int seat;
	char *dir;    /* NODE's places/ID, 0700; the monitor's own is dir/vm */
	char *vm_dir;
	struct slot slot;
	int scratch_fd;
	char *root; /* the image's root filesystem, for whoever freezes the machine; NULL: not told */
	struct console *console;
	struct vmm *vmm;
	struct gateway *gateway; /* NULL: none, or not yet */
	bool boots, killed, gateway_dropped;
	uv_timer_t timer; /* brings gone() when there was nothing to wait for */
	const struct place_ops *ops;
	void *user;
};

/* What kind of place. */
enum {
	PLACE_BOOTS = 1,      /* for vmm_boot(); else for vmm_restore() */
	PLACE_NO_GATEWAY = 2, /* its guest reaches nothing but us */
};

/* Makes one, in some milliseconds. -EAGAIN when all seats are taken. NULL with e set: nothing is
 * left, but processes may still be dying. */
struct place *place_open(struct node *n, unsigned kind, const struct place_ops *ops, void *user,
			 struct err *e);

/* Gives it to somebody else. */
void place_hand_over(struct place *p, const struct place_ops *ops, void *user);

/* The gateway of sandbox: policy and secrets as docs/internals/gateway-control.md has them. ops->gateway_ready()
   follows. Values of secrets are removed from the list. */
int place_configure(struct place *p, const char *sandbox, const json_t *policy, json_t *secrets,
		    struct err *e);

/* Keeps a hard link to root, so that an image that is built anew takes nothing away. */
int place_keep_root(struct place *p, const char *root, struct err *e);

/* No network: its gateway goes, and its guest is refused at once. */
void place_drop_gateway(struct place *p);

/* Connects the guest's serial port: kept in log_dir/console.log; see console_open(). */
int place_watch_console(struct place *p, const char *log_dir, void (*ready)(void *user), void *user,
			struct err *e);
const char *place_last_line(const struct place *p); /* of the console, "" when there is none */

/* A connection to a port of the guest. NULL with e set when it can't be made. */
struct stream *place_connect(struct place *p, uint16_t port, const struct stream_ops *ops,
			     void *user, struct err *e);

/* Kills its processes; gone() follows from the loop. Harmless when done before. */
void place_kill(struct place *p);

/* For the end of the node: kills the processes of all places, and waits for none. */
void place_kill_all(struct node *n);

/* Kills one that has no owner (any more); it releases itself. */
void place_discard(struct place *p);

/* Frees one whose gone() was called, with its directory. */
void place_release(struct place *p);

/* For a record that a later spaced trusts: new reference. place_adopt() reads it. */
json_t *place_to_json(const struct place *p);

/* Takes over a place whose spaced has died, its processes alive. network: it has a gateway, which
   serves sandbox, and ops->gateway_ready() follows. done(place, why) follows from the loop, *ret_running is as of vmm_adopt(). NULL
   with e set: what could be taken over of it is killed. */
struct place *place_adopt(struct node *n, const json_t *record, const char *sandbox, bool network,
			  bool *ret_running, vmm_done_fn done, const struct place_ops *ops,
			  void *user, struct err *e);
