/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.zst: one zstd frame over records of 16 bytes, where and how much (both little-endian),
 * each followed by as many bytes. What no record names is zero. The last record has the size of
 * memory and length 0, so that a cut file can't pass for a whole one.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "image/frozen_private.h"

#define LEVEL          3
#define WINDOW_LOG_MAX 23 /* of what we read: memory that unpacking may take, 8 MiB */
#define RECORD_SIZE    16
#define TEMPORARY      ".new" /* behind a name; what a crash leaves is overwritten by the next try */

struct packer {
	ZSTD_CCtx *zstd;
	int fd;
	uint8_t *out;
	size_t out_size;
	struct content_sum sum;
};

static int pack(struct packer *p, const void *bytes, size_t n, ZSTD_EndDirective how)
{
	ZSTD_inBuffer in = {bytes, n, 0};
	size_t left;
	do {
		ZSTD_outBuffer out = {p->out, p->out_size, 0};
		left = ZSTD_compressStream2(p->zstd, &out, &in, how);
		if (ZSTD_isError(left))
			return -EIO;
		int r = fd_write_all(p->fd, p->out, out.pos);
		if (r < 0)
			return r;
	} while (how == ZSTD_e_end ? left > 0 : in.pos < in.size);
	return 0;
}

static int pack_record(struct packer *p, uint64_t at, uint64_t n, ZSTD_EndDirective how)
{
	uint8_t record[RECORD_SIZE];
	content_put_le64(record, at);
	content_put_le64(record + 8, n);
	return pack(p, record, sizeof(record), how);
}

static int pack_run(void *user, uint64_t at, const void *bytes, size_t n)
{
	struct packer *p = user;
	int r = content_sum_add(&p->sum, at, bytes, n);
	if (r == 0)
		r = pack_record(p, at, n, ZSTD_e_continue);
	return r < 0 ? r : pack(p, bytes, n, ZSTD_e_continue);
}

static int packer_init(struct packer *p, int fd, uint64_t size)
{
	*p = (struct packer){
		.zstd = ZSTD_createCCtx(), .fd = fd, .out_size = ZSTD_CStreamOutSize()};
	p->out = malloc(p->out_size);
	int r = content_sum_init(&p->sum, size);
	if (!p->zstd || !p->out)
		return -ENOMEM;
	if (ZSTD_isError(ZSTD_CCtx_setParameter(p->zstd, ZSTD_c_compressionLevel, LEVEL)) ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(p->zstd, ZSTD_c_checksumFlag, 1)))
		return -EINVAL;
	return r;
}

static void packer_done(struct packer *p)
{
	ZSTD_freeCCtx(p->zstd);
	free(p->out);
	content_sum_done(&p->sum);
}

/* Packs from[0 .. size) into to; sum gets the sum of what was packed. */
static int pack_file(int from, uint64_t size, int to, char sum[CONTENT_HEX_SIZE])
{
	struct packer p;
	const struct content_sink sink = {pack_run, &p};
	int r = packer_init(&p, to, size);
	if (r == 0)
		r = content_walk(from, size, false, &sink);
	if (r == 0)
		r = pack_record(&p, size, 0, ZSTD_e_end);
	if (r == 0)
		r = content_sum_hex(&p.sum, sum);
	packer_done(&p);
	return r;
}

struct unpacker {
	ZSTD_DCtx *zstd;
	int fd;
	uint8_t *buf;
	ZSTD_inBuffer in; /* into buf */
	size_t buf_size;
	uint8_t *run; /* CONTENT_RUN_MAX */
	bool ended;   /* the frame is whole */
};

/* Fills the buffer when it is used up; -EBADMSG at the end of the file. */
static int refill(struct unpacker *u)
{
	if (u->in.pos < u->in.size)
		return 0;
	ssize_t n = fd_read_all(u->fd, u->buf, u->buf_size);
	if (n <= 0)
		return n < 0 ? (int)n : -EBADMSG;
	u->in = (ZSTD_inBuffer){u->buf, (size_t)n, 0};
	return 0;
}

static int unpack_bytes(struct unpacker *u, void *to, size_t n)
{
	ZSTD_outBuffer out = {to, n, 0};
	while (out.pos < n) {
		if (u->ended)
			return -EBADMSG;
		int r = refill(u);
		/* The decoder may still hold bytes when all has been read. */
		if (r < 0 && r != -EBADMSG)
			return r;
		size_t before = out.pos;
		size_t left = ZSTD_decompressStream(u->zstd, &out, &u->in);
		if (ZSTD_isError(left) || (r < 0 && out.pos == before && left != 0))
			return -EBADMSG;
		u->ended = left == 0;
	}
	return 0;
}

