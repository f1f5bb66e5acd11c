/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One timer drives it all: each turn makes at most one thing, and none while something starts. A warm
 * sandbox goes this way:
 *
 *	template ─► restore ─► an /init, some processes ─► pause ─► ready
 *	                  ready, and nothing to do ─► resume ─► the image's warm-up command ─► pause ─► ready
 *
 * A monitor that emulates translates code as it is first run, each anew: with what every start runs
 * already there, a start takes a tenth of the time. The second way is for what the image's tasks run; it
 * takes a second or more, so that it waits until nobody asks for anything.
 */
#include "daemon/ready.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/guest.h"
#include "daemon/template.h"
#include "http/envelope.h"

#define QUIET_MS        20           /* from the last start to the first refill when nothing is left */
#define CALM_MS         300          /* the same while there is some: a task's first moments are its own */
#define NEXT_MS         1            /* from one refill to the next */
#define LOOK_MS         2000         /* between looks at the host's memory */
#define BACK_OFF_MS     5000         /* after a failure */
#define IDLE_MS         150 /* without a start, before more is done for those that are ready */
#define WARM_TIMEOUT_MS (120u * 1000)
#define WARM_RUNS       2   /* processes; the second finds more of the kernel's ways than the first */
#define MEMINFO_MAX     (64u << 10)

struct warm;

struct pool {
	const struct config_pool *config;
	struct list warm; /* struct warm */
	unsigned count;
};

struct ready {
	struct node *node;
	uv_timer_t timer;
	struct list places; /* struct place */
	unsigned count;
	struct pool pools[CONFIG_POOLS_MAX];
	struct warm *warming; /* one at a time */
	uint64_t touched_ms;  /* the loop's time of the last start or end */
	bool short_of_memory, stopped;
};

/* One that waits to be somebody's, or is on its way there. */
struct warm {
	struct list link;
	struct pool *pool;
	struct ready *ready;
	struct image image;
	struct frozen source;
	struct template_waiter waiter;
	struct place *place;
	struct guest_call *call;
	unsigned runs; /* processes that it has run */
	bool is_ready;
	bool is_deep; /* the image's warm-up command has been run, or is */
	bool failed;  /* it goes as soon as its place is gone */
};

static void look_again(struct ready *r, uint64_t ms);

/* -- places -- */

static void on_place_lost(void *user, const struct err *why)
{
	struct place *p = user;
	struct ready *r = p->node->ready;
	log_warn("a prepared place is lost: %s", why->text);
	list_remove(&p->link);
	r->count--;
	place_discard(p);
	look_again(r, BACK_OFF_MS);
}

static void on_place_gone(void *user)
{
	place_release(user);
}

static const struct place_ops place_ops = {.lost = on_place_lost, .gone = on_place_gone};

static int add_place(struct ready *r)
{
	struct err e;
	struct place *p = place_open(r->node, 0, &place_ops, NULL, &e);
	if (!p) {
		log_warn("no place can be prepared: %s", e.text);
		return -EIO;
	}
	p->user = p;
	list_append(&r->places, &p->link);
	r->count++;
	return 0;
}

struct place *ready_take(struct node *n)
{
	struct ready *r = n->ready;
	if (!r || list_empty(&r->places))
		return NULL;
	struct place *p = list_entry(r->places.next, struct place, link);
	list_remove(&p->link);
	r->count--;
	return p;
}

/* -- warm sandboxes -- */

static void warm_free(struct warm *w)
{
	list_remove(&w->link);
	template_cancel(&w->waiter);
	if (w->call)
		guest_call_cancel(w->call);
	if (w->ready->warming == w)
		w->ready->warming = NULL;
	w->pool->count--;
	frozen_done(&w->source);
	image_done(&w->image);
	free(w);
}

static void warm_gone(struct warm *w)
{
	struct ready *r = w->ready;
	warm_free(w);
	look_again(r, BACK_OFF_MS);
}

/* The monitor's calls are answered to it until its place is gone. */
static void warm_fail(struct warm *w, const struct err *why)
{
	if (w->failed)
		return;
	log_warn("pool %s: %s", w->pool->config->image, why->text);
	w->failed = true;
	w->is_ready = false;
	if (w->call)
		guest_call_cancel(take_ptr(w->call));
	if (w->place)
		place_kill(w->place);
	else
		warm_gone(w);
}

