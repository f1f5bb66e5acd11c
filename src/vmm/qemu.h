/* SPDX-License-Identifier: Apache-2.0 */
/* The QEMU driver's entries for vmm.c, which has checked what it gives; the others of vmm.h are the
 * driver's own. */
#pragma once

#include "base/err.h"
#include "vmm/vmm.h"

/* As vmm_open(). */
struct vmm *qemu_open(uv_loop_t *loop, const struct vmm_probe *host,
		      const struct vmm_config *config, const struct vmm_events *events, void *user,
		      struct err *e);

/* As vmm_boot() and vmm_restore(). */
int qemu_boot(struct vmm *v, const struct vmm_machine *machine, const struct vmm_kernel *kernel,
	      vmm_done_fn done, void *user, struct err *e);
int qemu_restore(struct vmm *v, const struct vmm_machine *machine, const struct vmm_frozen *frozen,
		 bool run, vmm_done_fn done, void *user, struct err *e);
