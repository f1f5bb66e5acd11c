/* SPDX-License-Identifier: Apache-2.0 */
/* A body that goes out over HTTP/2, and the trailers behind it: queued by its user, taken by
 * nghttp2 when the peer's windows and the socket have room. */
#pragma once

#include <sys/types.h>

#include <nghttp2/nghttp2.h>

#include "base/buf.h"
#include "http/msg.h"

struct h2_out {
	struct buf queue;
	struct http_fields trailers;
	enum http_framing framing;
	uint64_t left; /* of the length */
	bool drop;     /* the peer expects none: it is counted, not sent */
	bool whole;    /* nothing is added any more */
	bool deferred; /* nghttp2 found nothing to take */
	bool owes;     /* drained() */
};

void h2_out_init(struct h2_out *o, size_t max); /* of a zeroed one; max: bytes queued */
void h2_out_done(struct h2_out *o);

/* Returns the bytes now queued, or -EPIPE past the length or the end, -EMSGSIZE, -ENOMEM. */
ssize_t h2_out_write(struct h2_out *o, const void *p, size_t n);
int h2_out_trailers(struct h2_out *o, const struct http_fields *fields); /* 0, -ENOMEM, -E2BIG */
bool h2_out_is_complete(const struct h2_out *o); /* no byte of the length is missing */

/* What nghttp2's read callback returns. */
ssize_t h2_out_pull(struct h2_out *o, nghttp2_session *s, int32_t id, uint8_t *to, size_t room,
		    uint32_t *flags);

/* Has nghttp2 come again, where it found nothing. id 0: the stream is gone. */
void h2_out_resume(struct h2_out *o, nghttp2_session *s, int32_t id);
