/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One QEMU process from start to grave. Three descriptors are watched: its pidfd (the only word on
 * whether it lives), the QMP connection, and its standard error, whose end goes into the error that
 * a person reads.
 *
 *   WAITING --boot or restore--> MACHINE
 *      any of these --kill, lost control, deadline--> ENDING --pidfd--> GONE
 *      any of these --pidfd--> GONE: all handles close, then exited(), then free
 *
 * When control is lost QEMU gets a moment to end by itself, because then its exit status and last
 * words say more. An adopted process is not our child: how it ended stays unknown.
 */
#include "vmm/qemu.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/doc.h"
#include "base/proc.h"
#include "base/str.h"
#include "jail/jail.h"
#include "jail/plan.h"
#include "vmm/qemu_args.h"
#include "vmm/qemu_dir.h"
#include "vmm/qemu_jail.h"
#include "vmm/qemu_setup.h"
#include "vmm/qemu_state.h"

#define QEMU_VERSION_MIN     9 /* maps a read-only file privately and writably */
#define QEMU_VERSION_KVM_MIN 9 /* takes /dev/kvm by descriptor */

#define START_DEADLINE_MS 30000 /* from exec to its first answer */
#define LOST_GRACE_MS     2000  /* from losing control to SIGKILL */
#define DRAIN_READS       16    /* reads of standard error after the end */

static void send_kill(struct vmm *v)
{
	if (v->phase == QEMU_GONE)
		return;
	v->killed = true;
	syscall(SYS_pidfd_send_signal, v->pidfd, SIGKILL, NULL, 0);
}

static void set_cause(struct vmm *v, int code, const char *text)
{
	if (v->phase >= QEMU_ENDING)
		return;
	v->phase = QEMU_ENDING;
	err_set(&v->cause, code, "%s", text);
}

void qemu_end(struct vmm *v, int code, const char *text)
{
	set_cause(v, code, text);
	send_kill(v);
}

void vmm_kill(struct vmm *v)
{
	qemu_end(v, ECANCELED, "killed");
}

struct vmm_identity vmm_identity(const struct vmm *v)
{
	return v->who;
}

int vmm_console(const struct vmm *v, struct err *e)
{
	return qemu_dir_connect(v->dir_fd, QEMU_NAME_CONSOLE, e);
}

struct vmm *qemu_new(uv_loop_t *loop, const char *id, const struct vmm_events *events, void *user)
{
	struct vmm *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->loop = loop;
	v->events = *events;
	v->user = user;
	snprintf(v->id, sizeof(v->id), "%s", id);
	v->pidfd = v->proc_fd = v->stderr_fd = v->dir_fd = v->scratch_fd = v->base_fd = -1;
	v->call.state_copy_fd = -1;
	v->status = -1;
	return v;
}

void qemu_free(struct vmm *v)
{
	int *fds[] = {&v->pidfd,  &v->proc_fd,    &v->stderr_fd,
		      &v->dir_fd, &v->scratch_fd, &v->base_fd};

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		cleanup_fd(fds[i]);
	free(v);
}

void qemu_handle_closed(struct vmm *v)
{
	assert(v->open_handles > 0);
	if (--v->open_handles > 0)
		return;
	if (!v->silent)
		v->events.exited(v->user, &v->why);
	qemu_free(v);
}

static void on_closed(uv_handle_t *handle)
{
	qemu_handle_closed(handle->data);
}

static void on_qmp_closed(void *user)
{
	qemu_handle_closed(user);
}

/* The last one frees. */
static void close_handles(struct vmm *v)
{
	uv_handle_t *handles[] = {(uv_handle_t *)&v->exit_poll, (uv_handle_t *)&v->stderr_poll,
				  (uv_handle_t *)&v->timer};

	v->phase = QEMU_GONE;
	for (size_t i = 0; i < sizeof(handles) / sizeof(handles[0]); i++)
		if (handles[i]->data)
			uv_close(handles[i], on_closed);
	if (v->qmp.user)
		qmp_client_close(&v->qmp);
	close(take_fd(v->pidfd));
	if (v->stderr_fd >= 0)
		close(take_fd(v->stderr_fd));
}

