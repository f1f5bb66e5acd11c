/* SPDX-License-Identifier: Apache-2.0 */
/* The agent as its own first client. */
#include "agent/warm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"

#define WARM_DEADLINE_MS 3000

/* The body of Start: an envelope of 45 bytes. */
#define START_HEAD "\0\0\0\0\x2d"
#define START_TEXT "{\"process\":{\"cmd\":\"/bin/true\"},\"stdin\":false}"

static const char calls[] = "POST /init HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
			    "POST /process.Process/Start HTTP/1.1\r\nHost: localhost\r\n"
			    "Content-Type: application/connect+json\r\nConnection: close\r\n"
			    "Content-Length: 50\r\n\r\n" START_HEAD START_TEXT;

_Static_assert(sizeof(START_TEXT) - 1 == 0x2d, "the envelope's head says so");

static int call(unsigned port)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	auto_fd int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0)
		return -errno;
	int r = fd_write_all(fd, calls, sizeof(calls) - 1);
	if (r == 0)
		r = fd_set_nonblock(fd, true);
	return r < 0 ? r : take_fd(fd);
}

static void on_deadline(uv_timer_t *timer)
{
	bool *late = timer->data;
	*late = true;
}

/* Whether the answers have not come to their end. */
static bool more(int fd)
{
	char answer[4096];
	ssize_t n;
	while ((n = recv(fd, answer, sizeof(answer), 0)) > 0)
		;
	return n < 0 && errno == EAGAIN;
}

void warm(uv_loop_t *loop, unsigned port)
{
	bool late = false;
	uv_timer_t timer;
	mlockall(MCL_CURRENT); /* all of our pages, now */
	auto_fd int fd = call(port);
	if (fd < 0)
		return;
	uv_timer_init(loop, &timer);
	timer.data = &late;
	uv_timer_start(&timer, on_deadline, WARM_DEADLINE_MS, 0);
	while (!late && more(fd))
		uv_run(loop, UV_RUN_ONCE);
	shutdown(fd, SHUT_WR);
	uv_close((uv_handle_t *)&timer, NULL);
	uv_run(loop, UV_RUN_NOWAIT);
}
