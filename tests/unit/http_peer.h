/* SPDX-License-Identifier: Apache-2.0 */
/* The other end of a connection under test: says raw bytes, keeps what it hears. */
#pragma once

#include "base/buf.h"
#include "http/stream.h"
#include "http_loop.h"

#define PEER_MAX (96 * 1024 * 1024)

struct peer {
	struct stream *s; /* NULL when closed */
	struct buf heard; /* NUL-terminated behind its end */
	const char *awaited;
	bool ok; /* awaited was heard */
	bool eof;
	bool over; /* eof or closed */
	struct err why;
};

/* Whether text is among what was heard, NUL bytes or not. */
static inline bool peer_has(const struct peer *p, const char *text)
{
	return p->heard.len && memmem(p->heard.data, p->heard.len, text, strlen(text));
}

static inline void peer_look(struct peer *p)
{
	assert_int_equal(buf_reserve(&p->heard, 1), 0);
	p->heard.data[p->heard.len] = '\0';
	if (p->awaited && peer_has(p, p->awaited))
		p->ok = true;
}

static inline void peer_data(void *user, const uint8_t *bytes, size_t n)
{
	struct peer *p = user;
	assert_int_equal(buf_append(&p->heard, bytes, n), 0);
	if (p->awaited)
		peer_look(p);
}

static inline void peer_eof(void *user)
{
	struct peer *p = user;
	p->eof = p->over = true;
}

static inline void peer_closed(void *user, const struct err *why)
{
	struct peer *p = user;
	p->s = NULL;
	p->over = true;
	p->why = *why;
}

static const struct stream_ops peer_ops = {
	.data = peer_data, .eof = peer_eof, .closed = peer_closed};

static inline void peer_open(struct peer *p, uv_loop_t *loop, int fd)
{
	*p = (struct peer){0};
	buf_init(&p->heard, PEER_MAX);
	p->s = stream_adopt(loop, fd, &peer_ops, p, NULL);
	assert_non_null(p->s);
	stream_read(p->s, true);
}

static inline void peer_say(struct peer *p, const char *text)
{
	assert_true(stream_write(p->s, text, strlen(text)) >= 0);
}

/* Waits until text is among what was heard. */
static inline void peer_await(struct peer *p, uv_loop_t *loop, const char *text)
{
	p->awaited = text;
	p->ok = false;
	peer_look(p);
	wait_for(loop, &p->ok);
	p->awaited = NULL;
}

static inline const char *peer_heard(struct peer *p)
{
	peer_look(p);
	return (const char *)p->heard.data;
}

static inline void peer_forget(struct peer *p)
{
	buf_consume(&p->heard, p->heard.len);
}

static inline void peer_done(struct peer *p)
{
	if (p->s)
		stream_close(p->s);
	p->s = NULL;
	buf_done(&p->heard);
}
