/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One QEMU process from start to grave. Three descriptors are watched: its pidfd (the only word on
 * whether it lives), the QMP socket, and its standard error, whose end goes into the error that a
 * person reads.
 *
 *   STARTING --greeting--> CONFIGURING --"running"--> RUNNING
 *      any of these --kill, lost control, deadline--> ENDING --pidfd--> GONE
 *      any of these --pidfd--> GONE: all handles close, then exited(), then free
 *
 * When control is lost QEMU gets a moment to end by itself, because then its exit status and last
 * words say more.
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
#include "base/str.h"
#include "jail/jail.h"
#include "vmm/qemu_args.h"
#include "vmm/qmp.h"

#define QEMU_VERSION_MIN     7
#define QEMU_VERSION_KVM_MIN 9 /* takes /dev/kvm by descriptor */

#define START_DEADLINE_MS 30000 /* from exec to the guest's first instruction */
#define LOST_GRACE_MS     2000  /* from losing control to SIGKILL */

#define LAST_WORDS_SIZE 4096        /* kept of standard error */
#define LAST_WORDS_TOLD 300         /* of which this much fits an error */
#define DUMP_OVERHEAD   (16u << 20) /* of a memory dump: headers, firmware */
#define DRAIN_READS     16          /* reads of standard error after the end */

enum phase {
	STARTING,
	CONFIGURING,
	RUNNING,
	ENDING,
	GONE,
};

struct dump {
	void (*done)(void *user, const struct err *why);
	void *user;
};

struct vmm {
	struct vmm_events events;
	void *user;
	char id[64];
	enum phase phase;
	pid_t pid;
	int pidfd;
	int stderr_fd;
	uv_poll_t exit_poll;
	uv_poll_t stderr_poll;
	uv_timer_t timer;
	struct qmp_client qmp;
	unsigned open_handles;
	bool silent; /* never started as far as the caller knows: no exited() */
	bool killed; /* by us, because of cause */
	int status;  /* as waitpid() gives it; -1: not known */
	struct err cause;
	struct err why;
	char shutdown_reason[32]; /* from QEMU's SHUTDOWN event; empty: none */
	struct dump dump;         /* done is NULL while there is none */
	size_t words_len;
	char words[LAST_WORDS_SIZE];
};

static void send_kill(struct vmm *v)
{
	if (v->phase == GONE)
		return;
	v->killed = true;
	syscall(SYS_pidfd_send_signal, v->pidfd, SIGKILL, NULL, 0);
}

/* The first cause is the one that counts. */
static void end_with(struct vmm *v, int code, const char *text)
{
	if (v->phase >= ENDING)
		return;
	v->phase = ENDING;
	err_set(&v->cause, code, "%s", text);
}

static void words_append(struct vmm *v, const char *p, size_t n)
{
	if (n >= LAST_WORDS_SIZE) {
		p += n - LAST_WORDS_SIZE;
		n = LAST_WORDS_SIZE;
	}
	if (v->words_len + n > LAST_WORDS_SIZE) {
		size_t drop = v->words_len + n - LAST_WORDS_SIZE;

		memmove(v->words, v->words + drop, v->words_len - drop);
		v->words_len -= drop;
	}
	memcpy(v->words + v->words_len, p, n);
	v->words_len += n;
}

/* The end of standard error as one line of printable ASCII. */
static void words_tell(const struct vmm *v, char out[static LAST_WORDS_TOLD])
{
	size_t end = v->words_len, start, n = 0;

	while (end > 0 && (v->words[end - 1] == '\n' || v->words[end - 1] == ' '))
		end--;
	start = end >= LAST_WORDS_TOLD ? end - LAST_WORDS_TOLD + 1 : 0;
	for (size_t i = start; i < end; i++) {
		char c = v->words[i];

		out[n++] = (char)(c == '\n' ? ' ' : c >= ' ' && c <= '~' ? c : '?');
	}
	out[n] = '\0';
}

static ssize_t words_read(struct vmm *v)
{
	char chunk[LAST_WORDS_SIZE];
	ssize_t n = read(v->stderr_fd, chunk, sizeof(chunk));

	if (n > 0)
		words_append(v, chunk, (size_t)n);
	return n;
}

