/* SPDX-License-Identifier: Apache-2.0 */
/* The QEMU driver's one entry for vmm.c; the rest of vmm.h is about what it returns. */
#pragma once

#include "base/err.h"
#include "vmm/vmm.h"

/* As vmm_start(), for a config that has been checked. */
struct vmm *qemu_start(uv_loop_t *loop, const struct vmm_probe *host,
		       const struct vmm_config *config, const struct vmm_events *events, void *user,
		       struct err *e);