/* The frame's own end, and nothing behind it. */
static int unpack_end(struct unpacker *u)
{
	uint8_t byte;
	while (!u->ended) {
		ZSTD_outBuffer out = {&byte, 1, 0};
		int r = refill(u);
		if (r < 0)
			return r;
		size_t left = ZSTD_decompressStream(u->zstd, &out, &u->in);
		if (ZSTD_isError(left) || out.pos)
			return -EBADMSG;
		u->ended = left == 0;
	}
	int r = refill(u);
	return r == -EBADMSG ? 0 : r < 0 ? r : -EBADMSG;
}

/* 1 for a run, whose bytes are in u->run then, 0 for the last record. from: where the one before
 * ended. */
static int unpack_run(struct unpacker *u, uint64_t size, uint64_t from, uint64_t *ret_at,
		      uint64_t *ret_n)
{
	uint8_t record[RECORD_SIZE];
	int r = unpack_bytes(u, record, sizeof(record));
	if (r < 0)
		return r;
	uint64_t at = content_get_le64(record);
	uint64_t n = content_get_le64(record + 8);
	if (n == 0)
		return at == size ? 0 : -EBADMSG;
	if (at < from || at >= size || n > CONTENT_RUN_MAX || n > size - at ||
	    at % CONTENT_BLOCK != 0 || (n % CONTENT_BLOCK != 0 && at + n != size))
		return -EBADMSG;
	*ret_at = at;
	*ret_n = n;
	r = unpack_bytes(u, u->run, n);
	return r < 0 ? r : 1;
}

static int write_at(int fd, const uint8_t *p, size_t n, uint64_t at)
{
	while (n) {
		ssize_t r = pwrite(fd, p, n, (off_t)at);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return r < 0 ? -errno : -EIO;
		p += r;
		n -= (size_t)r;
		at += (uint64_t)r;
	}
	return 0;
}

static int unpack_runs(struct unpacker *u, uint64_t size, int to, struct content_sum *sum)
{
	uint64_t at = 0;
	uint64_t n = 0;
	int r;
	while ((r = unpack_run(u, size, at + n, &at, &n)) > 0) {
		r = content_sum_add(sum, at, u->run, n);
		if (r == 0 && to >= 0)
			r = write_at(to, u->run, n, at);
		if (r < 0)
			return r;
	}
	return r < 0 ? r : unpack_end(u);
}

/* Unpacks from into the empty file to (-1: nowhere). */
static int unpack_file(int from, uint64_t size, int to, char ret_sum[CONTENT_HEX_SIZE])
{
	struct content_sum sum;
	struct unpacker u = {
		.zstd = ZSTD_createDCtx(),
		.fd = from,
		.buf_size = ZSTD_DStreamInSize(),
		.buf = malloc(ZSTD_DStreamInSize()),
		.run = malloc(CONTENT_RUN_MAX),
	};
	int r = content_sum_init(&sum, size);
	if (!u.zstd || !u.buf || !u.run)
		r = -ENOMEM;
	if (r == 0 &&
	    ZSTD_isError(ZSTD_DCtx_setParameter(u.zstd, ZSTD_d_windowLogMax, WINDOW_LOG_MAX)))
		r = -EINVAL;
	if (r == 0 && to >= 0 && ftruncate(to, (off_t)size) < 0)
		r = -errno;
	if (r == 0)
		r = unpack_runs(&u, size, to, &sum);
	if (r == 0)
		r = content_sum_hex(&sum, ret_sum);
	content_sum_done(&sum);
	ZSTD_freeDCtx(u.zstd);
	free(u.buf);
	free(u.run);
	return r;
}

