/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams over a non-blocking socket and a uv_poll_t. Theory of operation:
 *
 * Input is received into the stack and handed up at once, so an idle stream owns no buffer. Output
 * is corked: small writes gather in `out` (under a filter, unencrypted in `plain`) until the loop's
 * next turn, so that a head and its body leave in one system call; large ones are sent from the
 * caller's memory together with what is corked.
 *
 * Three events drive a stream: the socket (on_poll), the turn (an idle handle, for all that must
 * not happen inside a user's call) and the timer (one for all deadlines, armed lazily: it may fire
 * early, never late). Each ends in stream_settle(), the only place where closed() is called.
 * Whoever calls the user looks at s->state afterwards: memory lives until the loop has closed the
 * handles, which is never before the event ends.
 *
 * When sending fails, what the peer had sent before is still read: it may be the reason.
 */
#include "http/stream.h"

#include <arpa/inet.h>
#include <assert.h>
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
#include "http/stream_filter.h"

#define STREAM_CHUNK     (64 * 1024) /* bytes received in one call */
#define STREAM_RECORD    (16 * 1024) /* bytes of plaintext taken from a filter in one call */
#define STREAM_DIRECT    (16 * 1024) /* bytes; from here on a write is sent at once */
#define STREAM_OUT_MAX   (1024 * 1024 * 1024) /* bytes queued; only our own writers can get there */
#define STREAM_KEEP      (16 * 1024)          /* bytes of buffer that an idle stream keeps */
#define STREAM_ROUNDS    4                    /* receive calls per event */
#define STREAM_LINGER_MS 1000                 /* for the peer to read our last words */

enum stream_state {
	STREAM_CONNECTING,
	STREAM_HANDSHAKING,
	STREAM_OPEN,
	STREAM_LINGERING, /* the user is gone: send the rest, discard input until the peer's end */
	STREAM_CLOSED,    /* waiting for the loop to let go of the handles */
};

struct stream {
	uv_poll_t poll;
	uv_idle_t turn;
	uv_timer_t timer;
	unsigned handles; /* not yet closed */
	int fd;
	int events; /* that poll watches for */
	enum stream_state state;
	const struct stream_ops *ops;
	void *user;
	void (*wake)(void *user);
	void (*alarm)(void *user);
	struct stream_filter *filter;
	struct buf plain; /* under a filter: not yet encrypted */
	struct buf out;   /* for the socket */
	struct err why;   /* code is set: closed() is due */
	int send_error;   /* errno of a send: closed() is due when input is exhausted */
	bool connected;   /* connect() succeeded at once */
	bool reading;
	bool eof;     /* told to the user */
	bool fin;     /* the peer's side of the socket is at its end */
	bool broken;  /* the socket reports an error */
	bool blocked; /* the socket takes no more for now */
	bool shut;    /* by the user: nothing is written any more */
	bool ended;   /* close_notify is in out */
	bool fin_sent;
	bool drain_due;
	bool wake_due;
	bool filter_due;    /* the filter may have something without new input */
	bool detached;      /* the user is gone, what is queued still goes out */
	uint64_t deadline;  /* monotonic ms; 0: none. For opening, or for closing */
	uint64_t alarm_at;  /* likewise */
	uint64_t idle_ms;   /* 0: off */
	uint64_t moved_at;  /* when a byte last moved */
	uint64_t timer_due; /* 0: not armed */
	uint64_t bytes_in;
	uint64_t bytes_out;
	char peer[64]; /* for error texts */
};

static void no_data(void *user, const uint8_t *p, size_t n)
{
	(void)user, (void)p, (void)n;
}

static const struct stream_ops no_ops = {.data = no_data};

static void stream_settle(struct stream *s);
static void stream_watch(struct stream *s);
static void on_turn(uv_idle_t *h);

static void stream_want_turn(struct stream *s)
{
	uv_idle_start(&s->turn, on_turn);
}

static void stream_fail(struct stream *s, int code, const char *what)
{
	if (s->why.code)
		return;
	err_sys(&s->why, code, "%s", what);
	stream_want_turn(s);
}

/* -- closing -- */

static void on_handle_closed(uv_handle_t *h)
{
	struct stream *s = h->data;
	if (--s->handles)
		return;
	if (s->filter)
		s->filter->ops->free(s->filter);
	buf_done(&s->plain);
	buf_done(&s->out);
	free(s);
}

