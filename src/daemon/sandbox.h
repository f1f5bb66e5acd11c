/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sandbox: one microVM with its slot, gateway, disk and record.
 *
 *   creating ──► booting ──► running ◄──► pausing ──► paused ──► booting …
 *       │           │           │            │          │
 *       └───────────┴───────────┴────────────┴──────────┴─► stopping ──► exited | failed
 *
 * exited and failed are records without processes, kept when the spec says so, else gone at once.
 * paused has no processes either: its machine is a directory (image/frozen.h).
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "daemon/node.h"
#include "daemon/tasklog.h"
#include "http/client.h"
#include "net/slot.h"
#include "policy/policy.h"

enum sandbox_state {
	SANDBOX_CREATING,
	SANDBOX_BOOTING,
	SANDBOX_RUNNING,
	SANDBOX_PAUSING,
	SANDBOX_PAUSED,
	SANDBOX_STOPPING,
	SANDBOX_EXITED,
	SANDBOX_FAILED,
};

/* What is asked for. Owns what it points to. */
struct sandbox_spec {
	char *name; /* NULL: its id */
	char *image;
	unsigned cpus;
	uint64_t memory_mib;
	bool sized;              /* cpus or memory were asked for, not taken by default */
	bool network;            /* false: a slot without a gateway */
	bool keep;               /* the record outlives the microVM */
	bool cold;               /* boot, don't clone */
	bool detached;           /* nobody is attached to its task */
	bool pause_on_timeout;   /* else it ends */
	uint64_t timeout_ms;     /* of its task; 0: none */
	uint64_t idle_ms;        /* without a call, output or traffic; 0: any time */
	json_t *command;
	struct policy *policy;
	json_t *secrets; /* what it was granted (grant_entry.h) */
	json_t *strays;  /* what sandboxes were granted of which it is a copy, and it was not; may be NULL */
};

void sandbox_spec_done(struct sandbox_spec *s);

struct sandbox;

struct sandbox_ops {
	/* The agent answers and knows who it is; the gateway stands. Again after each pause. */
	void (*ready)(void *user);
	/* All who hung on it were cut, its processes are going. */
	void (*paused)(void *user);
	/* Nothing of it is left but its record. why is NULL when it was told to stop. Last
	 * callback; sb is dead after it unless kept. */
	void (*gone)(void *user, const struct err *why);
};

/* Makes one and starts its boot; spec is taken over, also on failure. On failure nothing is left
   (processes may still be dying). -EEXIST (name), -ENOENT (image), -ENOSPC, -EINVAL, -EAGAIN (node
   is full), … */
int sandbox_create(struct node *n, struct sandbox_spec *spec, const struct sandbox_ops *ops,
		   void *user, struct sandbox **ret, struct err *e);

/* Ends it; links are cut and gone() is called from the loop, never from here. why (may be NULL)
   says what went wrong, and makes it failed. Harmless when already stopping. */
void sandbox_stop(struct sandbox *sb, const struct err *why);

/* Ends it and forgets its record, kept or not. gone is called when nothing is left. */
struct sandbox_waiter {
	struct list link;
	void (*gone)(void *user);
	void *user;
};
void sandbox_remove(struct sandbox *sb, struct sandbox_waiter *w);

/* Who is told from now on; a sandbox that was restored from a record has nobody. */
void sandbox_set_ops(struct sandbox *sb, const struct sandbox_ops *ops, void *user);
bool sandbox_has_ops(const struct sandbox *sb);

/* From now on the record outlives the microVM; without effect on one that is already stopping. */
void sandbox_keep(struct sandbox *sb);

/* Forgets a record that has no processes. 0 or -errno. */
int sandbox_forget(struct sandbox *sb, struct err *e);

/* By id or by name. NULL: none. */
struct sandbox *sandbox_find(struct node *n, const char *ref);
struct sandbox *sandbox_find_id(struct node *n, const char *id);

/* All of them, as the API shows them, oldest first. New reference. */
json_t *sandbox_list_json(const struct node *n);

/* Stops all that live. */
void sandbox_stop_all(struct node *n);

struct node *sandbox_node(const struct sandbox *sb);
const char *sandbox_id(const struct sandbox *sb);
const char *sandbox_name(const struct sandbox *sb);
enum sandbox_state sandbox_state(const struct sandbox *sb);
bool sandbox_waits(const struct sandbox *sb); /* it can't be called now, but will be, or after a resume */
struct vmm *sandbox_vmm(const struct sandbox *sb); /* NULL when there is none */
struct tasklog *sandbox_log(const struct sandbox *sb);
const char *sandbox_token(const struct sandbox *sb); /* what the agent wants as X-Access-Token */

