/* SPDX-License-Identifier: Apache-2.0 */
/* Frozen machines for tests: small, sparse, and each recognisable by a seed in all of its files. */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/doc.h"
#include "base/fd.h"
#include "base/str.h"
#include "image/frozen.h"

#define RAM_BYTES   (1u << 20)
#define STATE_BYTES 5000
#define DISK_BYTES  (64u << 20)

/* Where memory and disk have data; the rest is holes. */
static const off_t data_at[] = {0, 20480, RAM_BYTES / 2 + 4096, RAM_BYTES - 4096};
#define DATA_COUNT (sizeof(data_at) / sizeof(data_at[0]))

static inline char *path_of(const char *dir, const char *entry)
{
	char *path = str_printf("%s/%s", dir, entry);
	assert_non_null(path);
	return path;
}

/* A directory with a root filesystem "rootfs"; frozen machines go to "frozen" in it. */
static inline int setup_in(const char *template, void **state)
{
	char *dir = strdup(template);
	if (!dir || !mkdtemp(dir))
		return -1;
	auto_free char *root = path_of(dir, "rootfs");
	if (file_write_atomic(root, "root filesystem", 15, 0644) < 0)
		return -1;
	*state = dir;
	return 0;
}

static inline int teardown(void **state)
{
	dir_remove_all(*state);
	free(*state);
	return 0;
}

static inline int fill_data(int fd, off_t size, unsigned seed)
{
	uint8_t block[4096];
	if (ftruncate(fd, size) < 0)
		return -errno;
	for (size_t i = 0; i < DATA_COUNT; i++) {
		memset(block, (int)(seed + i), sizeof(block));
		ssize_t n = pwrite(fd, block, sizeof(block), data_at[i]);
		if (n != sizeof(block))
			return n < 0 ? -errno : -ENOSPC;
	}
	return 0;
}

static inline int fill(const struct frozen_new *f, unsigned seed)
{
	uint8_t state[STATE_BYTES];
	memset(state, (int)seed, sizeof(state));
	int r = fill_data(f->memory_fd, RAM_BYTES, seed);
	if (r == 0)
		r = fill_data(f->disk_fd, DISK_BYTES, seed + 1);
	return r < 0 ? r : fd_write_all(f->state_fd, state, sizeof(state));
}

/* Without cmocka's assertions: also for processes that are killed. */
static inline int try_make(const char *dir, const char *name, unsigned seed, bool fleeting,
			   struct err *e)
{
	struct frozen_new f;
	auto_free char *parent = str_printf("%s/frozen", dir);
	auto_free char *root = str_printf("%s/rootfs", dir);
	auto_json json_t *extra = json_pack("{s:i,s:s}", "seed", (int)seed, "note", "kept");
	int r = frozen_begin(parent, root, 0, &f, e);
	if (r < 0)
		return r;
	r = fill(&f, seed);
	if (r < 0) {
		frozen_abort(&f);
		return err_sys(e, -r, "filling");
	}
	return frozen_commit(&f, name, RAM_BYTES, extra, fleeting, e);
}

static inline void make(const char *dir, const char *name, unsigned seed)
{
	struct err e = {0};
	if (try_make(dir, name, seed, false, &e) < 0)
		fail_msg("%s", e.text);
}

static inline int open_frozen(const char *dir, const char *name, struct frozen *ret, struct err *e)
{
	auto_free char *parent = path_of(dir, "frozen");
	return frozen_open(parent, name, ret, e);
}

static inline void expect_data(const char *path, off_t size, unsigned seed)
{
	struct stat st;
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, size);
	assert_true(st.st_blocks * 512 <= 128 << 10);
	for (size_t i = 0; i < DATA_COUNT; i++) {
		uint8_t block[4096];
		assert_int_equal(pread(fd, block, sizeof(block), data_at[i]), sizeof(block));
		for (size_t k = 0; k < sizeof(block); k++)
			assert_int_equal(block[k], (uint8_t)(seed + i));
	}
}

/* It is there, whole, and of that seed; -1: of any one seed. Returns the seed. */
static inline unsigned expect_whole(const char *dir, const char *name, int seed)
{
	struct frozen f;
	struct err e = {0};
	if (open_frozen(dir, name, &f, &e) < 0 || frozen_verify(&f, &e) < 0)
		fail_msg("%s", e.text);
	unsigned is = (unsigned)json_integer_value(json_object_get(f.extra, "seed"));
	if (seed >= 0)
		assert_int_equal(is, seed);
	if (!f.compressed)
		expect_data(f.memory, RAM_BYTES, is);
	expect_data(f.disk, DISK_BYTES, is + 1);
	frozen_done(&f);
	return is;
}

/* How many entries of dir/frozen begin so. */
static inline size_t count_entries(const char *dir, const char *prefix)
{
	size_t n = 0;
	auto_free char *parent = path_of(dir, "frozen");
	DIR *d = opendir(parent);
	for (struct dirent *entry; d && (entry = readdir(d));)
		n += str_starts(entry->d_name, prefix) && !str_eq(entry->d_name, ".") &&
		     !str_eq(entry->d_name, "..");
	if (d)
		closedir(d);
	return n;
}

static inline char *file_of(const char *dir, const char *name, const char *file)
{
	char *path = str_printf("%s/frozen/%s/%s", dir, name, file);
	assert_non_null(path);
	return path;
}

static inline void expect_says(const struct err *e, const char *text)
{
	if (!strstr(e->text, text))
		fail_msg("'%s' does not say '%s'", e->text, text);
}

static inline void open_fails(const char *dir, const char *name, int code, const char *text)
{
	struct frozen f;
	struct err e = {0};
	assert_int_equal(open_frozen(dir, name, &f, &e), -code);
	expect_says(&e, text);
}

static inline void flip(const char *path, off_t at, uint8_t mask)
{
	uint8_t byte;
	auto_fd int fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= mask;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

static inline void put(const char *path, const void *p, size_t n)
{
	assert_int_equal(file_write_atomic(path, p, n, 0644), 0);
}

static inline unsigned mode_of(const char *path)
{
	struct stat st;
	assert_int_equal(lstat(path, &st), 0);
	return st.st_mode & 07777;
}

static inline void open_and(const char *dir, const char *name,
			    int (*change)(struct frozen *, struct err *), bool compressed)
{
	struct frozen f;
	struct err e = {0};
	assert_int_equal(open_frozen(dir, name, &f, &e), 0);
	if (change(&f, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(f.compressed, compressed);
	struct frozen again;
	assert_int_equal(open_frozen(dir, name, &again, &e), 0);
	assert_int_equal(again.compressed, compressed);
	assert_int_equal(again.size_bytes, f.size_bytes);
	frozen_done(&again);
	frozen_done(&f);
}
