/* SPDX-License-Identifier: Apache-2.0 */
/* What holds for every driver: the configuration is checked here, once. The choice of driver
 * belongs here too. */
#include "vmm/vmm.h"

#include <errno.h>

#include "base/str.h"
#include "vmm/qemu.h"

#define MIB (UINT64_C(1) << 20)

static int config_check(const struct vmm_config *c, struct err *e)
{
	if (!str_is_name(c->id))
		return err_set(e, EINVAL, "sandbox id is not a name");
	if (c->cpus < 1 || c->cpus > VMM_CPUS_MAX)
		return err_set(e, EINVAL, "a sandbox has 1 to %d CPUs, not %u", VMM_CPUS_MAX,
			       c->cpus);
	if (c->ram_bytes % MIB != 0 || c->ram_bytes / MIB < VMM_RAM_MIN_MIB ||
	    c->ram_bytes / MIB > VMM_RAM_MAX_MIB)
		return err_set(e, EINVAL, "a sandbox has %d to %d MiB of memory, in whole MiB",
			       VMM_RAM_MIN_MIB, VMM_RAM_MAX_MIB);
	if (!c->kernel || !c->initramfs || c->root_fd < 0 || c->scratch_fd < 0 || c->console_fd < 0)
		return err_set(e, EINVAL,
			       "a sandbox needs a kernel, an initramfs, two disks and a "
			       "console");
	if (c->kernel[0] != '/' || c->initramfs[0] != '/')
		return err_set(e, EINVAL, "kernel and initramfs are given by absolute paths");
	if (c->uid == 0)
		return err_set(e, EINVAL, "a monitor does not run as root");
	return 0;
}

struct vmm *vmm_start(uv_loop_t *loop, const struct vmm_probe *host,
		      const struct vmm_config *config, const struct vmm_events *events, void *user,
		      struct err *e)
{
	if (config_check(config, e) < 0)
		return NULL;
	return qemu_start(loop, host, config, events, user, e);
}
