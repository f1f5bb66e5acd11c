/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making and ending sandboxes. Theory of operation: everything that could be left behind
 * is held by a descriptor (slot, disk) or dies with us (monitor, gateway); what remains is one
 * directory and one record, which a new spaced clears. Ending waits for both processes, then
 * releases the rest.
 */
#include "daemon/sandbox.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/grants.h"
#include "daemon/ready.h"
#include "daemon/sandbox_state.h"

#define DISK_FREE_MIN (128u << 20) /* bytes free for disks, below which nothing starts */
#define TOKEN_BYTES   (SANDBOX_TOKEN_SIZE / 2)

void sandbox_spec_done(struct sandbox_spec *s)
{
	free(s->name);
	free(s->image);
	json_decref(s->command);
	policy_free(s->policy);
	json_decref(s->secrets);
	json_decref(s->strays);
	*s = (struct sandbox_spec){0};
}

static bool state_may_follow(enum sandbox_state from, enum sandbox_state to)
{
	switch (from) {
	case SANDBOX_CREATING:
		return to == SANDBOX_BOOTING || to == SANDBOX_STOPPING;
	case SANDBOX_BOOTING: /* back to paused: what it was restored from is still there */
		return to == SANDBOX_RUNNING || to == SANDBOX_STOPPING || to == SANDBOX_PAUSED;
	case SANDBOX_RUNNING:
		return to == SANDBOX_PAUSING || to == SANDBOX_STOPPING;
	case SANDBOX_PAUSING:
		return to == SANDBOX_PAUSED || to == SANDBOX_RUNNING || to == SANDBOX_STOPPING;
	case SANDBOX_PAUSED:
		return to == SANDBOX_BOOTING || to == SANDBOX_STOPPING;
	case SANDBOX_STOPPING:
		return to == SANDBOX_EXITED || to == SANDBOX_FAILED;
	case SANDBOX_EXITED:
	case SANDBOX_FAILED:
		return false;
	}
	return false;
}

void sandbox_go(struct sandbox *sb, enum sandbox_state to)
{
	if (!state_may_follow(sb->state, to))
		abort();
	sb->state = to;
	if (to == SANDBOX_PAUSED || to >= SANDBOX_STOPPING)
		grants_end(sb);
	json_t *members = sb->reason ? json_pack("{s:s}", "reason", sb->reason) : json_object();
	if (to >= SANDBOX_EXITED && sb->exit_code >= 0)
		json_object_set_new(members, "exit_code", json_integer(sb->exit_code));
	auto_free char *kind = str_printf("sandbox.%s", sandbox_state_name(to));
	struct err e;
	if (audit_write(sb->node->audit, sb->id, kind ? kind : "sandbox", members, &e) < 0) {
		log_error("%s: %s", sb->id, e.text);
		if (to < SANDBOX_STOPPING)
			sandbox_stop(sb, &e);
	}
	/* One that is not kept has no record of its end, so that none is left when we are killed
	 * now. */
	if (to >= SANDBOX_EXITED && !sb->spec.keep)
		return;
	if (sandbox_store(sb, &e) < 0)
		log_error("%s: %s", sb->id, e.text);
}

int sandbox_record(struct sandbox *sb, const char *kind, json_t *members)
{
	struct err e;
	int r = audit_write(sb->node->audit, sb->id, kind, members, &e);
	if (r < 0)
		sandbox_stop(sb, &e);
	return r;
}

static void on_timer_closed(uv_handle_t *h)
{
	struct sandbox *sb = h->data;
	sandbox_spec_done(&sb->spec);
	free(sb->reason);
	free(sb->task_user);
	free(sb->dir);
	free(sb);
}

/* Drops the object itself; nothing may be left that it owns but memory. */
static void sandbox_free(struct sandbox *sb)
{
	list_remove(&sb->link);
	tasklog_close(sb->log);
	sb->log = NULL;
	uv_close((uv_handle_t *)&sb->timer, on_timer_closed);
}

