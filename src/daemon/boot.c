/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sandbox's way to running. What it is made from decides the way:
 *
 *	a warm sandbox of a pool ─────────────────────────────► resume ──┐
 *	a frozen machine (template, snapshot, fork, pause) ─► restore ───┼─► instructions ─► running
 *	an image (cold) ───────────────► boot ─► the console says ready ─┘
 *
 * The gateway gets its policy meanwhile. The last of these makes the sandbox run; any failure, or
 * the deadline, stops it (or leaves it paused, when it was).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/change.h"
#include "daemon/grants.h"
#include "daemon/ready.h"
#include "daemon/run.h"
#include "daemon/sandbox_state.h"

#define BOOT_TIMEOUT_MS (180u * 1000) /* software emulation on a busy host is slow */
#define INIT_TIMEOUT_MS (60u * 1000)
#define DISK_AT_ONCE    (4u << 20) /* bytes of a disk that are copied without a worker */

static void fail(struct sandbox *sb, struct err *why, const char *what)
{
	if (what)
		err_prefix(why, "%s", what);
	sandbox_stop(sb, why);
}

static void on_released(void *user, unsigned status, const struct err *why)
{
	struct sandbox *sb = user;
	(void)status;
	sb->init_call = NULL;
	if (why)
		log_warn("%s: its processes may hang: %s", sb->id, why->text);
}

void sandbox_release_hold(struct sandbox *sb)
{
	const struct guest_request q = {.method = "POST", .target = "/release", .token = sb->token};
	struct err e;
	if (sb->init_call || !sb->place)
		return;
	sb->init_call = guest_call(sb->place, &q, "{}", 2, INIT_TIMEOUT_MS, on_released, sb, &e);
	if (!sb->init_call)
		log_warn("%s: its processes may hang: %s", sb->id, e.text);
}

static void maybe_ready(struct sandbox *sb)
{
	bool network = (sb->gateway_ready && grants_settled(sb)) || !sb->spec.network;
	if (sb->state != SANDBOX_BOOTING || sandbox_falls_back(sb) || !sb->agent_ready || !network)
		return;
	uv_timer_stop(&sb->timer);
	sb->paused_ms = 0;
	sandbox_go(sb, SANDBOX_RUNNING);
	if (sb->state != SANDBOX_RUNNING)
		return;
	frozen_done(&sb->source);
	/* Also that of one that was taken over: its spaced may have died just before it did this.
	 */
	frozen_remove(sb->dir, SANDBOX_PAUSED_NAME, NULL);
	sandbox_started(sb);
	sandbox_touch(sb);
	sandbox_tell_starters(sb, NULL);
	if (!sb->ops)
		run_adopt(sb);
	if (sb->ops)
		sb->ops->ready(sb->user);
	if (sb->thawed && !sb->task_pid)
		sandbox_release_hold(sb);
}

void sandbox_settled(struct sandbox *sb)
{
	if (grants_settled(sb))
		maybe_ready(sb);
}

static void on_init_done(void *user, unsigned status, const struct err *why)
{
	struct sandbox *sb = user;
	struct err e;
	sb->init_call = NULL;
	if (why) {
		e = *why;
		fail(sb, &e, "the agent did not take its instructions");
	} else if (status != 204) {
		err_set(&e, EPROTO, "the agent refused its instructions with status %u", status);
		fail(sb, &e, NULL);
	} else {
		sb->agent_ready = true;
		memcpy(sb->old_token, sb->token, sizeof(sb->old_token));
		maybe_ready(sb);
	}
}

/* Variables of all processes. The values of secrets are not among them. */
static json_t *init_env(const struct sandbox *sb)
{
	json_t *env = json_copy(sb->image.env);
	json_object_set_new(env, "E2B_SANDBOX", json_string("true"));
	json_object_set_new(env, "E2B_SANDBOX_ID", json_string(sb->id));
	json_object_set_new(env, "E2B_TEMPLATE_ID", json_string(sb->spec.image));
	size_t i;
	json_t *secret;
	json_array_foreach(sb->spec.secrets, i, secret)
		json_object_update(env, json_object_get(secret, "variables"));
	return env;
}

