/* SPDX-License-Identifier: Apache-2.0 */
/* What a waiting QEMU is told to become a machine, as pure data: a list of commands. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"
#include "vmm/vmm.h"

/* Names in the monitor's directory. */
#define QEMU_NAME_MEMORY    "memory"
#define QEMU_NAME_STATE     "state"
#define QEMU_NAME_ROOT      "root"
#define QEMU_NAME_KERNEL    "kernel"
#define QEMU_NAME_INITRAMFS "initramfs"

#define QEMU_SETUP_MAX 16

/* The kernel's limit, without the NUL. Source: Linux, arch/x86/include/asm/setup.h,
 * COMMAND_LINE_SIZE. */
#define QEMU_CMDLINE_MAX 2047

struct qemu_setup {
	struct {
		const char *name;
		json_t *arguments; /* or NULL */
	} commands[QEMU_SETUP_MAX];
	size_t count;
};

/* QEMU opens memory, state, kernel and initramfs through the directory that it inherited; root too,
   when it is NULL. Both fill ret, to be released with qemu_setup_done(). 0 or -errno with e set;
   -E2BIG: a kernel command line that is too long. */
int qemu_setup_boot(const struct vmm_probe *host, const struct vmm_machine *machine,
		    const char *root, const struct vmm_kernel *kernel, struct qemu_setup *ret,
		    struct err *e);
int qemu_setup_restore(const struct vmm_machine *machine, const char *root, bool run,
		       struct qemu_setup *ret, struct err *e);
void qemu_setup_done(struct qemu_setup *s);
