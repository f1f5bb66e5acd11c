/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a frozen machine. Its directory carries a lock as long as its maker lives, and another
 * name until it is whole and on disk; one rename makes it what callers see. A crash before that
 * leaves a directory for frozen_sweep(); one after it, the directory that was replaced, for
 * frozen_sweep() too.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/sparse.h"
#include "base/str.h"
#include "image/frozen_private.h"

#define TRIES_MAX 16 /* times that another process may get in between two steps */

static int check_space(const char *parent, uint64_t need_bytes, struct err *e)
{
	struct statvfs fs;
	if (statvfs(parent, &fs) < 0)
		return err_sys(e, errno, "free space of %s", parent);
	uint64_t bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (bytes >= need_bytes)
		return 0;
	return err_set(e, ENOSPC, "%s has %" PRIu64 " MiB free, %" PRIu64 " are needed: free some",
		       parent, bytes >> 20, (need_bytes + (1 << 20) - 1) >> 20);
}

int frozen_lock(int dirfd)
{
	int r;
	do
		r = flock(dirfd, LOCK_EX);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

/* One try: 0 when a sweep took the directory for a dead one before it was locked. */
static int make_dir_once(const char *parent, struct frozen_new *f)
{
	char *dir = str_printf("%s/" FROZEN_NEW_PREFIX "XXXXXX", parent);
	if (!dir)
		return -ENOMEM;
	if (!mkdtemp(dir)) {
		int code = errno;
		free(dir);
		return -code;
	}
	struct stat locked;
	struct stat named;
	auto_fd int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r = fd < 0 ? -errno : frozen_lock(fd);
	if (r == 0 && (fstat(fd, &locked) < 0 || stat(dir, &named) < 0))
		r = -errno;
	if (r == -ENOENT || (r == 0 && locked.st_ino != named.st_ino)) {
		free(dir);
		return 0;
	}
	if (r < 0) {
		rmdir(dir);
		free(dir);
		return r;
	}
	f->dir = dir;
	f->lock_fd = take_fd(fd);
	return 1;
}

static int make_dir(const char *parent, struct frozen_new *f, struct err *e)
{
	int r = 0;
	for (int i = 0; r == 0 && i < TRIES_MAX; i++)
		r = make_dir_once(parent, f);
	if (r == 0)
		r = -EBUSY;
	return r < 0 ? frozen_fail(e, -r, "making a directory in", parent) : 0;
}

/* The mode is what it says, whatever the umask. */
static int make_file(const struct frozen_new *f, const char *name, int flags, mode_t mode,
		     int *ret_fd, struct err *e)
{
	*ret_fd = openat(f->lock_fd, name, flags | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	if (*ret_fd < 0 || fchmod(*ret_fd, mode) < 0)
		return frozen_fail(e, errno, "making files in", f->dir);
	return 0;
}

/* A copy where there can be no (further) link. */
static int add_root(const struct frozen_new *f, const char *root, struct err *e)
{
	if (linkat(AT_FDCWD, root, f->lock_fd, FROZEN_ROOT, AT_SYMLINK_FOLLOW) == 0)
		return 0;
	if (errno != EXDEV && errno != EMLINK && errno != EPERM)
		return frozen_fail(e, errno, "linking to", root);
	auto_fd int from = open(root, O_RDONLY | O_CLOEXEC);
	if (from < 0)
		return err_sys(e, errno, "opening %s", root);
	auto_fd int to = -1;
	int r = make_file(f, FROZEN_ROOT, O_RDWR, FROZEN_MODE, &to, e);
	if (r < 0)
		return r;
	r = sparse_copy(from, to);
	return r < 0 ? frozen_fail(e, -r, "copying the root filesystem to", f->dir) : 0;
}

int frozen_begin(const char *parent, const char *root, uint64_t need_bytes, struct frozen_new *ret,
		 struct err *e)
{
	struct frozen_new f = {.memory_fd = -1, .state_fd = -1, .disk_fd = -1, .lock_fd = -1};
	int r = dir_make_all(parent, 0700);
	if (r < 0)
		return frozen_fail(e, -r, "making", parent);
	r = check_space(parent, need_bytes, e);
	if (r == 0)
		r = make_dir(parent, &f, e);
	if (r == 0)
		r = make_file(&f, FROZEN_MEMORY, O_RDWR, FROZEN_MODE, &f.memory_fd, e);
	if (r == 0)
		r = make_file(&f, FROZEN_STATE, O_WRONLY, FROZEN_MODE, &f.state_fd, e);
	if (r == 0)
		r = make_file(&f, FROZEN_DISK, O_RDWR, 0600, &f.disk_fd, e);
	if (r == 0)
		r = add_root(&f, root, e);
	if (r < 0) {
		frozen_abort(&f);
		return r;
	}
	*ret = f;
	return 0;
}

static void let_go(struct frozen_new *f)
{
	const int fds[] = {f->memory_fd, f->state_fd, f->disk_fd, f->lock_fd};
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	free(f->dir);
	*f = (struct frozen_new){.memory_fd = -1, .state_fd = -1, .disk_fd = -1, .lock_fd = -1};
}

void frozen_abort(struct frozen_new *f)
{
	if (!f->dir)
		return;
	(void)dir_remove_all(f->dir);
	let_go(f);
}

/* Size, and the sum unless it is fleeting. want: what the size has to be, 0 when it may be any. */
static int take_file(const struct frozen_new *f, const char *name, int fd, uint64_t want,
		     bool fleeting, struct frozen_file *ret, struct err *e)
{
	struct stat st;
	if (fstat(fd, &st) < 0)
		return err_sys(e, errno, "%s/%s", f->dir, name);
	ret->bytes = (uint64_t)st.st_size;
	if (ret->bytes == 0)
		return err_set(e, EINVAL, "%s/%s is empty", f->dir, name);
	if (want && ret->bytes != want)
		return err_set(e, EINVAL, "%s/%s has %" PRIu64 " bytes, not %" PRIu64, f->dir, name,
			       ret->bytes, want);
	if (fleeting)
		return 0;
	/* The disk writes while we count. */
	bool writable = (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR;
	if (writable)
		(void)sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	int r = content_sum_file(fd, ret->bytes, writable, ret->sum);
	return r < 0 ? err_sys(e, -r, "reading %s/%s", f->dir, name) : 0;
}

static int take_files(const struct frozen_new *f, uint64_t ram_bytes, struct frozen_manifest *m,
		      struct err *e)
{
	struct stat root;
	auto_fd int state = openat(f->lock_fd, FROZEN_STATE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (state < 0)
		return err_sys(e, errno, "opening %s/" FROZEN_STATE, f->dir);
	if (fstatat(f->lock_fd, FROZEN_ROOT, &root, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(e, errno, "%s/" FROZEN_ROOT, f->dir);
	m->root_bytes = (uint64_t)root.st_size;
	m->root_mtime = root.st_mtime > 0 ? (uint64_t)root.st_mtime : 0;
	int r = take_file(f, FROZEN_STATE, state, 0, m->fleeting, &m->state, e);
	if (r == 0)
		r = take_file(f, FROZEN_DISK, f->disk_fd, 0, m->fleeting, &m->disk, e);
	if (r == 0)
		r = take_file(f, FROZEN_MEMORY, f->memory_fd, ram_bytes, m->fleeting, &m->memory,
			      e);
	return r;
}

static int sync_files(const struct frozen_new *f, struct err *e)
{
	auto_fd int root = openat(f->lock_fd, FROZEN_ROOT, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (root < 0)
		return err_sys(e, errno, "opening %s/" FROZEN_ROOT, f->dir);
	const int fds[] = {f->memory_fd, f->state_fd, f->disk_fd, root, f->lock_fd};
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fsync(fds[i]) < 0)
			return frozen_fail(e, errno, "syncing the files of", f->dir);
	return 0;
}

/* Gives the directory its name, or exchanges it with the one that has it. flags are for undoing it.
 */
static int put_in_place(const char *dir, const char *to, unsigned *ret_flags)
{
	for (int i = 0; i < TRIES_MAX; i++) {
		*ret_flags = RENAME_NOREPLACE;
		if (renameat2(AT_FDCWD, dir, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
			return 0;
		if (errno != EEXIST)
			return -errno;
		*ret_flags = RENAME_EXCHANGE;
		if (renameat2(AT_FDCWD, dir, AT_FDCWD, to, RENAME_EXCHANGE) == 0)
			return 0;
		if (errno != ENOENT)
			return -errno;
	}
	return -EBUSY;
}

static int sync_dir(const char *path)
{
	auto_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

static int switch_to(struct frozen_new *f, const char *name, bool fleeting, struct err *e)
{
	unsigned flags;
	auto_free char *parent = strdup(f->dir);
	if (!parent)
		return err_set(e, ENOMEM, "not enough memory");
	*strrchr(parent, '/') = '\0';
	auto_free char *to = str_printf("%s/%s", parent, name);
	if (!to)
		return err_set(e, ENOMEM, "not enough memory");
	int r = put_in_place(f->dir, to, &flags);
	if (r < 0)
		return frozen_fail(e, -r, "making", to);
	r = fleeting ? 0 : sync_dir(parent);
	if (r < 0 && renameat2(AT_FDCWD, to, AT_FDCWD, f->dir, flags) == 0)
		return frozen_fail(e, -r, "syncing", parent);
	if (flags == RENAME_EXCHANGE)
		(void)dir_remove_all(f->dir);
	return 0;
}

static int commit(struct frozen_new *f, const char *name, uint64_t ram_bytes, const json_t *extra,
		  bool fleeting, struct err *e)
{
	if (!str_is_name(name))
		return err_set(e, EINVAL, "'%s' can't be a frozen machine's name", name);
	if (ram_bytes == 0 || !json_is_object(extra))
		return err_set(e, EINVAL, "%s: no memory or no manifest", name);
	struct frozen_manifest m = {
		.made_ms = clock_wall_ms(),
		.fleeting = fleeting,
		.extra = (json_t *)(uintptr_t)extra,
	};
	int r = take_files(f, ram_bytes, &m, e);
	if (r == 0)
		r = frozen_write_manifest(f->lock_fd, f->dir, &m, e);
	if (r == 0 && !fleeting)
		r = sync_files(f, e);
	if (r == 0)
		r = switch_to(f, name, fleeting, e);
	return r;
}

int frozen_commit(struct frozen_new *f, const char *name, uint64_t ram_bytes, const json_t *extra,
		  bool fleeting, struct err *e)
{
	int r = commit(f, name, ram_bytes, extra, fleeting, e);
	if (r < 0)
		frozen_abort(f);
	else
		let_go(f);
	return r;
}
