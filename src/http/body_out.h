/* SPDX-License-Identifier: Apache-2.0 */
/* The body that we send, in either direction: its framing put onto a stream without copying what
 * the socket takes. */
#pragma once

#include "http/msg.h"
#include "http/stream.h"

struct body_out {
	enum http_framing framing;
	uint64_t left; /* of the length */
	bool drop;     /* the peer expects none: it is counted, not sent */
};

/* Returns the bytes now queued on s, or -EPIPE past the length, -ENOMEM. */
ssize_t body_out_write(struct body_out *b, struct stream *s, const void *p, size_t n);

/* 0, or -EPIPE when bytes are missing. */
int body_out_end(struct body_out *b, struct stream *s);
