/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frozen machines on disk. A template (an image booted to a ready agent), a snapshot and a paused
 * sandbox are the same thing: a directory with
 *
 *	memory          ram_bytes, sparse, mode 0444 (or memory.zst when it has rested long)
 *	state           of the devices, mode 0444
 *	disk            the sandbox's scratch disk, sparse, 0600
 *	root            hard link to the image's root filesystem, so that a rebuilt image takes
 *	                nothing away
 *	frozen.json     the manifest, 0600: sizes and SHA-256 of the others, and what the caller
 *wants to keep
 *
 * made under another name in the same parent and renamed when it is whole and synced: it is there
 *as a whole or not at all. The directory itself is 0700.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define FROZEN_NEW_PREFIX ".new-" /* a directory being made; dead when no process has its lock */

/* One being written. Not thread-safe, but frozen_commit() may run in a worker thread. */
struct frozen_new {
	char *dir;     /* PARENT/.new-XXXXXX */
	int memory_fd; /* empty, read-write */
	int state_fd;  /* empty, write-only */
	int disk_fd;   /* empty, read-write */
	int lock_fd;   /* private */
};

/* Makes the directory with its files, and parent (0700) where that is missing; root is linked,
   copied only where it can't be (another filesystem). 0; -ENOSPC when fewer than need_bytes are
   free there; -errno. Nothing is left on failure. */
int frozen_begin(const char *parent, const char *root, uint64_t need_bytes, struct frozen_new *ret,
		 struct err *e);

/* Checks sizes, takes checksums, writes the manifest with extra (an object, borrowed) in it, syncs
   all, and renames to PARENT/NAME (a str_is_name()). fleeting: neither syncs nor takes checksums;
   the host's next boot finds it damaged. What was there is replaced in one step (renameat2
   EXCHANGE) and then removed. Longer runs of zeros become holes. Blocks: for a worker thread. On
   failure the new directory is removed and the old one untouched. */
int frozen_commit(struct frozen_new *f, const char *name, uint64_t ram_bytes, const json_t *extra,
		  bool fleeting, struct err *e);

/* Closes and removes what was begun and not committed; harmless after frozen_commit(). */
void frozen_abort(struct frozen_new *f);

/* One to be used. */
struct frozen {
	char *dir;
	char *memory, *state, *disk, *root; /* paths */
	json_t *extra;
	uint64_t ram_bytes;
	uint64_t size_bytes; /* on disk, without root */
	uint64_t made_ms;    /* wall clock */
	uint64_t used_ms;    /* mtime of the directory, see frozen_touch() */
	uint64_t stamp;      /* of what it consists of and when that was written last: another one
				needs another frozen_verify() */
	bool compressed;     /* memory is not there until frozen_expand() */
};

/* Reads the manifest and checks that the files are there with the sizes it says. -ENOENT; -EBADMSG
   with e saying what is wrong (which file, how); -errno. */
int frozen_open(const char *parent, const char *name, struct frozen *ret, struct err *e);
void frozen_done(struct frozen *f);

/* Checks all of it: also what frozen_open() does, and the checksums (a fleeting one has none).
   Blocks, some 100 ms: for a worker thread. 0, -EBADMSG with e naming the file, -errno. */
int frozen_verify(const struct frozen *f, struct err *e);

/* Makes disk_fd (empty) a sparse copy of its disk: reflink where it can, else data extents only. */
int frozen_clone_disk(const struct frozen *f, int disk_fd, struct err *e);

/* memory to memory.zst and back, each in one step for whoever looks; no change where it is so
   already. Blocks, seconds: for a worker thread. The checksum is checked on both ways: -EBADMSG.
   -EINVAL for a fleeting one. used_ms stays when it is compressed. */
int frozen_compress(struct frozen *f, struct err *e);
int frozen_expand(struct frozen *f, struct err *e);

/* Notes that it was used now (for the collection by age). */
void frozen_touch(const struct frozen *f);

/* Calls each for every whole one in parent, in no order; damaged ones are called with bad set and
 * only dir and sizes filled. */
int frozen_each(const char *parent,
		void (*each)(void *user, const char *name, const struct frozen *f,
			     const struct err *bad),
		void *user, struct err *e);

/* 0, -ENOENT, -errno. */
int frozen_remove(const char *parent, const char *name, struct err *e);

/* Removes directories that a dead process was making, or removing. Returns how many. */
int frozen_sweep(const char *parent, struct err *e);
