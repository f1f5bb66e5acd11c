/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A template on its way:
 *
 *   template_get ─► verify (worker) ─► ready
 *         └─ missing, stale, damaged ─► boot ─► warm-up command ─► pause, save ─► commit (worker) ─► ready
 *
 * Everybody who wants the same one waits for the same one. What is built has no gateway, no task
 * and no name: only the image's own warm-up command runs in it.
 */
#include "daemon/template.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/sparse.h"
#include "base/str.h"
#include "daemon/guest.h"
#include "daemon/place.h"
#include "daemon/ready.h"
#include "daemon/sandbox_state.h"
#include "daemon/template_state.h"
#include "http/envelope.h"

#define BUILD_TIMEOUT_MS  (300u * 1000) /* software emulation on a busy host is slow */
#define WARMUP_TIMEOUT_MS BUILD_TIMEOUT_MS /* which comes first: what still runs is not frozen */
#define SETTLE_MS         1500 /* what the kernel puts off, and would do in each clone first */
#define MIB               (UINT64_C(1) << 20)
#define NEED_BYTES        (256 * MIB) /* free disk space, below which none is begun */

struct template {
	struct list link;
	struct node *node;
	char name[TEMPLATE_NAME_SIZE];
	struct image image;
	unsigned cpus;
	uint64_t memory_mib;
	bool busy; /* being verified or built */
	uint64_t verified; /* stamp of the one that was; 0: none */
	struct list waiters;

	struct place *place; /* in which it is built */
	struct frozen_new fresh;
	int disk_fd; /* of the machine, for the worker; -1 */
	bool begun, warmed;
	unsigned works; /* workers and monitor calls under way */
	struct guest_call *call;
	uv_timer_t timer;
	struct err why; /* the first thing that went wrong */
	struct frozen checked; /* what the worker verifies */
	uv_work_t work;
	int work_code;
	struct err work_why;
};

void template_name(const char *image, unsigned cpus, uint64_t memory_mib,
		   char out[TEMPLATE_NAME_SIZE])
{
	snprintf(out, TEMPLATE_NAME_SIZE, "%s-%uc-%jum", image, cpus, (uintmax_t)memory_mib);
}

const char *template_differs(const struct node *n, const json_t *extra, const char *hash)
{
	const json_t *image = json_object_get(extra, "image");
	if (!vmm_fingerprint_fits(json_string_value(json_object_get(extra, "fingerprint")),
				  n->fingerprint))
		return "the monitor or the host is another";
	if (!str_eq(json_string_value(json_object_get(image, "hash")), hash))
		return "the image is another";
	return NULL;
}

static void tell(struct template *t, const struct err *why)
{
	struct list waiters;
	list_init(&waiters);
	list_move_all(&waiters, &t->waiters);
	while (!list_empty(&waiters)) {
		struct template_waiter *w = list_entry(waiters.next, struct template_waiter, link);
		list_remove(&w->link);
		w->done(w->user, why);
	}
}

/* The end of verifying or building. */
static void settle(struct template *t)
{
	const struct err why = t->why;
	frozen_done(&t->checked);
	image_done(&t->image);
	t->busy = false;
	t->node->starting--;
	if (why.code)
		t->verified = 0;
	tell(t, why.code ? &why : NULL);
	ready_poke(t->node);
}

/* -- building -- */

static void on_timer_closed(uv_handle_t *h)
{
	settle(h->data);
}

/* Everything that was used for it is gone. */
static void build_end(struct template *t)
{
	if (t->begun)
		frozen_abort(&t->fresh);
	t->begun = false;
	if (t->disk_fd >= 0)
		close(take_fd(t->disk_fd));
	struct err e = t->why;
	json_t *m = json_pack("{s:s, s:s?}", "template", t->name, "error", e.code ? e.text : NULL);
	audit_write(t->node->audit, NULL, "template.build", m, NULL);
	if (e.code)
		err_prefix(&t->why, "template %s can't be made", t->name);
	uv_close((uv_handle_t *)&t->timer, on_timer_closed);
}

