/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation: one clone3() makes the child with its new namespaces and a pidfd; the child
 * then goes through the steps of the plan (plan.h), ending with execveat(). A step that fails
 * writes its number and errno into a CLOEXEC pipe and the child ends; end of file on that pipe
 * means that exec has happened.
 *
 * The child may run beside a parent that has threads (libuv's pool), so it makes raw system calls
 * only: no malloc, no stdio, and none of glibc's set*id wrappers, which would wait for threads that
 * are not here.
 */
#include "jail/jail.h"

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
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "jail/plan.h"
#include "jail/root.h"

#define SIGNALS_MAX 64 /* signal numbers are 1 .. 64 */
#define CAPS_MAX    64 /* more than there are; the kernel says where they end */
#define STEP_TEXT   300

struct report {
	int code;
	unsigned step; /* of the plan */
};

struct child {
	const struct jail_spec *spec;
	const int *trees; /* of the parent's making, for descriptors; -1: the descriptor itself */
	int root;         /* the new root directory; -1: none yet */
	int status_fd;    /* write end of the report pipe */
	int parent_fd;    /* its read end, inherited, to be closed */
	int program_dir;  /* the directory that argv[0] is in */
	const char *program; /* argv[0] from there */
};

static int sys_result(long rc)
{
	return rc < 0 ? -errno : 0;
}

static int step_signals(struct child *c, const struct jail_step *s)
{
	(void)s;
	/* The kernel's own struct sigaction: handler, flags, restorer, mask. */
	const unsigned long reset[4] = {(unsigned long)SIG_DFL, 0, 0, 0};

	close(c->parent_fd);
	for (int sig = 1; sig <= SIGNALS_MAX; sig++) {
		if (sig == SIGKILL || sig == SIGSTOP)
			continue;
		if (syscall(SYS_rt_sigaction, sig, reset, NULL, sizeof(unsigned long)) < 0)
			return -errno;
	}
	return 0;
}

static int step_session(struct child *c, const struct jail_step *s)
{
	(void)s;
	(void)c;
	return sys_result(setsid());
}

static int step_netns(struct child *c, const struct jail_step *s)
{
	(void)s;
	return c->spec->netns_fd < 0 ? 0 : sys_result(setns(c->spec->netns_fd, CLONE_NEWNET));
}

/* So that the root of what it sees there is its own group, wherever it has been put. */
static int step_cgroupns(struct child *c, const struct jail_step *s)
{
	(void)c;
	(void)s;
	return sys_result(unshare(CLONE_NEWCGROUP));
}

/* Runs what it is given with the root of the namespace's mount tree as root directory: in a chroot
   "/" is no mount, and what concerns only what is below it would leave its own mount out. */
static int at_top(int (*change)(void))
{
	auto_fd int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	auto_fd int self = (int)syscall(SYS_pidfd_open, getpid(), 0);

	if (root < 0 || self < 0 || setns(self, CLONE_NEWNS) < 0)
		return -errno;
	int rc = change();
	if (rc == 0 && (fchdir(root) < 0 || chroot(".") < 0))
		return -errno;
	return rc;
}

static int make_private(void)
{
	return sys_result(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
}

static int make_read_only(void)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID};

	return sys_result(mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &attr, sizeof(attr)));
}

static int step_private(struct child *c, const struct jail_step *s)
{
	(void)c;
	(void)s;
	return at_top(make_private);
}

static int step_lock(struct child *c, const struct jail_step *s)
{
	(void)c;
	(void)s;
	return at_top(make_read_only);
}

static int step_root(struct child *c, const struct jail_step *s)
{
	(void)s;
	return root_new(&c->root);
}

static int step_put(struct child *c, const struct jail_step *s)
{
	return root_put(c->root, s);
}

