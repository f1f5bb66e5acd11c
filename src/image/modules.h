/* SPDX-License-Identifier: Apache-2.0 */
/* Which module files a guest needs, in the order in which they load. */
#pragma once

#include <stddef.h>

#include "base/err.h"

#define MODULES_MAX 64

/* Paths are relative to the kernel's module directory, each after all that it needs. */
struct modules {
	char *paths[MODULES_MAX];
	size_t count;
};

/*
 * Resolves names (module names, '-' and '_' alike) with the texts of modules.dep and
 * modules.builtin: ret gets what has to be loaded, without what is built in. 0; -ENOENT for a name
 * that the kernel has not; -EINVAL for damaged texts or a circle, -E2BIG past MODULES_MAX, -ENOMEM.
 * On failure ret is empty.
 */
int modules_resolve(const char *dep, const char *builtin, const char *const *names, size_t count,
		    struct modules *ret, struct err *e);
void modules_done(struct modules *m);

/* "kernel/x/virtio-rng.ko.xz" -> "virtio-rng.ko" in out: how the initramfs calls it. 0 or -EINVAL.
 */
#define MODULE_FILE_MAX 80
int modules_file_name(const char *path, char out[MODULE_FILE_MAX]);
