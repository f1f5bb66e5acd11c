/* SPDX-License-Identifier: Apache-2.0 */
#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"

#define STAT_MAX      16384 /* bytes of /proc/PID/stat and status */
#define STARTED_FIELD 22    /* of stat; the first behind the name, which may hold anything, is 3 */

/* out_fd: what becomes standard output; -1: ours. */
static int proc_spawn(const char *const *argv, int out_fd, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attr);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (out_fd >= 0)
		posix_spawn_file_actions_adddup2(&actions, out_fd, STDOUT_FILENO);

	sigset_t none;
	sigemptyset(&none);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	int r = posix_spawnp(ret_pid, argv[0], &actions, &attr, (char *const *)(uintptr_t)argv,
			     environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	return -r;
}

static int proc_wait(pid_t pid, const char *name, struct err *e)
{
	int status;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_sys(e, errno, "waiting for %s", name);
	if (WIFSIGNALED(status))
		return err_set(e, EIO, "%s was ended by signal %d", name, WTERMSIG(status));
	if (WEXITSTATUS(status) != 0)
		return err_set(e, EIO, "%s failed with status %d", name, WEXITSTATUS(status));
	return 0;
}

int proc_run(const char *const *argv, struct err *e)
{
	pid_t pid;
	int r = proc_spawn(argv, -1, &pid);
	if (r < 0)
		return err_sys(e, -r, "can't run %s", argv[0]);
	return proc_wait(pid, argv[0], e);
}

static int proc_collect(int fd, size_t max, char **ret_text)
{
	size_t cap = 4096, len = 0;
	auto_free char *text = malloc(cap + 1);
	if (!text)
		return -ENOMEM;
	for (;;) {
		ssize_t n = fd_read_all(fd, text + len, cap - len);
		if (n < 0)
			return (int)n;
		len += (size_t)n;
		if (len > max)
			return -EFBIG;
		if (len < cap)
			break;
		char *more = realloc(text, cap * 2 + 1);
		if (!more)
			return -ENOMEM;
		text = more;
		cap *= 2;
	}
	text[len] = '\0';
	*ret_text = take_ptr(text);
	return 0;
}

int proc_output(const char *const *argv, size_t max, char **ret_text, struct err *e)
{
	int ends[2];
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(e, errno, "can't run %s", argv[0]);
	auto_fd int in = ends[0], out = ends[1];

	pid_t pid;
	int r = proc_spawn(argv, out, &pid);
	if (r < 0)
		return err_sys(e, -r, "can't run %s", argv[0]);
	close(take_fd(out));

	auto_free char *text = NULL;
	r = proc_collect(in, max, &text);
	close(take_fd(in));
	int w = proc_wait(pid, argv[0], r < 0 ? NULL : e);
	if (r < 0)
		return err_sys(e, -r, "reading the output of %s", argv[0]);
	if (w < 0)
		return w;
	*ret_text = take_ptr(text);
	return 0;
}

void proc_close_fds(int first, const int *keep, size_t count)
{
	unsigned from = (unsigned)first;
	for (size_t i = 0; i < count; i++) {
		unsigned fd = (unsigned)keep[i];
		if (fd > from)
			close_range(from, fd - 1, 0);
		if (fd >= from)
			from = fd + 1;
	}
	close_range(from, ~0u, 0);
}

/* The text of /proc/PID/name. */
static int proc_read(pid_t pid, const char *name, char **ret_text)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	int r = file_read(path, STAT_MAX, ret_text, NULL);
	return r == -ENOENT ? -ESRCH : r;
}

int proc_started(pid_t pid, uint64_t *ret)
{
	auto_free char *text = NULL;
	int r = proc_read(pid, "stat", &text);
	if (r < 0)
		return r;
	const char *p = strrchr(text, ')');
	for (int field = 2; p && field < STARTED_FIELD; field++)
		p = strchr(p + 1, ' ');
	return p && sscanf(p, " %" SCNu64, ret) == 1 ? 0 : -EBADMSG;
}

int proc_find(pid_t pid, uint64_t started, uid_t uid)
{
	auto_free char *text = NULL;
	uint64_t found;
	unsigned real;
	/* First of all: what is read afterwards is about this process, or it is gone. */
	auto_fd int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return errno == EINVAL ? -ESRCH : -errno;
	int r = proc_started(pid, &found);
	if (r == 0)
		r = proc_read(pid, "status", &text);
	if (r < 0)
		return r;
	struct pollfd ended = {.fd = fd,
			       .events = POLLIN}; /* though nobody may have waited for it yet */
	if (found != started || poll(&ended, 1, 0) != 0)
		return -ESRCH;
	const char *line = strstr(text, "\nUid:");
	if (!line || sscanf(line, "\nUid: %u", &real) != 1)
		return -EBADMSG;
	return real == uid ? take_fd(fd) : -EPERM;
}