/* To GONE: the process has ended. A worker thread may still be at it; exited() waits for it. */
static void bury(struct vmm *v)
{
	static const char *const names[] = {QEMU_NAME_MEMORY, QEMU_NAME_STATE, QEMU_NAME_ROOT,
					    QEMU_NAME_KERNEL, QEMU_NAME_INITRAMFS};

	if (v->qmp.user)
		qmp_client_read(&v->qmp); /* for a last SHUTDOWN event */
	for (int i = 0; i < DRAIN_READS && qemu_words_read(v) > 0; i++)
		;
	qemu_explain(v, &v->why);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		qemu_dir_remove(v->dir_fd, names[i]);
	close_handles(v);
	if (v->call.working) {
		qemu_work_abandon(v);
		return;
	}
	struct err why = v->why;
	if (why.code == 0)
		err_set(&why, EIO, "%s", v->why.text);
	qemu_call_finish(v, &why);
}

/* 0 when it is gone, -EAGAIN while it isn't. */
static int reap(struct vmm *v, int flags)
{
	siginfo_t info = {0};
	int rc;

	do
		rc = waitid(P_PIDFD, (id_t)v->pidfd, &info, WEXITED | flags);
	while (rc < 0 && errno == EINTR);
	if (rc < 0)
		return errno == ECHILD ? 0 : -errno; /* another's: its pidfd says when */
	if (info.si_pid == 0)
		return -EAGAIN;
	v->status = info.si_code == CLD_EXITED ? W_EXITCODE(info.si_status, 0)
					       : W_EXITCODE(0, info.si_status);
	return 0;
}

static void on_exit_readable(uv_poll_t *poll, int status, int events)
{
	struct vmm *v = poll->data;

	(void)status;
	(void)events;
	if (reap(v, WNOHANG) == 0)
		bury(v);
}

static void on_stderr(uv_poll_t *poll, int status, int events)
{
	ssize_t n = status < 0 ? 0 : qemu_words_read(poll->data);

	(void)events;
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		uv_poll_stop(poll);
}

static void on_timer(uv_timer_t *timer)
{
	struct vmm *v = timer->data;

	qemu_end(v, ETIMEDOUT,
		 v->controlled ? "QEMU did not do in time what it was told"
			       : "QEMU did not start in time");
}

void qemu_deadline(struct vmm *v, uint64_t ms)
{
	if (v->phase >= QEMU_ENDING)
		return;
	if (ms == 0)
		uv_timer_stop(&v->timer);
	else
		uv_timer_start(&v->timer, on_timer, ms, 0);
}

static void on_qmp_lost(void *user, const struct err *why)
{
	struct vmm *v = user;

	qemu_deadline(v, LOST_GRACE_MS);
	set_cause(v, why->code, why->text);
}

static void on_capabilities(void *user, const struct qmp_msg *msg)
{
	struct vmm *v = user;

	if (!msg)
		return;
	if (msg->kind != QMP_RETURN) {
		qemu_end(v, EPROTO, "QEMU refuses to be controlled");
		return;
	}
	v->controlled = true;
	if (v->call.kind == CALL_NONE)
		qemu_deadline(v, 0);
}

static void on_greeting(void *user)
{
	(void)user; /* what follows has been sent already */
}

static void note_shutdown(struct vmm *v, const json_t *data)
{
	const char *reason = json_string_value(json_object_get(data, "reason"));

	if (reason && reason[0] && strlen(reason) < sizeof(v->shutdown_reason) &&
	    strspn(reason, "abcdefghijklmnopqrstuvwxyz-") == strlen(reason))
		strcpy(v->shutdown_reason, reason);
	else
		strcpy(v->shutdown_reason, "unknown");
}

static void on_event(void *user, const char *name, const json_t *data)
{
	struct vmm *v = user;

	if (str_eq(name, "SHUTDOWN"))
		note_shutdown(v, data);
	else if (str_eq(name, "STOP") || str_eq(name, "RESUME"))
		v->paused = str_eq(name, "STOP");
	qemu_call_event(v, name, data);
}

static const struct qmp_handlers qmp_handlers = {
	.greeting = on_greeting,
	.event = on_event,
	.lost = on_qmp_lost,
	.closed = on_qmp_closed,
};

static int watch_fd(struct vmm *v, uv_poll_t *poll, int fd, uv_poll_cb cb)
{
	int rc = uv_poll_init(v->loop, poll, fd);

	if (rc < 0)
		return rc;
	poll->data = v;
	v->open_handles++;
	return uv_poll_start(poll, UV_READABLE, cb);
}