int frozen_unpack(int dirfd, const char *dir, const struct frozen_file *m, int fd, struct err *e)
{
	char sum[CONTENT_HEX_SIZE];
	auto_fd int from = openat(dirfd, FROZEN_PACKED, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (from < 0)
		return err_sys(e, errno, "opening %s/" FROZEN_PACKED, dir);
	int r = unpack_file(from, m->bytes, fd, sum);
	if (r == -EBADMSG)
		return err_set(e, EBADMSG, "%s/" FROZEN_PACKED " is damaged", dir);
	if (r < 0)
		return frozen_fail(e, -r, "unpacking memory in", dir);
	if (!str_eq(sum, m->sum))
		return err_set(e, EBADMSG, "%s/" FROZEN_PACKED " is damaged: its SHA-256 differs",
			       dir);
	return 0;
}

/* The directory at one of the two changes, locked: the other waits. */
struct change {
	const char *dir;
	int dirfd;
	struct stat before; /* of the directory */
	struct frozen_manifest m;
};

static int change_begin(struct change *c, const char *dir, struct err *e)
{
	*c = (struct change){.dir = dir};
	c->dirfd = frozen_open_dir(dir, e);
	if (c->dirfd < 0)
		return c->dirfd;
	int r = frozen_lock(c->dirfd);
	if (r == 0 && fstat(c->dirfd, &c->before) < 0)
		r = -errno;
	if (r < 0)
		return err_sys(e, -r, "locking %s", dir);
	r = frozen_read_manifest(c->dirfd, dir, &c->m, e);
	if (r == 0 && c->m.fleeting)
		r = err_set(e, EINVAL, "%s was not made to rest", dir);
	return r;
}

static void change_end(struct change *c)
{
	frozen_manifest_done(&c->m);
	if (c->dirfd >= 0)
		close(c->dirfd);
}

static int remove_old(const struct change *c, const char *name, struct err *e)
{
	if (unlinkat(c->dirfd, name, 0) < 0 && errno != ENOENT)
		return err_sys(e, errno, "removing %s/%s", c->dir, name);
	return 0;
}

/* Makes NAME of NAME.new (which fd is), for good, and takes OLD away. */
static int change_finish(struct change *c, int fd, const char *name, const char *old, struct err *e)
{
	auto_free char *temporary = str_printf("%s" TEMPORARY, name);
	if (!temporary)
		return err_set(e, ENOMEM, "not enough memory");
	if (fchmod(fd, FROZEN_MODE) < 0 || fsync(fd) < 0 ||
	    renameat(c->dirfd, temporary, c->dirfd, name) < 0 || fsync(c->dirfd) < 0)
		return frozen_fail(e, errno, "writing memory in", c->dir);
	return remove_old(c, old, e);
}

static int open_temporary(const struct change *c, const char *name, struct err *e)
{
	(void)unlinkat(c->dirfd, name, 0);
	int fd = openat(c->dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return fd < 0 ? frozen_fail(e, errno, "writing memory in", c->dir) : fd;
}

static int compress(struct change *c, struct err *e)
{
	char sum[CONTENT_HEX_SIZE];
	auto_fd int from = openat(c->dirfd, FROZEN_MEMORY, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (from < 0)
		return err_sys(e, errno, "opening %s/" FROZEN_MEMORY, c->dir);
	auto_fd int to = open_temporary(c, FROZEN_PACKED TEMPORARY, e);
	if (to < 0)
		return to;
	int r = pack_file(from, c->m.memory.bytes, to, sum);
	if (r < 0)
		r = frozen_fail(e, -r, "compressing memory in", c->dir);
	else if (!str_eq(sum, c->m.memory.sum))
		r = err_set(e, EBADMSG, "%s/" FROZEN_MEMORY " is damaged: its SHA-256 differs",
			    c->dir);
	else
		r = change_finish(c, to, FROZEN_PACKED, FROZEN_MEMORY, e);
	if (r < 0)
		(void)unlinkat(c->dirfd, FROZEN_PACKED TEMPORARY, 0);
	return r;
}

static int expand(struct change *c, struct err *e)
{
	auto_fd int to = open_temporary(c, FROZEN_MEMORY TEMPORARY, e);
	if (to < 0)
		return to;
	int r = frozen_unpack(c->dirfd, c->dir, &c->m.memory, to, e);
	if (r == 0)
		r = change_finish(c, to, FROZEN_MEMORY, FROZEN_PACKED, e);
	if (r < 0)
		(void)unlinkat(c->dirfd, FROZEN_MEMORY TEMPORARY, 0);
	return r;
}

int frozen_compress(struct frozen *f, struct err *e)
{
	struct change c;
	struct stat st;
	int r = change_begin(&c, f->dir, e);
	if (r == 0)
		r = frozen_stat(c.dirfd, f->dir, FROZEN_MEMORY, &st, e);
	/* Another may have done it already. */
	if (r > 0)
		r = compress(&c, e);
	if (r == 0) {
		/* Its rest goes on: only use makes it young. */
		const struct timespec times[] = {c.before.st_atim, c.before.st_mtim};
		(void)futimens(c.dirfd, times);
		f->compressed = true;
		f->size_bytes = frozen_usage(c.dirfd);
	}
	change_end(&c);
	return r;
}

int frozen_expand(struct frozen *f, struct err *e)
{
	struct change c;
	struct stat st;
	int r = change_begin(&c, f->dir, e);
	if (r == 0)
		r = frozen_stat(c.dirfd, f->dir, FROZEN_MEMORY, &st, e);
	/* A packed one beside it is what a death between two steps left. */
	if (r > 0)
		r = remove_old(&c, FROZEN_PACKED, e);
	else if (r == 0)
		r = expand(&c, e);
	if (r == 0) {
		f->compressed = false;
		f->size_bytes = frozen_usage(c.dirfd);
	}
	change_end(&c);
	return r;
}
