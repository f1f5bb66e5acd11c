/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names in the store, and the manifest:
 *
 *	STORE/NAME		-> NAME-HASH, replaced by rename
 *	STORE/NAME-HASH/	image.json kernel initramfs rootfs scratch; HASH: the first
 *STORE_HASH_DIGITS of the address STORE/.build-XXXXXX/	a build under way, or dead when nobody holds
 *the lock STORE/.lock		flock: one build or removal at a time
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "image/image.h"

#define STORE_HASH_DIGITS  16
#define STORE_BUILD_PREFIX ".build-"
#define STORE_LOCK         ".lock"
#define STORE_MANIFEST     "image.json"
#define STORE_KERNEL       "kernel"
#define STORE_INITRAMFS    "initramfs"
#define STORE_ROOTFS       "rootfs"
#define STORE_SCRATCH      "scratch"

/* A name of an image: as str_is_name(), and not itself of the form NAME-HASH. */
bool store_is_name(const char *name);

/* Whether entry is "NAME-HASH" for this name. */
bool store_is_version(const char *entry, const char *name);

/* "NAME-HASH" on the heap; NULL when there is no memory. */
char *store_version(const char *name, const char *hash);

/* The store's lock, waiting for it (says so on standard error). A descriptor or a negative errno
 * with e set. */
int store_lock(const char *store, struct err *e);

/* Makes NAME point to version. */
int store_switch(const char *store, const char *name, const char *version, struct err *e);

/* Removes every version of NAME but those two (each may be NULL); returns how many. Needs the lock.
 */
int store_prune(const char *store, const char *name, const char *keep, const char *keep_too,
		struct err *e);

/* Removes a directory of this store with everything below, after taking down mounts in it: a build
   that was killed may have left some, and removal must not go through them. */
int store_remove_tree(const char *path, struct err *e);

/* Removes what dead builds left. Needs the lock. */
int store_sweep(const char *store, struct err *e);

/* The version that NAME points to, on the heap. 0; -ENOENT; -EINVAL when it is no link of ours;
 * -ENOMEM. */
int store_present(const char *store, const char *name, char **ret_version);

/* Writes dir's manifest from img's name, hash, cmdline, user, workdir, warmup, env, built_ms. */
int store_write_manifest(const char *dir, const struct image *img, uint64_t generation,
			 const char *kernel_release, struct err *e);

/* Reads the manifest of a version: a new reference to whatever JSON it holds. */
int store_read_manifest(const char *store, const char *version, json_t **ret, struct err *e);
