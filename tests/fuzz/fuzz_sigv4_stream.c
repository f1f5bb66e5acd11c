/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies in aws-chunked form of a hostile guest: how they are cut makes no difference, what goes on
 * is as long as what came, and signing it again changes nothing. The first byte says whether there
 * are trailers, and the size of the pieces.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "vault/sigv4.h"

#define CHUNK_MAX 4096
#define BODY_MAX  (1024 * 1024)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool truth)
{
	if (!truth)
		abort();
}

static int to_buf(void *user, const uint8_t *p, size_t n)
{
	require(n <= CHUNK_MAX + 130 || n <= 16 * 1024);
	return buf_append(user, p, n);
}

/* What sigv4_stream_push() and _end() return. */
static int sign_pieces(const uint8_t *p, size_t n, size_t piece, bool trailers, struct buf *out)
{
	struct sigv4_chain chain = {.stamp = "20130524T000000Z",
				    .scope = "20130524/us-east-1/s3/aws4_request",
				    .previous = "106e2a8a18243abcf37539882f36619c"
						"00e2dfc72633413f02d3b74544bfeb8e"};
	struct sigv4_stream *s = sigv4_stream_new(&chain, trailers, CHUNK_MAX);
	int r = 0;
	require(s);
	for (size_t at = 0; at < n && r == 0; at += piece)
		r = sigv4_stream_push(s, p + at, n - at < piece ? n - at : piece, to_buf, out,
				      NULL);
	require(r == 0 || r == -EBADMSG);
	require(r == 0 || sigv4_stream_push(s, (const uint8_t *)"0", 1, to_buf, out, NULL) < 0);
	if (r == 0)
		r = sigv4_stream_end(s, NULL);
	sigv4_stream_free(s);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size || size > BODY_MAX)
		return 0;
	bool trailers = data[0] & 1;
	size_t piece = (size_t)(data[0] >> 1) + 1;
	data++;
	size--;
	auto_buf struct buf whole, pieces, again;
	buf_init(&whole, BODY_MAX);
	buf_init(&pieces, BODY_MAX);
	buf_init(&again, BODY_MAX);
	int r = sign_pieces(data, size, size ? size : 1, trailers, &whole);
	require(sign_pieces(data, size, piece, trailers, &pieces) == r);
	require(whole.len == pieces.len && whole.len <= size);
	require(!whole.len || !memcmp(whole.data, pieces.data, whole.len));
	if (r < 0)
		return 0;
	require(whole.len == size);
	require(sign_pieces(whole.data, whole.len, piece, trailers, &again) == 0);
	require(again.len == size && (!size || !memcmp(again.data, whole.data, size)));
	return 0;
}