static void on_warm_lost(void *user, const struct err *why)
{
	warm_fail(user, why);
}

static void on_warm_gone(void *user)
{
	struct warm *w = user;
	place_release(take_ptr(w->place));
	warm_gone(w);
}

static const struct place_ops warm_ops = {.lost = on_warm_lost, .gone = on_warm_gone};

static void on_warm_paused(void *user, const struct err *why)
{
	struct warm *w = user;
	if (why->code || w->failed) {
		warm_fail(w, why);
		return;
	}
	w->is_ready = true;
	w->ready->warming = NULL;
	look_again(w->ready, NEXT_MS);
}

static void warm_next(struct warm *w);

static void on_called(void *user, unsigned status, const struct err *why)
{
	struct warm *w = user;
	struct err e;
	w->call = NULL;
	if (!why && status / 100 == 2) {
		warm_next(w);
		return;
	}
	if (why)
		e = *why;
	else
		err_set(&e, EPROTO, "the agent answered with status %u", status);
	err_prefix(&e, "warming up a sandbox");
	warm_fail(w, &e);
}

static void warm_call(struct warm *w, const struct guest_request *q, const void *body, size_t n)
{
	struct err e;
	w->call = guest_call(w->place, q, body, n, WARM_TIMEOUT_MS, on_called, w, &e);
	if (!w->call)
		warm_fail(w, &e);
}

/* Instructions as large as those that will come, but for nobody: the next ones replace them. */
static void send_init(struct warm *w)
{
	uint8_t random[64];
	char entropy[96], now[CLOCK_RFC3339_SIZE];
	random_bytes(random, sizeof(random));
	base64_encode(random, sizeof(random), entropy);
	clock_rfc3339(clock_wall_ms(), now);
	auto_json json_t *m = json_pack(
		"{s:s, s:s, s:O, s:s, s:s, s:s, s:s, s:s}", "timestamp", now, "entropy", entropy,
		"envVars", w->image.env, "defaultUser", w->image.user, "defaultWorkdir",
		w->image.workdir, "hostname", w->place->id, "machineId",
		"00000000000000000000000000000000", "sandboxId", w->place->id);
	auto_free char *text = m ? doc_to_text(m) : NULL;
	const struct guest_request q = {
		.method = "POST", .target = "/init", .content_type = "application/json"};
	struct err e;
	if (text) {
		warm_call(w, &q, text, strlen(text));
		return;
	}
	err_set(&e, ENOMEM, "no memory");
	warm_fail(w, &e);
}

/* script: for a shell; NULL: the shortest process there is. */
static void run_process(struct warm *w, const char *script)
{
	auto_json json_t *start =
		script ? json_pack("{s:{s:s, s:[s, s]}}", "process", "cmd", "/bin/sh", "args", "-c",
				   script)
		       : json_pack("{s:{s:s}}", "process", "cmd", "echo");
	auto_free char *text = start ? doc_to_text(start) : NULL;
	auto_buf struct buf body;
	struct err e;
	const struct guest_request q = {
		.method = "POST",
		.target = "/process.Process/Start",
		.content_type = "application/connect+json",
	};
	buf_init(&body, 64u << 10);
	if (text && envelope_write(&body, ENVELOPE_MESSAGE, text, strlen(text)) == 0) {
		warm_call(w, &q, body.data, body.len);
		return;
	}
	err_set(&e, ENOMEM, "no memory");
	warm_fail(w, &e);
}

/* It runs, and has run what it was told to. */
static void warm_next(struct warm *w)
{
	struct err e;
	if (w->runs < WARM_RUNS) {
		w->runs++;
		run_process(w, NULL);
		return;
	}
	int r = vmm_pause(w->place->vmm, on_warm_paused, w);
	if (r == 0)
		return;
	err_sys(&e, -r, "pausing a warm sandbox");
	warm_fail(w, &e);
}

static void on_warm_runs(void *user, const struct err *why)
{
	struct warm *w = user;
	if (why->code || w->failed)
		warm_fail(w, why);
	else if (w->is_deep)
		run_process(w, w->image.warmup);
	else
		send_init(w);
}

