/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of HTTP/2: frames as bytes, said by the other end of a connection and looked for in
 * what it hears. */
#pragma once

#include <nghttp2/nghttp2.h>

#include "http_peer.h"

#define FRAME_HEAD 9 /* bytes before a frame's payload */

struct frame {
	uint8_t type, flags;
	uint32_t stream;
	size_t len;
	const uint8_t *payload; /* in the peer's buffer */
};

static inline uint32_t be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* stream below 256. */
static inline void frame_append(struct buf *to, uint8_t type, uint8_t flags, uint8_t stream,
				const void *payload, size_t n)
{
	const uint8_t head[FRAME_HEAD] = {
		0, (uint8_t)(n >> 8), (uint8_t)n, type, flags, 0, 0, 0, stream};
	assert_int_equal(buf_append(to, head, sizeof(head)), 0);
	assert_int_equal(buf_append(to, payload, n), 0);
}

/* SETTINGS of one setting; id 0: of none. */
static inline void settings_append(struct buf *to, uint8_t id, uint8_t value)
{
	const uint8_t setting[6] = {0, id, 0, 0, 0, value};
	frame_append(to, NGHTTP2_SETTINGS, 0, 0, setting, id ? sizeof(setting) : 0);
}

/* All of it at once, so that it is read at once; from is empty afterwards. */
static inline void peer_say_buf(struct peer *p, struct buf *from)
{
	assert_true(stream_write(p->s, from->data, from->len) >= 0);
	buf_done(from);
}

/* The first frame of its type, with these flags, on its stream behind the first skip bytes. */
static inline bool frame_find(const struct peer *p, size_t skip, uint8_t type, uint8_t flags,
			      uint32_t stream, struct frame *ret)
{
	for (size_t at = skip; p->heard.len >= at + FRAME_HEAD;) {
		const uint8_t *h = p->heard.data + at;
		*ret = (struct frame){.type = h[3],
				      .flags = h[4],
				      .stream = be32(h + 5),
				      .len = be32(h) >> 8,
				      .payload = h + FRAME_HEAD};
		at += FRAME_HEAD + ret->len;
		if (p->heard.len >= at && ret->type == type && (ret->flags & flags) == flags &&
		    ret->stream == stream)
			return true;
	}
	return false;
}

/* Runs the loop until it has been heard. Fails the test after WAIT_MS. */
static inline struct frame frame_await(struct peer *p, uv_loop_t *loop, size_t skip, uint8_t type,
				       uint8_t flags, uint32_t stream)
{
	bool late = false, found;
	struct frame frame;
	uv_timer_t deadline = {.data = &late};
	uv_timer_init(loop, &deadline);
	uv_timer_start(&deadline, wait_over, WAIT_MS, 0);
	while (!(found = frame_find(p, skip, type, flags, stream, &frame)) && !late)
		uv_run(loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&deadline, NULL);
	spin(loop, 1);
	assert_true(found);
	assert_true(
		frame_find(p, skip, type, flags, stream, &frame)); /* the buffer may have moved */
	return frame;
}
