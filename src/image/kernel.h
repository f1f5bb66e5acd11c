/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel files: from what distributions ship (bzImage) to what a monitor boots (an ELF image with a
 * PVH entry). */
#pragma once

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

#define KERNEL_ELF_MAX (512u << 20) /* bytes, unpacked */

/*
 * Appends the ELF image in file[0 .. n) (a bzImage, or an ELF image already) to the empty buffer
 * elf, whose maximum bounds it, and checks that it can be booted by PVH. 0; -EINVAL (not such a
 * file, damaged, no PVH entry), -EMSGSIZE, -ENOMEM. Source: Linux Documentation/arch/x86/boot.rst;
 * Xen docs/misc/pvh.
 */
int kernel_extract(const void *file, size_t n, struct buf *elf, struct err *e);