static void stream_destroy(struct stream *s)
{
	s->state = STREAM_CLOSED;
	uv_close((uv_handle_t *)&s->poll, on_handle_closed);
	uv_close((uv_handle_t *)&s->turn, on_handle_closed);
	uv_close((uv_handle_t *)&s->timer, on_handle_closed);
	close(s->fd);
	s->fd = -1;
}

/* -- time -- */

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

static void on_timer(uv_timer_t *t);

static void stream_arm(struct stream *s)
{
	uint64_t idle = s->idle_ms ? s->moved_at + s->idle_ms : 0;
	uint64_t due = earlier(earlier(s->deadline, s->alarm_at), idle);
	if (!due) {
		uv_timer_stop(&s->timer);
		s->timer_due = 0;
		return;
	}
	if (s->timer_due && s->timer_due <= due)
		return;
	uint64_t now = uv_now(s->timer.loop); /* what uv_timer_start counts from */
	uv_timer_start(&s->timer, on_timer, due > now ? due - now : 0, 0);
	s->timer_due = due;
}

static void stream_late(struct stream *s)
{
	if (s->detached) {
		stream_destroy(s);
		return;
	}
	err_set(&s->why, ETIMEDOUT, "%s%s%s timed out",
		s->state == STREAM_CONNECTING ? "connecting" : "TLS handshake",
		*s->peer ? (s->state == STREAM_CONNECTING ? " to " : " with ") : "", s->peer);
}

static void on_timer(uv_timer_t *t)
{
	struct stream *s = t->data;
	s->timer_due = 0;
	uint64_t now = clock_mono_ms();
	if (s->alarm_at && now >= s->alarm_at) {
		s->alarm_at = 0;
		s->alarm(s->user);
	}
	if (s->state == STREAM_CLOSED)
		return;
	if (s->deadline && now >= s->deadline) {
		s->deadline = 0;
		stream_late(s);
	} else if (s->idle_ms && now >= s->moved_at + s->idle_ms && !s->why.code) {
		err_set(&s->why, ETIMEDOUT, "connection idle for %llu ms",
			(unsigned long long)s->idle_ms);
	}
	if (s->state == STREAM_CLOSED)
		return;
	stream_arm(s);
	stream_settle(s);
}

static void stream_moved(struct stream *s)
{
	if (s->idle_ms)
		s->moved_at = clock_mono_ms();
}

/* -- output -- */

static void stream_send_failed(struct stream *s, int code)
{
	s->send_error = code;
	buf_done(&s->out);
	buf_done(&s->plain);
	stream_want_turn(s);
}

/* Sends from iov; returns the bytes taken, 0 when the socket is full or broken. */
static size_t stream_send(struct stream *s, struct iovec *iov, size_t count)
{
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = count};
	ssize_t n;
	do
		n = sendmsg(s->fd, &msg, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n >= 0) {
		s->bytes_out += (uint64_t)n;
		stream_moved(s);
		return (size_t)n;
	}
	if (errno == EAGAIN)
		s->blocked = true;
	else
		stream_send_failed(s, errno);
	return 0;
}

static void stream_send_out(struct stream *s)
{
	while (s->out.len && !s->blocked && !s->send_error) {
		struct iovec iov = {.iov_base = s->out.data, .iov_len = s->out.len};
		size_t n = stream_send(s, &iov, 1);
		if (n)
			buf_consume(&s->out, n);
	}
	if (!s->out.len && s->out.cap > STREAM_KEEP)
		buf_done(&s->out);
}

static void stream_encrypt(struct stream *s)
{
	if (!s->plain.len)
		return;
	struct err e = {0};
	if (s->filter->ops->push(s->filter, s->plain.data, s->plain.len, &s->out, &e) < 0) {
		s->why = e;
		stream_want_turn(s);
	}
	buf_consume(&s->plain, s->plain.len);
	if (s->plain.cap > STREAM_KEEP)
		buf_done(&s->plain);
}

static void stream_send_end(struct stream *s)
{
	if (s->filter && !s->ended && s->state == STREAM_OPEN) {
		struct err e = {0};
		s->ended = true;
		if (s->filter->ops->finish(s->filter, &s->out, &e) < 0)
			s->why = e;
		stream_send_out(s);
	}
	if (s->out.len || s->send_error)
		return;
	s->fin_sent = true;
	shutdown(s->fd, SHUT_WR);
}

