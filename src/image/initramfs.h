/* SPDX-License-Identifier: Apache-2.0 */
/* The initramfs: the agent as /init, the modules that it loads, nothing else. */
#pragma once

#include "base/err.h"
#include "image/modules.h"

/*
 * Writes a newc archive to the new file at path:
 *
 *	/dev/console		character device 5:1
 *	/init			the agent
 *	/modules/NAME.ko	unpacked where the package compresses them
 *	/modules/order		the names, one a line, in the order in which to load them
 *
 * Same inputs, same bytes. Padded with zeros so that size % 4096 == 512: for some other sizes
 *QEMU's microvm lays the initrd over its ACPI tables, and the guest hangs. 0 or a negative errno
 *with e set.
 */
int initramfs_write(const char *path, const char *agent, const char *module_dir,
		    const struct modules *modules, struct err *e);