static void maybe_build_end(struct template *t)
{
	if (!t->place && !t->works)
		build_end(t);
}

static void build_fail(struct template *t, const struct err *why)
{
	if (!t->why.code)
		t->why = *why;
	uv_timer_stop(&t->timer);
	if (t->call)
		guest_call_cancel(take_ptr(t->call));
	if (t->place)
		place_kill(t->place);
}

/* What was written to the disk is there although the machine may be gone: the descriptor is ours. */
static void run_commit(uv_work_t *w)
{
	struct template *t = w->data;
	auto_json json_t *extra = json_pack(
		"{s:s, s:o, s:i, s:I, s:s}", "kind", "template", "image",
		sandbox_image_json(&t->image), "cpus", (int)t->cpus, "memoryMB",
		(json_int_t)t->memory_mib, "fingerprint", t->node->fingerprint);
	int r = sparse_copy(t->disk_fd, t->fresh.disk_fd);
	if (r < 0)
		err_sys(&t->work_why, -r, "copying the disk");
	else
		r = frozen_commit(&t->fresh, t->name, t->memory_mib * MIB, extra, false,
				  &t->work_why);
	t->work_code = r;
}

static void on_committed(uv_work_t *w, int status)
{
	struct template *t = w->data;
	struct frozen f;
	struct err e;
	t->works--;
	if (status < 0)
		t->work_code = err_sys(&t->work_why, -status, "a worker thread");
	if (t->work_code < 0) {
		build_fail(t, &t->work_why);
	} else if (frozen_open(t->node->paths.templates, t->name, &f, &e) == 0) {
		t->begun = false;
		t->verified = f.stamp; /* what was just written needs no look */
		frozen_done(&f);
	}
	maybe_build_end(t);
}

static void on_saved(void *user, const struct err *why)
{
	struct template *t = user;
	t->works--;
	if (why->code) {
		build_fail(t, why);
	} else if (!t->why.code) {
		t->disk_fd = fcntl(t->place->scratch_fd, F_DUPFD_CLOEXEC, 0);
		t->work.data = t;
		t->works++;
		uv_queue_work(t->node->loop, &t->work, run_commit, on_committed);
		place_kill(t->place);
	}
	maybe_build_end(t);
}

/* One call of the monitor after the other; r is what the last attempt to start one gave. */
static void next_call(struct template *t, int r, const char *what)
{
	struct err e;
	if (r == 0) {
		t->works++;
		return;
	}
	err_sys(&e, -r, "%s", what);
	build_fail(t, &e);
}

static void on_paused(void *user, const struct err *why)
{
	struct template *t = user;
	t->works--;
	if (why->code)
		build_fail(t, why);
	else if (!t->why.code)
		next_call(t,
			  vmm_save(t->place->vmm, t->fresh.memory_fd, t->fresh.state_fd, on_saved,
				   t),
			  "saving the machine");
	maybe_build_end(t);
}

static void on_base(void *user, const struct err *why)
{
	struct template *t = user;
	t->works--;
	if (why->code)
		build_fail(t, why);
	else if (!t->why.code)
		next_call(t, vmm_pause(t->place->vmm, on_paused, t), "pausing the machine");
	maybe_build_end(t);
}

static void on_build_timeout(uv_timer_t *timer);

static void on_settled(uv_timer_t *timer)
{
	struct template *t = timer->data;
	uv_timer_start(timer, on_build_timeout, BUILD_TIMEOUT_MS, 0);
	next_call(t, vmm_copy_base(t->place->vmm, t->fresh.memory_fd, on_base, t),
		  "copying the machine's memory");
}

static void on_warm(void *user, unsigned status, const struct err *why)
{
	struct template *t = user;
	t->call = NULL;
	if (why || status != 200)
		log_warn("%s: the warm-up command did not run: %s", t->name,
			 why ? why->text : "the agent refused it");
	uv_timer_start(&t->timer, on_settled, SETTLE_MS, 0);
}