static void on_stderr(uv_poll_t *poll, int status, int events)
{
	struct vmm *v = poll->data;
	ssize_t n;

	(void)events;
	n = status < 0 ? 0 : words_read(v);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		uv_poll_stop(poll);
}

static void explain_exit(const struct vmm *v, struct err *why)
{
	char words[LAST_WORDS_TOLD];
	const char *sep;

	words_tell(v, words);
	sep = words[0] ? ": " : "";
	if (v->status >= 0 && WIFEXITED(v->status) && WEXITSTATUS(v->status) == 0)
		err_set(why, EIO, "QEMU ended");
	else if (v->status >= 0 && WIFEXITED(v->status))
		err_set(why, EIO, "QEMU failed with status %d%s%s", WEXITSTATUS(v->status), sep,
			words);
	else if (v->status >= 0)
		err_set(why, EIO, "QEMU was killed by signal %d (%s)%s%s", WTERMSIG(v->status),
			strsignal(WTERMSIG(v->status)), sep, words);
	else
		err_set(why, EIO, "QEMU ended, nobody knows how%s%s", sep, words);
}

static void explain(const struct vmm *v, struct err *why)
{
	bool clean = v->status >= 0 && WIFEXITED(v->status) && WEXITSTATUS(v->status) == 0;

	if (v->killed)
		*why = v->cause;
	else if (clean && v->shutdown_reason[0])
		snprintf(why->text, sizeof(why->text), "the machine stopped: %s",
			 v->shutdown_reason);
	else
		explain_exit(v, why);
}

static void handle_closed(struct vmm *v)
{
	assert(v->open_handles > 0);
	if (--v->open_handles > 0)
		return;
	if (!v->silent)
		v->events.exited(v->user, &v->why);
	free(v);
}

static void on_closed(uv_handle_t *handle)
{
	handle_closed(handle->data);
}

static void on_qmp_closed(void *user)
{
	handle_closed(user);
}

static void dump_finish(struct vmm *v, const struct err *why)
{
	struct dump d = v->dump;

	v->dump.done = NULL;
	if (d.done)
		d.done(d.user, why);
}

/* To GONE. The process has been reaped; handles that were opened are closed, and the last one ends
 * it all. */
static void bury(struct vmm *v)
{
	uv_handle_t *handles[] = {(uv_handle_t *)&v->exit_poll, (uv_handle_t *)&v->stderr_poll,
				  (uv_handle_t *)&v->timer};

	v->phase = GONE;
	if (v->qmp.user)
		qmp_client_read(&v->qmp); /* for a last SHUTDOWN event */
	for (int i = 0; i < DRAIN_READS && words_read(v) > 0; i++)
		;
	explain(v, &v->why);
	if (v->dump.done)
		dump_finish(v, &v->why);
	for (size_t i = 0; i < sizeof(handles) / sizeof(handles[0]); i++)
		if (handles[i]->data)
			uv_close(handles[i], on_closed);
	if (v->qmp.user)
		qmp_client_close(&v->qmp);
	close(take_fd(v->stderr_fd));
	close(take_fd(v->pidfd));
}

