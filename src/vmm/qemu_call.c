/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that QEMU answers. All commands of one call are sent at once; it has settled when all
 * are answered and the event that tells of its effect, where there is one, has come.
 *
 * A boot or restore that fails leaves nothing to be used, so that the process is killed; done()
 * then follows from its end, as it does for every call that the end cuts short.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/doc.h"
#include "base/str.h"
#include "jail/jail.h"
#include "vmm/qemu.h"
#include "vmm/qemu_dir.h"
#include "vmm/qemu_jail.h"
#include "vmm/qemu_setup.h"
#include "vmm/qemu_state.h"

#define SETUP_DEADLINE_MS 30000  /* with the start of a process that was just opened */
#define PAUSE_DEADLINE_MS 10000  /* what the guest has asked of its disks is done before */
#define DUMP_DEADLINE_MS  600000 /* writes all memory to a file */

int qemu_call_begin(struct vmm *v, enum qemu_call_kind kind, vmm_done_fn done, void *user,
		    uint64_t deadline_ms)
{
	if (v->phase >= QEMU_ENDING)
		return -ESRCH;
	if (v->call.kind != CALL_NONE)
		return -EBUSY;
	v->call = (struct qemu_call){.kind = kind,
				     .done = done,
				     .user = user,
				     .memory_fd = -1,
				     .state_fd = -1,
				     .state_copy_fd = -1};
	qemu_deadline(v, deadline_ms);
	return 0;
}

void qemu_call_forget(struct vmm *v)
{
	cleanup_fd(&v->call.state_copy_fd);
	v->call = (struct qemu_call){.state_copy_fd = -1};
	if (v->controlled)
		qemu_deadline(v, 0);
}

void qemu_call_cancel(struct vmm *v, int code)
{
	bool begun = v->call.replies_due > 0;

	qemu_call_forget(v);
	if (begun)
		qemu_end(v, code, "QEMU does not take commands");
}

void qemu_call_finish(struct vmm *v, const struct err *why)
{
	struct qemu_call c = v->call;

	if (c.kind == CALL_NONE)
		return;
	qemu_call_forget(v);
	if (c.kind == CALL_BOOT || c.kind == CALL_RESTORE) {
		qemu_dir_remove(v->dir_fd, QEMU_NAME_ROOT);
		qemu_dir_remove(v->dir_fd, QEMU_NAME_STATE);
		qemu_dir_remove(v->dir_fd, QEMU_NAME_KERNEL);
		qemu_dir_remove(v->dir_fd, QEMU_NAME_INITRAMFS);
	}
	c.done(c.user, why);
}

static bool is_setup(const struct qemu_call *c)
{
	return c->kind == CALL_BOOT || c->kind == CALL_RESTORE || c->kind == CALL_ADOPT;
}

/* Every answer is there. */
static void settle(struct vmm *v)
{
	struct qemu_call *c = &v->call;
	struct err why = c->failure;

	if (c->kind == CALL_SAVE && why.code == 0) {
		qemu_save_pages(v);
		return;
	}
	if (why.code == 0 && c->kind == CALL_PAUSE)
		v->paused = true;
	else if (why.code == 0 && c->kind == CALL_RESUME)
		v->paused = false;
	else if (why.code == 0 && c->kind == CALL_ADOPT)
		*c->ret_running = !v->paused;
	qemu_call_finish(v, &why);
}

static void maybe_settle(struct vmm *v)
{
	if (v->call.kind != CALL_NONE && !v->call.working && v->call.replies_due == 0 &&
	    !v->call.event_due && v->phase == QEMU_MACHINE)
		settle(v);
}

/* What an adopted monitor is doing. One that never got a machine, or has lost it, is no use. */
static void read_status(struct vmm *v, const json_t *data)
{
	const char *status = json_string_value(json_object_get(data, "status"));

	if (str_eq(status, "running") || str_eq(status, "paused"))
		v->paused = str_eq(status, "paused");
	else
		err_set(&v->call.failure, EPROTO, "the monitor has no machine that runs");
}

static void on_reply(void *user, const struct qmp_msg *msg)
{
	struct vmm *v = user;
	struct qemu_call *c = &v->call;

	/* Without a message the connection is lost, which is dealt with elsewhere. */
	if (!msg || v->phase >= QEMU_ENDING || c->kind == CALL_NONE)
		return;
	assert(c->replies_due > 0);
	c->replies_due--;
	if (msg->kind == QMP_ERROR && c->failure.code == 0)
		err_set(&c->failure, EIO, "QEMU: %s", msg->text);
	if (msg->kind == QMP_RETURN && c->kind == CALL_ADOPT)
		read_status(v, msg->data);
	if (is_setup(c) && c->failure.code != 0)
		qemu_end(v, c->failure.code, c->failure.text);
	else
		maybe_settle(v);
}

