/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Freezing a running sandbox, for a pause, a snapshot or a fork:
 *
 *   memory's base is copied ─► the agent holds its output ─► the guest stops ─► dirty pages,
 * devices and disk are copied ─► (snapshot, fork: the guest goes on, and is heard again) ─► synced
 * and renamed ─► (pause: its processes go)
 *
 * The rename is the one moment when the copy comes to be. Whatever fails before leaves the sandbox
 * running, with its guest going on; when the sandbox ends meanwhile, so does this, once its
 * workers are back.
 */
#include "daemon/freeze.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/sparse.h"
#include "base/str.h"

#define HOLD_TIMEOUT_MS 5000 /* for an agent that does not answer: it is frozen as it is */
#define DRAIN_MS        2000 /* most that is waited for what the guest had sent before it was held */
#define DRAIN_STEP_MS   1
#define NEED_BYTES      (UINT64_C(128) << 20) /* free disk space, below which nothing is begun */

struct freeze {
	struct sandbox *sb;
	struct freeze_request q;
	struct frozen_new fresh;
	int disk_fd; /* the sandbox's, for the worker: its place may go meanwhile */
	bool begun;  /* fresh is to be aborted */
	bool committed;
	bool stopped; /* the guest stands still because of us */
	bool disk_copied, saved;
	unsigned works; /* workers and calls of the monitor under way */
	unsigned drains;
	struct guest_call *call;
	uint64_t stop_us;
	struct sandbox_frozen report;
	struct err why; /* the first thing that went wrong */
	json_t *extra;
	uv_timer_t timer; /* drains, and brings the end from the loop */
	uv_work_t disk_work, commit_work;
	int disk_code, commit_code;
	struct err commit_why;
};

static void on_timer_closed(uv_handle_t *h)
{
	struct freeze *f = h->data;
	json_decref(f->extra);
	free(f->q.name);
	free(f);
}

/* The last step, whatever happened. */
static void conclude(struct freeze *f)
{
	struct sandbox *sb = f->sb;
	const struct freeze_request q = f->q;
	const struct err why = f->why;
	const struct sandbox_frozen report = f->report;
	if (f->begun)
		frozen_abort(&f->fresh);
	if (f->disk_fd >= 0)
		close(take_fd(f->disk_fd));
	sb->freeze = NULL;
	if (sb->state == SANDBOX_PAUSING && why.code) {
		sandbox_go(sb, SANDBOX_RUNNING);
		if (sb->state == SANDBOX_RUNNING)
			sandbox_tell_starters(sb, NULL);
	}
	if (sb->node->closing && sb->live)
		sandbox_stop(sb, NULL);
	q.done(q.user, &report, why.code ? &why : NULL);
	uv_close((uv_handle_t *)&f->timer, on_timer_closed);
	sandbox_maybe_finish(sb);
	sandbox_rested(sb);
}

static void on_conclude_timer(uv_timer_t *t)
{
	conclude(t->data);
}

static void maybe_conclude(struct freeze *f)
{
	if (!f->works && !f->call)
		uv_timer_start(&f->timer, on_conclude_timer, 0, 0);
}

static bool doomed(const struct freeze *f)
{
	return f->sb->state >= SANDBOX_STOPPING || !f->sb->place;
}

/* From the moment in which its processes were asked to stand still to the one in which they surely
 * go on. */
static void stood_still(struct freeze *f)
{
	f->report.stopped_ms = (clock_mono_us() - f->stop_us + 999) / 1000;
}

static void on_released(void *user, unsigned status, const struct err *why)
{
	struct freeze *f = user;
	(void)status;
	f->call = NULL;
	stood_still(f);
	if (why)
		log_warn("%s: its processes may hang: %s", f->sb->id, why->text);
	if (!f->works)
		maybe_conclude(f);
}

/* Lets the guest be heard again; it goes on already. */
static void release(struct freeze *f)
{
	const struct guest_request q = {
		.method = "POST", .target = "/release", .token = f->sb->token};
	struct err e;
	if (doomed(f))
		return;
	f->call = guest_call(f->sb->place, &q, "{}", 2, HOLD_TIMEOUT_MS, on_released, f, &e);
	if (!f->call)
		log_warn("%s: its processes may hang: %s", f->sb->id, e.text);
}

static void on_resumed(void *user, const struct err *why)
{
	struct freeze *f = user;
	f->works--;
	f->stopped = false;
	stood_still(f);
	if (why->code && !doomed(f))
		sandbox_stop(f->sb, why); /* a guest that can't go on */
	else
		release(f);
	maybe_conclude(f);
}

static void go_on(struct freeze *f)
{
	if (!f->stopped || doomed(f))
		return;
	int r = vmm_resume(f->sb->place->vmm, on_resumed, f);
	f->works += r == 0;
	if (r == 0)
		return;
	struct err e;
	err_sys(&e, -r, "the guest can't go on");
	sandbox_stop(f->sb, &e);
}

