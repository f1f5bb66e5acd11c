/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation: one clone3() makes the child with its new namespaces and a pidfd; the child
 * then goes through a flat list of steps, ending with execveat(). A step that fails writes its name
 * and errno into a CLOEXEC pipe and the child ends; end of file on that pipe means that exec has
 * happened.
 *
 * The child may run beside a parent that has threads (libuv's pool), so it makes raw system calls
 * only: no malloc, no stdio, and none of glibc's set*id wrappers, which would wait for threads that
 * are not here.
 */
#include "jail/jail.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/capability.h>
#include <linux/sched.h>
#include <linux/securebits.h>

#include "base/cleanup.h"
#include "base/fd.h"

/* Open files that a jailed process may have: enough for a gateway with some thousand connections.
 */
#define JAIL_NOFILE 8192

/* Threads and processes of its uid: more than QEMU's disk workers, fewer than hurt the host. */
#define JAIL_NPROC 256

#define JAIL_SIGNALS 64 /* signal numbers are 1 .. 64 */
#define JAIL_CAPS    64 /* more than there are; the kernel says where they end */

struct report {
	int code;
	char step[28];
};

struct child {
	const struct jail_spec *spec;
	int status_fd;       /* write end of the report pipe */
	int parent_fd;       /* its read end, inherited, to be closed */
	int program_dir;     /* the directory that argv[0] is in */
	const char *program; /* argv[0] from there */
};

static int sys_result(long rc)
{
	return rc < 0 ? -errno : 0;
}

static int step_signals(struct child *c)
{
	/* The kernel's own struct sigaction: handler, flags, restorer, mask. */
	const unsigned long reset[4] = {(unsigned long)SIG_DFL, 0, 0, 0};

	close(c->parent_fd);
	for (int sig = 1; sig <= JAIL_SIGNALS; sig++) {
		if (sig == SIGKILL || sig == SIGSTOP)
			continue;
		if (syscall(SYS_rt_sigaction, sig, reset, NULL, sizeof(unsigned long)) < 0)
			return -errno;
	}
	return 0;
}

static int step_session(struct child *c)
{
	(void)c;
	return sys_result(setsid());
}

static int step_netns(struct child *c)
{
	return c->spec->netns_fd < 0 ? 0 : sys_result(setns(c->spec->netns_fd, CLONE_NEWNET));
}

/* The root of the namespace's mount tree becomes our root directory, and back again: in a chroot
   "/" is no mount, and marking only what is below it would leave its own mount shared. */
static int step_mounts(struct child *c)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID};

	if (!c->spec->own_mount)
		return 0;
	auto_fd int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	auto_fd int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (root < 0 || self < 0 || setns(self, CLONE_NEWNS) < 0)
		return -errno;
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -errno;
	if (syscall(SYS_mount_setattr, AT_FDCWD, "/", AT_RECURSIVE, &attr, sizeof(attr)) < 0)
		return -errno;
	if (fchdir(root) < 0 || chroot(".") < 0)
		return -errno;
	if (!c->spec->own_pid)
		return 0;
	return sys_result(
		mount("proc", "/proc", "proc", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
}

static int step_directory(struct child *c)
{
	(void)c;
	umask(077);
	return sys_result(chdir("/"));
}

static int highest_target(const struct jail_spec *spec)
{
	return spec->nfds == 0 ? STDERR_FILENO : spec->fds[spec->nfds - 1].to;
}

/* Puts from at number to, to be inherited. from is never equal to to: all sources have been lifted
 * above. */
static int place_fd(int from, int to)
{
	return sys_result(dup3(from, to, 0));
}

static int place_stdio(int output)
{
	auto_fd int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	int rc;

	if (null_fd < 0)
		return -errno;
	/* Numbers 0 to 2 may be free in a daemon, so null_fd itself can be one of them. */
	auto_fd int high = fcntl(null_fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (high < 0)
		return -errno;
	if (null_fd <= STDERR_FILENO)
		(void)take_fd(null_fd);
	rc = place_fd(high, STDIN_FILENO);
	if (rc == 0)
		rc = place_fd(output < 0 ? high : output, STDOUT_FILENO);
	if (rc == 0)
		rc = place_fd(output < 0 ? high : output, STDERR_FILENO);
	return rc;
}

static int step_descriptors(struct child *c)
{
	const struct jail_spec *spec = c->spec;
	int base = highest_target(spec) + 1;
	int lifted[JAIL_FDS_MAX], output = -1, next = STDERR_FILENO + 1, rc = 0;

	for (size_t i = 0; i < spec->nfds; i++) {
		lifted[i] = fcntl(spec->fds[i].from, F_DUPFD_CLOEXEC, base + 1);
		if (lifted[i] < 0)
			return -errno;
	}
	if (spec->stdout_fd >= 0) {
		output = fcntl(spec->stdout_fd, F_DUPFD_CLOEXEC, base + 1);
		if (output < 0)
			return -errno;
	}
	/* A failure to move the report pipe is reported through its old number. */
	int status = fcntl(c->status_fd, F_DUPFD_CLOEXEC, base + 1);
	if (status < 0)
		return -errno;
	c->status_fd = status;

	rc = place_stdio(output);
	for (size_t i = 0; rc == 0 && i < spec->nfds; i++) {
		if (spec->fds[i].to > next)
			rc = sys_result(
				close_range((unsigned)next, (unsigned)spec->fds[i].to - 1, 0));
		next = spec->fds[i].to + 1;
		if (rc == 0)
			rc = place_fd(lifted[i], spec->fds[i].to);
	}
	if (rc < 0)
		return rc;
	if (dup3(c->status_fd, base, O_CLOEXEC) < 0)
		return -errno;
	c->status_fd = base;
	return sys_result(close_range((unsigned)base + 1, ~0U, 0));
}

/* While we still are who could look there: the new uid need not reach the directory, just be
   allowed to run what is in it. By its name, for a process that is executed by descriptor is called
   by the descriptor's number. */
static int step_program(struct child *c)
{
	const char *path = c->spec->argv[0], *slash = strrchr(path, '/');
	char dir[PATH_MAX] = "/";
	size_t n = slash ? (size_t)(slash - path) : 0;

	if (n >= sizeof(dir))
		return -ENAMETOOLONG;
	if (n > 0) {
		memcpy(dir, path, n);
		dir[n] = '\0';
	}
	c->program = slash ? slash + 1 : path;
	c->program_dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return c->program_dir < 0 ? -errno : 0;
}

static int limit(int resource, rlim_t most)
{
	struct rlimit r;

	if (getrlimit((__rlimit_resource_t)resource, &r) < 0)
		return -errno;
	if (r.rlim_max == RLIM_INFINITY || r.rlim_max > most)
		r.rlim_max = most;
	r.rlim_cur = r.rlim_max;
	return sys_result(setrlimit((__rlimit_resource_t)resource, &r));
}

static int step_limits(struct child *c)
{
	int rc = limit(RLIMIT_CORE, 0);

	if (rc == 0)
		rc = limit(RLIMIT_NOFILE, JAIL_NOFILE);
	if (rc == 0)
		rc = limit(RLIMIT_NPROC, JAIL_NPROC);
	if (rc == 0 && c->spec->file_bytes_max > 0)
		rc = limit(RLIMIT_FSIZE, c->spec->file_bytes_max);
	return rc;
}

/* Bounding and ambient sets, and no way for a uid of 0 to mean anything again. */
static int step_bounding(struct child *c)
{
	const unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED |
				   SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
				   SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;

	(void)c;
	if (prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0)
		return -errno;
	for (unsigned long cap = 0; cap < JAIL_CAPS; cap++) {
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0)
			continue;
		if (errno == EINVAL && cap > CAP_CHECKPOINT_RESTORE)
			break;
		return -errno;
	}
	return sys_result(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
}

static int step_identity(struct child *c)
{
	uid_t id = c->spec->uid;

	if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, id, id, id) < 0 ||
	    syscall(SYS_setresuid, id, id, id) < 0)
		return -errno;
	return 0;
}