/* Sends what can be sent; never calls the user. */
static void stream_flush(struct stream *s)
{
	if (s->state == STREAM_CONNECTING || s->send_error || s->why.code)
		return;
	if (s->filter && s->state == STREAM_OPEN)
		stream_encrypt(s);
	stream_send_out(s);
	bool over = s->state == STREAM_OPEN || s->state == STREAM_LINGERING;
	if (over && s->shut && !s->fin_sent && !stream_queued(s))
		stream_send_end(s);
}

/* Sends pieces behind what is corked, without copying what the socket takes. */
static ssize_t stream_send_direct(struct stream *s, const struct iovec *pieces, size_t count)
{
	struct iovec iov[STREAM_PIECES + 1] = {{.iov_base = s->out.data, .iov_len = s->out.len}};
	memcpy(iov + 1, pieces, count * sizeof(*pieces));
	size_t first = s->out.len ? 0 : 1;
	size_t sent = stream_send(s, iov + first, count + 1 - first);
	if (s->send_error)
		return 0;
	size_t corked = sent < s->out.len ? sent : s->out.len;
	buf_consume(&s->out, corked);
	sent -= corked;
	for (size_t i = 0; i < count; i++) {
		size_t skip = sent < pieces[i].iov_len ? sent : pieces[i].iov_len;
		sent -= skip;
		if (buf_append(&s->out, (const uint8_t *)pieces[i].iov_base + skip,
			       pieces[i].iov_len - skip) < 0) {
			stream_fail(s, ENOMEM, "sending");
			return -ENOMEM;
		}
	}
	return 0;
}

static int stream_cork(struct stream *s, const struct iovec *pieces, size_t count, size_t total)
{
	struct buf *cork = s->filter ? &s->plain : &s->out;
	if (buf_reserve(cork, total) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		buf_append(cork, pieces[i].iov_base, pieces[i].iov_len);
	return 0;
}

ssize_t stream_writev(struct stream *s, const struct iovec *pieces, size_t count)
{
	assert(count <= STREAM_PIECES);
	if (s->shut)
		return -EPIPE;
	if (s->send_error || s->why.code)
		return 0;
	size_t total = 0;
	for (size_t i = 0; i < count; i++)
		total += pieces[i].iov_len;

	bool open = s->state == STREAM_OPEN && !s->blocked;
	ssize_t r;
	if (open && !s->filter && total >= STREAM_DIRECT) {
		r = stream_send_direct(s, pieces, count);
	} else {
		r = stream_cork(s, pieces, count, total);
		if (open && stream_queued(s) >= STREAM_DIRECT)
			stream_flush(s);
	}
	if (r < 0)
		return r;
	size_t queued = stream_queued(s);
	if (queued)
		s->drain_due = true;
	if (s->blocked)
		stream_watch(s);
	else if (s->drain_due)
		stream_want_turn(s);
	return (ssize_t)queued;
}

ssize_t stream_write(struct stream *s, const void *p, size_t n)
{
	struct iovec piece = {.iov_base = (void *)(uintptr_t)p, .iov_len = n};
	return stream_writev(s, &piece, 1);
}

size_t stream_queued(const struct stream *s)
{
	return s->plain.len + s->out.len;
}

void stream_shutdown(struct stream *s)
{
	s->shut = true;
	stream_want_turn(s);
}

/* -- input -- */

static bool stream_wants_input(const struct stream *s)
{
	if (s->why.code || s->fin)
		return false;
	switch (s->state) {
	case STREAM_HANDSHAKING:
	case STREAM_LINGERING:
		return true;
	case STREAM_OPEN:
		return s->reading && !s->eof;
	case STREAM_CONNECTING:
	case STREAM_CLOSED:
		break;
	}
	return false;
}

static void stream_tell_eof(struct stream *s)
{
	s->eof = true;
	if (s->ops->eof)
		s->ops->eof(s->user);
}

static void stream_opened(struct stream *s)
{
	s->state = STREAM_OPEN;
	if (!s->detached)
		s->deadline = 0;
	stream_moved(s);
	stream_want_turn(s);
	if (s->ops->opened)
		s->ops->opened(s->user);
}

static void stream_handshake(struct stream *s)
{
	struct err e = {0};
	int r = s->filter->ops->handshake(s->filter, &s->out, &e);
	if (s->state == STREAM_CLOSED)
		return;
	if (r < 0 && r != -EAGAIN) {
		s->why = e;
		return;
	}
	stream_send_out(s);
	if (r == 0)
		stream_opened(s);
}

static void stream_pull(struct stream *s)
{
	uint8_t plain[STREAM_RECORD];
	while (s->state == STREAM_OPEN && s->reading && !s->eof && !s->why.code) {
		struct err e = {0};
		ssize_t n = s->filter->ops->pull(s->filter, plain, sizeof(plain), &s->out, &e);
		if (n == -EAGAIN)
			return;
		if (n < 0)
			s->why = e;
		else if (n == 0)
			stream_tell_eof(s);
		else
			s->ops->data(s->user, plain, (size_t)n);
	}
}

/* Lets the filter work on what it has. */
static void stream_filter_run(struct stream *s)
{
	if (s->state == STREAM_HANDSHAKING && !s->why.code)
		stream_handshake(s);
	stream_pull(s);
	if (s->state != STREAM_CLOSED && s->out.len)
		stream_want_turn(s);
}

static void stream_input(struct stream *s, const uint8_t *p, size_t n)
{
	if (s->state == STREAM_LINGERING)
		return;
	if (!s->filter) {
		s->ops->data(s->user, p, n);
		return;
	}
	if (s->filter->ops->feed(s->filter, p, n) < 0) {
		stream_fail(s, ENOMEM, "receiving");
		return;
	}
	stream_filter_run(s);
	if (s->filter->ops->keep(s->filter) < 0 && s->state != STREAM_CLOSED)
		stream_fail(s, ENOMEM, "receiving");
}

static void stream_input_end(struct stream *s)
{
	s->fin = true;
	if (s->state == STREAM_LINGERING || s->eof)
		return;
	if (!s->filter)
		stream_tell_eof(s);
	else if (!s->why.code)
		err_set(&s->why, ECONNRESET,
			"connection cut%s%s: no TLS close_notify before its end",
			*s->peer ? " by " : "", s->peer);
}

static void stream_receive(struct stream *s)
{
	uint8_t chunk[STREAM_CHUNK];
	for (int i = 0; i < STREAM_ROUNDS && stream_wants_input(s); i++) {
		ssize_t n = recv(s->fd, chunk, sizeof(chunk), 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN && s->broken)
			stream_fail(s, s->send_error ? s->send_error : ECONNRESET,
				    "connection lost");
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			stream_fail(s, errno, "connection lost");
			return;
		}
		if (n == 0) {
			stream_input_end(s);
			return;
		}
		s->bytes_in += (uint64_t)n;
		stream_moved(s);
		stream_input(s, chunk, (size_t)n);
		if ((size_t)n < sizeof(chunk) && !s->broken)
			return;
	}
}

