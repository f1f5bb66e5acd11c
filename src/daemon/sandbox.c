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
#include "daemon/sandbox_state.h"

#define DISK_FREE_MIN (128u << 20)          /* bytes free for disks, below which nothing starts */
#define ID_RANDOM     (SANDBOX_ID_SIZE - 2) /* characters behind the first */
#define TOKEN_BYTES   (SANDBOX_TOKEN_SIZE / 2)

static const char *const state_names[] = {"creating", "booting", "running",
					  "stopping", "exited",  "failed"};

void sandbox_spec_done(struct sandbox_spec *s)
{
	free(s->name);
	free(s->image);
	json_decref(s->command);
	policy_free(s->policy);
	json_decref(s->secrets);
	*s = (struct sandbox_spec){0};
}

static bool state_may_follow(enum sandbox_state from, enum sandbox_state to)
{
	switch (from) {
	case SANDBOX_CREATING:
		return to == SANDBOX_BOOTING || to == SANDBOX_STOPPING;
	case SANDBOX_BOOTING:
		return to == SANDBOX_RUNNING || to == SANDBOX_STOPPING;
	case SANDBOX_RUNNING:
		return to == SANDBOX_STOPPING;
	case SANDBOX_STOPPING:
		return to == SANDBOX_EXITED || to == SANDBOX_FAILED;
	case SANDBOX_EXITED:
	case SANDBOX_FAILED:
		return false;
	}
	return false;
}

static int store_state(struct sandbox *sb, struct err *e)
{
	auto_free char *command = doc_to_text(sb->spec.command);
	if (!command)
		return err_set(e, ENOMEM, "no memory");
	const struct store_record r = {
		.id = sb->id,
		.name = sandbox_name(sb),
		.state = state_names[sb->state],
		.image = sb->spec.image,
		.command = command,
		.cpus = sb->spec.cpus,
		.memory_mib = sb->spec.memory_mib,
		.started_ms = sb->started_ms,
		.ended_ms = sb->ended_ms,
		.exit_code = sb->exit_code,
		.reason = sb->reason,
	};
	return store_put(sb->node->store, &r, e);
}

void sandbox_go(struct sandbox *sb, enum sandbox_state to)
{
	if (!state_may_follow(sb->state, to))
		abort();
	sb->state = to;
	json_t *members = sb->reason ? json_pack("{s:s}", "reason", sb->reason) : json_object();
	if (to >= SANDBOX_EXITED && sb->exit_code >= 0)
		json_object_set_new(members, "exit_code", json_integer(sb->exit_code));
	auto_free char *kind = str_printf("sandbox.%s", state_names[to]);
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
	if (store_state(sb, &e) < 0)
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
	console_close(sb->console);
	sb->console = NULL;
	slot_close(&sb->slot);
	if (sb->scratch_fd >= 0)
		close(take_fd(sb->scratch_fd));
	image_done(&sb->image);
	if (sb->seat >= 0)
		sb->node->seat_taken[sb->seat] = false;
	sb->seat = -1;
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
	sandbox_release(sb);
	sb->ended_ms = clock_wall_ms();
	sandbox_go(sb, sb->why.code ? SANDBOX_FAILED : SANDBOX_EXITED);
	tasklog_finish(sb->log);
	n->live--;
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
	if (n->live == 0 && n->on_idle)
		n->on_idle(n);
}

/* Neither stopping nor finishing runs inside somebody's call: both come from the loop. */
static void on_finish_timer(uv_timer_t *t)
{
	finish(t->data);
}

void sandbox_maybe_finish(struct sandbox *sb)
{
	if (sb->killed && !sb->vmm && !sb->gateway)
		uv_timer_start(&sb->timer, on_finish_timer, 0, 0);
}

static void on_stop_timer(uv_timer_t *t)
{
	struct sandbox *sb = t->data;
	while (!list_empty(&sb->links)) {
		struct sandbox_link *l = list_entry(sb->links.next, struct sandbox_link, link);
		list_remove(&l->link);
		l->cut(l->user);
	}
	if (sb->init_call)
		guest_call_cancel(take_ptr(sb->init_call));
	if (sb->vmm)
		vmm_kill(sb->vmm);
	if (sb->gateway)
		gateway_kill(sb->gateway);
	sb->killed = true;
	sandbox_maybe_finish(sb);
}

void sandbox_stop(struct sandbox *sb, const struct err *why)
{
	if (sb->state >= SANDBOX_STOPPING)
		return;
	if (why) {
		sb->why = *why;
		sb->reason = strdup(why->text);
	}
	sandbox_go(sb, SANDBOX_STOPPING);
	uv_timer_start(&sb->timer, on_stop_timer, 0, 0);
}

static void make_id(char id[SANDBOX_ID_SIZE])
{
	static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	uint8_t random[ID_RANDOM * 2];
	random_bytes(random, sizeof(random));
	id[0] = 'i';
	for (size_t i = 0; i < ID_RANDOM; i++)
		id[i + 1] = alphabet[(random[2 * i] << 8 | random[2 * i + 1]) % 36];
	id[ID_RANDOM + 1] = '\0';
}

