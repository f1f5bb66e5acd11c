/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting spaced for a call. It runs in a session of its own, its messages in RUN_DIR/spaced.log,
 * and tells through a pipe that it listens. When two callers start one at the same moment, spaced's
 * lock lets one win; the loser exits 0 at once, and its caller waits for the winner's socket.
 */
#include "cli/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"

#define LOG_KEPT   (1 << 20) /* bytes of an old spaced's words that are kept */
#define START_MS   10000     /* from the fork to a listening spaced */
#define RETRY_MS   100       /* between looks at a socket that is there but refuses */
#define OTHER_MS   500       /* until another spaced listens, which may be ending instead */
#define CONNECT_MS 10000     /* when spaced's backlog is full */
#define ENV_MAX    32        /* variables that spaced gets */
#define READY_FD   3         /* its number in spaced */

static int try_connect(const struct cli *cli, int *ret_fd)
{
	auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	struct timeval wait = {.tv_sec = CONNECT_MS / 1000};
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	memcpy(addr.sun_path, cli->socket_path, strlen(cli->socket_path) + 1);
	while (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		if (errno != EINTR)
			return -errno;
	int r = fd_set_nonblock(fd, true);
	if (r < 0)
		return r;
	*ret_fd = take_fd(fd);
	return 0;
}

static bool nobody_listens(int r)
{
	return r == -ENOENT || r == -ECONNREFUSED;
}

static int connect_error(const struct cli *cli, int r, struct err *e)
{
	if (r == -EACCES || r == -EPERM)
		return err_set(e, -r,
			       "no permission for spaced's socket %s: it is another user's node; "
			       "run space as that user, or set SPACE_RUN_DIR to your own",
			       cli->socket_path);
	return err_sys(e, -r, "cannot reach spaced at %s", cli->socket_path);
}

char *launch_find(const char *program)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n > 0) {
		self[n] = 0;
		char *slash = strrchr(self, '/');
		if (slash) {
			*slash = 0;
			char *path = str_printf("%s/%s", self, program);
			if (!path || access(path, X_OK) == 0)
				return path;
			free(path);
		}
	}
	return str_printf("%s/%s", SPACE_BINDIR, program);
}

/* spaced outlives the call: nothing of the caller's environment goes along but what it reads.
 * Secrets are in there. */
static void spaced_environment(char *env[])
{
	static const char *const kept[] = {"SPACE_STATE_DIR", "SPACE_RUN_DIR", "SPACE_LIBEXEC",
					   "SPACE_RECIPES",   "SPACE_CONFIG",  "TZ",
					   "ASAN_OPTIONS",    "UBSAN_OPTIONS"};
	size_t n = 0;
	env[n++] = (char *)"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
	env[n++] = (char *)"LANG=C.UTF-8";
	for (char **e = environ; *e; e++)
		for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]) && n < ENV_MAX; i++)
			if (str_starts(*e, kept[i]) && (*e)[strlen(kept[i])] == '=')
				env[n++] = *e;
	env[n] = NULL;
}

static _Noreturn void child_exec(const char *path, int ready_fd, int log_fd, int null_fd)
{
	setsid();
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (int s = 1; s < 32; s++)
		signal(s, SIG_DFL);
	/* The sources are moved out of the way first, so that no dup2() overwrites one. */
	int ready = fcntl(ready_fd, F_DUPFD, 10);
	if (ready < 0 || dup2(null_fd, 0) < 0 || dup2(log_fd, 1) < 0 || dup2(log_fd, 2) < 0 ||
	    dup2(ready, READY_FD) < 0 || chdir("/") < 0)
		_exit(CLI_FAILED);
	close_range(READY_FD + 1, ~0u, 0); /* of our caller's nothing goes along */
	char *const argv[] = {(char *)path, "--auto", "--ready-fd", "3", NULL};
	char *env[ENV_MAX + 1];
	spaced_environment(env);
	execve(path, argv, env);
	dprintf(2, "spaced: cannot execute %s: %s\n", path, strerror(errno));
	_exit(CLI_FAILED);
}

/* Forks spaced. *ret_ready becomes readable when it listens, ends when it is gone. */
static int spawn(const struct cli *cli, const char *log_path, pid_t *ret_pid, int *ret_ready,
		 struct err *e)
{
	auto_free char *path = launch_find("spaced");
	if (!path)
		return err_set(e, ENOMEM, "out of memory");
	int r = dir_make_all(cli->run_dir, 0755);
	if (r < 0)
		return err_sys(e, -r, "cannot make %s", cli->run_dir);
	auto_fd int log_fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	auto_fd int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (log_fd < 0 || null_fd < 0)
		return err_sys(e, errno, "cannot open %s", log_fd < 0 ? log_path : "/dev/null");
	if (lseek(log_fd, 0, SEEK_END) > LOG_KEPT && ftruncate(log_fd, 0) < 0)
		return err_sys(e, errno, "cannot shorten %s", log_path);
	int pipe_fds[2];
	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return err_sys(e, errno, "pipe");
	pid_t pid = fork();
	if (pid == 0)
		child_exec(path, pipe_fds[1], log_fd, null_fd);
	int saved = errno;
	close(pipe_fds[1]);
	if (pid < 0) {
		close(pipe_fds[0]);
		return err_sys(e, saved, "cannot start spaced");
	}
	*ret_pid = pid;
	*ret_ready = pipe_fds[0];
	return 0;
}

