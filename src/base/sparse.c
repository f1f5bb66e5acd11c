/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Disks and memories of machines are mostly holes: what is copied is their data, and not even that
 * where two files can share it.
 */
#include "base/sparse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/fs.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

/* For pairs of filesystems between which the kernel can't copy. */
static int copy_by_hand(int from, int to, off_t at, off_t end)
{
	uint8_t block[64 << 10];
	while (at < end) {
		size_t want = end - at < (off_t)sizeof(block) ? (size_t)(end - at) : sizeof(block);
		ssize_t got = pread(from, block, want, at);
		if (got <= 0)
			return got < 0 ? -errno : -EIO;
		ssize_t put = pwrite(to, block, (size_t)got, at);
		if (put <= 0)
			return put < 0 ? -errno : -EIO;
		at += put;
	}
	return 0;
}

static int copy_extent(int from, int to, off_t at, off_t end)
{
	while (at < end) {
		off_t in = at;
		off_t out = at;
		ssize_t n = copy_file_range(from, &in, to, &out, (size_t)(end - at), 0);
		if (n < 0 &&
		    (errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS))
			return copy_by_hand(from, to, at, end);
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		at += n;
	}
	return 0;
}

int sparse_copy(int from, int to)
{
	struct stat st;
	if (ioctl(to, FICLONE, from) == 0)
		return 0;
	if (fstat(from, &st) < 0 || ftruncate(to, st.st_size) < 0)
		return -errno;
	for (off_t at = 0; at < st.st_size;) {
		off_t data = lseek(from, at, SEEK_DATA);
		if (data < 0)
			return errno == ENXIO ? 0 : -errno;
		off_t hole = lseek(from, data, SEEK_HOLE);
		if (hole < 0)
			return -errno;
		int r = copy_extent(from, to, data, hole);
		if (r < 0)
			return r;
		at = hole;
	}
	return 0;
}

/* Not every filesystem has unnamed files. */
static int open_named_and_unlink(const char *dir)
{
	auto_free char *path = str_printf("%s/.unnamed-XXXXXX", dir);
	if (!path)
		return -ENOMEM;
	int fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	unlink(path);
	return fd;
}

int sparse_open_unnamed(const char *dir)
{
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0)
		return fd;
	return errno == EOPNOTSUPP || errno == EISDIR ? open_named_and_unlink(dir) : -errno;
}