static void give_up(struct freeze *f, const struct err *why)
{
	if (!f->why.code)
		f->why = *why;
	if (!f->works) /* what is under way is waited for */
		go_on(f);
	maybe_conclude(f);
}

bool freeze_committed(const struct freeze *f)
{
	return f->committed && f->q.kind == FREEZE_PAUSE;
}

void freeze_abort(struct freeze *f, const struct err *why)
{
	if (!f->why.code)
		f->why = *why;
	if (!f->why.code)
		err_set(&f->why, ECANCELED, "the sandbox was stopped");
	if (f->call)
		guest_call_cancel(take_ptr(f->call));
	maybe_conclude(f);
}

/* -- the end of a pause -- */

/* All processes are gone. */
void sandbox_at_rest(struct sandbox *sb)
{
	sandbox_lives_no_more(sb);
	if (sb->freeze)
		maybe_conclude(sb->freeze);
}

static bool links_pending(struct sandbox *sb)
{
	bool pending = false;
	list_for_each (it, &sb->links) {
		struct sandbox_link *l = list_entry(it, struct sandbox_link, link);
		if (l->pending && l->pending(l->user))
			pending = true;
	}
	return pending;
}

/* What the guest had sent is read to its end, then it is cut off and its processes go. */
static void on_drain_timer(uv_timer_t *t)
{
	struct freeze *f = t->data;
	struct sandbox *sb = f->sb;
	if (doomed(f)) {
		maybe_conclude(f);
		return;
	}
	if (links_pending(sb) && f->drains++ < DRAIN_MS / DRAIN_STEP_MS) {
		uv_timer_start(&f->timer, on_drain_timer, DRAIN_STEP_MS, 0);
		return;
	}
	sb->paused_ms = clock_wall_ms();
	sb->thawed = true;
	sandbox_go(sb, SANDBOX_PAUSED);
	if (sb->state != SANDBOX_PAUSED)
		return;
	sandbox_cut_links(sb);
	if (sb->init_call)
		guest_call_cancel(take_ptr(sb->init_call));
	sb->agent_ready = sb->gateway_ready = false;
	place_kill(sb->place);
	if (sb->ops)
		sb->ops->paused(sb->user);
	sandbox_tell_starters(sb, NULL);
}

/* -- the way there -- */

static void run_commit(uv_work_t *w)
{
	struct freeze *f = w->data;
	f->commit_code = frozen_commit(&f->fresh, f->q.name, f->sb->spec.memory_mib << 20, f->extra,
				       f->q.fleeting, &f->commit_why);
}

static void on_committed(uv_work_t *w, int status)
{
	struct freeze *f = w->data;
	f->works--;
	if (status < 0)
		f->commit_code = err_sys(&f->commit_why, -status, "a worker thread");
	if (f->commit_code < 0) {
		give_up(f, &f->commit_why);
		return;
	}
	f->begun = false;
	f->committed = true;
	struct frozen done;
	if (frozen_open(f->q.parent, f->q.name, &done, NULL) == 0) {
		f->report.size_bytes = done.size_bytes;
		frozen_done(&done);
	}
	if (f->q.kind == FREEZE_PAUSE && !doomed(f)) {
		stood_still(f);
		uv_timer_start(&f->timer, on_drain_timer, 0, 0);
	} else {
		maybe_conclude(f);
	}
}

static void maybe_commit(struct freeze *f)
{
	if (!f->saved || !f->disk_copied)
		return;
	if (f->why.code) {
		give_up(f, &f->why);
		return;
	}
	if (f->q.kind != FREEZE_PAUSE)
		go_on(f);
	f->works++;
	f->commit_work.data = f;
	uv_queue_work(f->sb->node->loop, &f->commit_work, run_commit, on_committed);
}

static void run_disk(uv_work_t *w)
{
	struct freeze *f = w->data;
	f->disk_code = sparse_copy(f->disk_fd, f->fresh.disk_fd);
}

static void on_disk(uv_work_t *w, int status)
{
	struct freeze *f = w->data;
	int r = status < 0 ? status : f->disk_code;
	f->works--;
	f->disk_copied = true;
	if (r < 0 && !f->why.code)
		err_sys(&f->why, -r, "copying the disk");
	maybe_commit(f);
}

static void on_saved(void *user, const struct err *why)
{
	struct freeze *f = user;
	f->works--;
	f->saved = true;
	if (why->code && !f->why.code)
		f->why = *why;
	maybe_commit(f);
}

