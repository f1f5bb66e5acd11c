/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/console.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/guest.h"
#include "base/str.h"

#define LINE_MAX_BYTES 200
#define READ_SIZE      4096
#define READS_A_WAKE   4

struct console {
	uv_poll_t poll;
	int fd, log_fd;
	size_t logged;
	char line[LINE_MAX_BYTES + 1]; /* the line being received */
	size_t len;
	char last[LINE_MAX_BYTES + 1];
	void (*ready)(void *user);
	void *user;
};

static void end_line(struct console *c)
{
	c->line[c->len] = '\0';
	bool is_ready = strstr(c->line, GUEST_READY_LINE) != NULL;
	if (c->len)
		memcpy(c->last, c->line, c->len + 1);
	c->len = 0;
	if (is_ready && c->ready)
		c->ready(c->user);
}

static void take(struct console *c, const char *p, size_t n)
{
	if (c->logged < CONSOLE_MAX) {
		size_t room = CONSOLE_MAX - c->logged;
		size_t m = n < room ? n : room;
		if (fd_write_all(c->log_fd, p, m) == 0)
			c->logged += m;
	}
	for (size_t i = 0; i < n; i++) {
		if (p[i] == '\n')
			end_line(c);
		else if (c->len < LINE_MAX_BYTES && p[i] != '\r')
			c->line[c->len++] = p[i] >= ' ' && p[i] < 0x7f ? p[i] : '?';
	}
}

static void on_readable(uv_poll_t *p, int status, int events)
{
	struct console *c = p->data;
	(void)status;
	(void)events;
	for (unsigned i = 0; i < READS_A_WAKE; i++) {
		char data[READ_SIZE];
		ssize_t n = read(c->fd, data, sizeof(data));
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			uv_poll_stop(&c->poll); /* the monitor is gone; its own events say so */
			return;
		}
		take(c, data, (size_t)n);
	}
}

static void on_closed(uv_handle_t *h)
{
	struct console *c = h->data;
	close(c->fd);
	close(c->log_fd);
	free(c);
}

struct console *console_open(uv_loop_t *loop, const char *dir, int fd, void (*ready)(void *user),
			     void *user, struct err *e)
{
	auto_fd int guest = fd;
	auto_free char *path = str_printf("%s/console.log", dir);
	auto_free struct console *c = calloc(1, sizeof(*c));
	if (!path || !c) {
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	auto_fd int log_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (log_fd < 0) {
		err_sys(e, errno, "can't write %s", path);
		return NULL;
	}
	c->fd = take_fd(guest);
	c->log_fd = take_fd(log_fd);
	c->ready = ready;
	c->user = user;
	c->poll.data = c;
	uv_poll_init(loop, &c->poll, c->fd);
	uv_poll_start(&c->poll, UV_READABLE, on_readable);
	return take_ptr(c);
}

void console_close(struct console *c)
{
	if (c)
		uv_close((uv_handle_t *)&c->poll, on_closed);
}

const char *console_last_line(const struct console *c)
{
	return c->last;
}
