/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images: kernel, initramfs, read-only root filesystem, defaults. An image is a directory
 * STORE/NAME-HASH, made whole or not at all, named by the hash of what it is built from; STORE/NAME
 * is a symbolic link to the present one.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct image {
	char *name;
	char *hash;   /* hex, of the recipe's inputs */
	char *kernel; /* paths */
	char *initramfs;
	char *rootfs;  /* raw ext4 */
	char *scratch; /* an empty sparse ext4, copied for each sandbox */
	char *cmdline;
	char *user; /* whom tasks run as */
	char *workdir;
	char *warmup; /* shell command, run as user before a template is frozen; "" when none */
	json_t *env;  /* string members: variables of every process */
	uint64_t size_bytes; /* on disk */
	uint64_t built_ms;   /* wall clock */
};

/* Opens the present image of that name. -ENOENT with e saying how to build it. */
int image_open(const char *store, const char *name, struct image *ret, struct err *e);
void image_done(struct image *img);

/* Calls each(user, img) for every present image. */
int image_each(const char *store, void (*each)(void *user, const struct image *img), void *user,
	       struct err *e);

/*
 * Builds NAME from the recipe directory (docs/images.md) with the given CA certificate (PEM) in its
 * trust store; returns at once when an image of the same inputs is there, unless forced. Prints
 * progress to standard error. Blocks, runs programs. Must be root.
 */
int image_build(const char *store, const char *recipe_dir, const char *name, const char *ca_pem,
		bool force, struct err *e);

/* Removes NAME and its directory. */
int image_remove(const char *store, const char *name, struct err *e);

/* Makes disk_fd (empty, see sparse_open_unnamed()) a sparse copy of the scratch disk: reflink where
   it can, else data extents only. 0 or -errno. */
int image_copy_scratch(const struct image *img, int disk_fd, struct err *e);