static int warm_restore(struct warm *w, struct err *e)
{
	struct node *n = w->ready->node;
	const struct frozen *f = &w->source;
	const struct vmm_machine machine = {.cpus = w->pool->config->cpus,
					    .ram_bytes = f->ram_bytes,
					    .root = f->root};
	const struct vmm_frozen frozen = {.memory = f->memory, .state = f->state};
	w->place = place_open(n, 0, &warm_ops, w, e);
	if (!w->place)
		return -EIO;
	int r = place_keep_root(w->place, f->root, e);
	if (r == 0)
		r = frozen_clone_disk(f, w->place->scratch_fd, e);
	if (r == 0)
		r = vmm_restore(w->place->vmm, &machine, &frozen, true, on_warm_runs, w, e);
	return r;
}

static void on_template(void *user, const struct err *why);

static void warm_begin(struct warm *w)
{
	struct node *n = w->ready->node;
	const struct config_pool *c = w->pool->config;
	struct err e = {0};
	int r = template_get(n, &w->image, c->cpus, c->memory_mib, &w->source, &w->waiter, &e);
	if (r == 1)
		r = warm_restore(w, &e);
	if (r < 0)
		warm_fail(w, &e);
}

static void on_template(void *user, const struct err *why)
{
	if (why)
		warm_fail(user, why);
	else
		warm_begin(user);
}

static int add_warm(struct ready *r, struct pool *p)
{
	struct err e;
	struct warm *w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	int rc = image_open(r->node->paths.images, p->config->image, &w->image, &e);
	if (rc < 0) {
		log_warn("pool %s: %s", p->config->image, e.text);
		free(w);
		return rc;
	}
	w->pool = p;
	w->ready = r;
	w->waiter = (struct template_waiter){.done = on_template, .user = w};
	list_init(&w->waiter.link);
	list_append(&p->warm, &w->link);
	p->count++;
	r->warming = w;
	warm_begin(w);
	return 0;
}

static void drop_warm(struct warm *w)
{
	place_discard(w->place);
	warm_free(w);
}

struct place *ready_take_warm(struct node *n, const struct image *img, unsigned cpus,
			      uint64_t memory_mib)
{
	struct ready *r = n->ready;
	for (size_t i = 0; r && i < n->config.pool_count; i++) {
		struct pool *p = &r->pools[i];
		if (!str_eq(p->config->image, img->name) || p->config->cpus != cpus ||
		    p->config->memory_mib != memory_mib)
			continue;
		struct warm *best = NULL;
		list_for_each (it, &p->warm) {
			struct warm *w = list_entry(it, struct warm, link);
			if (!w->is_ready)
				continue;
			if (!str_eq(w->image.hash, img->hash)) /* built anew since */
				drop_warm(w);
			else if (!best || w->is_deep)
				best = w;
		}
		if (!best)
			continue;
		struct place *place = best->place;
		warm_free(best);
		return place;
	}
	return NULL;
}

/* Takes one that is ready further. 1 when one is on its way, 0 when there is none. */
static int deepen(struct ready *r, struct pool *p)
{
	list_for_each (it, &p->warm) {
		struct warm *w = list_entry(it, struct warm, link);
		struct err e;
		if (!w->is_ready || w->is_deep || !*w->image.warmup)
			continue;
		w->is_ready = false;
		w->is_deep = true;
		r->warming = w;
		int rc = vmm_resume(w->place->vmm, on_warm_runs, w);
		if (rc < 0) {
			err_sys(&e, -rc, "resuming a warm sandbox");
			warm_fail(w, &e);
		}
		return 1;
	}
	return 0;
}

static void drain(struct ready *r)
{
	for (size_t i = 0; i < r->node->config.pool_count; i++) {
		list_for_each (it, &r->pools[i].warm) {
			struct warm *w = list_entry(it, struct warm, link);
			if (w->is_ready)
				drop_warm(w);
		}
	}
}

/* -- the timer -- */

/* Source: Linux, Documentation/filesystems/proc.rst, MemAvailable. UINT64_MAX: not to be found. */
static uint64_t available_mib(void)
{
	auto_free char *text = NULL;
	size_t len;
	unsigned long long kib;
	if (file_read("/proc/meminfo", MEMINFO_MAX, &text, &len) < 0)
		return UINT64_MAX;
	const char *line = strstr(text, "MemAvailable:");
	return line && sscanf(line, "MemAvailable: %llu", &kib) == 1 ? kib / 1024 : UINT64_MAX;
}