static int step_proc(struct child *c, const struct jail_step *s)
{
	if (c->root >= 0)
		return root_put(c->root, s);
	return sys_result(
		mount("proc", s->path, "proc", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
}

static int step_pivot(struct child *c, const struct jail_step *s)
{
	(void)s;
	return root_enter(c->root);
}

static int step_directory(struct child *c, const struct jail_step *s)
{
	(void)s;
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

static int step_descriptors(struct child *c, const struct jail_step *s)
{
	(void)s;
	const struct jail_spec *spec = c->spec;
	int base = highest_target(spec) + 1;
	int lifted[JAIL_FDS_MAX], output = -1, next = STDERR_FILENO + 1, rc = 0;

	for (size_t i = 0; i < spec->nfds; i++) {
		lifted[i] = fcntl(c->trees[i] >= 0 ? c->trees[i] : spec->fds[i].from,
				  F_DUPFD_CLOEXEC, base + 1);
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
static int step_program(struct child *c, const struct jail_step *s)
{
	(void)s;
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

static int step_limit(struct child *c, const struct jail_step *s)
{
	(void)c;
	return limit((int)s->value, s->most);
}

/* Bounding and ambient sets, and no way for a uid of 0 to mean anything again. */
static int step_bounding(struct child *c, const struct jail_step *s)
{
	(void)s;
	const unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED |
				   SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
				   SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;

	(void)c;
	if (prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0)
		return -errno;
	for (unsigned long cap = 0; cap < CAPS_MAX; cap++) {
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0)
			continue;
		if (errno == EINVAL && cap > CAP_CHECKPOINT_RESTORE)
			break;
		return -errno;
	}
	return sys_result(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
}

static int step_identity(struct child *c, const struct jail_step *s)
{
	uid_t id = (uid_t)s->value;

	(void)c;
	if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, id, id, id) < 0 ||
	    syscall(SYS_setresuid, id, id, id) < 0)
		return -errno;
	return 0;
}

static int step_capabilities(struct child *c, const struct jail_step *s)
{
	(void)s;
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

	(void)c;
	return sys_result(syscall(SYS_capset, &header, none));
}

/* After the change of identity, which clears the setting. Our read end of the pipe is closed before
   the kernel looks for children to signal, so a parent that died too early for the signal shows as
   POLLERR. That holds for one that outlives its parent, too: who looks for orphans by their
   descriptors finds it from here on, or it ends. */
static int step_parent(struct child *c, const struct jail_step *s)
{
	struct pollfd p = {.fd = c->status_fd};

	if (s->value && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return -errno;
	if (poll(&p, 1, 0) < 0)
		return -errno;
	return p.revents & POLLERR ? -ESRCH : 0;
}

static int step_privileges(struct child *c, const struct jail_step *s)
{
	(void)s;
	(void)c;
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -errno;
	return sys_result(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
}

static int step_filter(struct child *c, const struct jail_step *s)
{
	const struct sock_fprog program = {(unsigned short)c->spec->filter->count,
					   c->spec->filter->code};

	(void)s;
	return sys_result(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
}

static int step_exec(struct child *c, const struct jail_step *s)
{
	(void)s;
	static const char *const no_env[] = {NULL};
	const uint64_t mask = 0;
	const char *const *env = c->spec->env ? c->spec->env : no_env;

	if (syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask)) < 0)
		return -errno;
	execveat(c->program_dir, c->program, (char *const *)c->spec->argv, (char *const *)env, 0);
	return -errno;
}

typedef int (*step_fn)(struct child *c, const struct jail_step *s);

static const step_fn apply[] = {
	[JAIL_SIGNALS] = step_signals,
	[JAIL_SESSION] = step_session,
	[JAIL_NETNS] = step_netns,
	[JAIL_CGROUPNS] = step_cgroupns,
	[JAIL_PRIVATE] = step_private,
	[JAIL_LOCK] = step_lock,
	[JAIL_ROOT] = step_root,
	[JAIL_DIR] = step_put,
	[JAIL_FILE] = step_put,
	[JAIL_EMPTY] = step_put,
	[JAIL_PROC] = step_proc,
	[JAIL_PIVOT] = step_pivot,
	[JAIL_CHDIR] = step_directory,
	[JAIL_DESCRIPTORS] = step_descriptors,
	[JAIL_PROGRAM] = step_program,
	[JAIL_LIMIT] = step_limit,
	[JAIL_BOUNDING] = step_bounding,
	[JAIL_IDENTITY] = step_identity,
	[JAIL_CAPABILITIES] = step_capabilities,
	[JAIL_PARENT] = step_parent,
	[JAIL_PRIVILEGES] = step_privileges,
	[JAIL_FILTER] = step_filter,
	[JAIL_EXEC] = step_exec,
};

__attribute__((noreturn)) static void child_run(struct child *c, const struct jail_plan *plan)
{
	struct report r = {0};

	for (unsigned i = 0; i < plan->count; i++) {
		const struct jail_step *s = &plan->steps[i];
		int rc = s->op <= JAIL_CLONE ? 0 : apply[s->op](c, s);

		if (rc < 0) {
			r = (struct report){-rc, i};
			break;
		}
	}
	(void)!write(c->status_fd, &r, sizeof(r));
	_exit(127);
}

/* Yields the pid, with *ret_pidfd, in the parent; 0 in the child; -errno. */
static long jail_clone(const struct jail_plan *plan, int *ret_pidfd)
{
	int pidfd = -1;
	struct clone_args args = {
		.pidfd = (uint64_t)(uintptr_t)&pidfd,
		.exit_signal = SIGCHLD,
	};

	for (size_t i = 0; i < plan->count; i++)
		if (plan->steps[i].op == JAIL_CLONE)
			args.flags = plan->steps[i].value;
	long pid = syscall(SYS_clone3, &args, sizeof(args));

	if (pid < 0)
		return -errno;
	*ret_pidfd = pidfd;
	return pid;
}

static int explain(const struct jail_spec *spec, const struct jail_plan *plan,
		   const struct report *r, struct err *e)
{
	char text[STEP_TEXT];

	if (r->step >= plan->count)
		return err_set(e, EIO, "%s: jail", spec->name);
	const struct jail_step *s = &plan->steps[r->step];
	if (s->op == JAIL_EXEC || s->op == JAIL_PROGRAM)
		return err_sys(e, r->code, "%s: exec %s", spec->name, spec->argv[0]);
	jail_step_text(s, text, sizeof(text));
	return err_sys(e, r->code, "%s: jail: %s", spec->name, text);
}

/* Waits for exec or for a failed step, and reaps the child in the latter case. */
static int jail_await(const struct jail_spec *spec, const struct jail_plan *plan, int status_fd,
		      int pidfd, struct err *e)
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
	return explain(spec, plan, &r, e);
}

static int start(const struct jail_spec *spec, const struct jail_plan *plan, const int *trees,
		 pid_t *ret_pid, int *ret_pidfd, struct err *e)
{
	int ends[2], rc, raw_pidfd = -1;
	sigset_t all, before;
	long pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(e, errno, "%s: pipe", spec->name);
	auto_fd int read_end = ends[0], write_end = ends[1];

	/* No handler of ours may run in the child before it has reset them. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	pid = jail_clone(plan, &raw_pidfd);
	if (pid == 0) {
		struct child c = {.spec = spec,
				  .trees = trees,
				  .root = -1,
				  .status_fd = write_end,
				  .parent_fd = read_end};
		child_run(&c, plan);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (pid < 0)
		return err_sys(e, (int)-pid, "%s: clone3", spec->name);

	auto_fd int pidfd = raw_pidfd;
	close(take_fd(write_end));
	rc = jail_await(spec, plan, read_end, pidfd, e);
	if (rc < 0)
		return rc;
	*ret_pid = (pid_t)pid;
	*ret_pidfd = take_fd(pidfd);
	return 0;
}

/* What JAIL_TREE says, by us: a mount can be cloned only in the namespace that it is in. */
static int open_trees(const struct jail_spec *spec, const struct jail_plan *plan, int *trees,
		      struct err *e)
{
	for (size_t i = 0; i < plan->count; i++) {
		const struct jail_step *s = &plan->steps[i];

		if (s->op != JAIL_TREE)
			continue;
		int fd = root_tree(spec->fds[s->most].from, "", 0);
		if (fd < 0)
			return explain(spec, plan, &(struct report){-fd, (unsigned)i}, e);
		trees[s->most] = fd;
	}
	return 0;
}

int jail_spawn(const struct jail_spec *spec, pid_t *ret_pid, int *ret_pidfd, struct err *e)
{
	struct jail_plan plan;
	int trees[JAIL_FDS_MAX];
	int rc = jail_plan_make(spec, &plan, e);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < JAIL_FDS_MAX; i++)
		trees[i] = -1;
	rc = open_trees(spec, &plan, trees, e);
	if (rc == 0)
		rc = start(spec, &plan, trees, ret_pid, ret_pidfd, e);
	for (size_t i = 0; i < JAIL_FDS_MAX; i++)
		cleanup_fd(&trees[i]);
	jail_plan_done(&plan);
	return rc;
}
