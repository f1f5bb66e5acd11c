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
	QEMU_FD_CONTROL = 3, /* listening socket */
	QEMU_FD_CONSOLE,     /* listening socket */
	QEMU_FD_DIR,         /* vmm_config.dir, O_PATH: by it the process is known for what it is */
	QEMU_FD_FIRST,       /* connected socket, of who starts it */
	QEMU_FD_SCRATCH,
	QEMU_FD_TAP, /* with a network device */
	QEMU_FD_KVM, /* with KVM: /dev/kvm, which the jailed user may not open */
};

#define QEMU_ARGS_MAX 64

struct qemu_args {
	char *argv[QEMU_ARGS_MAX + 1]; /* NULL-terminated */
	size_t count;
};

/* The command line of a QEMU that waits: nothing in it says what it will run. Fills ret, to be
   released with qemu_args_done(). 0; -ENOTSUP when this host has no clock for an emulated guest;
   -ENOMEM. e says so. */
int qemu_args_build(const struct vmm_probe *host, const struct vmm_config *config,
		    struct qemu_args *ret, struct err *e);
void qemu_args_done(struct qemu_args *a);
