/* SPDX-License-Identifier: Apache-2.0 */
/* Copied pages are anonymous memory: the kernel tells which, and /proc/PID/mem has them. */
#include "vmm/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"

#define MAPS_MAX (1 << 20) /* bytes of /proc/PID/maps: QEMU has some 40 KB */

#define ENTRY_PRESENT (UINT64_C(1) << 63)
#define ENTRY_SWAPPED (UINT64_C(1) << 62)
#define ENTRY_FILE    (UINT64_C(1) << 61)

#define ENTRIES_MAX 8192 /* read at a time: 32 MiB of memory */
#define RUN_MAX     256  /* pages copied at a time: 1 MiB */

struct capture {
	int mem_fd;
	int out_fd;
	uint64_t address; /* of the file's start in the process */
	uint8_t *run;     /* RUN_MAX pages */
	struct err *e;
};

struct mapping {
	uint64_t start, end, offset, inode;
	char perms[5];
};

/* One line of maps. What it can't read is no mapping of ours. */
static bool read_mapping(const char *line, struct mapping *m)
{
	unsigned major, minor;

	return sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64, &m->start,
		      &m->end, m->perms, &m->offset, &major, &minor, &m->inode) == 7;
}

int pages_find(const char *maps, uint64_t inode, uint64_t ram_bytes, uint64_t *ret_address)
{
	uint64_t address = 0, covered = 0;
	struct mapping m;

	for (const char *line = maps; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!read_mapping(line, &m) || m.inode != inode || strcmp(m.perms, "rw-p") != 0)
			continue;
		if (covered == 0)
			address = m.start;
		if (m.start != address + covered || m.offset != covered || m.end <= m.start ||
		    m.end - m.start > ram_bytes - covered)
			return -ENODATA;
		covered += m.end - m.start;
	}
	if (covered != ram_bytes || covered == 0)
		return -ENODATA;
	*ret_address = address;
	return 0;
}

bool pages_is_copy(uint64_t entry)
{
	return (entry & (ENTRY_PRESENT | ENTRY_SWAPPED)) && !(entry & ENTRY_FILE);
}

bool pages_is_zero(const void *page)
{
	const uint8_t *p = page;

	return p[0] == 0 && memcmp(p, p + 1, PAGE_BYTES - 1) == 0;
}

static int put_data(const struct capture *c, const uint8_t *p, uint64_t offset, size_t n)
{
	while (n > 0) {
		ssize_t put = pwrite(c->out_fd, p, n, (off_t)offset);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return err_sys(c->e, put < 0 ? errno : EIO, "writing the machine's memory");
		p += put;
		offset += (uint64_t)put;
		n -= (size_t)put;
	}
	return 0;
}

/* p: n zeroes, for a filesystem that has no holes. */
static int put_zeroes(const struct capture *c, const uint8_t *p, uint64_t offset, size_t n)
{
	if (fallocate(c->out_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
		      (off_t)n) == 0)
		return 0;
	if (errno != EOPNOTSUPP && errno != ENOSYS)
		return err_sys(c->e, errno, "writing the machine's memory");
	return put_data(c, p, offset, n);
}

/* count pages that begin at number first of the machine's. */
static int copy_run(const struct capture *c, uint64_t first, size_t count)
{
	uint64_t offset = first * PAGE_BYTES;
	size_t want = count * PAGE_BYTES, next = 0;
	ssize_t n = pread(c->mem_fd, c->run, want, (off_t)(c->address + offset));
	int rc = 0;

	if (n != (ssize_t)want)
		return err_set(c->e, EIO, "the machine's memory can't be read: %s",
			       n < 0 ? strerror(errno) : "it is gone");
	for (size_t i = 0; rc == 0 && i < count; i = next) {
		const uint8_t *p = c->run + i * PAGE_BYTES;
		bool zero = pages_is_zero(p);

		for (next = i + 1; next < count; next++)
			if (pages_is_zero(c->run + next * PAGE_BYTES) != zero)
				break;
		rc = (zero ? put_zeroes : put_data)(c, p, offset + i * PAGE_BYTES,
						    (next - i) * PAGE_BYTES);
	}
	return rc;
}

/* The copied ones among count pages from first. */
static int copy_window(const struct capture *c, const uint64_t *entries, uint64_t first,
		       size_t count)
{
	int rc = 0;

	for (size_t i = 0, end; rc == 0 && i < count; i = end) {
		for (end = i; end < count && end - i < RUN_MAX && pages_is_copy(entries[end]);)
			end++;
		if (end > i)
			rc = copy_run(c, first + i, end - i);
		else
			end = i + 1;
	}
	return rc;
}

static int copy_all(const struct capture *c, int pagemap, uint64_t ram_bytes)
{
	auto_free uint64_t *entries = malloc(ENTRIES_MAX * sizeof(*entries));
	uint64_t pages = ram_bytes / PAGE_BYTES, base = c->address / PAGE_BYTES;
	int rc = entries ? 0 : err_sys(c->e, ENOMEM, "the machine's memory");

	for (uint64_t at = 0; rc == 0 && at < pages;) {
		size_t count = pages - at < ENTRIES_MAX ? (size_t)(pages - at) : ENTRIES_MAX;
		ssize_t n = pread(pagemap, entries, count * sizeof(*entries),
				  (off_t)((base + at) * sizeof(*entries)));

		if (n < (ssize_t)sizeof(*entries))
			return err_set(c->e, EIO, "the machine's page map can't be read: %s",
				       n < 0 ? strerror(errno) : "it is gone");
		count = (size_t)n / sizeof(*entries);
		rc = copy_window(c, entries, at, count);
		at += count;
	}
	return rc;
}

static int find(int proc_fd, int base_fd, uint64_t ram_bytes, uint64_t *ret_address, struct err *e)
{
	auto_free char *maps = NULL;
	struct stat st;
	size_t len;
	int rc;

	if (fstat(base_fd, &st) < 0)
		return err_sys(e, errno, "the machine's memory file");
	rc = file_read_at(proc_fd, "maps", MAPS_MAX, &maps, &len);
	if (rc < 0)
		return err_sys(e, -rc, "the machine's memory map");
	if (pages_find(maps, st.st_ino, ram_bytes, ret_address) < 0)
		return err_set(e, ENODATA, "the monitor does not have its memory mapped");
	return 0;
}

int pages_capture(int proc_fd, int base_fd, uint64_t ram_bytes, int memory_fd, struct err *e)
{
	struct capture c = {.out_fd = memory_fd, .e = e};
	int rc = find(proc_fd, base_fd, ram_bytes, &c.address, e);

	if (rc < 0)
		return rc;
	auto_fd int pagemap = openat(proc_fd, "pagemap", O_RDONLY | O_CLOEXEC);
	auto_fd int mem = openat(proc_fd, "mem", O_RDONLY | O_CLOEXEC);
	auto_free uint8_t *run = malloc((size_t)RUN_MAX * PAGE_BYTES);
	if (pagemap < 0 || mem < 0)
		return err_sys(e, errno, "the machine's memory");
	if (!run)
		return err_sys(e, ENOMEM, "the machine's memory");
	c.mem_fd = mem;
	c.run = run;
	return copy_all(&c, pagemap, ram_bytes);
}
