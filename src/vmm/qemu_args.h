/* SPDX-License-Identifier: Apache-2.0 */
/* QEMU's command line as pure data: what follows from host and config, before anything is opened or
 * started. */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "vmm/vmm.h"

#define QEMU_BINARY "/usr/bin/qemu-system-x86_64"

/* Numbers of the descriptors that QEMU inherits; none is left out but the last two. */
enum qemu_fd {
	QEMU_FD_QMP = 3,
	QEMU_FD_CONSOLE,
	QEMU_FD_ROOT,
	QEMU_FD_SCRATCH,
	QEMU_FD_TAP, /* with a network device */
	QEMU_FD_KVM, /* with KVM: /dev/kvm, which the jailed user may not open */
};

#define QEMU_ARGS_MAX 64

/* The kernel's limit, without the NUL. Source: Linux, arch/x86/include/asm/setup.h,
 * COMMAND_LINE_SIZE. */
#define QEMU_CMDLINE_MAX 2047

struct qemu_args {
	char *argv[QEMU_ARGS_MAX + 1]; /* NULL-terminated */
	size_t count;
};

/* Fills ret, to be released with qemu_args_done(). 0; -E2BIG for a kernel command line that is too
   long; -ENOTSUP when this host has no clock for an emulated guest; -ENOMEM. e says so. */
int qemu_args_build(const struct vmm_probe *host, const struct vmm_config *config,
		    struct qemu_args *ret, struct err *e);
void qemu_args_done(struct qemu_args *a);
