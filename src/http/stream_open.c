/* SPDX-License-Identifier: Apache-2.0 */
/* Making streams, and what their users may set and ask. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "http/stream_state.h"

#define STREAM_OUT_MAX \
	((size_t)1024 * 1024 * 1024) /* bytes queued; only our own writers can get there */

static struct stream *stream_new(uv_loop_t *loop, int fd, const struct stream_ops *ops, void *user,
				 struct err *e)
{
	struct stream *s = calloc(1, sizeof(*s));
	int r = s ? uv_poll_init(loop, &s->poll, fd) : -ENOMEM;
	if (r < 0) {
		err_sys(e, -r, "watching a socket");
		free(s);
		close(fd);
		return NULL;
	}
	uv_idle_init(loop, &s->turn);
	uv_timer_init(loop, &s->timer);
	s->poll.data = s->turn.data = s->timer.data = s;
	s->handles = 3;
	list_init(&s->detached_link);
	s->fd = fd;
	s->ops = ops ? ops : &stream_no_ops;
	s->user = user;
	buf_init_secret(&s->plain, STREAM_OUT_MAX); /* heads with credentials */
	buf_init(&s->out, STREAM_OUT_MAX);
	return s;
}

static void describe_peer(const struct sockaddr *addr, socklen_t len, char *out, size_t room)
{
	char host[INET6_ADDRSTRLEN] = "";
	if (addr->sa_family == AF_INET && len >= sizeof(struct sockaddr_in)) {
		const struct sockaddr_in *a = (const void *)addr;
		inet_ntop(AF_INET, &a->sin_addr, host, sizeof(host));
		snprintf(out, room, "%s:%u", host, ntohs(a->sin_port));
	} else if (addr->sa_family == AF_INET6 && len >= sizeof(struct sockaddr_in6)) {
		const struct sockaddr_in6 *a = (const void *)addr;
		inet_ntop(AF_INET6, &a->sin6_addr, host, sizeof(host));
		snprintf(out, room, "[%s]:%u", host, ntohs(a->sin6_port));
	} else if (addr->sa_family == AF_UNIX) {
		const struct sockaddr_un *a = (const void *)addr;
		size_t n = strnlen(a->sun_path, len - offsetof(struct sockaddr_un, sun_path));
		snprintf(out, room, "%.*s", (int)n, a->sun_path);
	}
}

static void set_nodelay(int fd, int family)
{
	if (family == AF_INET || family == AF_INET6)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

struct stream *stream_connect(uv_loop_t *loop, const struct sockaddr *addr, socklen_t len,
			      uint64_t timeout_ms, const struct stream_ops *ops, void *user,
			      struct err *e)
{
	char peer[64] = "";
	describe_peer(addr, len, peer, sizeof(peer));
	auto_fd int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		err_sys(e, errno, "making a socket");
		return NULL;
	}
	set_nodelay(fd, addr->sa_family);
	int r = connect(fd, addr, len) < 0 ? errno : 0;
	if (r && r != EINPROGRESS && r != EINTR) {
		err_sys(e, r, "connecting to %s", peer);
		return NULL;
	}
	struct stream *s = stream_new(loop, take_fd(fd), ops, user, e);
	if (!s)
		return NULL;
	memcpy(s->peer, peer, sizeof(peer));
	s->connected = r == 0;
	if (timeout_ms)
		s->deadline = clock_mono_ms() + timeout_ms;
	if (s->connected)
		stream_want_turn(s);
	stream_watch(s);
	stream_arm(s);
	return s;
}

struct stream *stream_adopt(uv_loop_t *loop, int fd, const struct stream_ops *ops, void *user,
			    struct err *e)
{
	int family = 0;
	socklen_t len = sizeof(family);
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &len) < 0) {
		err_sys(e, errno, "taking over a socket");
		close(fd);
		return NULL;
	}
	set_nodelay(fd, family);
	struct stream *s = stream_new(loop, fd, ops, user, e);
	if (s)
		s->state = STREAM_OPEN;
	return s;
}

int stream_set_filter(struct stream *s, struct stream_filter *f, uint64_t timeout_ms, struct err *e)
{
	if (s->filter || s->eof || s->shut) {
		f->ops->free(f);
		return err_set(e, EINVAL, "this connection can't start TLS");
	}
	s->filter = f;
	s->filter_due = true;
	if (s->state == STREAM_OPEN)
		s->state = STREAM_HANDSHAKING;
	if (timeout_ms)
		s->deadline = stream_earlier(s->deadline, clock_mono_ms() + timeout_ms);
	stream_want_turn(s);
	stream_watch(s);
	stream_arm(s);
	return 0;
}

struct stream_filter *stream_get_filter(const struct stream *s)
{
	return s->filter;
}

void stream_set_ops(struct stream *s, const struct stream_ops *ops, void *user)
{
	s->ops = ops;
	s->user = user;
}

void stream_set_hooks(struct stream *s, void (*wake)(void *user), void (*alarm)(void *user))
{
	s->wake = wake;
	s->alarm = alarm;
}

void stream_wake(struct stream *s)
{
	s->wake_due = true;
	stream_want_turn(s);
}

void stream_alarm(struct stream *s, uint64_t ms)
{
	s->alarm_at = ms ? clock_mono_ms() + ms : 0;
	if (ms)
		stream_arm(s);
}

void stream_set_idle_timeout(struct stream *s, uint64_t ms)
{
	s->idle_ms = ms;
	s->moved_at = clock_mono_ms();
	stream_arm(s);
}

int stream_fd(const struct stream *s)
{
	return s->fd;
}

uv_loop_t *stream_loop(const struct stream *s)
{
	return s->poll.loop;
}

uint64_t stream_bytes_in(const struct stream *s)
{
	return s->bytes_in;
}

uint64_t stream_bytes_out(const struct stream *s)
{
	return s->bytes_out;
}
