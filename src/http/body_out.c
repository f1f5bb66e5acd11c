/* SPDX-License-Identifier: Apache-2.0 */
#include "http/body_out.h"

#include <errno.h>
#include <stdio.h>

#include "http/stream_filter.h"

static ssize_t write_chunk(struct stream *s, const void *p, size_t n)
{
	char line[24];
	int len = snprintf(line, sizeof(line), "%zx\r\n", n);
	const struct iovec pieces[] = {
		{.iov_base = line, .iov_len = (size_t)len},
		{.iov_base = (void *)(uintptr_t)p, .iov_len = n},
		{.iov_base = "\r\n", .iov_len = 2},
	};
	return stream_writev(s, pieces, 3);
}

ssize_t body_out_write(struct body_out *b, struct stream *s, const void *p, size_t n)
{
	if (b->framing == HTTP_NO_BODY && n)
		return -EPIPE;
	if (b->framing == HTTP_LENGTH) {
		if (n > b->left)
			return -EPIPE;
		b->left -= n;
	}
	if (b->drop || !n)
		return (ssize_t)stream_queued(s);
	return b->framing == HTTP_CHUNKED ? write_chunk(s, p, n) : stream_write(s, p, n);
}

int body_out_end(struct body_out *b, struct stream *s)
{
	if (b->framing == HTTP_LENGTH && b->left && !b->drop)
		return -EPIPE;
	if (b->framing != HTTP_CHUNKED || b->drop)
		return 0;
	ssize_t r = stream_write(s, "0\r\n\r\n", 5);
	return r < 0 ? (int)r : 0;
}