static int reap(struct vmm *v, int flags)
{
	siginfo_t info = {0};
	int rc;

	do
		rc = waitid(P_PIDFD, (id_t)v->pidfd, &info, WEXITED | flags);
	while (rc < 0 && errno == EINTR);
	if (rc < 0)
		return errno == ECHILD ? 0 : -errno;
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

static void on_timer(uv_timer_t *timer)
{
	struct vmm *v = timer->data;

	if (v->phase < RUNNING)
		end_with(v, ETIMEDOUT, "QEMU did not start the guest in time");
	send_kill(v);
}

static void on_qmp_lost(void *user, const struct err *why)
{
	struct vmm *v = user;

	end_with(v, why->code, why->text);
	uv_timer_start(&v->timer, on_timer, LOST_GRACE_MS, 0);
}

static void now_running(struct vmm *v)
{
	if (v->phase != CONFIGURING)
		return;
	v->phase = RUNNING;
	uv_timer_stop(&v->timer);
	v->events.running(v->user);
}

static void on_status(void *user, const struct qmp_msg *msg)
{
	struct vmm *v = user;
	const char *status = NULL;

	if (msg && msg->kind == QMP_RETURN)
		status = json_string_value(json_object_get(msg->data, "status"));
	if (str_eq(status, "running"))
		now_running(v);
}

static void on_capabilities(void *user, const struct qmp_msg *msg)
{
	struct vmm *v = user;

	if (!msg || msg->kind == QMP_RETURN)
		return;
	end_with(v, EPROTO, "QEMU refuses to be controlled");
	send_kill(v);
}

/* Both in one go: QEMU answers in order. If the guest runs later than asked, RESUME says so. */
static void on_greeting(void *user)
{
	struct vmm *v = user;
	int rc;

	if (v->phase != STARTING)
		return;
	v->phase = CONFIGURING;
	rc = qmp_client_call(&v->qmp, "qmp_capabilities", NULL, -1, on_capabilities, v);
	if (rc == 0)
		rc = qmp_client_call(&v->qmp, "query-status", NULL, -1, on_status, v);
	if (rc == 0)
		return;
	end_with(v, -rc, "QEMU does not take commands");
	send_kill(v);
}

static void on_event(void *user, const char *name, const json_t *data)
{
	struct vmm *v = user;
	const char *reason = NULL;

	if (str_eq(name, "RESUME")) {
		now_running(v);
		return;
	}
	if (!str_eq(name, "SHUTDOWN"))
		return;
	reason = json_string_value(json_object_get(data, "reason"));
	if (reason && strspn(reason, "abcdefghijklmnopqrstuvwxyz-") == strlen(reason) &&
	    strlen(reason) < sizeof(v->shutdown_reason))
		strcpy(v->shutdown_reason, reason);
	else
		strcpy(v->shutdown_reason, "unknown");
}

static const struct qmp_handlers qmp_handlers = {
	.greeting = on_greeting,
	.event = on_event,
	.lost = on_qmp_lost,
	.closed = on_qmp_closed,
};

/* QEMU writes the scratch disk, which never grows, and dumps of memory. */
static uint64_t largest_file(const struct vmm_config *config)
{
	uint64_t dump = config->ram_bytes + DUMP_OVERHEAD;
	struct stat st;

	if (fstat(config->scratch_fd, &st) < 0 || (uint64_t)st.st_size < dump)
		return dump;
	return (uint64_t)st.st_size;
}

static int spawn(struct vmm *v, const struct vmm_probe *host, const struct vmm_config *config,
		 int qmp_fd, int stderr_fd, struct err *e)
{
	struct jail_fd fds[6] = {
		{qmp_fd, QEMU_FD_QMP},
		{config->console_fd, QEMU_FD_CONSOLE},
		{config->root_fd, QEMU_FD_ROOT},
		{config->scratch_fd, QEMU_FD_SCRATCH},
	};
	struct qemu_args args;
	size_t nfds = 4;
	auto_fd int kvm = -1;
	int rc;

	if (config->tap_fd >= 0)
		fds[nfds++] = (struct jail_fd){config->tap_fd, QEMU_FD_TAP};
	if (host->accel == VMM_KVM) {
		kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
		if (kvm < 0)
			return err_sys(e, errno, "/dev/kvm");
		fds[nfds++] = (struct jail_fd){kvm, QEMU_FD_KVM};
	}
	rc = qemu_args_build(host, config, &args, e);
	if (rc < 0)
		return rc;
	const struct jail_spec spec = {
		.name = "QEMU",
		.argv = (const char *const *)args.argv,
		.fds = fds,
		.nfds = nfds,
		.stdout_fd = stderr_fd,
		.uid = config->uid,
		.file_bytes_max = largest_file(config),
		.netns_fd = config->netns_fd,
		.own_pid = true,
		.own_mount = true,
	};
	rc = jail_spawn(&spec, &v->pid, &v->pidfd, e);
	qemu_args_done(&args);
	return rc;
}

static int watch(uv_loop_t *loop, uv_poll_t *poll, int fd, uv_poll_cb cb, struct vmm *v)
{
	int rc = uv_poll_init(loop, poll, fd);

	if (rc < 0)
		return rc;
	poll->data = v;
	v->open_handles++;
	return uv_poll_start(poll, UV_READABLE, cb);
}

/* Everything on the loop; on failure bury() closes what was opened. Takes qmp_fd. */
static int watch_all(struct vmm *v, uv_loop_t *loop, int qmp_fd)
{
	int rc;

	uv_timer_init(loop, &v->timer);
	v->timer.data = v;
	v->open_handles++;
	uv_timer_start(&v->timer, on_timer, START_DEADLINE_MS, 0);
	rc = qmp_client_open(&v->qmp, loop, qmp_fd, &qmp_handlers, v);
	if (rc < 0) {
		close(qmp_fd);
		return rc;
	}
	v->open_handles++;
	rc = watch(loop, &v->stderr_poll, v->stderr_fd, on_stderr, v);
	return rc < 0 ? rc : watch(loop, &v->exit_poll, v->pidfd, on_exit_readable, v);
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

struct vmm *qemu_start(uv_loop_t *loop, const struct vmm_probe *host,
		       const struct vmm_config *config, const struct vmm_events *events, void *user,
		       struct err *e)
{
	int qmp[2], words[2], rc;

	if (check_version(host, e) < 0)
		return NULL;
	auto_free struct vmm *v = calloc(1, sizeof(*v));
	if (!v) {
		err_sys(e, ENOMEM, "QEMU");
		return NULL;
	}
	v->events = *events;
	v->user = user;
	v->pidfd = -1;
	v->status = -1;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, qmp) < 0) {
		err_sys(e, errno, "QEMU: socketpair");
		return NULL;
	}
	auto_fd int qmp_ours = qmp[0], qmp_theirs = qmp[1];
	if (pipe2(words, O_CLOEXEC) < 0) {
		err_sys(e, errno, "QEMU: pipe");
		return NULL;
	}
	auto_fd int words_ours = words[0], words_theirs = words[1];
	if (spawn(v, host, config, qmp_theirs, words_theirs, e) < 0)
		return NULL;

	v->stderr_fd = take_fd(words_ours);
	rc = watch_all(v, loop, take_fd(qmp_ours));
	if (rc < 0) {
		err_sys(e, -rc, "QEMU: event loop");
		v->silent = true;
		send_kill(v);
		reap(v, 0);
		bury(take_ptr(v));
		return NULL;
	}
	return take_ptr(v);
}