static void sandbox_release(struct sandbox *sb)
{
	grants_end(sb);
	if (sb->place)
		place_release(take_ptr(sb->place));
	template_cancel(&sb->template_waiter);
	frozen_done(&sb->source);
	image_done(&sb->image);
}

void sandbox_starts(struct sandbox *sb)
{
	sb->live = sb->starting = true;
	sb->node->live++;
	sb->node->starting++;
}

void sandbox_started(struct sandbox *sb)
{
	if (!sb->starting)
		return;
	sb->starting = false;
	sb->node->starting--;
	ready_poke(sb->node);
}

void sandbox_lives_no_more(struct sandbox *sb)
{
	struct node *n = sb->node;
	sandbox_started(sb);
	if (!sb->live)
		return;
	sb->live = false;
	n->live--;
	ready_poke(n);
	if (n->live == 0 && n->on_idle)
		n->on_idle(n);
}

void sandbox_erase(struct sandbox *sb)
{
	struct err e;
	tasklog_close(sb->log);
	sb->log = NULL;
	int r = dir_remove_all(sb->dir);
	if (r < 0)
		log_error("can't remove %s: %s", sb->dir, strerror(-r));
	if (store_remove(sb->node->store, sb->id, &e) < 0)
		log_error("%s", e.text);
	sandbox_free(sb);
}

/* Both processes are gone. */
static void finish(struct sandbox *sb)
{
	struct node *n = sb->node;
	bool lived = sb->live;
	sandbox_started(sb);
	sandbox_release(sb);
	sb->ended_ms = clock_wall_ms();
	sandbox_go(sb, sb->why.code ? SANDBOX_FAILED : SANDBOX_EXITED);
	tasklog_finish(sb->log);
	auto_free char *paused = str_printf("%s/" SANDBOX_PAUSED_NAME, sb->dir);
	if (paused)
		dir_remove_all(paused);
	sb->live = false;
	const struct err why = sb->why;
	const struct sandbox_ops *ops = sb->ops;
	void *user = sb->user;
	struct list waiters;
	list_init(&waiters);
	list_move_all(&waiters, &sb->waiters);
	sb->ops = NULL;
	if (!sb->spec.keep)
		sandbox_erase(sb);
	if (ops)
		ops->gone(user, why.code ? &why : NULL);
	while (!list_empty(&waiters)) {
		struct sandbox_waiter *w = list_entry(waiters.next, struct sandbox_waiter, link);
		list_remove(&w->link);
		w->gone(w->user);
	}
	n->live -= lived;
	ready_poke(n);
	if (lived && n->live == 0 && n->on_idle)
		n->on_idle(n);
}

/* Neither stopping nor finishing runs inside somebody's call: both come from the loop. */
static void on_finish_timer(uv_timer_t *t)
{
	finish(t->data);
}

static void on_fall_back_timer(uv_timer_t *t);

void sandbox_maybe_finish(struct sandbox *sb)
{
	if (sandbox_falls_back(sb))
		uv_timer_start(&sb->timer, on_fall_back_timer, 0, 0);
	else if (sb->killed && !sb->place && !sb->works && !sb->freeze)
		uv_timer_start(&sb->timer, on_finish_timer, 0, 0);
}

bool sandbox_falls_back(const struct sandbox *sb)
{
	return sb->state == SANDBOX_BOOTING && sb->paused_ms && sb->why.code;
}

void sandbox_cut_links(struct sandbox *sb)
{
	while (!list_empty(&sb->links)) {
		struct sandbox_link *l = list_entry(sb->links.next, struct sandbox_link, link);
		list_remove(&l->link);
		l->cut(l->user);
	}
}

static void on_stop_timer(uv_timer_t *t)
{
	struct sandbox *sb = t->data;
	sandbox_cut_links(sb);
	if (sb->init_call)
		guest_call_cancel(take_ptr(sb->init_call));
	template_cancel(&sb->template_waiter);
	if (sb->place)
		place_kill(sb->place);
	sb->killed = true;
	sandbox_maybe_finish(sb);
}

