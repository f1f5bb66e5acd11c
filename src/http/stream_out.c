/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The output of a stream. Small writes are corked in `out`, or under a filter in `plain`; what is
 * large is sent from where it lies, behind what is corked. Only what the socket does not take is
 * copied. Nothing here calls the user.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "http/stream_state.h"

#define STREAM_DIRECT ((size_t)16 * 1024) /* bytes; from here on a write is sent at once */

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

void stream_flush(struct stream *s)
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
