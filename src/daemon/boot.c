/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sandbox's boot: slot, gateway and monitor are started at once; then the console says that the
 * agent listens, the agent gets its instructions, the gateway reports that it stands. The last of
 * these makes the sandbox run; any failure, or the deadline, stops it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "daemon/sandbox_state.h"

#define BOOT_TIMEOUT_MS (180u * 1000) /* software emulation on a busy host is slow */
#define INIT_TIMEOUT_MS (60u * 1000)

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
		sandbox_maybe_finish(sb);
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
		sandbox_maybe_finish(sb);
}

static const struct vmm_events vmm_events = {.running = on_vmm_running, .exited = on_vmm_exited};
static const struct gateway_ops gateway_ops = {.ready = on_gateway_ready,
					       .exited = on_gateway_exited};

static void drop_fd(int *fd)
{
	if (*fd >= 0)
		close(take_fd(*fd));
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

int sandbox_boot(struct sandbox *sb, struct err *e)
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
