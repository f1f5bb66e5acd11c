/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation: the child is made by clone(CLONE_VM | CLONE_VFORK): it shares our memory
 * and we stand still until it has called execve() or exited. No page tables are copied, which
 * matters under emulation, and a failure is reported in shared memory. In return the child may
 * only make system calls, on data prepared beforehand, with signals blocked until ours have no
 * handlers left in it. Ids are set by bare system calls, as libc's wrappers would also
 * try to change our threads.
 */
#include "agent/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

#define CHILD_STACK   (64 * 1024) /* bytes */
#define PATH_DIRS_MAX 256

enum stage {
	STAGE_GROUP,
	STAGE_SETUP, /* session, descriptors, limits */
	STAGE_USER,
	STAGE_CWD,
	STAGE_EXEC,
};

struct child {
	const struct spawn_plan *plan;
	char **candidates; /* files to try, NULL-terminated */
	int stdio[3];      /* all >= 3 */
	struct rlimit files;
	sigset_t no_signals;
	enum stage stage; /* the child's: what it was doing when it failed */
	int error;
};

/* What root in the guest may have done to the group, removed it or given it controllers, is no
   reason to start nothing any more. */
static int child_group(int procs)
{
	if (procs < 0 || write(procs, "0", 1) == 1)
		return 0;
	return errno == ENODEV || errno == EBUSY || errno == EOPNOTSUPP ? 0 : -1;
}

static int child_setup(const struct child *c)
{
	struct sigaction defaults = {.sa_handler = SIG_DFL};
	if (sigaction(SIGPIPE, &defaults, NULL) < 0 || sigaction(SIGCHLD, &defaults, NULL) < 0)
		return -1;
	if (setsid() < 0)
		return -1;
	for (int i = 0; i < 3; i++)
		if (dup2(c->stdio[i], i) < 0)
			return -1;
	if (syscall(SYS_close_range, 3u, UINT_MAX, 0u) < 0)
		return -1;
	if (setrlimit(RLIMIT_NOFILE, &c->files) < 0)
		return -1;
	umask(022);
	return 0;
}

static int child_user(const struct user *u)
{
	if (geteuid() != 0)
		return u->uid == geteuid() ? 0 : (errno = EPERM, -1);
	if (syscall(SYS_setgroups, u->group_count, u->groups) < 0)
		return -1;
	if (syscall(SYS_setresgid, u->gid, u->gid, u->gid) < 0)
		return -1;
	return syscall(SYS_setresuid, u->uid, u->uid, u->uid) < 0 ? -1 : 0;
}

/* Tries the candidates as execvp() does; errno says what is most worth telling. */
static void child_exec(const struct child *c)
{
	int told = ENOENT;
	for (char **file = c->candidates; *file; file++) {
		execve(*file, c->plan->argv, c->plan->envp);
		if (errno == EACCES)
			told = EACCES;
		else if (errno != ENOENT && errno != ENOTDIR)
			return;
	}
	errno = told;
}

/* All that comes before the program, by the rights that we have while they are ours. */
static int child_prepare(struct child *c)
{
	c->stage = STAGE_GROUP;
	if (child_group(c->plan->group_procs) < 0)
		return -1;
	c->stage = STAGE_SETUP;
	if (child_setup(c) < 0)
		return -1;
	c->stage = STAGE_USER;
	if (child_user(c->plan->user) < 0)
		return -1;
	c->stage = STAGE_CWD;
	return chdir(c->plan->cwd);
}

static int child_main(void *arg)
{
	struct child *c = arg;
	if (child_prepare(c) == 0) {
		c->stage = STAGE_EXEC;
		sigprocmask(SIG_SETMASK, &c->no_signals, NULL);
		child_exec(c);
	}
	c->error = errno;
	_exit(127);
}

static void free_candidates(char **list)
{
	for (char **s = list; s && *s; s++)
		free(*s);
	free(list);
}