/* What the image says that tasks will use, as the user and with the variables that they have. What it wrote is on the disk
   before the machine is frozen: else each clone would write it. */
static int start_warmup(struct template *t, struct err *e)
{
	const char *warmup = t->image.warmup && *t->image.warmup ? t->image.warmup : "true";
	auto_free char *command = str_printf("%s\nsync\n", warmup);
	auto_json json_t *start =
		json_pack("{s:{s:s, s:[s, s], s:O}}", "process", "cmd", "/bin/sh", "args", "-c",
			  command, "envs", t->image.env);
	auto_free char *text = start ? doc_to_text(start) : NULL;
	auto_buf struct buf body;
	buf_init(&body, 64u << 10);
	if (!text || envelope_write(&body, ENVELOPE_MESSAGE, text, strlen(text)) < 0)
		return err_set(e, ENOMEM, "no memory");
	const struct guest_request q = {
		.method = "POST",
		.target = "/process.Process/Start",
		.content_type = "application/connect+json",
		.linux_user = t->image.user,
	};
	t->call = guest_call(t->place, &q, body.data, body.len, WARMUP_TIMEOUT_MS, on_warm, t, e);
	return t->call ? 0 : -EIO;
}

static void on_console_ready(void *user)
{
	struct template *t = user;
	struct err e;
	if (t->why.code || t->warmed)
		return;
	t->warmed = true;
	if (start_warmup(t, &e) < 0)
		build_fail(t, &e);
}

static void on_booted(void *user, const struct err *why)
{
	struct template *t = user;
	t->works--;
	if (why->code)
		build_fail(t, why);
	maybe_build_end(t);
}

static void on_build_timeout(uv_timer_t *timer)
{
	struct template *t = timer->data;
	struct err e;
	err_set(&e, ETIMEDOUT, "not ready within %u s; last on its console: %s",
		BUILD_TIMEOUT_MS / 1000, place_last_line(t->place));
	build_fail(t, &e);
}

static void on_place_lost(void *user, const struct err *why)
{
	struct template *t = user;
	struct err e = *why;
	const char *last = place_last_line(t->place);
	if (*last)
		err_set(&e, why->code, "%s; last on its console: %s", why->text, last);
	build_fail(t, &e);
}

static void on_place_gone(void *user)
{
	struct template *t = user;
	place_release(take_ptr(t->place));
	maybe_build_end(t);
}

static const struct place_ops place_ops = {.lost = on_place_lost, .gone = on_place_gone};

static int build_boot(struct template *t, struct err *e)
{
	struct node *n = t->node;
	t->place = place_open(n, PLACE_BOOTS | PLACE_NO_GATEWAY, &place_ops, t, e);
	if (!t->place)
		return -(e->code ? e->code : EIO);
	int r = frozen_begin(n->paths.templates, t->image.rootfs, NEED_BYTES, &t->fresh, e);
	t->begun = r == 0;
	if (r == 0)
		r = image_copy_scratch(&t->image, t->place->scratch_fd, e);
	if (r == 0)
		r = place_watch_console(t->place, t->place->dir, on_console_ready, t, e);
	if (r < 0)
		return r;
	const struct vmm_machine machine = {
		.cpus = t->cpus, .ram_bytes = t->memory_mib * MIB, .root = t->image.rootfs};
	const struct vmm_kernel kernel = {.kernel = t->image.kernel,
					  .initramfs = t->image.initramfs,
					  .cmdline = t->image.cmdline};
	r = vmm_boot(t->place->vmm, &machine, &kernel, on_booted, t, e);
	t->works += r == 0;
	return r;
}

