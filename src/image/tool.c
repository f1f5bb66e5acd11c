/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program's output is read line by line, of which the last few are kept. The mount namespace
 * keeps what mmdebstrap mounts in the tree that it makes from outliving it.
 */
#include "image/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

#define LINE_MAX_BYTES 240 /* of a line, the rest is dropped */
#define TAIL_LINES     12

struct output {
	const struct tools *tools;
	char line[LINE_MAX_BYTES + 1];
	size_t len;
	char tail[TAIL_LINES][LINE_MAX_BYTES + 1]; /* a ring */
	bool no_space;                             /* some line said so */
	size_t count;                              /* of lines ever */
};

void tools_say(const struct tools *t, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "%s: %s\n", t->title, text);
}

static char *find_program(const char *program)
{
	for (const char *dir = TOOL_PATH; *dir;) {
		size_t n = strcspn(dir, ":");
		char *path = str_printf("%.*s/%s", (int)n, dir, program);
		if (!path || access(path, X_OK) == 0)
			return path;
		free(path);
		dir += n + (dir[n] == ':');
	}
	return NULL;
}

int tools_want(const char *program, const char *package, struct err *e)
{
	auto_free char *path = find_program(program);
	if (!path)
		return err_set(e, ENOENT, "%s is missing: apt-get install %s", program, package);
	return 0;
}

/* mmdebstrap's lines that tell a reader where it is. */
static bool is_progress(const char *line)
{
	return str_starts(line, "I: running apt-get") || str_starts(line, "I: downloading") ||
	       str_starts(line, "I: extracting") || str_starts(line, "I: installing");
}

static void end_line(struct output *o)
{
	o->line[o->len] = '\0';
	if (is_progress(o->line))
		tools_say(o->tools, "%s", o->line + strlen("I: "));
	o->no_space |= strstr(o->line, "No space left on device") != NULL;
	if (o->len > 0)
		memcpy(o->tail[o->count++ % TAIL_LINES], o->line, o->len + 1);
	o->len = 0;
}

static bool is_control(char c)
{
	return (c >= 0 && c < ' ') || c == 0x7f;
}

static void take_bytes(struct output *o, const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i] == '\n' || p[i] == '\r')
			end_line(o);
		else if (o->len < LINE_MAX_BYTES)
			o->line[o->len++] = is_control(p[i]) ? (char)' ' : p[i];
	}
}

/* The first line of the tail that calls itself an error, else the last line. */
static const char *best_line(const struct output *o)
{
	static const char *const marks[] = {"E: ", "Err:", ""};
	size_t first = o->count > TAIL_LINES ? o->count - TAIL_LINES : 0;
	const char *best = "it said nothing";
	for (size_t m = 0; m < sizeof(marks) / sizeof(marks[0]); m++) {
		for (size_t i = first; i < o->count; i++) {
			best = o->tail[i % TAIL_LINES];
			if (*marks[m] && str_starts(best, marks[m]))
				return best;
		}
	}
	return best;
}

static int report_failure(const struct output *o, const char *program, int status, struct err *e)
{
	size_t first = o->count > TAIL_LINES ? o->count - TAIL_LINES : 0;
	for (size_t i = first; i < o->count; i++)
		fprintf(stderr, "  %s\n", o->tail[i % TAIL_LINES]);
	if (WIFSIGNALED(status))
		return err_set(e, EIO, "%s was ended by signal %d", program, WTERMSIG(status));
	if (o->no_space)
		return err_set(e, ENOSPC, "%s found no space left on the device: free some",
			       program);
	return err_set(e, EIO, "%s failed: %s", program, best_line(o));
}

static void run_child(const struct tools *t, const char *path, const char *const *argv, int out)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
		_exit(127);
	if (t->lock_fd >= 0 && fcntl(t->lock_fd, F_SETFD, 0) < 0)
		_exit(127);
	/* Without the right to it, mounts fail as well; in a plain chroot "/" is no mount, which is
	 * fine. */
	if (unshare(CLONE_NEWNS) == 0)
		mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	signal(SIGINT, SIG_DFL);
	signal(SIGQUIT, SIG_DFL);
	execve(path, (char *const *)argv, (char *const *)t->env);
	_exit(127);
}

/* Reads until the pipe or the process ends: something left behind in the background may hold the
 * pipe. */
static void read_output(struct output *o, int from, int pidfd)
{
	struct pollfd p[] = {{.fd = from, .events = POLLIN}, {.fd = pidfd, .events = POLLIN}};
	char bytes[4096];
	for (;;) {
		if (poll(p, 2, -1) < 0) {
			if (errno == EINTR)
				continue;
			break;
		}
		if (!p[0].revents)
			break;
		ssize_t n = read(from, bytes, sizeof(bytes));
		if (n <= 0)
			break;
		take_bytes(o, bytes, (size_t)n);
	}
	if (o->len > 0)
		end_line(o);
}

static int run_and_wait(const struct tools *t, const char *path, const char *const *argv,
			struct err *e)
{
	int ends[2];
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(e, errno, "running %s", argv[0]);
	auto_fd int in = ends[0];
	auto_fd int out = ends[1];
	pid_t pid = fork();
	if (pid < 0)
		return err_sys(e, errno, "running %s", argv[0]);
	if (pid == 0)
		run_child(t, path, argv, out);
	close(take_fd(out));

	struct output o = {.tools = t};
	auto_fd int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	read_output(&o, in, pidfd);
	int status;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_sys(e, errno, "waiting for %s", argv[0]);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return report_failure(&o, argv[0], status, e);
	return 0;
}

int tools_run(const struct tools *t, const char *const *argv, struct err *e)
{
	auto_free char *path = find_program(argv[0]);
	if (!path)
		return err_set(e, ENOENT, "%s is missing", argv[0]);
	/* As system(3) does: an interrupt from the terminal ends the tool, and we clean up after
	 * it. */
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	struct sigaction interrupt;
	struct sigaction quit;
	sigaction(SIGINT, &ignore, &interrupt);
	sigaction(SIGQUIT, &ignore, &quit);
	int r = run_and_wait(t, path, argv, e);
	sigaction(SIGINT, &interrupt, NULL);
	sigaction(SIGQUIT, &quit, NULL);
	return r;
}
