/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sandbox: one microVM with its slot, gateway, disk and record.
 *
 *   creating ──► booting ──► running ──► stopping ──► exited | failed
 *       └───────────┴───────────────────────▲
 *
 * exited and failed are records without processes, kept when the spec says so, else gone at once.
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
	bool network; /* false: a slot without a gateway */
	bool keep;    /* the record outlives the microVM */
	json_t *command;
	struct policy *policy;
	json_t *secrets; /* as docs/internals/gateway-control.md has them, placeholders included */
};

void sandbox_spec_done(struct sandbox_spec *s);

struct sandbox;

struct sandbox_ops {
	/* The agent answers and knows who it is; the gateway stands. */
	void (*ready)(void *user);
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
struct vmm *sandbox_vmm(const struct sandbox *sb); /* NULL when there is none */
struct tasklog *sandbox_log(const struct sandbox *sb);
const char *sandbox_token(const struct sandbox *sb); /* what the agent wants as X-Access-Token */

/* The exit code of its task, for the record. */
void sandbox_set_exit_code(struct sandbox *sb, int exit_code);

/* What the API shows. New reference. */
json_t *sandbox_to_json(const struct sandbox *sb);

/* A connection to a port of the guest. NULL with e set when it can't be made. */
struct stream *sandbox_connect(struct sandbox *sb, uint16_t port, const struct stream_ops *ops,
			       void *user, struct err *e);

/* Who hangs on a running sandbox: cut(user) is called when it stops, before its processes are
 * killed; the link is out of the list then. */
struct sandbox_link {
	struct list link;
	void (*cut)(void *user);
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
