/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stream.c and the code beside it share. A filter turns the bytes on the wire into the bytes
 * that the user sees; TLS is the one there is. It is reached through pointers alone, so that a
 * program which never asks for TLS does not link it. The hooks serve server.c and client.c, which
 * owe their users the same promise as a stream does: no callback from inside a call.
 */
#pragma once

#include <sys/uio.h>

#include "base/buf.h"
#include "http/stream.h"

struct stream_filter;

struct stream_filter_ops {
	/* Lends input; it is read in order by the two calls below. 0, -ENOMEM. */
	int (*feed)(struct stream_filter *f, const uint8_t *p, size_t n);
	/* Copies what is left of the loan; the loan ends. 0, -ENOMEM. */
	int (*keep)(struct stream_filter *f);
	/* Goes on with the handshake; what is to be sent is appended to out. 0 when done, -EAGAIN,
	 * or -errno with e set. */
	int (*handshake)(struct stream_filter *f, struct buf *out, struct err *e);
	/* Plaintext into p: its length, 0 at the peer's orderly end, -EAGAIN, or -errno with e set.
	 */
	ssize_t (*pull)(struct stream_filter *f, void *p, size_t n, struct buf *out, struct err *e);
	/* Appends the encrypted form of p[0 .. n) to out. 0, or -errno with e set. */
	int (*push)(struct stream_filter *f, const void *p, size_t n, struct buf *out,
		    struct err *e);
	/* Appends the orderly end. 0, or -errno with e set. */
	int (*finish)(struct stream_filter *f, struct buf *out, struct err *e);
	void (*free)(struct stream_filter *f);
};

struct stream_filter {
	const struct stream_filter_ops *ops;
};

/* Puts f between the wire and the user and starts its handshake from the loop. Takes f over, also
   on failure. 0, -EINVAL when there is one already or the stream is at its end. */
int stream_set_filter(struct stream *s, struct stream_filter *f, uint64_t timeout_ms,
		      struct err *e);
struct stream_filter *stream_get_filter(const struct stream *s); /* NULL: none */

/* As stream_write, from several pieces (at most STREAM_PIECES). */
#define STREAM_PIECES 6
ssize_t stream_writev(struct stream *s, const struct iovec *pieces, size_t count);

/* Asks for one call of wake(user) from the loop, before any other callback. */
void stream_wake(struct stream *s);

/* Asks for alarm(user) in ms from now; 0 calls it off. */
void stream_alarm(struct stream *s, uint64_t ms);
void stream_set_hooks(struct stream *s, void (*wake)(void *user), void (*alarm)(void *user));
