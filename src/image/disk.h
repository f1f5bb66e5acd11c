/* SPDX-License-Identifier: Apache-2.0 */
/* The two ext4 filesystems of an image, made without mounting anything. */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "image/tool.h"

/* Bytes and inodes that a directory tree takes in a filesystem of DISK_BLOCK blocks. Stays on one
 * filesystem. */
#define DISK_BLOCK 4096
struct disk_need {
	uint64_t bytes;
	uint64_t inodes;
};
int disk_measure(const char *dir, struct disk_need *ret, struct err *e);

/* Makes path a filesystem with the tree below dir in it, to be mounted read-only. */
int disk_make_root(const struct tools *t, const char *dir, const char *path, struct err *e);

/* Makes path an empty filesystem of so many bytes, sparse. */
int disk_make_scratch(const struct tools *t, uint64_t bytes, const char *path, struct err *e);
