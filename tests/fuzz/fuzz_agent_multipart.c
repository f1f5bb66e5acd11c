/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forms: cut anywhere, a body has the same parts. The first byte chooses the cut, the rest is the
 * body. What is written down of both readings must agree, and data must be inside the input or the
 * delimiter.
 */
#include <stdlib.h>
#include <string.h>

#include "agent/multipart.h"
#include "base/buf.h"

/* Appends what happens to out. Returns 0 or the error. */
static int read_form(const uint8_t *p, size_t n, size_t piece, struct buf *out)
{
	struct multipart m;
	enum multipart_event event = MULTIPART_MORE;
	ssize_t r = multipart_init(&m, "multipart/form-data; boundary=B");
	for (size_t at = 0; r >= 0 && at < n; at += piece) {
		const uint8_t *q = p + at;
		size_t left = n - at < piece ? n - at : piece;
		do {
			r = multipart_read(&m, q, left, &event);
			if (r < 0)
				break;
			if ((size_t)r > left)
				abort();
			q += r;
			left -= (size_t)r;
			if (event == MULTIPART_PART)
				buf_printf(out, "[%s|%s]", m.name ? m.name : "",
					   m.filename ? m.filename : "");
			else if (event == MULTIPART_DATA)
				buf_append(out, m.data, m.len);
			else if (event == MULTIPART_PART_END)
				buf_append_str(out, ";");
		} while (event != MULTIPART_MORE && event != MULTIPART_END);
	}
	buf_append_str(out, multipart_complete(&m) ? "END" : "OPEN");
	multipart_done(&m);
	return r < 0 ? (int)r : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (n < 2)
		return 0;
	struct buf whole, cut;
	buf_init(&whole, 1 << 24);
	buf_init(&cut, 1 << 24);
	size_t piece = 1 + data[0] % 16;
	int a = read_form(data + 1, n - 1, n, &whole);
	int b = read_form(data + 1, n - 1, piece, &cut);
	if (a != b ||
	    (a == 0 && (whole.len != cut.len || memcmp(whole.data, cut.data, cut.len) != 0)))
		abort();
	buf_done(&whole);
	buf_done(&cut);
	return 0;
}