/* What is sent before QEMU has come to reading waits in the socket. */
static int watch_control(struct vmm *v, int fd, struct err *e)
{
	int rc;

	rc = qmp_client_open(&v->qmp, v->loop, fd, &qmp_handlers, v);
	if (rc < 0) {
		close(fd);
		return err_sys(e, -rc, "QEMU: event loop");
	}
	v->open_handles++;
	rc = qmp_client_call(&v->qmp, "qmp_capabilities", NULL, -1, on_capabilities, v);
	return rc < 0 ? err_sys(e, -rc, "QEMU does not take commands") : 0;
}

static int watch_process(struct vmm *v, struct err *e)
{
	int rc = 0;

	if (v->stderr_fd >= 0)
		rc = watch_fd(v, &v->stderr_poll, v->stderr_fd, on_stderr);
	if (rc == 0)
		rc = watch_fd(v, &v->exit_poll, v->pidfd, on_exit_readable);
	return rc < 0 ? err_sys(e, -rc, "QEMU: event loop") : 0;
}

int qemu_watch(struct vmm *v, int control, struct err *e)
{
	int rc;

	uv_timer_init(v->loop, &v->timer);
	v->timer.data = v;
	v->open_handles++;
	qemu_deadline(v, START_DEADLINE_MS);
	rc = watch_control(v, control, e);
	return rc < 0 ? rc : watch_process(v, e);
}

void qemu_unwatch(struct vmm *v)
{
	v->silent = true;
	close_handles(v);
}

static int check_version(const struct vmm_probe *host, struct err *e)
{
	long major = strtol(host->qemu_version, NULL, 10);

	if (host->qemu_version[0] == '\0')
		return err_set(e, ENOENT,
			       "QEMU is missing: install qemu-system-x86 from "
			       "bookworm-backports");
	if (major < (host->accel == VMM_KVM ? QEMU_VERSION_KVM_MIN : QEMU_VERSION_MIN))
		return err_set(e, ENOTSUP,
			       "QEMU %s is too old: install qemu-system-x86 from "
			       "bookworm-backports",
			       host->qemu_version);
	return 0;
}

/* What it will be is not known yet: the largest that any may need. */
static uint64_t largest_file(const struct vmm_config *config)
{
	uint64_t dump = ((uint64_t)VMM_RAM_MAX_MIB << 20) + QEMU_DUMP_OVERHEAD;
	struct stat st;

	if (fstat(config->scratch_fd, &st) < 0 || (uint64_t)st.st_size < dump)
		return dump;
	return (uint64_t)st.st_size;
}

/* What a monitor inherits; -1: it has none of that. */
struct inherited {
	int control, console, dir, first, scratch, tap, kvm;
};

static void jail_fill(struct jail_spec *spec, struct jail_fd fds[static 7],
		      const struct inherited *in)
{
	size_t n = 0;

	fds[n++] = (struct jail_fd){.from = in->control, .to = QEMU_FD_CONTROL};
	fds[n++] = (struct jail_fd){.from = in->console, .to = QEMU_FD_CONSOLE};
	fds[n++] = (struct jail_fd){.from = in->dir, .to = QEMU_FD_DIR, .tree = true};
	fds[n++] = (struct jail_fd){.from = in->first, .to = QEMU_FD_FIRST};
	fds[n++] = (struct jail_fd){.from = in->scratch, .to = QEMU_FD_SCRATCH};
	if (in->tap >= 0)
		fds[n++] = (struct jail_fd){.from = in->tap, .to = QEMU_FD_TAP};
	if (in->kvm >= 0)
		fds[n++] = (struct jail_fd){.from = in->kvm, .to = QEMU_FD_KVM};
	spec->fds = fds;
	spec->nfds = n;
}

static int spawn_jailed(struct vmm *v, const struct vmm_config *config, const struct inherited *in,
			int stderr_fd, struct err *e)
{
	struct jail_fd fds[7];
	struct qemu_jail jail;
	struct qemu_args args;
	int rc = qemu_args_build(&v->host, config, &args, e);

	if (rc < 0)
		return rc;
	rc = qemu_jail_make(&jail, (const char *const *)args.argv, v->host.accel, e);
	if (rc == 0) {
		jail_fill(&jail.spec, fds, in);
		jail.spec.stdout_fd = stderr_fd;
		jail.spec.uid = config->uid;
		jail.spec.file_bytes_max = largest_file(config);
		jail.spec.netns_fd = config->netns_fd;
		rc = jail_spawn(&jail.spec, &v->who.pid, &v->pidfd, e);
		qemu_jail_done(&jail);
	}
	qemu_args_done(&args);
	return rc;
}

