/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames of a WebSocket from either side, in pieces of any size. The first byte says which side,
 * the second how large the pieces are. What is refused, and what is passed on, does not depend on
 * how they are cut; what is passed on is as long as what came, and differs in nothing but payload.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "egress/frames.h"

#define OUT_MAX 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool truth)
{
	if (!truth)
		abort();
}

struct output {
	uint8_t bytes[OUT_MAX];
	size_t n;
};

static void collect(void *user, const uint8_t *p, size_t n)
{
	struct output *out = user;
	require(n <= sizeof(out->bytes) - out->n);
	if (n)
		memcpy(out->bytes + out->n, p, n);
	out->n += n;
}

static int run(struct needles *n, bool redact, const uint8_t *p, size_t len, size_t piece,
	       struct output *out)
{
	struct frames *f = frames_new(n, redact, redact);
	int r = 0;
	require(f);
	out->n = 0;
	for (size_t at = 0; at < len && r == 0; at += piece) {
		size_t part = len - at < piece ? len - at : piece;
		uint8_t *exact = malloc(part); /* so that a read past its end is seen */
		require(exact);
		memcpy(exact, p + at, part);
		r = frames_push(f, exact, part, collect, out, NULL);
		free(exact);
		require(out->n <= at + part);
	}
	if (r == 0)
		frames_relent(f, collect, out);
	require(r == 0 || r == -EBADMSG || (r == -EACCES && !redact));
	frames_free(f);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct output whole, cut;
	if (size < 2 || size > OUT_MAX)
		return 0;
	bool redact = data[0] & 1;
	size_t piece = data[1] % 64 + 1, len = size - 2;
	const uint8_t *bytes = data + 2;
	struct needles *n = needles_new(NULL);
	require(n && needles_add(n, "abcdefgh", 8, 0) == 0 && needles_compile(n) == 0);

	int a = run(n, redact, bytes, len, len ? len : 1, &whole);
	int b = run(n, redact, bytes, len, piece, &cut);
	require(a == b);
	size_t common = whole.n < cut.n ? whole.n : cut.n;
	bool lines =
		memchr(data, '\n', size) || memchr(data, '\r', size); /* whose ends don't wait */
	require(lines || a < 0 || whole.n == cut.n);
	require(lines || !common || !memcmp(whole.bytes, cut.bytes, common));
	require(redact || !whole.n || !memcmp(whole.bytes, bytes, whole.n));
	needles_put(n);
	return 0;
}
