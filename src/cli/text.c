/* SPDX-License-Identifier: Apache-2.0 */
/* Escapes for the terminal; ordinary text in any language passes unchanged. */
#include "cli/text.h"

#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"

#define TEXT_MAX (16u << 20) /* bytes of escaped text */

/* Bytes of the UTF-8 sequence that starts at p, 0 when it is none. */
static size_t sequence_len(const uint8_t *p, size_t n)
{
	size_t want = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	return want <= n && str_is_utf8(p, want) ? want : 0;
}

static uint32_t code_point(const uint8_t *p, size_t len)
{
	if (len == 1)
		return p[0];
	uint32_t c = p[0] & (0xffu >> (len + 1));
	for (size_t i = 1; i < len; i++)
		c = c << 6 | (p[i] & 0x3fu);
	return c;
}

static bool is_unsafe(uint32_t c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x061c || c == 0x200e || c == 0x200f ||
	       (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

static int put_escape(struct buf *out, uint32_t c)
{
	if (c == '\n')
		return buf_append_str(out, "\\n");
	if (c == '\t')
		return buf_append_str(out, "\\t");
	return buf_printf(out, c < 0x100 ? "\\x%02x" : "\\u{%04x}", c);
}

char *text_safe(const char *s, size_t n)
{
	auto_buf struct buf out;
	buf_init(&out, TEXT_MAX);
	const uint8_t *p = (const uint8_t *)s;
	while (n) {
		size_t len = sequence_len(p, n);
		uint32_t c = len ? code_point(p, len) : p[0];
		int r = !len           ? buf_printf(&out, "\\x%02x", c)
			: is_unsafe(c) ? put_escape(&out, c)
				       : buf_append(&out, p, len);
		if (r < 0)
			break;
		p += len ? len : 1;
		n -= len ? len : 1;
	}
	return buf_take_str(&out);
}

void text_put(FILE *out, const char *s)
{
	auto_free char *safe = text_safe(s, strlen(s));
	if (safe)
		fputs(safe, out);
}