static int spawn(struct vmm *v, const struct vmm_config *config, int first, int stderr_fd,
		 struct err *e)
{
	auto_fd int control = qemu_dir_listen(v->dir_fd, QEMU_NAME_CONTROL, e);
	if (control < 0)
		return control;
	auto_fd int console = qemu_dir_listen(v->dir_fd, QEMU_NAME_CONSOLE, e);
	if (console < 0)
		return console;
	auto_fd int kvm = -1;
	if (v->host.accel == VMM_KVM) {
		kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
		if (kvm < 0)
			return err_sys(e, errno, "/dev/kvm");
	}
	const struct inherited in = {
		.control = control,
		.console = console,
		.dir = v->dir_fd,
		.first = first,
		.scratch = config->scratch_fd,
		.tap = config->tap_fd,
		.kvm = kvm,
	};
	return spawn_jailed(v, config, &in, stderr_fd, e);
}

char *vmm_jail_text(const struct vmm_probe *host, uid_t uid, struct err *e)
{
	const char *const argv[] = {QEMU_BINARY, NULL};
	const struct inherited in = {.kvm = host->accel == VMM_KVM ? 0 : -1};
	struct jail_fd fds[7];
	struct qemu_jail jail;
	struct jail_plan plan;
	char *text = NULL;

	if (qemu_jail_make(&jail, argv, host->accel, e) < 0)
		return NULL;
	jail_fill(&jail.spec, fds, &in);
	jail.spec.uid = uid;
	jail.spec.netns_fd = 0; /* a slot's */
	jail.spec.file_bytes_max = largest_file(&(struct vmm_config){.scratch_fd = -1});
	if (jail_plan_make(&jail.spec, &plan, e) == 0) {
		text = jail_plan_text(&plan);
		if (!text)
			err_set(e, ENOMEM, "no memory");
		jail_plan_done(&plan);
	}
	qemu_jail_done(&jail);
	return text;
}

int qemu_open_proc(struct vmm *v, struct err *e)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d", (int)v->who.pid);
	v->proc_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return v->proc_fd < 0 ? err_sys(e, errno, "QEMU: %s", path) : 0;
}

/* Opens what the process needs, and starts it. *ret_control is our connection to it. */
static int start(struct vmm *v, const struct vmm_config *config, int *ret_control, struct err *e)
{
	int words[2], ends[2], rc;

	v->dir_fd = qemu_dir_open(config->dir, e);
	if (v->dir_fd < 0)
		return v->dir_fd;
	v->scratch_fd = fcntl(config->scratch_fd, F_DUPFD_CLOEXEC, 0);
	if (v->scratch_fd < 0 || pipe2(words, O_CLOEXEC | O_NONBLOCK) < 0)
		return err_sys(e, errno, "QEMU");
	auto_fd int words_theirs = words[1];
	v->stderr_fd = words[0];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) < 0)
		return err_sys(e, errno, "QEMU");
	auto_fd int ours = ends[0], theirs = ends[1];
	rc = spawn(v, config, theirs, words_theirs, e);
	if (rc < 0)
		return rc;
	rc = proc_started(v->who.pid, &v->who.started);
	if (rc < 0)
		return err_sys(e, -rc, "QEMU: /proc/%d", (int)v->who.pid);
	rc = qemu_open_proc(v, e);
	if (rc == 0)
		*ret_control = take_fd(ours);
	return rc;
}

static void kill_and_reap(struct vmm *v)
{
	syscall(SYS_pidfd_send_signal, v->pidfd, SIGKILL, NULL, 0);
	reap(v, 0);
}

struct vmm *qemu_open(uv_loop_t *loop, const struct vmm_probe *host,
		      const struct vmm_config *config, const struct vmm_events *events, void *user,
		      struct err *e)
{
	struct vmm *v;
	int control = -1;

	if (check_version(host, e) < 0)
		return NULL;
	v = qemu_new(loop, config->id, events, user);
	if (!v) {
		err_sys(e, ENOMEM, "QEMU");
		return NULL;
	}
	v->host = *host;
	v->boots = config->boots;
	if (start(v, config, &control, e) < 0) {
		if (v->pidfd >= 0)
			kill_and_reap(v);
		qemu_free(v);
		return NULL;
	}
	if (qemu_watch(v, control, e) < 0) {
		kill_and_reap(v);
		qemu_unwatch(v);
		return NULL;
	}
	return v;
}