void sandbox_tell_starters(struct sandbox *sb, const struct err *why)
{
	struct list starters;
	list_init(&starters);
	list_move_all(&starters, &sb->starters);
	while (!list_empty(&starters)) {
		struct sandbox_starter *s = list_entry(starters.next, struct sandbox_starter, link);
		list_remove(&s->link);
		s->done(s->user, why);
	}
}

/* It could not be resumed: what it was paused to is as good as before. */
static void on_fall_back_timer(uv_timer_t *t)
{
	struct sandbox *sb = t->data;
	const struct err why = sb->why;
	sandbox_cut_links(sb);
	if (sb->init_call)
		guest_call_cancel(take_ptr(sb->init_call));
	if (sb->place)
		place_kill(sb->place);
	/* Comes again when its worker is back, which reads what it was paused to, and its processes
	   are gone, whose calls are answered to it. */
	if (sb->works || sb->place)
		return;
	frozen_done(&sb->source);
	sb->agent_ready = sb->gateway_ready = false;
	sandbox_go(sb, SANDBOX_PAUSED);
	sandbox_lives_no_more(sb);
	sb->why.code = 0;
	free(sb->reason);
	sb->reason = NULL;
	sandbox_tell_starters(sb, &why);
	sandbox_rested(sb);
}

void sandbox_stop(struct sandbox *sb, const struct err *why)
{
	static const struct err stopped = {.code = ECANCELED, .text = "the sandbox was stopped"};
	if (sb->state >= SANDBOX_STOPPING || (why && sandbox_falls_back(sb)))
		return;
	if (why) {
		sb->why = *why;
		free(sb->reason);
		sb->reason = strdup(why->text);
	}
	if (sb->state == SANDBOX_BOOTING && sb->paused_ms && why) {
		uv_timer_start(&sb->timer, on_fall_back_timer, 0, 0);
		return;
	}
	sb->resume_wanted = false;
	sandbox_go(sb, SANDBOX_STOPPING);
	sandbox_tell_starters(sb, why ? &sb->why : &stopped);
	if (sb->freeze)
		freeze_abort(sb->freeze, &sb->why);
	uv_timer_start(&sb->timer, on_stop_timer, 0, 0);
}

struct sandbox *sandbox_new(struct node *n, struct sandbox_spec *spec)
{
	struct sandbox *sb = calloc(1, sizeof(*sb));
	if (!sb)
		return NULL;
	sb->node = n;
	sb->spec = *spec;
	*spec = (struct sandbox_spec){0};
	sb->exit_code = -1;
	sb->touched_ms = clock_mono_ms();
	list_init(&sb->template_waiter.link);
	list_init(&sb->starters);
	list_init(&sb->links);
	list_init(&sb->waiters);
	list_init(&sb->grants);
	list_append(&n->sandboxes, &sb->link);
	uv_timer_init(n->loop, &sb->timer);
	sb->timer.data = sb;
	return sb;
}

static int check_disk(const struct node *n, struct err *e)
{
	struct statvfs st;
	if (statvfs(n->paths.scratch, &st) < 0)
		return err_sys(e, errno, "%s", n->paths.scratch);
	if ((uint64_t)st.f_bavail * st.f_frsize >= DISK_FREE_MIN)
		return 0;
	return err_set(e, ENOSPC,
		       "less than %u MiB are free in %s: make room, or move SPACE_STATE_DIR",
		       DISK_FREE_MIN >> 20, n->paths.scratch);
}

