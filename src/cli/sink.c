/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ready pipe takes PIPE_BUF bytes without blocking, a ready terminal a few hundred; so pieces of
 * that size are written for as long as poll() says ready, and the loop waits in between.
 */
#include "cli/sink.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define TERMINAL_PIECE 256 /* bytes: what n_tty promises when it reports ready */

static ssize_t write_piece(struct sink *s, const uint8_t *p, size_t n)
{
	if (s->socket)
		return send(s->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (!watch_is_direct(&s->watch)) {
		struct pollfd ready = {.fd = s->fd, .events = POLLOUT};
		if (poll(&ready, 1, 0) == 0) {
			errno = EAGAIN;
			return -1;
		}
	}
	return write(s->fd, p, s->piece && n > s->piece ? s->piece : n);
}

static void drop(struct sink *s)
{
	free(s->data);
	s->data = NULL;
}

/* 0 when all is written, 1 when the loop must wait, -errno. */
static int push(struct sink *s)
{
	while (s->done < s->len) {
		ssize_t n = write_piece(s, s->data + s->done, s->len - s->done);
		if (n >= 0) {
			s->done += (size_t)n;
			continue;
		}
		if (errno == EINTR)
			continue;
		if (errno == EAGAIN && !watch_is_direct(&s->watch)) {
			int r = watch_once(&s->watch);
			return r < 0 ? r : 1;
		}
		return -errno;
	}
	return 0;
}

static void on_ready(void *user)
{
	struct sink *s = user;
	int r = push(s);
	if (r == 1)
		return;
	drop(s);
	s->drained(s->user, r);
}

int sink_init(struct sink *s, uv_loop_t *loop, int fd, void (*drained)(void *user, int r),
	      void *user)
{
	*s = (struct sink){.fd = fd, .drained = drained, .user = user};
	struct stat st;
	if (fstat(fd, &st) < 0)
		return -errno;
	s->socket = S_ISSOCK(st.st_mode);
	s->piece = S_ISFIFO(st.st_mode) ? PIPE_BUF : isatty(fd) ? TERMINAL_PIECE : 0;
	return watch_init(&s->watch, loop, fd, EPOLLOUT, on_ready, s);
}

int sink_put(struct sink *s, uint8_t *data, size_t n)
{
	s->data = data;
	s->len = n;
	s->done = 0;
	int r = push(s);
	if (r != 1)
		drop(s);
	return r;
}

void sink_done(struct sink *s)
{
	drop(s);
	watch_done(&s->watch);
}
