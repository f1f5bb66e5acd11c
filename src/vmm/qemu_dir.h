/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A monitor's directory: its two sockets, and the files that are shown to it for a moment. All by
 * a descriptor, for the path of a socket may have no more than 107 bytes.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"

#define QEMU_NAME_CONTROL "control"
#define QEMU_NAME_CONSOLE "console"

/* An O_PATH descriptor, or -errno with e set. */
int qemu_dir_open(const char *path, struct err *e);

/* A listening stream socket of that name, which only root can connect to; a descriptor. What had
   the name is gone. */
int qemu_dir_listen(int dir, const char *name, struct err *e);

/* A connection to it, non-blocking. */
int qemu_dir_connect(int dir, const char *name, struct err *e);

/* Links an existing file in under name. 0; -EXDEV without e set when it is on another filesystem;
 * -errno. */
int qemu_dir_link(int dir, const char *path, const char *name, struct err *e);

/* The same, or a copy that everybody may read where it can't be linked. 0 or -errno with e set. */
int qemu_dir_bring(int dir, const char *path, const char *name, struct err *e);

/* Makes an empty file of size bytes that everybody may read; read-only descriptor. */
int qemu_dir_make_zeroes(int dir, const char *name, uint64_t size, struct err *e);

void qemu_dir_remove(int dir, const char *name);
