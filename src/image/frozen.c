/* SPDX-License-Identifier: Apache-2.0 */
/* Using frozen machines. Sizes are checked at each opening, checksums when asked: the one costs
 * nothing, the other a reading of all. */
#include "image/frozen.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/sparse.h"
#include "base/str.h"
#include "image/frozen_private.h"

int frozen_open_dir(const char *path, struct err *e)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	if (errno == ENOENT)
		return err_set(e, ENOENT, "there is no %s", path);
	if (errno == ENOTDIR || errno == ELOOP)
		return err_set(e, EBADMSG, "%s is no directory", path);
	return err_sys(e, errno, "opening %s", path);
}

int frozen_stat(int dirfd, const char *dir, const char *name, struct stat *ret, struct err *e)
{
	if (fstatat(dirfd, name, ret, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_sys(e, errno, "%s/%s", dir, name);
	return S_ISREG(ret->st_mode) ? 1 : err_set(e, EBADMSG, "%s/%s is no plain file", dir, name);
}

uint64_t frozen_usage(int dirfd)
{
	static const char *const names[] = {FROZEN_MEMORY, FROZEN_PACKED, FROZEN_STATE, FROZEN_DISK,
					    FROZEN_MANIFEST};
	uint64_t bytes = 0;
	struct stat st;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (fstatat(dirfd, names[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
			bytes += (uint64_t)st.st_blocks * 512;
	return bytes;
}

static int check_size(const char *dir, const char *name, const struct stat *st, uint64_t want,
		      struct err *e)
{
	if ((uint64_t)st->st_size == want)
		return 0;
	return err_set(e, EBADMSG, "%s/%s has %ju bytes, not %" PRIu64, dir, name,
		       (uintmax_t)st->st_size, want);
}

/* A monitor opens it as a uid of its own. */
static int check_mode(const char *dir, const char *name, const struct stat *st, struct err *e)
{
	if ((st->st_mode & FROZEN_MODE) == FROZEN_MODE)
		return 0;
	return err_set(e, EBADMSG, "%s/%s can't be read by everybody any more", dir, name);
}

static void add_to_stamp(uint64_t *stamp, uint64_t value)
{
	*stamp = (*stamp ^ value) * UINT64_C(0x100000001b3);
}

static void stamp_file(uint64_t *stamp, const struct stat *st)
{
	add_to_stamp(stamp, st->st_ino);
	add_to_stamp(stamp, (uint64_t)st->st_mtim.tv_sec);
	add_to_stamp(stamp, (uint64_t)st->st_mtim.tv_nsec);
}

static int check_file(int dirfd, const char *dir, const char *name, uint64_t want, struct stat *st,
		      struct err *e)
{
	int r = frozen_stat(dirfd, dir, name, st, e);
	if (r == 0)
		return err_set(e, EBADMSG, "%s/%s is missing", dir, name);
	return r < 0 ? r : check_size(dir, name, st, want, e);
}

/* 1 when it is packed, 0 when not. Both are there when something died between two steps. */
static int check_memory(int dirfd, const char *dir, uint64_t want, struct stat *st, struct err *e)
{
	int r = frozen_stat(dirfd, dir, FROZEN_MEMORY, st, e);
	if (r > 0) {
		r = check_size(dir, FROZEN_MEMORY, st, want, e);
		return r < 0 ? r : check_mode(dir, FROZEN_MEMORY, st, e);
	}
	if (r == 0)
		r = frozen_stat(dirfd, dir, FROZEN_PACKED, st, e);
	return r != 0 ? r : err_set(e, EBADMSG, "%s/" FROZEN_MEMORY " is missing", dir);
}

static int check_files(int dirfd, const char *dir, const struct frozen_manifest *m,
		       bool *ret_compressed, uint64_t *stamp, struct err *e)
{
	struct stat st;
	int packed = check_memory(dirfd, dir, m->memory.bytes, &st, e);
	if (packed < 0)
		return packed;
	add_to_stamp(stamp, m->made_ms);
	stamp_file(stamp, &st);
	int r = check_file(dirfd, dir, FROZEN_DISK, m->disk.bytes, &st, e);
	if (r < 0)
		return r;
	stamp_file(stamp, &st);
	r = check_file(dirfd, dir, FROZEN_STATE, m->state.bytes, &st, e);
	if (r == 0)
		r = check_mode(dir, FROZEN_STATE, &st, e);
	if (r < 0)
		return r;
	stamp_file(stamp, &st);
	r = check_file(dirfd, dir, FROZEN_ROOT, m->root_bytes, &st, e);
	if (r == 0)
		r = check_mode(dir, FROZEN_ROOT, &st, e);
	if (r < 0)
		return r;
	if ((uint64_t)(st.st_mtime > 0 ? st.st_mtime : 0) != m->root_mtime)
		return err_set(e, EBADMSG, "%s/" FROZEN_ROOT " was changed", dir);
	*ret_compressed = packed;
	return 0;
}

/* Opens the directory at path and checks all but the sums. A descriptor. */
static int open_checked(const char *path, struct frozen_manifest *m, bool *ret_compressed,
			uint64_t *stamp, struct err *e)
{
	auto_fd int fd = frozen_open_dir(path, e);
	if (fd < 0)
		return fd;
	int r = frozen_read_manifest(fd, path, m, e);
	if (r < 0)
		return r;
	r = check_files(fd, path, m, ret_compressed, stamp, e);
	if (r == 0)
		return take_fd(fd);
	frozen_manifest_done(m);
	return r;
}

static int take_paths(struct frozen *f, struct err *e)
{
	f->memory = str_printf("%s/" FROZEN_MEMORY, f->dir);
	f->state = str_printf("%s/" FROZEN_STATE, f->dir);
	f->disk = str_printf("%s/" FROZEN_DISK, f->dir);
	f->root = str_printf("%s/" FROZEN_ROOT, f->dir);
	if (!f->memory || !f->state || !f->disk || !f->root)
		return err_set(e, ENOMEM, "not enough memory");
	return 0;
}

/* What can be said of a damaged one too. */
static void take_usage(int fd, struct frozen *f)
{
	struct stat st;
	f->size_bytes = frozen_usage(fd);
	if (fstat(fd, &st) == 0)
		f->used_ms =
			(uint64_t)st.st_mtim.tv_sec * 1000 + (uint64_t)st.st_mtim.tv_nsec / 1000000;
}

static char *path_of(const char *parent, const char *name, struct err *e)
{
	if (!str_is_name(name)) {
		err_set(e, EINVAL, "'%s' can't be a frozen machine's name", name);
		return NULL;
	}
	char *path = str_printf("%s/%s", parent, name);
	if (!path)
		err_set(e, ENOMEM, "not enough memory");
	return path;
}

int frozen_open(const char *parent, const char *name, struct frozen *ret, struct err *e)
{
	struct err why = {0};
	struct frozen_manifest m = {0};
	struct frozen f = {.dir = path_of(parent, name, &why)};
	int fd = f.dir ? open_checked(f.dir, &m, &f.compressed, &f.stamp, &why) : -why.code;
	int r = fd < 0 ? fd : take_paths(&f, &why);
	if (r < 0) {
		frozen_manifest_done(&m);
		frozen_done(&f);
	} else {
		f.extra = m.extra;
		f.ram_bytes = m.memory.bytes;
		f.made_ms = m.made_ms;
		take_usage(fd, &f);
		*ret = f;
	}
	if (fd >= 0)
		close(fd);
	return r < 0 ? err_set(e, why.code, "%s", why.text) : 0;
}

void frozen_done(struct frozen *f)
{
	free(f->dir);
	free(f->memory);
	free(f->state);
	free(f->disk);
	free(f->root);
	json_decref(f->extra);
	*f = (struct frozen){0};
}

static int verify_file(int dirfd, const char *dir, const char *name, const struct frozen_file *m,
		       struct err *e)
{
	char sum[CONTENT_HEX_SIZE];
	auto_fd int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, errno, "opening %s/%s", dir, name);
	int r = content_sum_file(fd, m->bytes, false, sum);
	if (r < 0)
		return err_sys(e, -r, "reading %s/%s", dir, name);
	if (!str_eq(sum, m->sum))
		return err_set(e, EBADMSG, "%s/%s is damaged: its SHA-256 differs", dir, name);
	return 0;
}

int frozen_verify(const struct frozen *f, struct err *e)
{
	bool compressed;
	uint64_t stamp = 0;
	struct frozen_manifest m = {0};
	auto_fd int fd = open_checked(f->dir, &m, &compressed, &stamp, e);
	if (fd < 0)
		return fd;
	int r = 0;
	if (!m.fleeting) {
		r = verify_file(fd, f->dir, FROZEN_STATE, &m.state, e);
		if (r == 0)
			r = verify_file(fd, f->dir, FROZEN_DISK, &m.disk, e);
		if (r == 0 && compressed)
			r = frozen_unpack(fd, f->dir, &m.memory, -1, e);
		else if (r == 0)
			r = verify_file(fd, f->dir, FROZEN_MEMORY, &m.memory, e);
	}
	frozen_manifest_done(&m);
	return r;
}

int frozen_clone_disk(const struct frozen *f, int disk_fd, struct err *e)
{
	auto_fd int from = open(f->disk, O_RDONLY | O_CLOEXEC);
	if (from < 0)
		return err_sys(e, errno, "opening %s", f->disk);
	int r = sparse_copy(from, disk_fd);
	return r < 0 ? frozen_fail(e, -r, "copying the disk", f->disk) : 0;
}

void frozen_touch(const struct frozen *f)
{
	(void)utimensat(AT_FDCWD, f->dir, NULL, AT_SYMLINK_NOFOLLOW);
}

static void cleanup_dir(DIR **d)
{
	if (*d)
		closedir(*d);
}
#define auto_dir __attribute__((cleanup(cleanup_dir)))

/* NULL without e when there is none. */
static DIR *open_parent(const char *parent, struct err *e)
{
	DIR *d = opendir(parent);
	if (!d && errno != ENOENT)
		err_sys(e, errno, "reading %s", parent);
	return d;
}

static void show_one(const char *parent, const char *name,
		     void (*each)(void *user, const char *name, const struct frozen *f,
				  const struct err *bad),
		     void *user)
{
	struct frozen f = {0};
	struct err bad = {0};
	int r = frozen_open(parent, name, &f, &bad);
	if (r == -ENOENT)
		return; /* removed meanwhile */
	if (r < 0) {
		f.dir = path_of(parent, name, NULL);
		auto_fd int fd = f.dir ? frozen_open_dir(f.dir, NULL) : -1;
		if (fd >= 0)
			take_usage(fd, &f);
	}
	if (f.dir)
		each(user, name, &f, r < 0 ? &bad : NULL);
	frozen_done(&f);
}

int frozen_each(const char *parent,
		void (*each)(void *user, const char *name, const struct frozen *f,
			     const struct err *bad),
		void *user, struct err *e)
{
	struct err why = {0};
	auto_dir DIR *d = open_parent(parent, &why);
	if (!d)
		return why.code ? err_set(e, why.code, "%s", why.text) : 0;
	for (struct dirent *entry; (entry = readdir(d));)
		if (str_is_name(entry->d_name))
			show_one(parent, entry->d_name, each, user);
	return 0;
}

int frozen_remove(const char *parent, const char *name, struct err *e)
{
	struct err why = {0};
	uint64_t random;
	random_bytes(&random, sizeof(random));
	auto_free char *path = path_of(parent, name, &why);
	if (!path)
		return err_set(e, why.code, "%s", why.text);
	auto_free char *dead = str_printf("%s/" FROZEN_NEW_PREFIX "%016" PRIx64, parent, random);
	if (!dead)
		return err_set(e, ENOMEM, "not enough memory");
	/* Under its name it is whole until it is gone. */
	if (renameat2(AT_FDCWD, path, AT_FDCWD, dead, RENAME_NOREPLACE) < 0)
		return errno == ENOENT ? err_set(e, ENOENT, "there is no %s", path)
				       : err_sys(e, errno, "removing %s", path);
	int r = dir_remove_all(dead);
	return r < 0 && r != -ENOENT ? err_sys(e, -r, "removing %s", dead) : 0; /* else a sweep's */
}

/* 1 when it was a dead one and is gone, 0 when its maker lives. */
static int sweep_one(const char *path, struct err *e)
{
	auto_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : err_sys(e, errno, "opening %s", path);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? 0 : err_sys(e, errno, "locking %s", path);
	int r = dir_remove_all(path);
	return r < 0 && r != -ENOENT ? err_sys(e, -r, "removing %s", path) : 1;
}

int frozen_sweep(const char *parent, struct err *e)
{
	struct err why = {0};
	auto_dir DIR *d = open_parent(parent, &why);
	int count = 0;
	for (struct dirent *entry; d && (entry = readdir(d));) {
		if (!str_starts(entry->d_name, FROZEN_NEW_PREFIX))
			continue;
		auto_free char *path = str_printf("%s/%s", parent, entry->d_name);
		int r = path ? sweep_one(path, &why) : err_set(&why, ENOMEM, "not enough memory");
		count += r > 0; /* one that can't be removed keeps none of the others */
	}
	return why.code ? err_set(e, why.code, "%s", why.text) : count;
}
