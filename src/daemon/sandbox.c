/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making, booting and ending sandboxes. Theory of operation: everything that could be left behind
 * is held by a descriptor (slot, disk) or dies with us (monitor, gateway); what remains is one
 * directory and one record, which a new spaced clears. Ending waits for both processes, then
 * releases the rest.
 */
#include "daemon/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/guest.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/console.h"
#include "daemon/gateway.h"
#include "daemon/guest.h"
#include "image/image.h"

#define BOOT_TIMEOUT_MS (180u * 1000) /* software emulation on a busy host is slow */
#define INIT_TIMEOUT_MS (60u * 1000)
#define DISK_FREE_MIN                                                                 \
	(128u << 20)   /* bytes free where disks live, below which nothing is started \
			*/
#define ID_RANDOM   19 /* characters behind the first */
#define TOKEN_BYTES 16

struct sandbox {
	struct list link;
	struct node *node;
	struct sandbox_spec spec;
	char id[ID_RANDOM + 2];
	char token[2 * TOKEN_BYTES + 1];
	enum sandbox_state state;
	uint64_t started_ms, ended_ms;
	int exit_code;
	char *reason;
	char *dir;
	int seat; /* index of its uids, -1: none */

	struct image image;
	struct slot slot;
	int scratch_fd;
	struct console *console;
	struct tasklog *log;
	struct vmm *vmm;
	struct gateway *gateway;
	bool gateway_ready, agent_ready, killed;
	struct guest_call *init_call; /* while it runs */

	uv_timer_t timer; /* the boot's deadline; later, what brings on_stop_timer and
			     on_finish_timer */
	struct err why;   /* the first thing that went wrong */
	struct list links, waiters;
	const struct sandbox_ops *ops;
	void *user;
};

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

/* The one place where the state changes. */
static void sandbox_go(struct sandbox *sb, enum sandbox_state to)
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

static void drop_fd(int *fd)
{
	if (*fd >= 0)
		close(take_fd(*fd));
}

static void sandbox_release(struct sandbox *sb)
{
	console_close(sb->console);
	sb->console = NULL;
	slot_close(&sb->slot);
	drop_fd(&sb->scratch_fd);
	image_done(&sb->image);
	if (sb->seat >= 0)
		sb->node->seat_taken[sb->seat] = false;
	sb->seat = -1;
}

static void forget(struct sandbox *sb)
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
		forget(sb);
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

static void maybe_finish(struct sandbox *sb)
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
	maybe_finish(sb);
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

static void fail(struct sandbox *sb, struct err *why, const char *what)
{
	if (what)
		err_prefix(why, "%s", what);
	sandbox_stop(sb, why);
}

static void maybe_ready(struct sandbox *sb)
{
	bool network = sb->gateway_ready || !sb->spec.network;
	if (sb->state != SANDBOX_BOOTING || !sb->agent_ready || !network)
		return;
	uv_timer_stop(&sb->timer);
	sandbox_go(sb, SANDBOX_RUNNING);
	if (sb->state == SANDBOX_RUNNING && sb->ops)
		sb->ops->ready(sb->user);
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
		maybe_ready(sb);
	}
}

/* What the agent must know before any task runs. The values of secrets are not among it. */
static json_t *init_message(const struct sandbox *sb)
{
	uint8_t random[64], machine[16];
	char entropy[96], machine_id[33], now[CLOCK_RFC3339_SIZE];
	random_bytes(random, sizeof(random));
	base64_encode(random, sizeof(random), entropy);
	random_bytes(machine, sizeof(machine));
	hex_encode(machine, sizeof(machine), machine_id);
	clock_rfc3339(clock_wall_ms(), now);

	json_t *env = json_copy(sb->image.env);
	json_object_set_new(env, "E2B_SANDBOX", json_string("true"));
	json_object_set_new(env, "E2B_SANDBOX_ID", json_string(sb->id));
	json_object_set_new(env, "E2B_TEMPLATE_ID", json_string(sb->spec.image));
	size_t i;
	json_t *secret;
	json_array_foreach(sb->spec.secrets, i, secret)
		json_object_set(env, json_string_value(json_object_get(secret, "name")),
				json_object_get(secret, "placeholder"));
	return json_pack("{s:o, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "envVars", env,
			 "accessToken", sb->token, "timestamp", now, "defaultUser", sb->image.user,
			 "defaultWorkdir", sb->image.workdir, "hostname", sandbox_name(sb),
			 "entropy", entropy, "machineId", machine_id, "sandboxId", sb->id);
}