int qemu_call_send(struct vmm *v, const char *command, json_t *arguments, int pass_fd)
{
	int rc = qmp_client_call(&v->qmp, command, arguments, pass_fd, on_reply, v);

	if (rc == 0)
		v->call.replies_due++;
	return rc;
}

void qemu_call_event(struct vmm *v, const char *name, const json_t *data)
{
	const char *status;

	if (!str_eq(name, v->call.event_due))
		return;
	if (str_eq(name, "MIGRATION")) {
		status = json_string_value(json_object_get(data, "status"));
		if (!str_eq(status, "completed"))
			return;
		v->paused = true;
	}
	v->call.event_due = NULL;
	maybe_settle(v);
}

/* QEMU writes the scratch disk, which never grows, states, and dumps of memory. While it waits it
   has no guest that could make it write anything. Where we may not set another's limits
   (CAP_SYS_RESOURCE), the wider one remains that it was started with. */
static int limit_files(const struct vmm *v)
{
	rlim_t most = v->ram_bytes + QEMU_DUMP_OVERHEAD;
	struct rlimit limit;
	struct stat st;

	if (fstat(v->scratch_fd, &st) < 0)
		return -errno;
	if ((rlim_t)st.st_size > most)
		most = (rlim_t)st.st_size;
	limit = (struct rlimit){most, most};
	if (prlimit(v->who.pid, RLIMIT_FSIZE, &limit, NULL) < 0 && errno != EPERM)
		return -errno;
	return 0;
}

static int send_setup(struct vmm *v, const struct qemu_setup *s)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < s->count; i++)
		rc = qemu_call_send(v, s->commands[i].name, s->commands[i].arguments, -1);
	return rc;
}

/* Which root QEMU is to open: NULL is the name in its directory. One of another filesystem is shown
 * in a place that its jail has for that. */
static int place_root(const struct vmm *v, const struct vmm_machine *machine, const char **ret_root,
		      struct err *e)
{
	int rc = qemu_dir_link(v->dir_fd, machine->root, QEMU_NAME_ROOT, e);

	*ret_root = rc == -EXDEV ? QEMU_PLACE_ROOT : NULL;
	return rc == -EXDEV ? jail_show(v->pidfd, machine->root, QEMU_PLACE_ROOT, e) : rc;
}

static int waiting_check(const struct vmm *v, bool boots, struct err *e)
{
	if (v->phase >= QEMU_ENDING)
		return err_set(e, ESRCH, "the monitor is ending");
	if (v->phase != QEMU_WAITING || v->call.kind != CALL_NONE || v->boots != boots)
		return err_set(e, EBUSY, "the monitor does not wait for this");
	return 0;
}

/* base_fd and the names are in place. From here on the monitor is used up. */
static int run_setup(struct vmm *v, enum qemu_call_kind kind, const struct qemu_setup *setup,
		     vmm_done_fn done, void *user, struct err *e)
{
	int rc = limit_files(v);

	if (rc < 0)
		return err_sys(e, -rc, "QEMU: limit of files");
	v->phase = QEMU_MACHINE;
	rc = qemu_call_begin(v, kind, done, user, SETUP_DEADLINE_MS);
	if (rc == 0)
		rc = send_setup(v, setup);
	if (rc == 0) {
		close(take_fd(v->scratch_fd));
		return 0;
	}
	qemu_call_forget(v);
	qemu_end(v, -rc, "QEMU does not take commands");
	return err_sys(e, -rc, "QEMU does not take commands");
}

int qemu_boot(struct vmm *v, const struct vmm_machine *machine, const struct vmm_kernel *kernel,
	      vmm_done_fn done, void *user, struct err *e)
{
	const char *root = NULL;
	struct qemu_setup setup;
	int rc = waiting_check(v, true, e);

	if (rc == 0)
		rc = place_root(v, machine, &root, e);
	if (rc == 0)
		rc = qemu_dir_bring(v->dir_fd, kernel->kernel, QEMU_NAME_KERNEL, e);
	if (rc == 0)
		rc = qemu_dir_bring(v->dir_fd, kernel->initramfs, QEMU_NAME_INITRAMFS, e);
	if (rc < 0)
		return rc;
	int base = qemu_dir_make_zeroes(v->dir_fd, QEMU_NAME_MEMORY, machine->ram_bytes, e);
	if (base < 0)
		return base;
	cleanup_fd(&v->base_fd);
	v->base_fd = base;
	v->ram_bytes = machine->ram_bytes;
	rc = qemu_setup_boot(&v->host, machine, root, kernel, &setup, e);
	if (rc < 0)
		return rc;
	rc = run_setup(v, CALL_BOOT, &setup, done, user, e);
	qemu_setup_done(&setup);
	return rc;
}

