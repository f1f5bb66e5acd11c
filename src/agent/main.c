/* SPDX-License-Identifier: Apache-2.0 */
/*
 * space-agent: PID 1 of a sandbox's microVM, and the one through whom the host runs processes and
 * moves files there. With --serve it does the latter on an ordinary Linux, for tests.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/boot.h"
#include "agent/machine.h"
#include "agent/warm.h"
#include "base/cleanup.h"
#include "base/guest.h"
#include "base/log.h"
#include "base/str.h"

#define BACKLOG 512

static int listen_on(const struct sockaddr_in *addr, struct err *e)
{
	auto_fd int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int on = 1;
	if (fd < 0)
		return err_sys(e, errno, "socket");
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    bind(fd, (const struct sockaddr *)addr, sizeof(*addr)) < 0 || listen(fd, BACKLOG) < 0)
		return err_sys(e, errno, "can't listen on port %d", ntohs(addr->sin_port));
	return take_fd(fd);
}

/* "127.0.0.1:49983" */
static int parse_address(const char *text, struct sockaddr_in *ret)
{
	const char *colon = strrchr(text, ':');
	uint64_t port;
	if (!colon || str_to_u64(colon + 1, 0, 65535, &port) < 0)
		return -EINVAL;
	auto_free char *host = strndup(text, (size_t)(colon - text));
	*ret = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	return host && inet_pton(AF_INET, host, &ret->sin_addr) == 1 ? 0 : -EINVAL;
}

/* Signals as programs expect to find them, descriptors 0 to 2 in use, room for many files. */
static void prepare_process(void)
{
	for (int n = 1; n < NSIG; n++)
		signal(n, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	int fd;
	do {
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
	umask(022);

	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return;
	if (files.rlim_max < SPAWN_FILES_HARD && geteuid() == 0)
		files.rlim_max = SPAWN_FILES_HARD;
	files.rlim_cur = files.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		log_debug("open files stay limited as they were");
}

static void on_stop(uv_signal_t *signal, int number)
{
	(void)number;
	uv_stop(signal->loop);
}

/* The port that was bound, for a caller who asked for any. */
static void tell_ready(int fd)
{
	struct sockaddr_in addr;
	socklen_t len = sizeof(addr);
	char ip[INET_ADDRSTRLEN] = "";
	if (getsockname(fd, (struct sockaddr *)&addr, &len) == 0)
		inet_ntop(AF_INET, &addr.sin_addr, ip, sizeof(ip));
	printf("%s %s:%d\n", GUEST_READY_LINE, ip, ntohs(addr.sin_port));
	fflush(stdout);
}

static int serve(const char *text)
{
	struct sockaddr_in addr;
	struct agent agent;
	struct err e = {0};
	uv_loop_t loop;
	uv_signal_t stop[2];
	if (parse_address(text, &addr) < 0) {
		log_error("'%s' is not an IPv4 address and port, as in 127.0.0.1:49983", text);
		return 2;
	}
	prepare_process();
	int fd = listen_on(&addr, &e);
	if (fd >= 0)
		tell_ready(fd);
	if (fd < 0 || uv_loop_init(&loop) < 0 || agent_init(&agent, &loop, fd, false, &e) < 0) {
		log_error("%s", e.text);
		return 1;
	}
	for (size_t i = 0; i < 2; i++) {
		uv_signal_init(&loop, &stop[i]);
		uv_signal_start(&stop[i], on_stop, i ? SIGINT : SIGTERM);
	}
	uv_run(&loop, UV_RUN_DEFAULT);
	agent_done(&agent);
	for (size_t i = 0; i < 2; i++)
		uv_close((uv_handle_t *)&stop[i], NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	return uv_loop_close(&loop) < 0;
}

static int run_machine(struct err *e)
{
	static struct agent agent; /* for as long as the machine runs */
	int r = boot(e);
	if (r < 0)
		return r;
	prepare_process();
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_port = htons(GUEST_AGENT_PORT),
		.sin_addr.s_addr = htonl(INADDR_ANY),
	};
	int fd = listen_on(&addr, e);
	if (fd < 0)
		return fd;
	r = agent_init(&agent, uv_default_loop(), fd, true, e);
	if (r < 0)
		return r;
	warm(uv_default_loop(), GUEST_AGENT_PORT);
	static const char ready[] = GUEST_READY_LINE "\n";
	ssize_t n = write(STDOUT_FILENO, ready, sizeof(ready) - 1);
	(void)n; /* a hint alone */
	uv_run(uv_default_loop(), UV_RUN_DEFAULT);
	return err_set(e, EIO, "the event loop ended");
}

static void usage(FILE *to)
{
	fprintf(to, "usage: space-agent --serve ADDRESS:PORT\n"
		    "       space-agent --version\n"
		    "As PID 1 of a microVM it takes no arguments.\n");
}

int main(int argc, char **argv)
{
	log_init("space-agent", false);
	if (getpid() == 1 && argc == 1) {
		struct err e = {0};
		run_machine(&e);
		log_error("%s", e.text);
		machine_off();
	}
	if (argc == 3 && str_eq(argv[1], "--serve"))
		return serve(argv[2]);
	if (argc == 2 && str_eq(argv[1], "--version")) {
		printf("space-agent %s\n", SPACE_VERSION);
		return 0;
	}
	usage(argc == 2 && str_eq(argv[1], "--help") ? stdout : stderr);
	return argc == 2 && str_eq(argv[1], "--help") ? 0 : 2;
}