static void watch_memory(struct ready *r)
{
	bool is_short = available_mib() < r->node->config.memory_reserve_mib;
	if (is_short == r->short_of_memory)
		return;
	r->short_of_memory = is_short;
	log_warn(is_short ? "the host is short of memory: pools are drained"
			  : "there is memory again: pools are filled");
	if (is_short)
		drain(r);
}

/* Makes one thing. 1: made; 0: nothing is missing, or it is on its way; -errno. */
static int refill(struct ready *r)
{
	const struct config *c = &r->node->config;
	int rc;
	if (r->count < c->ready)
		return (rc = add_place(r)) < 0 ? rc : 1;
	for (size_t i = 0; i < c->pool_count && !r->warming && !r->short_of_memory; i++) {
		if (r->pools[i].count < c->pools[i].size)
			return (rc = add_warm(r, &r->pools[i])) < 0 ? rc : 0;
	}
	return 0;
}

/* Milliseconds until it may be done; 0: it was, or there is nothing to do. */
static uint64_t deepen_one(struct ready *r)
{
	uint64_t idle = uv_now(r->node->loop) - r->touched_ms;
	if (r->warming || r->short_of_memory)
		return 0;
	if (idle < IDLE_MS)
		return IDLE_MS - idle;
	for (size_t i = 0; i < r->node->config.pool_count; i++)
		if (deepen(r, &r->pools[i]))
			break;
	return 0;
}

static void on_timer(uv_timer_t *t)
{
	struct ready *r = t->data;
	struct node *n = r->node;
	if (r->stopped || n->closing)
		return;
	if (n->config.pool_count)
		watch_memory(r);
	int rc = n->starting ? 0 : refill(r);
	uint64_t wait = n->starting || rc ? 0 : deepen_one(r);
	if (rc < 0)
		look_again(r, BACK_OFF_MS);
	else if (rc > 0)
		look_again(r, NEXT_MS);
	else if (n->config.pool_count)
		look_again(r, wait ? wait : LOOK_MS);
}

static void look_again(struct ready *r, uint64_t ms)
{
	if (!r->stopped)
		uv_timer_start(&r->timer, on_timer, ms, 0);
}

struct ready *ready_new(struct node *n, struct err *e)
{
	struct ready *r = calloc(1, sizeof(*r));
	if (!r) {
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	r->node = n;
	list_init(&r->places);
	for (size_t i = 0; i < n->config.pool_count; i++) {
		r->pools[i].config = &n->config.pools[i];
		list_init(&r->pools[i].warm);
	}
	uv_timer_init(n->loop, &r->timer);
	r->timer.data = r;
	look_again(r, QUIET_MS);
	return r;
}

void ready_stop(struct node *n)
{
	if (!n->ready)
		return;
	n->ready->stopped = true;
	uv_timer_stop(&n->ready->timer);
}

/* Whether the next start would find nothing. */
static bool is_exhausted(const struct ready *r)
{
	const struct config *c = &r->node->config;
	if (c->ready && !r->count)
		return true;
	for (size_t i = 0; i < c->pool_count; i++) {
		bool any = !c->pools[i].size;
		list_for_each (it, &r->pools[i].warm)
			any |= list_entry(it, struct warm, link)->is_ready;
		if (!any)
			return true;
	}
	return false;
}

void ready_poke(struct node *n)
{
	if (!n->ready)
		return;
	n->ready->touched_ms = uv_now(n->loop);
	look_again(n->ready, is_exhausted(n->ready) ? QUIET_MS : CALM_MS);
}

json_t *ready_to_json(const struct node *n)
{
	const struct ready *r = n->ready;
	json_t *pools = json_object();
	for (size_t i = 0; r && i < n->config.pool_count; i++) {
		unsigned warm = 0;
		list_for_each (it, &r->pools[i].warm)
			warm += list_entry(it, struct warm, link)->is_ready;
		json_object_set_new(pools, n->config.pools[i].image, json_integer(warm));
	}
	return json_pack("{s:i, s:o}", "places", r ? (int)r->count : 0, "pools", pools);
}
