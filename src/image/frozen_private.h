/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manifest of a frozen machine:
 *
 *	{"manifest": {"format": 1, "made_ms": N,
 *	              "memory": {"bytes": N, "sha256": HEX}, "state": the same, "disk": the same,
 *	              "root": {"bytes": N, "mtime": SECONDS},
 *	              "boot": ID of the kernel's run, when it is fleeting; the sha256 are missing
 *then "extra": {…}}, "sha256": HEX over the text of the first member}
 *
 * without white space, so that no byte can change unnoticed. Sums of files are those of content.h.
 * The root is an image's, often shared by many and never written: its size and time stand for it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/doc.h"
#include "base/err.h"
#include "image/content.h"
#include "image/frozen.h"

#define FROZEN_MEMORY   "memory"
#define FROZEN_PACKED   "memory.zst"
#define FROZEN_STATE    "state"
#define FROZEN_DISK     "disk"
#define FROZEN_ROOT     "root"
#define FROZEN_MANIFEST "frozen.json"

#define FROZEN_MODE 0444 /* of what a monitor reads */

#define FROZEN_MANIFEST_MAX (1u << 20) /* bytes */

struct frozen_file {
	uint64_t bytes;
	char sum[CONTENT_HEX_SIZE]; /* "" in a fleeting one */
};

struct frozen_manifest {
	struct frozen_file memory, state, disk;
	uint64_t root_bytes;
	uint64_t root_mtime; /* seconds */
	uint64_t made_ms;
	bool fleeting;
	json_t *extra;
};

/* Writes it into the directory (shown as dir in errors), synced unless it is fleeting. */
int frozen_write_manifest(int dirfd, const char *dir, const struct frozen_manifest *m,
			  struct err *e);

/* Reads it. -EBADMSG, -errno. */
int frozen_read_manifest(int dirfd, const char *dir, struct frozen_manifest *ret, struct err *e);
void frozen_manifest_done(struct frozen_manifest *m);

/* Opens PATH, a directory and no link. -ENOENT, -EBADMSG, -errno. */
int frozen_open_dir(const char *path, struct err *e);

/* Blocks until no other has the directory's lock. */
int frozen_lock(int dirfd);

/* Whether NAME is a plain file there, with its status. 1, 0 when there is none, -EBADMSG when it is
   something else, -errno. */
int frozen_stat(int dirfd, const char *dir, const char *name, struct stat *ret, struct err *e);

/* Bytes on disk without root. */
uint64_t frozen_usage(int dirfd);

/* Compares a packed memory's content with the sum in m; writes it to fd unless that is -1.
   -EBADMSG, -errno. */
int frozen_unpack(int dirfd, const char *dir, const struct frozen_file *m, int fd, struct err *e);

/* As err_sys(e, code, "WHAT PATH"), but says what to do about a full disk. */
int frozen_fail(struct err *e, int code, const char *what, const char *path);