struct sandbox *sandbox_new(struct node *n, struct sandbox_spec *spec)
{
	struct sandbox *sb = calloc(1, sizeof(*sb));
	if (!sb)
		return NULL;
	sb->node = n;
	sb->spec = *spec;
	*spec = (struct sandbox_spec){0};
	sb->slot = (struct slot){-1, -1, -1, -1, -1};
	sb->scratch_fd = sb->seat = sb->exit_code = -1;
	list_init(&sb->links);
	list_init(&sb->waiters);
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

static int take_seat(struct sandbox *sb, struct err *e)
{
	for (int i = 0; i < NODE_SANDBOXES_MAX; i++) {
		if (sb->node->seat_taken[i])
			continue;
		sb->node->seat_taken[i] = true;
		sb->seat = i;
		return 0;
	}
	return err_set(e, EAGAIN, "%d sandboxes are alive, the most that this node holds: end some",
		       NODE_SANDBOXES_MAX);
}

/* Directory, log, record: from here on it shows in lists. */
static int prepare_record(struct sandbox *sb, struct err *e)
{
	make_id(sb->id);
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
	r = store_state(sb, e);
	if (r < 0)
		return r;
	json_t *m = json_pack("{s:s, s:s, s:i, s:I, s:b, s:O, s:o}", "name", sandbox_name(sb),
			      "image", sb->spec.image, "cpus", (int)sb->spec.cpus, "memory_mib",
			      (json_int_t)sb->spec.memory_mib, "network", sb->spec.network,
			      "command", sb->spec.command, "policy",
			      sb->spec.policy ? policy_to_json(sb->spec.policy) : json_null());
	return audit_write(sb->node->audit, sb->id, "sandbox.create", m, e);
}

static int check_spec(struct node *n, const struct sandbox_spec *spec, struct err *e)
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
	struct image image = {0};
	int r = check_spec(n, spec, e);
	if (r == 0)
		r = image_open(n->paths.images, spec->image, &image, e);
	struct sandbox *sb = r == 0 ? sandbox_new(n, spec) : NULL;
	if (!sb) {
		image_done(&image);
		sandbox_spec_done(spec);
		return r < 0 ? r : err_set(e, ENOMEM, "no memory");
	}
	sb->image = image;
	r = take_seat(sb, e);
	if (r == 0)
		r = prepare_record(sb, e);
	if (r < 0) {
		sandbox_release(sb);
		if (sb->dir)
			sandbox_erase(sb);
		else
			sandbox_free(sb);
		return r;
	}
	n->live++;
	r = sandbox_boot(sb, e);
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

void sandbox_remove(struct sandbox *sb, struct sandbox_waiter *w)
{
	sb->spec.keep = false;
	list_append(&sb->waiters, &w->link);
	sandbox_stop(sb, NULL);
}

void sandbox_keep(struct sandbox *sb)
{
	if (sb->state < SANDBOX_STOPPING)
		sb->spec.keep = true;
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

json_t *sandbox_list_json(const struct node *n)
{
	json_t *all = json_array();
	list_for_each (it, &n->sandboxes)
		json_array_append_new(all, sandbox_to_json(list_entry(it, struct sandbox, link)));
	return all;
}

void sandbox_stop_all(struct node *n)
{
	list_for_each (it, &n->sandboxes)
		sandbox_stop(list_entry(it, struct sandbox, link), NULL);
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

struct vmm *sandbox_vmm(const struct sandbox *sb)
{
	return sb->vmm;
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

json_t *sandbox_to_json(const struct sandbox *sb)
{
	char started[CLOCK_RFC3339_SIZE], ended[CLOCK_RFC3339_SIZE];
	clock_rfc3339(sb->started_ms, started);
	json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:i, s:I, s:O, s:s}", "sandboxID", sb->id,
			      "name", sandbox_name(sb), "state", state_names[sb->state], "image",
			      sb->spec.image, "cpus", (int)sb->spec.cpus, "memoryMB",
			      (json_int_t)sb->spec.memory_mib, "command", sb->spec.command,
			      "startedAt", started);
	if (j && sb->ended_ms) {
		clock_rfc3339(sb->ended_ms, ended);
		json_object_set_new(j, "endAt", json_string(ended));
	}
	if (j && sb->exit_code >= 0)
		json_object_set_new(j, "exitCode", json_integer(sb->exit_code));
	if (j && sb->reason)
		json_object_set_new(j, "reason", json_string(sb->reason));
	return j;
}

struct stream *sandbox_connect(struct sandbox *sb, uint16_t port, const struct stream_ops *ops,
			       void *user, struct err *e)
{
	int fd;
	int r = slot_connect(&sb->slot, port, &fd);
	if (r < 0) {
		err_sys(e, -r, "can't reach port %u of the guest", port);
		return NULL;
	}
	return stream_adopt(sb->node->loop, fd, ops, user, e);
}

void sandbox_attach(struct sandbox *sb, struct sandbox_link *l)
{
	list_append(&sb->links, &l->link);
}

void sandbox_detach(struct sandbox_link *l)
{
	list_remove(&l->link);
}
