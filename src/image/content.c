/* SPDX-License-Identifier: Apache-2.0 */
/* Where data lies is asked of the filesystem, but what counts is what is read: filesystems round
 * their extents differently, and some report an allocated block of zeros as data only until it is
 * written back. */
#include "image/content.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <openssl/evp.h>

#include "base/cleanup.h"
#include "base/str.h"

struct walk {
	int fd;
	uint64_t size;
	bool drop;
	uint8_t *buf; /* CONTENT_RUN_MAX */
	const struct content_sink *sink;
};

static bool is_zero(const uint8_t *p, size_t n)
{
	return p[0] == 0 && memcmp(p, p + 1, n - 1) == 0;
}

static size_t block_at(size_t at, size_t n)
{
	return n - at < CONTENT_BLOCK ? n - at : CONTENT_BLOCK;
}

static int read_at(int fd, uint8_t *p, size_t n, uint64_t at)
{
	for (size_t got = 0; got < n;) {
		ssize_t r = pread(fd, p + got, n - got, (off_t)(at + got));
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return r < 0 ? -errno : -ENODATA;
		got += (size_t)r;
	}
	return 0;
}

/* The kind of block at buf[i ..) and how far it goes on. */
static size_t run_length(const uint8_t *buf, size_t i, size_t n, bool *ret_zero)
{
	size_t end = i;
	*ret_zero = is_zero(buf + i, block_at(i, n));
	do
		end += block_at(end, n);
	while (end < n && is_zero(buf + end, block_at(end, n)) == *ret_zero);
	return end - i;
}

static int walk_part(struct walk *w, uint64_t at, size_t n)
{
	int r = read_at(w->fd, w->buf, n, at);
	for (size_t i = 0; r == 0 && i < n;) {
		bool zero;
		size_t len = run_length(w->buf, i, n, &zero);
		if (!zero)
			r = w->sink->run(w->sink->user, at + i, w->buf + i, len);
		else if (w->drop && len >= CONTENT_ZERO_MIN)
			(void)fallocate(w->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					(off_t)(at + i), (off_t)len);
		i += len;
	}
	return r < 0 ? r : 0;
}

static int walk_all(struct walk *w)
{
	for (uint64_t at = 0; at < w->size;) {
		off_t data = lseek(w->fd, (off_t)at, SEEK_DATA);
		if (data < 0)
			return errno == ENXIO ? 0 : -errno;
		off_t hole = lseek(w->fd, data, SEEK_HOLE);
		if (hole < 0)
			return -errno;
		uint64_t from = (uint64_t)data & ~(uint64_t)(CONTENT_BLOCK - 1);
		uint64_t end =
			((uint64_t)hole + CONTENT_BLOCK - 1) & ~(uint64_t)(CONTENT_BLOCK - 1);
		if (from > at)
			at = from;
		if (end > w->size)
			end = w->size;
		while (at < end) {
			size_t n =
				end - at < CONTENT_RUN_MAX ? (size_t)(end - at) : CONTENT_RUN_MAX;
			int r = walk_part(w, at, n);
			if (r < 0)
				return r;
			at += n;
		}
	}
	return 0;
}

int content_walk(int fd, uint64_t size, bool drop, const struct content_sink *sink)
{
	auto_free uint8_t *buf = malloc(CONTENT_RUN_MAX);
	if (!buf)
		return -ENOMEM;
	struct walk w = {.fd = fd, .size = size, .drop = drop, .buf = buf, .sink = sink};
	return walk_all(&w);
}

int content_sum_init(struct content_sum *s, uint64_t size)
{
	uint8_t head[8];
	content_put_le64(head, size);
	s->md = EVP_MD_CTX_new();
	if (!s->md)
		return -ENOMEM;
	if (!EVP_DigestInit_ex(s->md, EVP_sha256(), NULL) ||
	    !EVP_DigestUpdate(s->md, head, sizeof(head)))
		return -EIO;
	return 0;
}

int content_sum_add(struct content_sum *s, uint64_t at, const void *p, size_t n)
{
	for (size_t i = 0; i < n; i += block_at(i, n)) {
		uint8_t head[8];
		content_put_le64(head, at + i);
		if (!EVP_DigestUpdate(s->md, head, sizeof(head)) ||
		    !EVP_DigestUpdate(s->md, (const uint8_t *)p + i, block_at(i, n)))
			return -EIO;
	}
	return 0;
}

int content_sum_hex(struct content_sum *s, char ret[CONTENT_HEX_SIZE])
{
	unsigned char digest[32];
	if (!EVP_DigestFinal_ex(s->md, digest, NULL))
		return -EIO;
	hex_encode(digest, sizeof(digest), ret);
	return 0;
}

void content_sum_done(struct content_sum *s)
{
	EVP_MD_CTX_free(s->md);
	s->md = NULL;
}

static int sum_run(void *user, uint64_t at, const void *p, size_t n)
{
	return content_sum_add(user, at, p, n);
}

int content_sum_file(int fd, uint64_t size, bool drop, char ret[CONTENT_HEX_SIZE])
{
	struct content_sum sum;
	const struct content_sink sink = {sum_run, &sum};
	int r = content_sum_init(&sum, size);
	if (r == 0)
		r = content_walk(fd, size, drop, &sink);
	if (r == 0)
		r = content_sum_hex(&sum, ret);
	content_sum_done(&sum);
	return r;
}

int content_sum_bytes(const void *p, size_t n, char ret[CONTENT_HEX_SIZE])
{
	unsigned char digest[32];
	if (!EVP_Digest(p, n, digest, NULL, EVP_sha256(), NULL))
		return -EIO;
	hex_encode(digest, sizeof(digest), ret);
	return 0;
}