/* What the agent must know before any task runs. After a pause it is who it was. */
static json_t *init_message(const struct sandbox *sb)
{
	uint8_t random[64], machine[16];
	char entropy[96], machine_id[33], now[CLOCK_RFC3339_SIZE];
	random_bytes(random, sizeof(random));
	base64_encode(random, sizeof(random), entropy);
	clock_rfc3339(clock_wall_ms(), now);
	json_t *m = json_pack("{s:s, s:s, s:s, s:b}", "accessToken", sb->token, "timestamp", now,
			      "entropy", entropy, "thawed", sb->thawed);
	if (!m || sb->paused_ms)
		return m;
	random_bytes(machine, sizeof(machine));
	hex_encode(machine, sizeof(machine), machine_id);
	auto_json json_t *identity =
		json_pack("{s:o, s:s, s:s, s:s, s:s, s:s}", "envVars", init_env(sb), "defaultUser",
			  sb->image.user, "defaultWorkdir", sb->image.workdir, "hostname",
			  sandbox_name(sb), "machineId", machine_id, "sandboxId", sb->id);
	if (!identity || json_object_update(m, identity) < 0) {
		json_decref(m);
		return NULL;
	}
	return m;
}

static void send_init(struct sandbox *sb)
{
	struct err e;
	auto_json json_t *m = init_message(sb);
	auto_free char *text = m ? doc_to_text(m) : NULL;
	const struct guest_request q = {
		.method = "POST",
		.target = "/init",
		.content_type = "application/json",
		.token = sb->old_token[0] ? sb->old_token : NULL,
	};
	if (!text)
		err_set(&e, ENOMEM, "no memory");
	else
		sb->init_call = guest_call(sb->place, &q, text, strlen(text), INIT_TIMEOUT_MS,
					   on_init_done, sb, &e);
	if (!sb->init_call)
		fail(sb, &e, NULL);
}

static void on_console_ready(void *user)
{
	struct sandbox *sb = user;
	if (sb->state == SANDBOX_BOOTING && !sb->init_call && !sb->agent_ready &&
	    sb->start == SANDBOX_COLD)
		send_init(sb);
}

static void on_boot_timeout(uv_timer_t *t)
{
	struct sandbox *sb = t->data;
	struct err e;
	err_set(&e, ETIMEDOUT, "the microVM was not ready within %u s; last on its console: %s",
		BOOT_TIMEOUT_MS / 1000, place_last_line(sb->place));
	fail(sb, &e, NULL);
}

static void on_gateway_ready(void *user)
{
	struct sandbox *sb = user;
	sb->gateway_ready = true;
	grants_gateway_stands(sb);
	change_again(sb);
	maybe_ready(sb);
}

static void on_active(void *user)
{
	sandbox_touch(user);
}

static void on_recorded(void *user, const json_t *event)
{
	grants_recorded(user, event);
}

static void on_lost(void *user, const struct err *why)
{
	struct sandbox *sb = user;
	struct err e = *why;
	const char *last = place_last_line(sb->place);
	if (sb->freeze && freeze_committed(sb->freeze))
		return;
	if (sb->state == SANDBOX_BOOTING && *last)
		err_set(&e, why->code, "%s; last on its console: %s", why->text, last);
	sandbox_stop(sb, &e);
}

static void on_gone(void *user)
{
	struct sandbox *sb = user;
	place_release(take_ptr(sb->place));
	if (sb->state == SANDBOX_PAUSED)
		sandbox_at_rest(sb);
	else
		sandbox_maybe_finish(sb);
}

const struct place_ops sandbox_place_ops = {
	.gateway_ready = on_gateway_ready,
	.active = on_active,
	.recorded = on_recorded,
	.lost = on_lost,
	.gone = on_gone,
};

/* The machine goes on in p from now on. */
static int move_in(struct sandbox *sb, struct place *p, const char *root, struct err *e)
{
	sb->place = p;
	place_hand_over(p, &sandbox_place_ops, sb);
	sandbox_go(sb, SANDBOX_BOOTING);
	if (sb->state != SANDBOX_BOOTING) {
		*e = sb->why;
		return -e->code;
	}
	uv_timer_start(&sb->timer, on_boot_timeout, BOOT_TIMEOUT_MS, 0);
	int r = root ? place_keep_root(p, root, e) : 0;
	if (r == 0)
		r = place_watch_console(p, sb->dir, on_console_ready, sb, e);
	if (r < 0)
		return r;
	if (!sb->spec.network) {
		place_drop_gateway(p);
		return 0;
	}
	auto_json json_t *policy = policy_to_json(sb->spec.policy);
	auto_json json_t *grants = grants_for_gateway(sb);
	sb->policy_due = false;
	return policy && grants ? place_configure(p, sb->id, policy, grants, e)
				: err_set(e, ENOMEM, "no memory");
}

