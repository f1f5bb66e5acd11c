/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spaced's end of a gateway process: starting it before it is known for whom, configuring it,
 * writing its records, noticing its end, taking it over from a spaced that died. Protocol:
 * docs/internals/gateway-control.md
 *
 *   gateway_open ─► waiting ─ gateway_configure ─► ready()
 *   gateway_adopt ────────────────────────────────► ready() ─ gateway_set_policy ─► done()
 *   gateway_kill, gateway_end at any time ─► exited()
 */
#pragma once

#include <jansson.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "daemon/node.h"
#include "jail/jail.h"
#include "net/slot.h"

struct gateway;

struct gateway_ops {
	void (*ready)(void *user);
	/* Its process is gone, or it broke the protocol, or its records can't be written (it is
	 * killed then). The pointer is dead. */
	void (*exited)(void *user, const struct err *why);
	/* A record came: the sandbox uses its network. May be NULL. */
	void (*active)(void *user);
	/* What came, its kind and members, for whoever counts; borrowed. It is queued for the log.
	   May be NULL. */
	void (*recorded)(void *user, const json_t *event);
};

/* What a gateway's process sees and may do: all that it is started with but descriptors and uid. */
struct gateway_jail {
	struct jail_spec spec;
	struct jail_file *files;
	const char *argv[2];
};

/* 0 with ret to be released, or -errno with e set. */
int gateway_jail_make(struct gateway_jail *ret, const struct paths *paths, struct err *e);
void gateway_jail_done(struct gateway_jail *jail);

/* How a gateway of that uid is confined: each step of a start as a line. A heap string; NULL with e
   set. */
char *gateway_jail_text(const struct paths *paths, uid_t uid, struct err *e);

/* why NULL: it obeys from now on; code EINVAL: it refused, and all is as it was; EPIPE: it is gone
   (exited() follows), also because it did not answer in time. */
typedef void (*gateway_done_fn)(void *user, const struct err *why);

/* Who the process is, for a record that a later spaced trusts: pids come again, pairs don't. */
struct gateway_identity {
	pid_t pid;
	uint64_t started; /* field 22 of /proc/PID/stat: clock ticks since the host's start */
};

/* Starts space-egress, which waits. dir is the sandbox's directory, which only root can search: its
   control socket `gateway` will be there, also under a later name of the directory. The process
   outlives us. NULL with e set. */
struct gateway *gateway_open(struct node *n, const char *name_for_errors, const char *dir,
			     uid_t uid, const struct gateway_ops *ops, void *user, struct err *e);

/* Makes it the gateway of a sandbox. policy and secrets are borrowed during the call; the listeners
   of the slot are sent along and stay the caller's. Once. ready() follows, from the loop. 0, or
   -errno with e set: then it is of no use any more, and to be killed. */
int gateway_configure(struct gateway *g, const char *sandbox, const struct slot *slot,
		      const json_t *policy, const json_t *secrets, struct err *e);

struct gateway_identity gateway_identity(const struct gateway *g);

/* Takes over the gateway of a sandbox from a spaced that died. ready() follows when it has said
   where it is; exited() when it is another sandbox's, or says nothing in time: it is killed then.
   NULL with e set: code ESRCH when that process is gone, EPERM when it is not that uid's. What it
   says on its standard error is lost from now on. */
struct gateway *gateway_adopt(struct node *n, const char *sandbox, const char *dir, uid_t uid,
			      const struct gateway_identity *who, const struct gateway_ops *ops,
			      void *user, struct err *e);

/* Gives a gateway that is ready another policy (borrowed during the call). done follows from the
   loop. -EBUSY: another is not answered yet, -EAGAIN, -EMSGSIZE, … with e set: done does not
   follow. */
int gateway_set_policy(struct gateway *g, const json_t *policy, gateway_done_fn done, void *user,
		       struct err *e);

/* Tells one that is ready about a credential: verb is "put" (an entry), "revoke" (a name) or
   "renew" (another value, or why there is none); what is taken over, also on failure. Any number
   may be under way; each done (may be NULL) follows from the loop, in order. -EPIPE, -EMSGSIZE,
   -ENOMEM with e set: it does not. */
int gateway_secret(struct gateway *g, const char *verb, json_t *what, gateway_done_fn done,
		   void *user, struct err *e);

/* Kills it at once; exited() follows. */
void gateway_kill(struct gateway *g);

/* Has it record how what was open has ended, and end; it is killed when that takes too long. */
void gateway_end(struct gateway *g);