pid_t vmm_pid(const struct vmm *v)
{
	return v->pid;
}

void vmm_kill(struct vmm *v)
{
	end_with(v, ECANCELED, "killed");
	send_kill(v);
}

static void on_dumped(void *user, const struct qmp_msg *msg)
{
	struct err why = {0};

	if (!msg)
		err_set(&why, ECONNRESET, "memory dump: QEMU is gone");
	else if (msg->kind == QMP_ERROR)
		err_set(&why, EIO, "memory dump: %s", msg->text);
	dump_finish(user, &why);
}

/* A failure here makes the dump itself fail, whose answer is the one that counts. */
static void on_descriptor_taken(void *user, const struct qmp_msg *msg)
{
	(void)user;
	(void)msg;
}

int vmm_dump_memory(struct vmm *v, const char *path,
		    void (*done)(void *user, const struct err *why), void *user)
{
	int rc;

	if (v->phase != RUNNING || v->dump.done)
		return -EBUSY;
	auto_fd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	auto_json json_t *name = json_pack("{s:s}", "fdname", "dump");
	auto_json json_t *what = json_pack("{s:b, s:s}", "paging", 0, "protocol", "fd:dump");
	if (!name || !what)
		return -ENOMEM;
	rc = qmp_client_call(&v->qmp, "getfd", name, fd, on_descriptor_taken, v);
	if (rc == 0)
		rc = qmp_client_call(&v->qmp, "dump-guest-memory", what, -1, on_dumped, v);
	if (rc == 0)
		v->dump = (struct dump){done, user};
	return rc;
}