static int record_creation(struct sandbox *sb, struct err *e)
{
	const struct sandbox_spec *spec = &sb->spec;
	json_t *m = json_pack("{s:s, s:s, s:i, s:I, s:b, s:O, s:o}", "name", sandbox_name(sb),
			      "image", spec->image, "cpus", (int)spec->cpus, "memory_mib",
			      (json_int_t)spec->memory_mib, "network", spec->network, "command",
			      spec->command, "policy",
			      spec->policy ? policy_to_json(spec->policy) : json_null());
	if (sb->parent[0])
		json_object_set_new(m, "parent", json_string(sb->parent));
	return audit_write(sb->node->audit, sb->id, "sandbox.create", m, e);
}

int sandbox_prepare(struct sandbox *sb, struct err *e)
{
	random_id(sb->id, sizeof(sb->id), 'i');
	uint8_t token[TOKEN_BYTES];
	random_bytes(token, sizeof(token));
	hex_encode(token, sizeof(token), sb->token);
	sb->started_ms = clock_wall_ms();
	sb->dir = str_printf("%s/%s", sb->node->paths.sandboxes, sb->id);
	if (!sb->dir)
		return err_set(e, ENOMEM, "no memory");
	int r = dir_make_all(sb->dir, 0700);
	if (r < 0)
		return err_sys(e, -r, "can't make %s", sb->dir);
	sb->log = tasklog_open(sb->dir, e);
	if (!sb->log)
		return -EIO;
	r = sandbox_store(sb, e);
	return r < 0 ? r : record_creation(sb, e);
}

void sandbox_drop(struct sandbox *sb)
{
	sandbox_release(sb);
	if (sb->dir)
		sandbox_erase(sb);
	else
		sandbox_free(sb);
}

int sandbox_check(struct node *n, const struct sandbox_spec *spec, struct err *e)
{
	if (n->closing)
		return err_set(e, ESHUTDOWN, "spaced is shutting down");
	if (spec->name && sandbox_find(n, spec->name))
		return err_set(e, EEXIST,
			       "a sandbox named %s exists: choose another name, or 'space rm %s'",
			       spec->name, spec->name);
	return check_disk(n, e);
}

int sandbox_create(struct node *n, struct sandbox_spec *spec, const struct sandbox_ops *ops,
		   void *user, struct sandbox **ret, struct err *e)
{
	int r = sandbox_check(n, spec, e);
	struct sandbox *sb = r == 0 ? sandbox_new(n, spec) : NULL;
	if (!sb) {
		sandbox_spec_done(spec);
		return r < 0 ? r : err_set(e, ENOMEM, "no memory");
	}
	r = sandbox_choose(sb, e);
	if (r == 0)
		r = sandbox_prepare(sb, e);
	if (r < 0) {
		sandbox_drop(sb);
		return r;
	}
	sandbox_starts(sb);
	r = sandbox_begin(sb, e);
	if (r == 0) {
		sb->ops = ops;
		sb->user = user;
		*ret = sb;
		return 0;
	}
	/* It ends by itself, unseen: the caller has the error. */
	sb->spec.keep = false;
	sandbox_stop(sb, e);
	return -e->code;
}

void sandbox_set_ops(struct sandbox *sb, const struct sandbox_ops *ops, void *user)
{
	sb->ops = ops;
	sb->user = user;
}

bool sandbox_has_ops(const struct sandbox *sb)
{
	return sb->ops;
}

void sandbox_remove(struct sandbox *sb, struct sandbox_waiter *w)
{
	sb->spec.keep = false;
	list_append(&sb->waiters, &w->link);
	sandbox_stop(sb, NULL);
}

void sandbox_keep(struct sandbox *sb)
{
	struct err e;
	if (sb->state >= SANDBOX_STOPPING)
		return;
	sb->spec.keep = true;
	if (sandbox_store(sb, &e) < 0)
		log_error("%s: %s", sb->id, e.text);
}

int sandbox_forget(struct sandbox *sb, struct err *e)
{
	if (sb->state < SANDBOX_EXITED)
		return err_set(e, EBUSY, "%s still has processes", sandbox_name(sb));
	int r = audit_write(sb->node->audit, sb->id, "sandbox.remove", NULL, e);
	if (r == 0)
		sandbox_erase(sb);
	return r;
}

