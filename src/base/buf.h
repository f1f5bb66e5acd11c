/* SPDX-License-Identifier: Apache-2.0 */
/* A byte buffer that grows up to a stated maximum; bytes go in at the end and out at the front. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
	uint8_t *data; /* the valid bytes are data[0 .. len) */
	size_t len;
	size_t cap;
	size_t max; /* never grows past this many bytes */
	size_t off; /* private: bytes between the allocation's start and data */
	bool wipes;
};

/* An empty buffer of at most max bytes; nothing is allocated yet. */
void buf_init(struct buf *b, size_t max);

/* One for what may hold secrets: what it releases, or holds no longer, is wiped. */
void buf_init_secret(struct buf *b, size_t max);

/* Releases the memory and leaves an empty buffer of the same kind. */
void buf_done(struct buf *b);

/* Makes room for n more bytes at data + len. 0, -EMSGSIZE past max, -ENOMEM. */
int buf_reserve(struct buf *b, size_t n);

/* Appends; all or nothing. 0, -EMSGSIZE, -ENOMEM. */
int buf_append(struct buf *b, const void *p, size_t n);
int buf_append_str(struct buf *b, const char *s);
int buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Drops the first n bytes, n <= len. */
void buf_consume(struct buf *b, size_t n);

/* Yields the bytes as a NUL-terminated heap string that the caller frees; the buffer is left empty.
 * NULL: no memory. */
char *buf_take_str(struct buf *b);

static inline void cleanup_buf(struct buf *b)
{
	buf_done(b);
}
#define auto_buf __attribute__((cleanup(cleanup_buf)))