/* The files that the program's name may mean. NULL: no memory. */
static char **find_candidates(const char *name, const char *path)
{
	char **list = calloc(PATH_DIRS_MAX + 1, sizeof(*list));
	if (!list)
		return NULL;
	size_t count = 0;
	if (strchr(name, '/')) {
		list[count] = strdup(name);
		if (!list[count])
			goto fail;
		return list;
	}
	for (const char *p = path; *name && count < PATH_DIRS_MAX; p++) {
		size_t n = strcspn(p, ":");
		list[count] = n ? str_printf("%.*s/%s", (int)n, p, name) : str_printf("./%s", name);
		if (!list[count++])
			goto fail;
		p += n;
		if (!*p)
			break;
	}
	return list;
fail:
	free_candidates(list);
	return NULL;
}

static struct rlimit file_limits(void)
{
	struct rlimit now = {SPAWN_FILES_SOFT, SPAWN_FILES_HARD};
	getrlimit(RLIMIT_NOFILE, &now);
	rlim_t hard = now.rlim_max < SPAWN_FILES_HARD ? now.rlim_max : SPAWN_FILES_HARD;
	return (struct rlimit){hard < SPAWN_FILES_SOFT ? hard : SPAWN_FILES_SOFT, hard};
}

/* Copies the descriptors to numbers that dup2() onto 0, 1, 2 can't hit. */
static int raise_stdio(const int from[3], int to[3])
{
	for (int i = 0; i < 3; i++) {
		to[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 3);
		if (to[i] < 0)
			return -errno;
	}
	return 0;
}

/* True when one of the files is there: then ENOENT was about its interpreter. */
static bool any_exists(char *const *candidates)
{
	struct stat st;
	for (; *candidates; candidates++)
		if ((*candidates)[0] == '/' && stat(*candidates, &st) == 0)
			return true;
	return false;
}

static int explain(const struct child *c, struct err *e)
{
	const struct spawn_plan *plan = c->plan;
	switch (c->stage) {
	case STAGE_CWD:
		if (c->error == ENOENT)
			return err_set(e, ENOENT, "cwd '%s' does not exist", plan->cwd);
		return err_sys(e, c->error, "cwd '%s'", plan->cwd);
	case STAGE_EXEC:
		if (c->error == ENOENT && any_exists(c->candidates))
			return err_set(e, ENOENT, "%s: its interpreter does not exist",
				       plan->argv[0]);
		if (c->error == ENOENT)
			return err_set(e, ENOENT, "%s: not found", plan->argv[0]);
		return err_sys(e, c->error, "%s", plan->argv[0]);
	case STAGE_USER:
		return err_sys(e, c->error, "can't become user '%s'", plan->user->name);
	case STAGE_GROUP:
		return err_sys(e, c->error, "can't enter the group of the tasks");
	case STAGE_SETUP:
		break;
	}
	return err_sys(e, c->error, "can't set the process up");
}

/* Runs the child up to its execve(). Returns the pid or -errno of clone itself. */
static pid_t launch(struct child *c)
{
	auto_free char *stack = malloc(CHILD_STACK);
	if (!stack)
		return -ENOMEM;
	sigset_t all, before;
	sigfillset(&all);
	sigemptyset(&c->no_signals);
	sigprocmask(SIG_BLOCK, &all, &before);
	/* The stack grows down and must start on 16 bytes; malloc's blocks do. */
	pid_t pid = clone(child_main, stack + CHILD_STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, c);
	int error = errno;
	sigprocmask(SIG_SETMASK, &before, NULL);
	return pid < 0 ? -error : pid;
}

int spawn(const struct spawn_plan *plan, pid_t *ret_pid, struct err *e)
{
	struct child c = {.plan = plan, .stdio = {-1, -1, -1}, .files = file_limits()};
	pid_t pid = -1;
	int r = raise_stdio(plan->stdio, c.stdio);
	if (r == 0) {
		c.candidates = find_candidates(plan->argv[0], plan->path);
		pid = c.candidates ? launch(&c) : -ENOMEM;
		r = pid < 0 ? pid : 0;
	}
	if (r < 0) {
		err_sys(e, -r, "can't start a process");
	} else if (c.error) {
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
		r = explain(&c, e);
	} else {
		*ret_pid = pid;
	}
	for (int i = 0; i < 3; i++)
		if (c.stdio[i] >= 0)
			close(c.stdio[i]);
	free_candidates(c.candidates);
	return r;
}