/* 1: it listens. 0: it is gone without having listened. -ETIMEDOUT. */
static int wait_ready(int fd, uint64_t deadline_ms)
{
	for (;;) {
		uint64_t now = clock_mono_ms();
		if (now >= deadline_ms)
			return -ETIMEDOUT;
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int r = poll(&p, 1, (int)(deadline_ms - now));
		if (r < 0 && errno != EINTR)
			return -errno;
		if (r <= 0)
			continue;
		char byte;
		ssize_t n = read(fd, &byte, 1);
		return n < 0 ? -errno : n > 0;
	}
}

/* Another's spaced is starting: waits for its socket. */
static int wait_socket(const struct cli *cli, uint64_t deadline_ms, int *ret_fd)
{
	auto_fd int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (watch < 0 || inotify_add_watch(watch, cli->run_dir, IN_CREATE | IN_MOVED_TO) < 0)
		return -errno;
	for (;;) {
		int r = try_connect(cli, ret_fd);
		if (!nobody_listens(r) || clock_mono_ms() >= deadline_ms)
			return r;
		struct pollfd p = {.fd = watch, .events = POLLIN};
		char events[1024];
		if (poll(&p, 1, RETRY_MS) > 0 && read(watch, events, sizeof(events)) < 0 &&
		    errno != EAGAIN)
			return -errno;
	}
}

/* e says why spaced is gone: its last line, where it wrote one. */
static int start_error(const char *log_path, struct err *e)
{
	auto_free char *text = NULL;
	size_t len = 0;
	if (file_read(log_path, 1 << 20, &text, &len) < 0 || !len)
		return err_set(e, EIO, "spaced ended at once and wrote nothing to %s", log_path);
	while (len && text[len - 1] == '\n')
		text[--len] = 0;
	const char *line = strrchr(text, '\n');
	line = line ? line + 1 : text;
	const char *said = str_starts(line, "spaced: ") ? line + strlen("spaced: ") : line;
	return err_set(e, EIO, "spaced did not start: %.300s (all of it: %s)", said, log_path);
}

/* A code for which nobody_listens(): another spaced was there, and ended instead of listening. */
static int start_one(const struct cli *cli, const char *log_path, uint64_t deadline_ms, int *ret_fd,
		     struct err *e)
{
	pid_t pid = -1;
	auto_fd int ready = -1;
	int r = spawn(cli, log_path, &pid, &ready, e);
	if (r < 0)
		return -EIO;
	r = wait_ready(ready, deadline_ms);
	if (r == 0) {
		int status = 0;
		waitpid(pid, &status, 0);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
			return start_error(log_path, e);
		uint64_t soon_ms = clock_mono_ms() + OTHER_MS;
		r = wait_socket(cli, soon_ms < deadline_ms ? soon_ms : deadline_ms, ret_fd);
	} else if (r > 0) {
		r = try_connect(cli, ret_fd);
	}
	if (r == -ETIMEDOUT)
		return err_set(e, ETIMEDOUT, "spaced did not listen within %d s; see %s",
			       START_MS / 1000, log_path);
	if (r < 0)
		connect_error(cli, r, e);
	return r;
}

static int start(const struct cli *cli, int *ret_fd, struct err *e)
{
	auto_free char *log_path = str_printf("%s/spaced.log", cli->run_dir);
	if (!log_path)
		return err_set(e, ENOMEM, "out of memory");
	uint64_t deadline_ms = clock_mono_ms() + START_MS;
	int r;
	do
		r = start_one(cli, log_path, deadline_ms, ret_fd, e);
	while (nobody_listens(r) && clock_mono_ms() < deadline_ms);
	return r;
}

int launch_connect(const struct cli *cli, int *ret_fd, struct err *e)
{
	int r = try_connect(cli, ret_fd);
	if (nobody_listens(r))
		return start(cli, ret_fd, e);
	return r < 0 ? connect_error(cli, r, e) : 0;
}

int launch_connect_running(const struct cli *cli, int *ret_fd, struct err *e)
{
	int r = try_connect(cli, ret_fd);
	return r < 0 ? connect_error(cli, r, e) : 0;
}
