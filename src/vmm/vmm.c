/* SPDX-License-Identifier: Apache-2.0 */
/* What holds for every driver: what the caller gives is checked here, once. The choice of driver
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
	if (!c->dir || c->dir[0] != '/')
		return err_set(e, EINVAL, "a monitor's directory is given by an absolute path");
	if (c->scratch_fd < 0)
		return err_set(e, EINVAL, "a monitor needs a scratch disk");
	if (c->uid == 0 || c->uid == (uid_t)-1)
		return err_set(e, EINVAL, "a monitor does not run as root");
	return 0;
}

static int machine_check(const struct vmm_machine *m, struct err *e)
{
	if (m->cpus < 1 || m->cpus > VMM_CPUS_MAX)
		return err_set(e, EINVAL, "a sandbox has 1 to %d CPUs, not %u", VMM_CPUS_MAX,
			       m->cpus);
	if (m->ram_bytes % MIB != 0 || m->ram_bytes / MIB < VMM_RAM_MIN_MIB ||
	    m->ram_bytes / MIB > VMM_RAM_MAX_MIB)
		return err_set(e, EINVAL, "a sandbox has %d to %d MiB of memory, in whole MiB",
			       VMM_RAM_MIN_MIB, VMM_RAM_MAX_MIB);
	if (!m->root || m->root[0] != '/')
		return err_set(e, EINVAL, "a sandbox's root disk is given by an absolute path");
	return 0;
}

struct vmm *vmm_open(uv_loop_t *loop, const struct vmm_probe *host, const struct vmm_config *config,
		     const struct vmm_events *events, void *user, struct err *e)
{
	if (config_check(config, e) < 0)
		return NULL;
	return qemu_open(loop, host, config, events, user, e);
}

int vmm_boot(struct vmm *v, const struct vmm_machine *machine, const struct vmm_kernel *kernel,
	     vmm_done_fn done, void *user, struct err *e)
{
	int rc = machine_check(machine, e);

	if (rc < 0)
		return rc;
	if (!kernel->kernel || !kernel->initramfs || kernel->kernel[0] != '/' ||
	    kernel->initramfs[0] != '/')
		return err_set(e, EINVAL, "kernel and initramfs are given by absolute paths");
	return qemu_boot(v, machine, kernel, done, user, e);
}

int vmm_restore(struct vmm *v, const struct vmm_machine *machine, const struct vmm_frozen *frozen,
		bool run, vmm_done_fn done, void *user, struct err *e)
{
	int rc = machine_check(machine, e);

	if (rc < 0)
		return rc;
	if (!frozen->memory || !frozen->state)
		return err_set(e, EINVAL, "a frozen machine has memory and state");
	return qemu_restore(v, machine, frozen, run, done, user, e);
}