const struct sandbox_spec *sandbox_spec(const struct sandbox *sb);
struct place *sandbox_place(const struct sandbox *sb); /* NULL when it has none */

/* Its task's process in the guest, for whoever attaches to it after a pause; 0: none yet. */
void sandbox_set_task(struct sandbox *sb, uint64_t pid, const char *linux_user);
uint64_t sandbox_task(const struct sandbox *sb);

/* Lets the processes of a thawed machine be heard again: those who care are attached to them. */
void sandbox_release_hold(struct sandbox *sb);

/* Nobody is attached to its task any more. */
void sandbox_detach_task(struct sandbox *sb);

/* Somebody uses it now: its idle time begins anew. */
void sandbox_touch(struct sandbox *sb);
uint64_t sandbox_touched_ms(const struct sandbox *sb); /* monotonic clock */

/* The exit code of its task, for the record. */
void sandbox_set_exit_code(struct sandbox *sb, int exit_code);

/* What the API shows. New reference. */
json_t *sandbox_to_json(const struct sandbox *sb);

/* A connection to a port of the guest. NULL with e set when it can't be made. */
struct stream *sandbox_connect(struct sandbox *sb, uint16_t port, const struct stream_ops *ops,
			       void *user, struct err *e);

/* Pause, snapshot, fork: done is called once from the loop, with why NULL when it succeeded. */
struct sandbox_frozen {
	uint64_t stopped_ms; /* how long the guest stood still */
	uint64_t size_bytes; /* on disk */
};
typedef void (*sandbox_frozen_fn)(void *user, const struct sandbox_frozen *report,
				  const struct err *why);

/* To files; its processes go. -EBUSY (something like this is under way, or it does not run), -errno: done does not follow. */
int sandbox_pause(struct sandbox *sb, sandbox_frozen_fn done, void *user, struct err *e);

/* A copy of it under a name, from which sandboxes start (spec.image). -EEXIST, -EINVAL. */
int sandbox_snapshot(struct sandbox *sb, const char *name, sandbox_frozen_fn done, void *user,
		     struct err *e);

/* One copy for children, which start from it as soon as it is there: sandboxes of their own, each with
   a task that goes on. names has count strings or is NULL; grants: each gets what is left of the
   parent's grants, secrets (may be NULL) has the values that do not come from the broker. children(user, list, report, why): a new reference to a list as the API shows it, when all run or why says
   what went wrong; those that run then stay. */
struct sandbox_fork_request {
	unsigned count;
	json_t *names;
	bool grants;
	json_t *secrets;
};
#define SANDBOX_FORK_MAX 64
int sandbox_fork(struct sandbox *sb, const struct sandbox_fork_request *q,
		 void (*done)(void *user, json_t *children, const struct sandbox_frozen *report,
			      const struct err *why),
		 void *user, struct err *e);

/* Goes on where it was paused. secrets: values for what was granted and does not come from the broker;
   all of them, or with without_secrets some or none (NULL): the others' placeholders are worth
   nothing. -EBUSY: not paused. The starter is told how it ended. */
struct sandbox_starter {
	struct list link;
	void (*done)(void *user, const struct err *why);
	void *user;
};
int sandbox_resume(struct sandbox *sb, json_t *secrets, bool without_secrets,
		   struct sandbox_starter *s, struct err *e);

/* Those who wait for one that starts, or that is being paused: done() is told when it runs, or when it is
   paused (the state says which), or why not. */
void sandbox_await(struct sandbox *sb, struct sandbox_starter *s);
void sandbox_await_not(struct sandbox_starter *s);

/* Who hangs on a running sandbox: cut(user) is called when it stops, before its processes are
 * killed; the link is out of the list then. */
struct sandbox_link {
	struct list link;
	void (*cut)(void *user);
	bool (*pending)(void *user); /* NULL: never. Whether more has arrived from the guest, asked before
					it is cut for a pause; what is slow hurries up then */
	void *user;
};
void sandbox_attach(struct sandbox *sb, struct sandbox_link *l);
void sandbox_detach(struct sandbox_link *l);

/* Writes an audit record of this sandbox; a failure stops it (a sandbox that can't be recorded does
 * not run). */
int sandbox_record(struct sandbox *sb, const char *kind, json_t *members);

/* At start: takes in the records of an earlier spaced, clears up what its sandboxes left. 0 or
 * -errno. */
int sandbox_restore_all(struct node *n, struct err *e);
