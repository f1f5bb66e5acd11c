/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sparse file holds, whatever its holes: blocks that are all zero and holes are the same. So
 * a checksum stays what it is when a file is copied, compressed or moved to another filesystem, and
 * holes cost nothing.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define CONTENT_BLOCK    4096         /* bytes */
#define CONTENT_RUN_MAX  (1u << 20)   /* bytes, a multiple of CONTENT_BLOCK */
#define CONTENT_ZERO_MIN (64u << 10)  /* bytes: shorter runs of zeros are not worth a hole */
#define CONTENT_SIZE_MAX (1ull << 50) /* bytes */
#define CONTENT_HEX_SIZE 65           /* with the NUL */

/* Gets blocks in order, adjacent ones together: at is a multiple of CONTENT_BLOCK, n is one too but
   at the end of the file, and at most CONTENT_RUN_MAX. Ends the walk with a negative number. */
struct content_sink {
	int (*run)(void *user, uint64_t at, const void *p, size_t n);
	void *user;
};

/* Walks through fd[0 .. size) in blocks that are not all zero. drop: makes holes of the longer runs
   of zeros on the way (fd is read-write then). Moves fd's offset. 0; -ENODATA when the file ends
   early; -errno; what run returned. */
int content_walk(int fd, uint64_t size, bool drop, const struct content_sink *sink);

/* SHA-256 over the size and each such block with its offset. */
struct content_sum {
	void *md; /* private */
};
int content_sum_init(struct content_sum *s, uint64_t size);
int content_sum_add(struct content_sum *s, uint64_t at, const void *p, size_t n);
int content_sum_hex(struct content_sum *s, char ret[CONTENT_HEX_SIZE]);
void content_sum_done(struct content_sum *s);

/* All of it for a file. */
int content_sum_file(int fd, uint64_t size, bool drop, char ret[CONTENT_HEX_SIZE]);

/* SHA-256 of p[0 .. n). 0 or -EIO. */
int content_sum_bytes(const void *p, size_t n, char ret[CONTENT_HEX_SIZE]);

/* Little-endian numbers, as checksums and packed files have them. */
static inline void content_put_le64(uint8_t *to, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		to[i] = (uint8_t)(v >> (8 * i));
}

static inline uint64_t content_get_le64(const uint8_t *from)
{
	uint64_t v = 0;
	for (int i = 0; i < 8; i++)
		v |= (uint64_t)from[i] << (8 * i);
	return v;
}