void stream_read(struct stream *s, bool on)
{
	if (s->reading == on)
		return;
	s->reading = on;
	if (!on)
		return;
	s->filter_due = s->filter != NULL;
	if (s->filter_due || s->broken)
		stream_want_turn(s);
	stream_watch(s);
}

/* -- events -- */

static void stream_connected(struct stream *s)
{
	int code = 0;
	socklen_t len = sizeof(code);
	if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &code, &len) < 0)
		code = errno;
	if (code) {
		err_sys(&s->why, code, "connecting to %s", s->peer);
		return;
	}
	if (s->filter)
		s->state = STREAM_HANDSHAKING;
	else
		stream_opened(s);
	if (s->state != STREAM_CLOSED && s->filter) {
		s->filter_due = true;
		stream_want_turn(s);
	}
}

static void on_poll(uv_poll_t *h, int status, int events);

/* Makes poll watch for what is needed. Events no longer needed are dropped when they fire, which
   spares system calls when reading is turned off and on again. */
static void stream_watch_exactly(struct stream *s, bool exactly)
{
	if (s->state == STREAM_CLOSED || s->broken)
		return;
	int want = 0;
	if (s->state == STREAM_CONNECTING)
		want = s->connected ? 0 : UV_WRITABLE;
	else
		want = (stream_wants_input(s) ? UV_READABLE : 0) | (s->blocked ? UV_WRITABLE : 0);
	if (want == s->events || (!exactly && (s->events & want) == want))
		return;
	int r = want ? uv_poll_start(&s->poll, want, on_poll) : uv_poll_stop(&s->poll);
	s->events = want;
	if (r < 0)
		stream_fail(s, -r, "polling");
}

static void stream_watch(struct stream *s)
{
	stream_watch_exactly(s, false);
}

