/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calling thread waits for its child by pidfd, so that nobody else's children are touched, and
 * dies with it: PDEATHSIG is about threads, and this one lives as long as the call.
 */
#include "daemon/source_command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/proc.h"
#include "base/str.h"

#define SEARCH_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct command {
	const char *const *argv;
	pid_t pid;
	int pidfd, out; /* out: the reading end; -1 once it has ended */
	char *text;
	size_t len, max;
};

/* Between fork and exec: only calls that are safe there. The errno goes to said. */
static _Noreturn void child(const char *const *argv, char **env, pid_t parent, int out, int said)
{
	sigset_t none;
	sigemptyset(&none);
	for (int s = 1; s < NSIG; s++)
		signal(s, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	bool ok = null >= 0 && setpgid(0, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 &&
		  dup2(null, 0) >= 0 && dup2(out, 1) >= 0 && dup2(null, 2) >= 0 && chdir("/") == 0;
	if (ok && getppid() != parent)
		_exit(127);
	if (ok) {
		proc_close_fds(3, &said, 1);
		environ = env;
		execvp(argv[0], (char *const *)(uintptr_t)argv);
	}
	int code = errno;
	ssize_t n = write(said, &code, sizeof(code));
	_exit(n < 0 ? 126 : 127);
}

/* What the child could not do: 0, or its errno. */
static int wait_for_exec(int said)
{
	int code = 0;
	ssize_t n = fd_read_all(said, &code, sizeof(code));
	return n == (ssize_t)sizeof(code) ? code : 0;
}

static void reap(struct command *c, siginfo_t *ret)
{
	/* While the leader is not reaped its number, and so the group's, is nobody else's. */
	kill(-c->pid, SIGKILL);
	while (waitid(P_PIDFD, (id_t)c->pidfd, ret, WEXITED) < 0 && errno == EINTR)
		;
	close(take_fd(c->pidfd));
}

static int spawn(struct command *c, char **env, struct err *e)
{
	int ends[2], words[2];
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(e, errno, "can't run %s", c->argv[0]);
	c->out = ends[0];
	auto_fd int out = ends[1];
	if (pipe2(words, O_CLOEXEC) < 0)
		return err_sys(e, errno, "can't run %s", c->argv[0]);
	auto_fd int said = words[0], say = words[1];
	pid_t us = getpid();
	c->pid = fork();
	if (c->pid < 0)
		return err_sys(e, errno, "can't run %s", c->argv[0]);
	if (c->pid == 0)
		child(c->argv, env, us, out, say);
	close(take_fd(say));
	c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
	if (c->pidfd < 0) {
		int code = errno;
		kill(c->pid, SIGKILL);
		waitpid(c->pid, NULL, 0);
		return err_sys(e, code, "can't watch %s", c->argv[0]);
	}
	int code = wait_for_exec(said);
	if (!code)
		return 0;
	siginfo_t how;
	reap(c, &how);
	return err_sys(e, code, "can't run %s", c->argv[0]);
}

/* Once from the pipe. 0, or -EFBIG. */
static int take_output(struct command *c)
{
	ssize_t n = read(c->out, c->text + c->len, c->max + 1 - c->len);
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (n <= 0) {
		close(take_fd(c->out));
		return 0;
	}
	c->len += (size_t)n;
	return c->len > c->max ? -EFBIG : 0;
}

/* It has ended; what others of its group may still print is not waited for. */
static int drain(struct command *c)
{
	struct pollfd ready = {.fd = c->out, .events = POLLIN};
	int r = 0;
	while (r == 0 && c->out >= 0 && poll(&ready, 1, 0) > 0)
		r = take_output(c);
	return r;
}

/* 0: it has ended by itself. */
static int watch(struct command *c, uint64_t timeout_ms, int stop_fd)
{
	uint64_t end_ms = clock_mono_ms() + timeout_ms;
	for (;;) {
		uint64_t now_ms = clock_mono_ms();
		struct pollfd fds[] = {{.fd = c->pidfd, .events = POLLIN},
				       {.fd = c->out, .events = POLLIN},
				       {.fd = stop_fd, .events = POLLIN}};
		if (now_ms >= end_ms)
			return -ETIMEDOUT;
		int n = poll(fds, 3, (int)(end_ms - now_ms));
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n <= 0)
			continue;
		if (fds[2].revents)
			return -ECANCELED;
		int r = fds[1].revents ? take_output(c) : 0;
		if (r < 0)
			return r;
		if (fds[0].revents)
			return drain(c);
	}
}

static int judge(const struct command *c, int r, const siginfo_t *how, uint64_t timeout_ms,
		 struct err *e)
{
	const char *name = c->argv[0];
	if (r == -ECANCELED)
		return err_set(e, ECANCELED, "%s was stopped", name);
	if (r == -ETIMEDOUT)
		return err_set(e, ETIMEDOUT, "%s did not end within %g s", name,
			       (double)timeout_ms / 1000);
	if (r == -EFBIG)
		return err_set(e, EFBIG, "%s prints more than %zu bytes", name, c->max);
	if (r < 0)
		return err_sys(e, -r, "waiting for %s", name);
	if (how->si_code != CLD_EXITED)
		return err_set(e, EIO, "%s was ended by signal %d", name, how->si_status);
	if (how->si_status)
		return err_set(e, EIO, "%s failed with status %d", name, how->si_status);
	return 0;
}

int command_output(const char *const *argv, uint64_t timeout_ms, int stop_fd, size_t max,
		   char **ret, size_t *ret_len, struct err *e)
{
	const char *home = secure_getenv("HOME");
	auto_free char *home_is = str_printf("HOME=%s", home && *home ? home : "/root");
	char *env[] = {(char *)(uintptr_t) "PATH=" SEARCH_PATH, home_is,
		       (char *)(uintptr_t) "LANG=C.UTF-8", NULL};
	struct command c = {.argv = argv, .pidfd = -1, .out = -1, .max = max};
	c.text = malloc(max + 1);
	if (!home_is || !c.text) {
		free(c.text);
		return err_set(e, ENOMEM, "no memory");
	}
	int r = spawn(&c, env, e);
	if (r == 0) {
		siginfo_t how = {0};
		r = watch(&c, timeout_ms, stop_fd);
		reap(&c, &how);
		r = judge(&c, r, &how, timeout_ms, e);
	}
	cleanup_fd(&c.out);
	if (r < 0) {
		explicit_bzero(c.text, max + 1);
		free(c.text);
		return r;
	}
	c.text[c.len] = '\0';
	*ret = c.text;
	*ret_len = c.len;
	return 0;
}
