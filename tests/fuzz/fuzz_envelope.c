/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of Connect envelopes, read whole and cut, and written back. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "http/envelope.h"

#define PAYLOAD_MAX 1000 /* bytes */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static ssize_t read_exact(const uint8_t *p, size_t n, struct envelope *e)
{
	auto_free uint8_t *copy = calloc(n, 1);
	if (n)
		memcpy(copy, p, n);
	ssize_t r = envelope_read(copy, n, PAYLOAD_MAX, e);
	if (r >= 0 && (e->payload != copy + ENVELOPE_HEAD || e->len > PAYLOAD_MAX ||
		       (size_t)r != ENVELOPE_HEAD + e->len || (size_t)r > n))
		abort();
	return r;
}

static void check_prefixes(const uint8_t *p, size_t n, ssize_t whole)
{
	for (size_t k = 0; k < n && k < 2 * PAYLOAD_MAX; k++) {
		struct envelope e;
		ssize_t r = read_exact(p, k, &e);
		if (r != whole && r != -EAGAIN)
			abort();
		if (r == -EAGAIN && whole >= 0 && k >= (size_t)whole)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	while (size) {
		struct envelope e;
		ssize_t r = read_exact(data, size, &e);
		check_prefixes(data, size, r);
		if (r < 0)
			break;

		auto_buf struct buf b;
		buf_init(&b, ENVELOPE_HEAD + PAYLOAD_MAX);
		if (envelope_write(&b, e.flag, data + ENVELOPE_HEAD, e.len) < 0 ||
		    b.len != (size_t)r || memcmp(b.data, data, b.len) != 0)
			abort();
		data += r;
		size -= (size_t)r;
	}
	return 0;
}
