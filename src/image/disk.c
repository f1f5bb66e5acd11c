/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Features are named one by one, so that an image does not depend on this host's mke2fs.conf.
 * Neither has a journal: one is never written, the other does not outlive its sandbox. No checksums
 * of metadata: they cost time in emulated guests. Fixed identifiers: same tree, same layout. The
 * scratch disk keeps its metadata together and its inode tables marked as zeroed, so that a copy is
 * a few extents and no guest fills it up in the background.
 */
#include "image/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

#define FEATURES                                                                         \
	"none,sparse_super2,large_file,huge_file,filetype,ext_attr,dir_index,dir_nlink," \
	"extra_isize,extent,flex_bg,uninit_bg"

#define EXTENDED                                                                               \
	"hash_seed=53504143-4500-4000-8000-686173680000,num_backup_sb=0,packed_meta_blocks=1," \
	"assume_storage_prezeroed=1,root_owner=0:0"

#define ROOT_UUID    "53504143-4500-4000-8000-726f6f740000"
#define SCRATCH_UUID "53504143-4500-4000-8000-736372617463"

#define SPARE_BYTES \
	(32u << 20) /* beyond the tree and a sixteenth of it: tables, bitmaps, directories */
#define SPARE_INODES 1024

int disk_measure(const char *dir, struct disk_need *ret, struct err *e)
{
	char *roots[] = {(char *)dir, NULL};
	FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
	if (!tree)
		return err_sys(e, errno, "measuring %s", dir);
	struct disk_need need = {0};
	int code = 0;
	for (FTSENT *f; (f = fts_read(tree));) {
		if (f->fts_info == FTS_DP)
			continue;
		if (f->fts_info == FTS_ERR || f->fts_info == FTS_DNR || f->fts_info == FTS_NS) {
			code = f->fts_errno;
			break;
		}
		uint64_t size = S_ISREG(f->fts_statp->st_mode) || S_ISDIR(f->fts_statp->st_mode)
					? (uint64_t)f->fts_statp->st_size
					: 0;
		need.bytes += (size + DISK_BLOCK - 1) / DISK_BLOCK * DISK_BLOCK;
		need.inodes++;
	}
	fts_close(tree);
	if (code)
		return err_sys(e, code, "measuring %s", dir);
	*ret = need;
	return 0;
}

static int make_file(const char *path, uint64_t bytes, struct err *e)
{
	auto_fd int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
		return err_sys(e, errno, "making %s", path);
	return 0;
}

int disk_make_root(const struct tools *t, const char *dir, const char *path, struct err *e)
{
	struct disk_need need;
	int r = disk_measure(dir, &need, e);
	if (r < 0)
		return r;
	uint64_t bytes = need.bytes + need.bytes / 16 + SPARE_BYTES;
	bytes = (bytes + (1 << 20) - 1) >> 20 << 20;
	auto_free char *inodes = str_printf("%" PRIu64, need.inodes + SPARE_INODES);
	if (!inodes)
		return err_set(e, ENOMEM, "not enough memory");
	r = make_file(path, bytes, e);
	if (r < 0)
		return r;
	const char *const argv[] = {
		"mke2fs", "-q",   "-F",         "-t",  "ext4", "-O",   FEATURES, "-m",      "0",
		"-b",     "4096", "-I",         "256", "-N",   inodes, "-U",     ROOT_UUID, "-E",
		EXTENDED, "-L",   "space-root", "-d",  dir,    path,   NULL};
	return tools_run(t, argv, e);
}

int disk_make_scratch(const struct tools *t, uint64_t bytes, const char *path, struct err *e)
{
	int r = make_file(path, bytes, e);
	if (r < 0)
		return r;
	const char *const argv[] = {"mke2fs",        "-q", "-F",         "-t", "ext4",   "-O",
				    FEATURES,        "-m", "0",          "-b", "4096",   "-I",
				    "256",           "-U", SCRATCH_UUID, "-E", EXTENDED, "-L",
				    "space-scratch", path, NULL};
	return tools_run(t, argv, e);
}
