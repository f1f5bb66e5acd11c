/* SPDX-License-Identifier: Apache-2.0 */
/* What a monitor's process sees and may do. */
#pragma once

#include "base/err.h"
#include "jail/jail.h"
#include "vmm/vmm.h"

/* Where its root directory has room for a disk that can't be linked into its own directory. */
#define QEMU_PLACE_ROOT "/root-disk"

struct qemu_jail {
	struct jail_spec spec; /* but for descriptors, uid, limits, network */
	struct jail_file *files;
};

/* Fills ret, which borrows argv, to be released with qemu_jail_done(). 0 or -errno with e set. */
int qemu_jail_make(struct qemu_jail *ret, const char *const *argv, enum vmm_accel accel,
		   struct err *e);
void qemu_jail_done(struct qemu_jail *jail);
