/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_init(struct buf *b, size_t max)
{
	*b = (struct buf){.max = max};
}

void buf_init_secret(struct buf *b, size_t max)
{
	*b = (struct buf){.max = max, .wipes = true};
}

static void buf_release(struct buf *b)
{
	if (!b->data)
		return;
	if (b->wipes)
		explicit_bzero(b->data - b->off, b->off + b->cap);
	free(b->data - b->off);
}

void buf_done(struct buf *b)
{
	buf_release(b);
	*b = (struct buf){.max = b->max, .wipes = b->wipes};
}

static void buf_compact(struct buf *b)
{
	if (!b->off)
		return;
	memmove(b->data - b->off, b->data, b->len);
	b->data -= b->off;
	b->cap += b->off;
	b->off = 0;
}

int buf_reserve(struct buf *b, size_t n)
{
	if (n > b->max || b->len > b->max - n)
		return -EMSGSIZE;
	if (b->cap - b->len >= n)
		return 0;

	/* Moving is cheap only when little is left to move. */
	if (b->cap + b->off - b->len >= n && b->len <= b->off) {
		buf_compact(b);
		return 0;
	}
	size_t want = b->len + n;
	size_t cap = b->cap + b->off < 256 ? 256 : (b->cap + b->off) * 2;
	if (cap > b->max)
		cap = b->max;
	if (cap < want)
		cap = want;
	uint8_t *p = malloc(cap);
	if (!p)
		return -ENOMEM;
	if (b->data) {
		memcpy(p, b->data, b->len);
		buf_release(b);
	}
	b->data = p;
	b->cap = cap;
	b->off = 0;
	return 0;
}

int buf_append(struct buf *b, const void *p, size_t n)
{
	if (!n)
		return 0;
	int r = buf_reserve(b, n);
	if (r < 0)
		return r;
	memcpy(b->data + b->len, p, n);
	b->len += n;
	return 0;
}

int buf_append_str(struct buf *b, const char *s)
{
	return buf_append(b, s, strlen(s));
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	char small[256];
	int n = vsnprintf(small, sizeof(small), fmt, ap);
	va_end(ap);
	if (n < 0)
		return -EINVAL;
	if ((size_t)n < sizeof(small))
		return buf_append(b, small, (size_t)n);

	char *big = malloc((size_t)n + 1);
	if (!big)
		return -ENOMEM;
	va_start(ap, fmt);
	vsnprintf(big, (size_t)n + 1, fmt, ap);
	va_end(ap);
	int r = buf_append(b, big, (size_t)n);
	free(big);
	return r;
}

void buf_consume(struct buf *b, size_t n)
{
	assert(n <= b->len);
	if (!n)
		return;
	if (b->wipes)
		explicit_bzero(b->data, n);
	if (n == b->len) {
		b->data -= b->off;
		b->cap += b->off;
		b->off = 0;
		b->len = 0;
		return;
	}
	b->data += n;
	b->off += n;
	b->cap -= n;
	b->len -= n;
}

char *buf_take_str(struct buf *b)
{
	char *s = malloc(b->len + 1);
	if (!s)
		return NULL;
	if (b->len)
		memcpy(s, b->data, b->len);
	s[b->len] = '\0';
	buf_done(b);
	return s;
}