static int step_capabilities(struct child *c)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

	(void)c;
	return sys_result(syscall(SYS_capset, &header, none));
}

/* After the change of identity, which clears the setting. Our read end of the pipe is closed before
   the kernel looks for children to signal, so a parent that died too early for the signal shows as
   POLLERR. That holds for one that outlives its parent, too: who looks for orphans by their
   descriptors finds it from here on, or it ends. */
static int step_parent(struct child *c)
{
	struct pollfd p = {.fd = c->status_fd};

	if (!c->spec->outlives_parent && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return -errno;
	if (poll(&p, 1, 0) < 0)
		return -errno;
	return p.revents & POLLERR ? -ESRCH : 0;
}

static int step_privileges(struct child *c)
{
	(void)c;
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -errno;
	return sys_result(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
}

static int step_exec(struct child *c)
{
	static const char *const no_env[] = {NULL};
	const uint64_t mask = 0;
	const char *const *env = c->spec->env ? c->spec->env : no_env;

	if (syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask)) < 0)
		return -errno;
	execveat(c->program_dir, c->program, (char *const *)c->spec->argv, (char *const *)env, 0);
	return -errno;
}

static const struct {
	const char *name;
	int (*apply)(struct child *c);
} steps[] = {
	{"reset signals", step_signals},
	{"new session", step_session},
	{"join network namespace", step_netns},
	{"make mounts private", step_mounts},
	{"working directory", step_directory},
	{"place descriptors", step_descriptors},
	{"exec", step_program},
	{"resource limits", step_limits},
	{"capability bounding set", step_bounding},
	{"change uid and gid", step_identity},
	{"drop capabilities", step_capabilities},
	{"tie to parent", step_parent},
	{"no new privileges", step_privileges},
	{"exec", step_exec},
};