static int send_init(struct sandbox *sb, struct err *e)
{
	auto_json json_t *m = init_message(sb);
	auto_free char *text = m ? doc_to_text(m) : NULL;
	if (!text)
		return err_set(e, ENOMEM, "no memory");
	sb->init_call = guest_call(sb, "/init", text, INIT_TIMEOUT_MS, on_init_done, sb, e);
	return sb->init_call ? 0 : -EIO;
}

static void on_console_ready(void *user)
{
	struct sandbox *sb = user;
	struct err e;
	if (sb->state != SANDBOX_BOOTING || sb->init_call || sb->agent_ready)
		return;
	if (send_init(sb, &e) < 0)
		fail(sb, &e, NULL);
}

static void on_boot_timeout(uv_timer_t *t)
{
	struct sandbox *sb = t->data;
	struct err e;
	err_set(&e, ETIMEDOUT, "the microVM was not ready within %u s; last on its console: %s",
		BOOT_TIMEOUT_MS / 1000, sb->console ? console_last_line(sb->console) : "");
	fail(sb, &e, NULL);
}

static void on_vmm_running(void *user)
{
	(void)user;
}

static void on_vmm_exited(void *user, const struct err *why)
{
	struct sandbox *sb = user;
	sb->vmm = NULL;
	if (sb->state >= SANDBOX_STOPPING) {
		maybe_finish(sb);
		return;
	}
	struct err e;
	const char *last = sb->console ? console_last_line(sb->console) : "";
	if (sb->state == SANDBOX_BOOTING && *last)
		err_set(&e, EIO, "the microVM ended while it booted: %s; last on its console: %s",
			why->text, last);
	else
		err_set(&e, EIO, "the microVM ended: %s", why->text);
	sandbox_stop(sb, &e);
}

static void on_gateway_ready(void *user)
{
	struct sandbox *sb = user;
	sb->gateway_ready = true;
	maybe_ready(sb);
}

static void on_gateway_exited(void *user, const struct err *why)
{
	struct sandbox *sb = user;
	sb->gateway = NULL;
	if (sb->state < SANDBOX_STOPPING)
		sandbox_stop(sb, why);
	else
		maybe_finish(sb);
}

static const struct vmm_events vmm_events = {.running = on_vmm_running, .exited = on_vmm_exited};
static const struct gateway_ops gateway_ops = {.ready = on_gateway_ready,
					       .exited = on_gateway_exited};

static void make_id(char id[ID_RANDOM + 2])
{
	static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	uint8_t random[ID_RANDOM * 2];
	random_bytes(random, sizeof(random));
	id[0] = 'i';
	for (size_t i = 0; i < ID_RANDOM; i++)
		id[i + 1] = alphabet[(random[2 * i] << 8 | random[2 * i + 1]) % 36];
	id[ID_RANDOM + 1] = '\0';
}

static struct sandbox *sandbox_new(struct node *n, struct sandbox_spec *spec)
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

static void drop_listeners(struct sandbox *sb)
{
	drop_fd(&sb->slot.tcp_fd);
	drop_fd(&sb->slot.dns_udp_fd);
	drop_fd(&sb->slot.dns_tcp_fd);
}

static int start_gateway(struct sandbox *sb, struct err *e)
{
	if (!sb->spec.network) {
		drop_listeners(sb); /* so that the guest is refused at once, not left waiting */
		return 0;
	}
	auto_json json_t *policy = policy_to_json(sb->spec.policy);
	uid_t uid = NODE_UID_BASE + 2 * (uid_t)sb->seat + 1;
	sb->gateway = gateway_start(sb->node, sb->id, &sb->slot, uid, policy, sb->spec.secrets,
				    &gateway_ops, sb, e);
	/* Its copy is the gateway's now; ours goes. What stays names the secrets and their
	 * placeholders. */
	size_t i;
	json_t *secret;
	json_array_foreach(sb->spec.secrets, i, secret) json_object_del(secret, "value");
	drop_listeners(sb);
	return sb->gateway ? 0 : -EIO;
}