struct sandbox *sandbox_find_id(struct node *n, const char *id)
{
	list_for_each (it, &n->sandboxes) {
		struct sandbox *sb = list_entry(it, struct sandbox, link);
		if (str_eq(sb->id, id))
			return sb;
	}
	return NULL;
}

struct sandbox *sandbox_find(struct node *n, const char *ref)
{
	list_for_each (it, &n->sandboxes) {
		struct sandbox *sb = list_entry(it, struct sandbox, link);
		if (str_eq(sb->id, ref) || str_eq(sb->spec.name, ref))
			return sb;
	}
	return NULL;
}

void sandbox_stop_all(struct node *n)
{
	static const struct err closing = {.code = ESHUTDOWN, .text = "spaced is shutting down"};
	list_for_each (it, &n->sandboxes) {
		struct sandbox *sb = list_entry(it, struct sandbox, link);
		/* What is on its way to or from a pause is kept: the first ends there by itself. */
		bool resuming = sb->state == SANDBOX_BOOTING && sb->paused_ms;
		if (sb->live && sb->state != SANDBOX_PAUSING)
			sandbox_stop(sb, resuming ? &closing : NULL);
	}
}

struct node *sandbox_node(const struct sandbox *sb)
{
	return sb->node;
}

const char *sandbox_id(const struct sandbox *sb)
{
	return sb->id;
}

const char *sandbox_name(const struct sandbox *sb)
{
	return sb->spec.name ? sb->spec.name : sb->id;
}

enum sandbox_state sandbox_state(const struct sandbox *sb)
{
	return sb->state;
}

bool sandbox_waits(const struct sandbox *sb)
{
	return sb->state < SANDBOX_STOPPING && sb->state != SANDBOX_RUNNING;
}

struct vmm *sandbox_vmm(const struct sandbox *sb)
{
	return sb->place ? sb->place->vmm : NULL;
}

struct place *sandbox_place(const struct sandbox *sb)
{
	return sb->place;
}

const struct sandbox_spec *sandbox_spec(const struct sandbox *sb)
{
	return &sb->spec;
}

void sandbox_set_task(struct sandbox *sb, uint64_t pid, const char *linux_user)
{
	struct err e;
	sb->task_pid = pid;
	free(sb->task_user);
	sb->task_user = linux_user ? strdup(linux_user) : NULL;
	if (sandbox_store(sb, &e) < 0)
		log_error("%s: %s", sb->id, e.text);
}

uint64_t sandbox_task(const struct sandbox *sb)
{
	return sb->task_pid;
}

void sandbox_detach_task(struct sandbox *sb)
{
	struct err e;
	sb->spec.detached = true;
	if (sandbox_store(sb, &e) < 0)
		log_error("%s: %s", sb->id, e.text);
}

void sandbox_touch(struct sandbox *sb)
{
	sb->touched_ms = clock_mono_ms();
}

uint64_t sandbox_touched_ms(const struct sandbox *sb)
{
	return sb->touched_ms;
}

struct tasklog *sandbox_log(const struct sandbox *sb)
{
	return sb->log;
}

const char *sandbox_token(const struct sandbox *sb)
{
	return sb->token;
}

void sandbox_set_exit_code(struct sandbox *sb, int exit_code)
{
	sb->exit_code = exit_code;
}

struct stream *sandbox_connect(struct sandbox *sb, uint16_t port, const struct stream_ops *ops,
			       void *user, struct err *e)
{
	sandbox_touch(sb);
	return place_connect(sb->place, port, ops, user, e);
}

void sandbox_attach(struct sandbox *sb, struct sandbox_link *l)
{
	list_append(&sb->links, &l->link);
}

void sandbox_detach(struct sandbox_link *l)
{
	list_remove(&l->link);
}
