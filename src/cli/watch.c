/* SPDX-License-Identifier: Apache-2.0 */
/* An epoll set with one descriptor in it, itself watched by the loop. */
#include "cli/watch.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct watch *w = poll->data;
	(void)status;
	(void)events;
	uv_poll_stop(poll);
	w->ready(w->user);
}

int watch_init(struct watch *w, uv_loop_t *loop, int fd, uint32_t events, void (*ready)(void *user),
	       void *user)
{
	*w = (struct watch){
		.epoll_fd = -1, .fd = fd, .events = events, .ready = ready, .user = user};
	int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (epoll_fd < 0)
		return -errno;
	struct epoll_event none = {0};
	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &none) < 0) {
		int r = errno == EPERM ? 0 : -errno;
		close(epoll_fd);
		return r;
	}
	int r = uv_poll_init(loop, &w->poll, epoll_fd);
	if (r < 0) {
		close(epoll_fd);
		return r;
	}
	w->poll.data = w;
	w->epoll_fd = epoll_fd;
	return 0;
}

bool watch_is_direct(const struct watch *w)
{
	return w->epoll_fd < 0;
}

int watch_once(struct watch *w)
{
	struct epoll_event want = {.events = w->events | EPOLLONESHOT};
	if (epoll_ctl(w->epoll_fd, EPOLL_CTL_MOD, w->fd, &want) < 0)
		return -errno;
	return uv_poll_start(&w->poll, UV_READABLE, on_poll);
}

void watch_done(struct watch *w)
{
	if (w->epoll_fd < 0)
		return;
	uv_close((uv_handle_t *)&w->poll, NULL);
	close(w->epoll_fd);
	w->epoll_fd = -1;
}