/* Errors come to those who wait, from the loop. */
static void build(struct template *t)
{
	struct err e = {0};
	t->warmed = false;
	uv_timer_init(t->node->loop, &t->timer);
	t->timer.data = t;
	uv_timer_start(&t->timer, on_build_timeout, BUILD_TIMEOUT_MS, 0);
	log_info("template %s is being made", t->name);
	if (build_boot(t, &e) == 0)
		return;
	build_fail(t, &e);
	maybe_build_end(t);
}

/* -- verifying -- */

static void run_verify(uv_work_t *w)
{
	struct template *t = w->data;
	t->work_code = frozen_verify(&t->checked, &t->work_why);
}

static void on_verified(uv_work_t *w, int status)
{
	struct template *t = w->data;
	if (status < 0)
		t->work_code = err_sys(&t->work_why, -status, "a worker thread");
	if (t->work_code == -EBADMSG) {
		log_warn("template %s is made anew: %s", t->name, t->work_why.text);
		build(t);
		return;
	}
	if (t->work_code < 0)
		t->why = t->work_why;
	else
		t->verified = t->checked.stamp;
	settle(t);
}

static void verify(struct template *t)
{
	t->work.data = t;
	uv_queue_work(t->node->loop, &t->work, run_verify, on_verified);
}

/* -- asking -- */

static struct template *find(struct node *n, const char *name)
{
	list_for_each (it, &n->templates) {
		struct template *t = list_entry(it, struct template, link);
		if (str_eq(t->name, name))
			return t;
	}
	return NULL;
}

bool template_busy(struct node *n, const char *name)
{
	const struct template *t = find(n, name);
	return t && t->busy;
}

static struct template *find_or_make(struct node *n, const char *name)
{
	struct template *t = find(n, name);
	if (t || !(t = calloc(1, sizeof(*t))))
		return t;
	t->node = n;
	t->disk_fd = -1;
	snprintf(t->name, sizeof(t->name), "%s", name);
	list_init(&t->waiters);
	list_append(&n->templates, &t->link);
	return t;
}

/* 1 when it can be used as it is, 0 when it is to be verified (ret is filled), -ENOENT when it is to be built. */
static int look(struct template *t, const char *hash, struct frozen *ret, struct err *e)
{
	int r = frozen_open(t->node->paths.templates, t->name, ret, e);
	if (r == -EBADMSG)
		log_warn("template %s is made anew: %s", t->name, e->text);
	if (r < 0)
		return r == -EBADMSG ? -ENOENT : r;
	const char *why = template_differs(t->node, ret->extra, hash);
	if (!why && !ret->compressed)
		return ret->stamp == t->verified;
	log_info("template %s is made anew: %s", t->name, why ? why : "it is compressed");
	frozen_done(ret);
	return -ENOENT;
}

int template_get(struct node *n, const struct image *img, unsigned cpus, uint64_t memory_mib,
		 struct frozen *ret, struct template_waiter *w, struct err *e)
{
	char name[TEMPLATE_NAME_SIZE];
	template_name(img->name, cpus, memory_mib, name);
	struct template *t = find_or_make(n, name);
	if (!t)
		return err_set(e, ENOMEM, "no memory");
	struct frozen f;
	int r = t->busy ? 0 : look(t, img->hash, &f, e);
	if (r == 1) {
		*ret = f;
		return 1;
	}
	if (r < 0 && r != -ENOENT)
		return r;
	list_append(&t->waiters, &w->link);
	if (t->busy)
		return 0;
	t->busy = true;
	t->cpus = cpus;
	t->memory_mib = memory_mib;
	t->why = t->work_why = (struct err){0};
	n->starting++;
	if (image_open(n->paths.images, img->name, &t->image, &t->why) < 0) {
		list_remove(&w->link);
		frozen_done(r == 0 ? &f : &t->checked);
		*e = t->why;
		settle(t);
		return -e->code;
	}
	if (r == 0) {
		t->checked = f;
		verify(t);
	} else {
		build(t);
	}
	return 0;
}

void template_cancel(struct template_waiter *w)
{
	if (w->link.next)
		list_remove(&w->link);
}