static int start_vmm(struct sandbox *sb, struct err *e)
{
	auto_fd int root_fd = open(sb->image.rootfs, O_RDONLY | O_CLOEXEC);
	if (root_fd < 0)
		return err_sys(e, errno, "can't open %s", sb->image.rootfs);
	sb->scratch_fd = image_clone_scratch(&sb->image, sb->node->paths.scratch, e);
	if (sb->scratch_fd < 0)
		return err_prefix(e, "can't make the sandbox's disk");
	auto_fd int console_fd = -1;
	sb->console = console_open(sb->node->loop, sb->dir, on_console_ready, sb, &console_fd, e);
	if (!sb->console)
		return -EIO;
	const struct vmm_config config = {
		.id = sb->id,
		.cpus = sb->spec.cpus,
		.ram_bytes = sb->spec.memory_mib << 20,
		.kernel = sb->image.kernel,
		.initramfs = sb->image.initramfs,
		.cmdline = sb->image.cmdline,
		.root_fd = root_fd,
		.scratch_fd = sb->scratch_fd,
		.tap_fd = sb->slot.tap_fd,
		.console_fd = console_fd,
		.netns_fd = sb->slot.netns_fd,
		.uid = NODE_UID_BASE + 2 * (uid_t)sb->seat,
	};
	sb->vmm = vmm_start(sb->node->loop, &sb->node->host, &config, &vmm_events, sb, e);
	/* The monitor has its own: closing a tap for good takes tens of milliseconds, which are not
	 * to be ours. */
	drop_fd(&sb->slot.tap_fd);
	drop_fd(&sb->scratch_fd);
	return sb->vmm ? 0 : -EIO;
}

static int boot(struct sandbox *sb, struct err *e)
{
	int r = slot_open(&sb->slot, e);
	if (r < 0)
		return err_prefix(e, "can't make a network slot");
	sandbox_go(sb, SANDBOX_BOOTING);
	if (sb->state != SANDBOX_BOOTING) {
		*e = sb->why;
		return -e->code;
	}
	r = start_gateway(sb, e);
	if (r == 0)
		r = start_vmm(sb, e);
	if (r == 0)
		uv_timer_start(&sb->timer, on_boot_timeout, BOOT_TIMEOUT_MS, 0);
	return r;
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
			forget(sb);
		else
			sandbox_free(sb);
		return r;
	}
	n->live++;
	r = boot(sb, e);
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
		forget(sb);
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

/* Takes in one record of an earlier spaced. */
static void restore(void *user, const struct store_record *r)
{
	struct node *n = user;
	struct sandbox_spec spec = {
		.name = str_eq(r->name, r->id) ? NULL : strdup(r->name),
		.image = strdup(r->image),
		.cpus = r->cpus,
		.memory_mib = r->memory_mib,
		.keep = true,
		.command = doc_parse_json(r->command, strlen(r->command), NULL),
	};
	struct sandbox *sb = sandbox_new(n, &spec);
	if (!sb)
		abort();
	snprintf(sb->id, sizeof(sb->id), "%s", r->id);
	sb->state = str_eq(r->state, "exited")   ? SANDBOX_EXITED
		    : str_eq(r->state, "failed") ? SANDBOX_FAILED
						 : SANDBOX_RUNNING;
	sb->started_ms = r->started_ms;
	sb->ended_ms = r->ended_ms;
	sb->exit_code = r->exit_code;
	sb->reason = r->reason ? strdup(r->reason) : NULL;
	sb->dir = str_printf("%s/%s", n->paths.sandboxes, sb->id);
}

/* Removes directories that no record names. */
static int clear_directories(struct node *n, struct err *e)
{
	DIR *d = opendir(n->paths.sandboxes);
	if (!d)
		return err_sys(e, errno, "%s", n->paths.sandboxes);
	for (struct dirent *entry; (entry = readdir(d));) {
		if (entry->d_name[0] == '.' || sandbox_find_id(n, entry->d_name))
			continue;
		auto_free char *path = str_printf("%s/%s", n->paths.sandboxes, entry->d_name);
		if (path)
			dir_remove_all(path);
	}
	closedir(d);
	return 0;
}

int sandbox_restore_all(struct node *n, struct err *e)
{
	int r = store_each(n->store, restore, n, e);
	if (r < 0)
		return r;
	list_for_each (it, &n->sandboxes) {
		struct sandbox *sb = list_entry(it, struct sandbox, link);
		bool lost = sb->state == SANDBOX_RUNNING;
		/* Its processes died with the spaced that had started them. */
		if (lost)
			r = audit_write(n->audit, sb->id, "sandbox.lost", NULL, e);
		if (r < 0)
			return r;
		if (!lost && dir_make_all(sb->dir, 0700) == 0)
			sb->log = tasklog_open(sb->dir, e);
		if (sb->log)
			tasklog_finish(sb->log);
		else
			forget(sb);
	}
	return clear_directories(n, e);
}
