/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listening sockets. When descriptors run out, a connection that can't be accepted would wake the
 * loop for ever; the listener then rests for a moment, and the peer waits in the backlog.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "http/stream.h"

#define ACCEPTS_PER_WAKE 16
#define REST_MS          100

struct stream_listener {
	uv_poll_t poll;
	uv_timer_t rest;
	unsigned handles;
	int fd;
	void (*accepted)(void *user, int fd);
	void *user;
};

static void on_readable(uv_poll_t *h, int status, int events);

static void on_rested(uv_timer_t *t)
{
	struct stream_listener *l = t->data;
	uv_poll_start(&l->poll, UV_READABLE, on_readable);
}

static void on_readable(uv_poll_t *h, int status, int events)
{
	struct stream_listener *l = h->data;
	(void)events;
	for (int i = 0; i < ACCEPTS_PER_WAKE && status == 0 && l->fd >= 0; i++) {
		int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			l->accepted(l->user, fd);
			continue;
		}
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		if (errno == EAGAIN)
			return;
		status = -errno;
	}
	if (status < 0 && l->fd >= 0) {
		uv_poll_stop(&l->poll);
		uv_timer_start(&l->rest, on_rested, REST_MS, 0);
	}
}

struct stream_listener *stream_listen(uv_loop_t *loop, int fd, void (*accepted)(void *user, int fd),
				      void *user, struct err *e)
{
	struct stream_listener *l = calloc(1, sizeof(*l));
	int r = l ? uv_poll_init(loop, &l->poll, fd) : -ENOMEM;
	if (r < 0) {
		err_sys(e, -r, "watching a listening socket");
		free(l);
		close(fd);
		return NULL;
	}
	uv_timer_init(loop, &l->rest);
	l->poll.data = l->rest.data = l;
	l->handles = 2;
	l->fd = fd;
	l->accepted = accepted;
	l->user = user;
	uv_poll_start(&l->poll, UV_READABLE, on_readable);
	return l;
}

static void on_handle_closed(uv_handle_t *h)
{
	struct stream_listener *l = h->data;
	if (!--l->handles)
		free(l);
}

void stream_listener_close(struct stream_listener *l)
{
	uv_close((uv_handle_t *)&l->poll, on_handle_closed);
	uv_close((uv_handle_t *)&l->rest, on_handle_closed);
	close(l->fd);
	l->fd = -1;
}
