/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.1, sans-I/O and strict: bytes in, messages out, and the reverse. What two readers could
 * understand in two ways is refused, so that nothing behind us is ever desynchronised.
 * Source: RFC 9112, RFC 9110; each refusal is a test in tests/e2e/gateway.
 */
#pragma once

#include <sys/types.h>

#include "base/buf.h"
#include "http/msg.h"

enum h1_fault { /* why a head was refused; the status that a server answers */
		H1_BAD_REQUEST = 400,
		H1_METHOD_NOT_ALLOWED = 405,
		H1_URI_TOO_LONG = 414,
		H1_EXPECTATION_FAILED = 417,
		H1_FIELDS_TOO_LARGE = 431,
		H1_NOT_IMPLEMENTED = 501,
		H1_VERSION = 505,
};

/*
 * Reads one request head from p[0 .. n). Returns the bytes consumed (head filled, the caller's to
 * http_head_done); -EAGAIN when the head is not complete; -EBADMSG with *ret_fault set when it is
 * refused; -ENOMEM. On failure head is untouched. The verdict depends on the bytes, not on how they
 * were cut; calling again with more is cheap.
 *
 * Refused: no or more than one Host, a list or userinfo in Host, both framings, Transfer-Encoding
 * other than exactly "chunked" (in lower case, in HTTP/1.1), several, signed, padded or listed
 * Content-Length, one past INT64_MAX, obs-fold, bare CR or LF, space before the colon, NUL or
 * control characters, names that are no token, HTTP versions other than 1.0 and 1.1, a target that
 * is not origin-form, absolute-form or (for OPTIONS) "*", a fragment, '\' in the path, an authority
 * that is not equal to Host, CONNECT, TRACE, TRACK, Expect other than 100-continue, empty lines
 * before the head.
 *
 * An absolute-form is http or https, and its path may be missing: "http://a", "http://a?q".
 * expect_continue is set only where a body follows. In HTTP/1.0 Host may miss.
 */
ssize_t h1_read_request(const uint8_t *p, size_t n, struct http_head *head,
			enum h1_fault *ret_fault);

/*
 * Reads one response head to a request of the given method. As above; framing accounts for HEAD,
 * 1xx, 204 and 304. 1xx heads are returned like others: the caller reads on. A 204 that declares a
 * body is taken without one and ends the connection; a 1xx that does is refused.
 */
ssize_t h1_read_response(const uint8_t *p, size_t n, const char *request_method,
			 struct http_head *head);

/* Delimits one body. */
struct h1_body {
	enum http_framing framing;
	uint64_t left;  /* of the length, or of the present chunk */
	unsigned state; /* private */
	size_t line;    /* private: bytes of the present line or trailer section */
};

void h1_body_init(struct h1_body *b, const struct http_head *head);

/*
 * Takes bytes from p[0 .. n): the body bytes among them are *ret_data (inside p, *ret_len bytes, at
 * most one run a call). Returns the bytes consumed, 0 only when it needs more or is done; -EBADMSG,
 * then for good. Chunk extensions and trailers are checked and dropped. Call until it consumes
 * nothing.
 */
ssize_t h1_body_read(struct h1_body *b, const uint8_t *p, size_t n, const uint8_t **ret_data,
		     size_t *ret_len);

/* The whole body was read. For HTTP_TO_CLOSE never: the end of the stream is the end. */
bool h1_body_done(const struct h1_body *b);

/*
 * Append a head in canonical form, as HTTP/1.1, whole or not at all. Content-Length,
 * Transfer-Encoding and Connection are made from framing, length and keep_alive; fields of those
 * names in the list are skipped. minor 0: the peer speaks 1.0, keep-alive is said aloud. upgrade:
 * Connection says Upgrade, for the field of that name in the list.
 * HTTP_NO_BODY declares nothing: in a response it is for HEAD, 1xx, 204, 304 alone. 1xx and 204
 * never declare a body. 0, -ENOMEM; -EINVAL for a head that h1_read would refuse (a request needs
 * its one Host); -EMSGSIZE when it would be past the caps of a head or of out.
 */
int h1_write_request(struct buf *out, const struct http_head *head);
int h1_write_response(struct buf *out, const struct http_head *head);

/* Append a chunk of n > 0 bytes, or the last chunk. 0, -EMSGSIZE, -ENOMEM. */
int h1_write_chunk(struct buf *out, const void *p, size_t n);
int h1_write_last_chunk(struct buf *out);