static void on_vmm_runs(void *user, const struct err *why)
{
	struct sandbox *sb = user;
	struct err e = *why;
	if (sb->state != SANDBOX_BOOTING || sandbox_falls_back(sb))
		return;
	if (!why->code) {
		send_init(sb);
		return;
	}
	if (sb->start == SANDBOX_CLONE && !sb->thawed)
		template_distrust(sb->node, sb->spec.image, sb->spec.cpus, sb->spec.memory_mib);
	fail(sb, &e, "the machine can't be restored");
}

static void on_vmm_boots(void *user, const struct err *why)
{
	struct sandbox *sb = user;
	struct err e = *why;
	if (why->code && sb->state == SANDBOX_BOOTING)
		fail(sb, &e, "the microVM does not start");
}

static int restore(struct sandbox *sb, struct err *e)
{
	const struct frozen *f = &sb->source;
	const struct vmm_machine machine = {
		.cpus = sb->spec.cpus, .ram_bytes = f->ram_bytes, .root = f->root};
	const struct vmm_frozen frozen = {.memory = f->memory, .state = f->state};
	return vmm_restore(sb->place->vmm, &machine, &frozen, true, on_vmm_runs, sb, e);
}

/* Making a frozen machine usable: what may take long, in a worker. */
struct prepare {
	uv_work_t work;
	struct sandbox *sb;
	int disk_fd; /* a descriptor of its own: the place may go meanwhile */
	int code;
	struct err why;
};

static void run_prepare(uv_work_t *w)
{
	struct prepare *p = w->data;
	struct frozen *f = &p->sb->source;
	p->code = f->compressed ? frozen_expand(f, &p->why) : 0;
	if (p->code == 0 && !p->sb->source_vetted)
		p->code = frozen_verify(f, &p->why);
	if (p->code == 0)
		p->code = frozen_clone_disk(f, p->disk_fd, &p->why);
}

static void on_prepared(uv_work_t *w, int status)
{
	struct prepare *p = w->data;
	struct sandbox *sb = p->sb;
	struct err e = p->why;
	int r = status < 0 ? err_sys(&e, -status, "a worker thread") : p->code;
	close(p->disk_fd);
	free(p);
	sb->works--;
	if (sb->state != SANDBOX_BOOTING || sandbox_falls_back(sb)) {
		sandbox_maybe_finish(sb);
		sandbox_rested(sb);
		return;
	}
	if (r == 0)
		r = restore(sb, &e);
	if (r < 0)
		fail(sb, &e, NULL);
}

static bool small_disk(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && (uint64_t)st.st_blocks * 512 <= DISK_AT_ONCE;
}

static int begin_restore(struct sandbox *sb, struct err *e)
{
	struct node *n = sb->node;
	struct place *place = ready_take(n);
	if (!place)
		place = place_open(n, sb->spec.network ? 0 : PLACE_NO_GATEWAY, &sandbox_place_ops,
				   sb, e);
	if (!place)
		return -(e->code ? e->code : EIO);
	int r = move_in(sb, place, sb->source.root, e);
	if (r < 0)
		return r;
	frozen_touch(&sb->source);
	if (sb->source_vetted && !sb->source.compressed && small_disk(sb->source.disk)) {
		r = frozen_clone_disk(&sb->source, place->scratch_fd, e);
		return r < 0 ? r : restore(sb, e);
	}
	struct prepare *p = calloc(1, sizeof(*p));
	if (!p)
		return err_set(e, ENOMEM, "no memory");
	p->sb = sb;
	p->disk_fd = fcntl(place->scratch_fd, F_DUPFD_CLOEXEC, 0);
	if (p->disk_fd < 0) {
		free(p);
		return err_sys(e, errno, "the disk");
	}
	p->work.data = p;
	sb->works++;
	uv_queue_work(n->loop, &p->work, run_prepare, on_prepared);
	return 0;
}

static int begin_boot(struct sandbox *sb, struct err *e)
{
	unsigned kind = PLACE_BOOTS | (sb->spec.network ? 0 : PLACE_NO_GATEWAY);
	struct place *place = place_open(sb->node, kind, &sandbox_place_ops, sb, e);
	if (!place)
		return -(e->code ? e->code : EIO);
	sb->start = SANDBOX_COLD;
	int r = move_in(sb, place, sb->image.rootfs, e);
	if (r == 0)
		r = image_copy_scratch(&sb->image, place->scratch_fd, e);
	if (r < 0)
		return r;
	const struct vmm_machine machine = {.cpus = sb->spec.cpus,
					    .ram_bytes = sb->spec.memory_mib << 20,
					    .root = sb->image.rootfs};
	const struct vmm_kernel kernel = {.kernel = sb->image.kernel,
					  .initramfs = sb->image.initramfs,
					  .cmdline = sb->image.cmdline};
	return vmm_boot(place->vmm, &machine, &kernel, on_vmm_boots, sb, e);
}