/* Links both files in, and keeps memory. */
static int place_frozen(struct vmm *v, const struct vmm_machine *machine,
			const struct vmm_frozen *frozen, struct err *e)
{
	struct stat st;
	int rc = qemu_dir_link(v->dir_fd, frozen->memory, QEMU_NAME_MEMORY, e);

	if (rc == 0)
		rc = qemu_dir_link(v->dir_fd, frozen->state, QEMU_NAME_STATE, e);
	if (rc < 0)
		return rc == -EXDEV ? err_set(e, EXDEV,
					      "a frozen machine has to be on the filesystem "
					      "of the monitor's directory")
				    : rc;
	auto_fd int base = openat(v->dir_fd, QEMU_NAME_MEMORY, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (base < 0 || fstat(base, &st) < 0)
		return err_sys(e, errno, "%s", frozen->memory);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != machine->ram_bytes)
		return err_set(e, EBADMSG, "%s has %lld bytes, not %llu", frozen->memory,
			       (long long)st.st_size, (unsigned long long)machine->ram_bytes);
	if (fstatat(v->dir_fd, QEMU_NAME_STATE, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(e, errno, "%s", frozen->state);
	if (!S_ISREG(st.st_mode) || st.st_size == 0)
		return err_set(e, EBADMSG, "%s is empty", frozen->state);
	cleanup_fd(&v->base_fd);
	v->base_fd = take_fd(base);
	v->ram_bytes = machine->ram_bytes;
	return 0;
}

int qemu_restore(struct vmm *v, const struct vmm_machine *machine, const struct vmm_frozen *frozen,
		 bool run, vmm_done_fn done, void *user, struct err *e)
{
	const char *root = NULL;
	struct qemu_setup setup;
	int rc = waiting_check(v, false, e);

	if (rc == 0)
		rc = place_root(v, machine, &root, e);
	if (rc == 0)
		rc = place_frozen(v, machine, frozen, e);
	if (rc == 0)
		rc = qemu_setup_restore(machine, root, run, &setup, e);
	if (rc < 0)
		return rc;
	rc = run_setup(v, CALL_RESTORE, &setup, done, user, e);
	if (rc == 0)
		v->call.event_due = run ? "RESUME" : "MIGRATION";
	qemu_setup_done(&setup);
	return rc;
}

static int call_one(struct vmm *v, enum qemu_call_kind kind, const char *command, vmm_done_fn done,
		    void *user)
{
	int rc;

	if (v->phase == QEMU_WAITING)
		return -EINVAL;
	rc = qemu_call_begin(v, kind, done, user, PAUSE_DEADLINE_MS);
	if (rc < 0)
		return rc;
	rc = qemu_call_send(v, command, NULL, -1);
	if (rc < 0)
		qemu_call_forget(v);
	return rc;
}

int vmm_pause(struct vmm *v, vmm_done_fn done, void *user)
{
	return call_one(v, CALL_PAUSE, "stop", done, user);
}

int vmm_resume(struct vmm *v, vmm_done_fn done, void *user)
{
	return call_one(v, CALL_RESUME, "cont", done, user);
}

int vmm_dump_memory(struct vmm *v, const char *path, vmm_done_fn done, void *user)
{
	int rc;

	if (v->phase != QEMU_MACHINE || v->call.kind != CALL_NONE)
		return -EBUSY;
	auto_fd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	auto_json json_t *name = json_pack("{s:s}", "fdname", "dump");
	auto_json json_t *what = json_pack("{s:b, s:s}", "paging", 0, "protocol", "fd:dump");
	if (!name || !what)
		return -ENOMEM;
	rc = qemu_call_begin(v, CALL_DUMP, done, user, DUMP_DEADLINE_MS);
	if (rc == 0)
		rc = qemu_call_send(v, "getfd", name, fd);
	if (rc == 0)
		rc = qemu_call_send(v, "dump-guest-memory", what, -1);
	if (rc < 0)
		qemu_call_cancel(v, -rc);
	return rc;
}