__attribute__((noreturn)) static void child_run(struct child *c)
{
	struct report r = {0};

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		int rc = steps[i].apply(c);

		if (rc < 0) {
			r.code = -rc;
			memcpy(r.step, steps[i].name, strnlen(steps[i].name, sizeof(r.step) - 1));
			break;
		}
	}
	(void)!write(c->status_fd, &r, sizeof(r));
	_exit(127);
}

static int spec_check(const struct jail_spec *spec, struct err *e)
{
	int last = STDERR_FILENO;

	assert(spec->argv && spec->argv[0] && spec->name);
	if (spec->uid == 0 || spec->uid == (uid_t)-1)
		return err_set(e, EINVAL, "%s: a jailed process can't have uid %d", spec->name,
			       (int)spec->uid);
	if (spec->nfds > JAIL_FDS_MAX)
		return err_set(e, EINVAL, "%s: more than %d descriptors", spec->name, JAIL_FDS_MAX);
	for (size_t i = 0; i < spec->nfds; i++) {
		if (spec->fds[i].to <= last || spec->fds[i].from < 0)
			return err_set(e, EINVAL, "%s: descriptor list is not in order",
				       spec->name);
		last = spec->fds[i].to;
	}
	return 0;
}

/* Yields the pid, with *ret_pidfd, in the parent; 0 in the child; -errno. */
static long jail_clone(const struct jail_spec *spec, int *ret_pidfd)
{
	int pidfd = -1;
	struct clone_args args = {
		.flags = CLONE_PIDFD | (spec->own_pid ? CLONE_NEWPID : 0) |
			 (spec->own_mount ? CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS : 0),
		.pidfd = (uint64_t)(uintptr_t)&pidfd,
		.exit_signal = SIGCHLD,
	};
	long pid = syscall(SYS_clone3, &args, sizeof(args));

	if (pid < 0)
		return -errno;
	*ret_pidfd = pidfd;
	return pid;
}

/* Waits for exec or for a failed step, and reaps the child in the latter case. */
static int jail_await(const struct jail_spec *spec, int status_fd, int pidfd, struct err *e)
{
	struct report r;
	siginfo_t info;
	ssize_t n = fd_read_all(status_fd, &r, sizeof(r));

	if (n == 0)
		return 0;
	syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
	while (waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED) < 0 && errno == EINTR)
		;
	if (n != (ssize_t)sizeof(r))
		return err_set(e, EIO, "%s: died while it was being jailed", spec->name);
	r.step[sizeof(r.step) - 1] = '\0';
	if (strcmp(r.step, "exec") == 0)
		return err_sys(e, r.code, "%s: exec %s", spec->name, spec->argv[0]);
	return err_sys(e, r.code, "%s: jail: %s", spec->name, r.step);
}

int jail_spawn(const struct jail_spec *spec, pid_t *ret_pid, int *ret_pidfd, struct err *e)
{
	int ends[2], rc, raw_pidfd = -1;
	sigset_t all, before;
	long pid;

	rc = spec_check(spec, e);
	if (rc < 0)
		return rc;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(e, errno, "%s: pipe", spec->name);
	auto_fd int read_end = ends[0], write_end = ends[1];

	/* No handler of ours may run in the child before it has reset them. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	pid = jail_clone(spec, &raw_pidfd);
	if (pid == 0) {
		struct child c = {.spec = spec, .status_fd = write_end, .parent_fd = read_end};
		child_run(&c);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (pid < 0)
		return err_sys(e, (int)-pid, "%s: clone3", spec->name);

	auto_fd int pidfd = raw_pidfd;
	close(take_fd(write_end));
	rc = jail_await(spec, read_end, pidfd, e);
	if (rc < 0)
		return rc;
	*ret_pid = (pid_t)pid;
	*ret_pidfd = take_fd(pidfd);
	return 0;
}
