/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox is made of, for the files that work on it: sandbox.c (states, end), record.c (what is
 * written down of it), boot.c (from nothing, or from a frozen machine, to ready), freeze.c (pause,
 * snapshot, fork), restore.c (what an earlier spaced left).
 */
#pragma once

#include <uv.h>

#include "daemon/guest.h"
#include "daemon/place.h"
#include "daemon/sandbox.h"
#include "daemon/template.h"
#include "image/frozen.h"
#include "image/image.h"

#define SANDBOX_ID_SIZE    21 /* bytes, with the NUL */
#define SANDBOX_TOKEN_SIZE 33

#define SANDBOX_PAUSED_NAME "paused" /* in a sandbox's directory: what it is paused to */

/* How its machine came to be. */
enum sandbox_start {
	SANDBOX_COLD,
	SANDBOX_CLONE,
	SANDBOX_POOL,
	SANDBOX_FORK,
};

struct freeze;

struct sandbox {
	struct list link;
	struct node *node;
	struct sandbox_spec spec;
	char id[SANDBOX_ID_SIZE];
	char token[SANDBOX_TOKEN_SIZE]; /* what its agent wants, or will once it has its instructions */
	char old_token[SANDBOX_TOKEN_SIZE]; /* what it wants until then; "": nothing */
	char parent[SANDBOX_ID_SIZE];
	enum sandbox_state state;
	enum sandbox_start start;
	uint64_t started_ms, ended_ms, paused_ms;
	uint64_t touched_ms; /* monotonic */
	int exit_code;
	char *reason;
	char *dir;
	uint64_t task_pid;
	char *task_user;

	struct image image; /* of a snapshot: what the manifest says of it */
	struct template_waiter template_waiter;
	struct frozen source; /* what it is restored from; dir NULL: nothing */
	bool source_vetted;   /* was verified before */
	bool thawed;          /* a copy of a machine that had its instructions before */
	struct place *place;
	struct tasklog *log;
	unsigned works; /* workers that still use it */
	struct freeze *freeze;
	bool resume_wanted;  /* as soon as it is at rest */
	bool live, starting; /* counted in the node */
	bool gateway_ready, agent_ready, killed;
	bool policy_due; /* spec.policy is on its way to the gateway, which has not answered */
	bool adopted_running; /* its guest ran when it was taken over */
	struct guest_call *init_call; /* while it runs */

	uv_timer_t timer; /* the boot's deadline; later, what brings on_stop_timer and
			     on_finish_timer */
	struct err why;   /* the first thing that went wrong */
	struct list links, waiters, starters;
	struct list grants;       /* what runs of its grants (grants.c) */
	unsigned grants_waiting;  /* for answers of its gateway */
	const struct sandbox_ops *ops;
	void *user;
};

/* A bare object in the node's list, in SANDBOX_CREATING; takes spec over. NULL: no memory. */
struct sandbox *sandbox_new(struct node *n, struct sandbox_spec *spec);

/* Whether its name is free and the node takes more. */
int sandbox_check(struct node *n, const struct sandbox_spec *spec, struct err *e);

/* Id, token, directory, log, record: from here on it shows in lists. On failure sandbox_drop() it. */
int sandbox_prepare(struct sandbox *sb, struct err *e);
void sandbox_drop(struct sandbox *sb);

/* The one place where the state changes; written to both records. */
void sandbox_go(struct sandbox *sb, enum sandbox_state to);
const char *sandbox_state_name(enum sandbox_state state);

/* Counts it among those that live and start; sandbox_started() and its end count it out. */
void sandbox_starts(struct sandbox *sb);
void sandbox_started(struct sandbox *sb);
void sandbox_lives_no_more(struct sandbox *sb);

/* Tells those who wait for it to run: why NULL: it does. */
void sandbox_tell_starters(struct sandbox *sb, const struct err *why);

/* Finds what it is made from: a snapshot of that name, else an image. */
int sandbox_choose(struct sandbox *sb, struct err *e);

/* Cuts all who hang on it. */
void sandbox_cut_links(struct sandbox *sb);

/* Starts it from its image, a template or a snapshot, or (source is set) from that; the rest follows
   from the loop, up to ops->ready() or sandbox_stop(). 0 or -errno: what was started is for sandbox_stop() to end. */
int sandbox_begin(struct sandbox *sb, struct err *e);

/* Its gateway has all credentials that there are to have: it goes on, where it waited for that. */
void sandbox_settled(struct sandbox *sb);

/* It was taken over from another spaced, and its guest runs. */
void sandbox_adopted(struct sandbox *sb);

/* What its place tells; user is the sandbox. */
extern const struct place_ops sandbox_place_ops;

/* Its processes are gone because it is paused now. */
void sandbox_at_rest(struct sandbox *sb);

/* Nothing of it is under way any more, if so: it is resumed when somebody wants that. */
void sandbox_rested(struct sandbox *sb);

/* It is paused and nobody wants it: compressed after a while. */
void sandbox_rest_long(struct sandbox *sb);

/* A worker of it is done, or one of its processes gone, while it stops or falls back: brings that to
 * its end when it was the last. */
void sandbox_maybe_finish(struct sandbox *sb);

/* It could not be resumed, and will be paused again: nothing is to be done with it until then. */
bool sandbox_falls_back(const struct sandbox *sb);

/* Removes its directory, its record and itself; nothing else may be left of it. */
void sandbox_erase(struct sandbox *sb);

/* Whether it is a pause whose machine is safe: then it does not matter what becomes of the processes. */
bool freeze_committed(const struct freeze *f);

/* The freeze that is under way fails: why. */
void freeze_abort(struct freeze *f, const struct err *why);

/* record.c: what a later spaced must know of it. 0 or -errno. */
int sandbox_store(struct sandbox *sb, struct err *e);

/* Image defaults for manifests and records, and back. New references. */
json_t *sandbox_image_json(const struct image *img);
int sandbox_image_from_json(const json_t *j, struct image *ret, struct err *e);

/* Fills a bare sandbox from its record; the place is left to the caller. *ret_place is borrowed from *ret_detail, which is the caller's. */
int sandbox_from_record(struct sandbox *sb, const struct store_record *r, json_t **ret_detail,
			struct err *e);