static int begin_warm(struct sandbox *sb, struct place *place, struct err *e)
{
	sb->start = SANDBOX_POOL;
	int r = move_in(sb, place, NULL, e);
	if (r == 0 && (r = vmm_resume(place->vmm, on_vmm_runs, sb)) < 0)
		err_sys(e, -r, "a warm sandbox");
	return r;
}

static void on_template(void *user, const struct err *why);

static int begin_clone(struct sandbox *sb, struct err *e)
{
	struct node *n = sb->node;
	const struct sandbox_spec *spec = &sb->spec;
	struct place *warm = ready_take_warm(n, &sb->image, spec->cpus, spec->memory_mib);
	if (warm)
		return begin_warm(sb, warm, e);
	sb->template_waiter.done = on_template;
	sb->template_waiter.user = sb;
	int r = template_get(n, &sb->image, spec->cpus, spec->memory_mib, &sb->source,
			     &sb->template_waiter, e);
	if (r <= 0)
		return r;
	sb->start = SANDBOX_CLONE;
	sb->source_vetted = true;
	return begin_restore(sb, e);
}

static void on_template(void *user, const struct err *why)
{
	struct sandbox *sb = user;
	struct err e = {0};
	if (sb->state != SANDBOX_CREATING)
		return;
	if (why)
		e = *why;
	if (why || begin_clone(sb, &e) < 0)
		fail(sb, &e, NULL);
}

/* A snapshot says how large it is, and who its guest was. */
static int choose_snapshot(struct sandbox *sb, struct err *e)
{
	struct sandbox_spec *spec = &sb->spec;
	uint64_t cpus = 0, memory = 0;
	const char *token = "", *fingerprint = NULL;
	json_t *image = NULL;
	const json_t *extra = sb->source.extra;
	int r = doc_want_uint(extra, "cpus", 1, VMM_CPUS_MAX, &cpus, e);
	if (r == 0)
		r = doc_want_uint(extra, "memoryMB", 1, VMM_RAM_MAX_MIB, &memory, e);
	if (r == 0)
		r = doc_want_string(extra, "token", &token, e);
	if (r == 0)
		r = doc_want_string(extra, "fingerprint", &fingerprint, e);
	if (r == 0)
		r = doc_want_object(extra, "image", &image, e);
	if (r == 0)
		r = sandbox_image_from_json(image, &sb->image, e);
	if (r < 0)
		return err_prefix(e, "snapshot %s", spec->image);
	if (!vmm_fingerprint_fits(fingerprint, sb->node->fingerprint))
		return err_set(e, ENOTSUP,
			       "snapshot %s was made with another version of QEMU or on another "
			       "kind of processor: make it anew",
			       spec->image);
	if (spec->cold)
		return err_set(e, EINVAL, "%s is a snapshot, which can't boot: drop --cold",
			       spec->image);
	if (spec->sized && (spec->cpus != cpus || spec->memory_mib != memory))
		return err_set(e, EINVAL,
			       "snapshot %s has %u CPUs and %u MiB of memory, and keeps them",
			       spec->image, (unsigned)cpus, (unsigned)memory);
	spec->cpus = (unsigned)cpus;
	spec->memory_mib = memory;
	snprintf(sb->old_token, sizeof(sb->old_token), "%s", token);
	sb->start = SANDBOX_CLONE;
	sb->thawed = true;
	return 0;
}

int sandbox_choose(struct sandbox *sb, struct err *e)
{
	int r = frozen_open(sb->node->paths.snapshots, sb->spec.image, &sb->source, e);
	if (r == 0)
		return choose_snapshot(sb, e);
	if (r != -ENOENT)
		return r;
	return image_open(sb->node->paths.images, sb->spec.image, &sb->image, e);
}

void sandbox_adopted(struct sandbox *sb)
{
	sb->agent_ready = true;
	maybe_ready(sb);
}

int sandbox_begin(struct sandbox *sb, struct err *e)
{
	int r = grants_begin(sb, sb->paused_ms, e);
	if (r < 0)
		return r;
	if (sb->source.dir)
		return begin_restore(sb, e);
	return sb->spec.cold ? begin_boot(sb, e) : begin_clone(sb, e);
}