static void on_poll(uv_poll_t *h, int status, int events)
{
	struct stream *s = h->data;
	if (status < 0) {
		s->broken = true;
		s->blocked = false;
		s->events = 0;
		events = UV_READABLE | UV_WRITABLE;
	}
	if (s->state == STREAM_CONNECTING) {
		stream_connected(s);
	} else {
		if (events & UV_WRITABLE) {
			s->blocked = false;
			stream_flush(s);
			if (!stream_queued(s))
				stream_want_turn(s);
		}
		if (events & UV_READABLE)
			stream_receive(s);
	}
	if (s->state == STREAM_CLOSED)
		return;
	stream_watch_exactly(s, true);
	stream_settle(s);
}

static void stream_after_send_error(struct stream *s)
{
	if (stream_wants_input(s)) {
		s->broken = true;
		uv_poll_stop(&s->poll);
		s->events = 0;
		stream_receive(s);
	}
	if (s->state == STREAM_CLOSED || s->why.code)
		return;
	if (stream_wants_input(s))
		stream_want_turn(s);
	else
		stream_fail(s, s->send_error, "connection lost");
}

static void stream_tell_drained(struct stream *s)
{
	if (!s->drain_due || stream_queued(s) || s->send_error || s->state != STREAM_OPEN)
		return;
	s->drain_due = false;
	if (s->ops->drained)
		s->ops->drained(s->user);
}

static void stream_turn(struct stream *s)
{
	if (s->wake_due) {
		s->wake_due = false;
		s->wake(s->user);
	}
	if (s->state == STREAM_CONNECTING && s->connected)
		stream_connected(s);
	if (!s->filter_due || s->state == STREAM_CONNECTING || s->state == STREAM_CLOSED)
		return;
	s->filter_due = false;
	stream_filter_run(s);
}

static void on_turn(uv_idle_t *h)
{
	struct stream *s = h->data;
	uv_idle_stop(h);
	stream_turn(s);
	if (s->state == STREAM_CLOSED)
		return;
	stream_flush(s);
	stream_tell_drained(s);
	if (s->state == STREAM_CLOSED)
		return;
	if (s->send_error)
		stream_after_send_error(s);
	else if (s->broken)
		stream_receive(s);
	if (s->state == STREAM_CLOSED)
		return;
	stream_watch(s);
	stream_settle(s);
}

/* The user has been told, or is gone: last words, then the end. */
static void stream_linger(struct stream *s, uint64_t ms)
{
	uint64_t due = clock_mono_ms() + ms;
	s->state = STREAM_LINGERING;
	buf_done(&s->plain);
	s->ops = &no_ops;
	s->detached = s->shut = true;
	s->idle_ms = s->alarm_at = 0;
	s->wake_due = s->drain_due = false;
	s->deadline = earlier(s->deadline, due);
	stream_flush(s);
	stream_watch(s);
	stream_arm(s);
}

/* Ends an event: failure and the end of a graceful close happen here. */
static void stream_settle(struct stream *s)
{
	if (s->state == STREAM_CLOSED)
		return;
	if (s->state == STREAM_LINGERING) {
		bool lost = s->why.code || s->send_error || s->broken;
		if (lost || (s->fin_sent && s->fin))
			stream_destroy(s);
		return;
	}
	if (s->why.code) {
		const struct stream_ops *ops = s->ops;
		struct err why = s->why;
		if (s->filter && s->out.len && !s->broken && !s->send_error) {
			s->why.code = 0;
			s->deadline = 0;
			stream_linger(s, STREAM_LINGER_MS);
		} else {
			stream_destroy(s);
		}
		if (ops->closed)
			ops->closed(s->user, &why);
		return;
	}
	if (!s->detached || !s->fin_sent)
		return;
	if (s->fin)
		stream_destroy(s);
	else
		stream_linger(s, STREAM_LINGER_MS);
}

void stream_close(struct stream *s)
{
	assert(s->state != STREAM_CLOSED);
	s->ops = &no_ops;
	stream_destroy(s);
}

void stream_close_gracefully(struct stream *s, uint64_t timeout_ms)
{
	if (s->why.code || s->send_error || s->broken) {
		stream_close(s);
		return;
	}
	s->ops = &no_ops;
	s->detached = s->shut = s->reading = true;
	s->idle_ms = s->alarm_at = 0;
	s->wake_due = false;
	s->deadline = clock_mono_ms() + timeout_ms;
	stream_arm(s);
	stream_watch(s);
	stream_want_turn(s);
}

/* -- making one -- */

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
	s->fd = fd;
	s->ops = ops;
	s->user = user;
	buf_init(&s->plain, STREAM_OUT_MAX);
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
		s->deadline = earlier(s->deadline, clock_mono_ms() + timeout_ms);
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