static void on_stopped(void *user, const struct err *why)
{
	struct freeze *f = user;
	struct vmm *vmm = sandbox_vmm(f->sb);
	f->works--;
	f->stopped = !why->code;
	if (why->code || doomed(f) || !vmm) {
		give_up(f, why);
		return;
	}
	/* Counted first: neither may find the other's work missing. */
	f->works += 2;
	f->disk_work.data = f;
	uv_queue_work(f->sb->node->loop, &f->disk_work, run_disk, on_disk);
	int r = vmm_save(vmm, f->fresh.memory_fd, f->fresh.state_fd, on_saved, f);
	if (r < 0) {
		struct err e;
		err_sys(&e, -r, "saving the machine");
		on_saved(f, &e);
	}
}

static void on_held(void *user, unsigned status, const struct err *why)
{
	struct freeze *f = user;
	f->call = NULL;
	if (why || status != 204)
		log_warn("%s: its agent does not hold still: %s", f->sb->id,
			 why ? why->text : "it refused");
	int r = vmm_pause(f->sb->place->vmm, on_stopped, f);
	if (r == 0) {
		f->works++;
		return;
	}
	struct err e;
	err_sys(&e, -r, "stopping the guest");
	release(f);
	give_up(f, &e);
}

static void on_base(void *user, const struct err *why)
{
	struct freeze *f = user;
	struct err e = *why;
	f->works--;
	if (why->code || doomed(f)) {
		give_up(f, &e);
		return;
	}
	const struct guest_request q = {.method = "POST", .target = "/hold", .token = f->sb->token};
	f->stop_us = clock_mono_us();
	f->call = guest_call(f->sb->place, &q, "{}", 2, HOLD_TIMEOUT_MS, on_held, f, &e);
	if (!f->call)
		give_up(f, &e);
}

static json_t *manifest_of(const struct sandbox *sb, enum freeze_kind kind)
{
	static const char *const kinds[] = {"paused", "snapshot", "fork"};
	return json_pack("{s:s, s:o, s:i, s:I, s:s, s:s, s:s}", "kind", kinds[kind], "image",
			 sandbox_image_json(&sb->image), "cpus", (int)sb->spec.cpus, "memoryMB",
			 (json_int_t)sb->spec.memory_mib, "fingerprint", sb->node->fingerprint,
			 "token", sb->token, "sandbox", sb->id);
}

static int freeze_begin(struct freeze *f, struct err *e)
{
	struct sandbox *sb = f->sb;
	if (!f->extra || !f->q.name)
		return err_set(e, ENOMEM, "no memory");
	int r = frozen_begin(f->q.parent, sb->place->root, NEED_BYTES, &f->fresh, e);
	if (r < 0)
		return r;
	f->begun = true;
	f->disk_fd = fcntl(sb->place->scratch_fd, F_DUPFD_CLOEXEC, 0);
	if (f->disk_fd < 0)
		return err_sys(e, errno, "the disk");
	r = vmm_copy_base(sb->place->vmm, f->fresh.memory_fd, on_base, f);
	if (r < 0)
		return err_sys(e, -r, "copying the machine's memory");
	f->works++;
	return 0;
}

/* Whether another sandbox is being copied to the same place. */
static bool name_is_taken(const struct node *n, const struct freeze_request *q)
{
	list_for_each (it, &n->sandboxes) {
		const struct freeze *f = list_entry(it, struct sandbox, link)->freeze;
		if (f && str_eq(f->q.parent, q->parent) && str_eq(f->q.name, q->name))
			return true;
	}
	return false;
}

int freeze_start(struct sandbox *sb, const struct freeze_request *q, struct err *e)
{
	if (sb->node->closing)
		return err_set(e, ESHUTDOWN, "spaced is shutting down");
	if (sb->state != SANDBOX_RUNNING)
		return err_set(e, EBUSY, "%s is %s, not running", sandbox_name(sb),
			       sandbox_state_name(sb->state));
	if (sb->freeze)
		return err_set(e, EBUSY, "%s is being paused or copied already", sandbox_name(sb));
	if (name_is_taken(sb->node, q))
		return err_set(e, EEXIST, "%s is being made by another: choose another name",
			       q->name);
	struct freeze *f = calloc(1, sizeof(*f));
	if (!f)
		return err_set(e, ENOMEM, "no memory");
	f->sb = sb;
	f->disk_fd = -1;
	f->q = *q;
	f->q.name = strdup(q->name);
	f->extra = manifest_of(sb, q->kind);
	uv_timer_init(sb->node->loop, &f->timer);
	f->timer.data = f;
	int r = freeze_begin(f, e);
	if (r < 0) {
		if (f->begun)
			frozen_abort(&f->fresh);
		if (f->disk_fd >= 0)
			close(f->disk_fd);
		uv_close((uv_handle_t *)&f->timer, on_timer_closed);
		return r;
	}
	sb->freeze = f;
	if (q->kind == FREEZE_PAUSE)
		sandbox_go(sb, SANDBOX_PAUSING);
	return 0;
}
