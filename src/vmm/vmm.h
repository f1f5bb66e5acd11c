/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A virtual machine monitor behind one small interface. The caller prepares everything by
 * descriptor (tap, disks, console); a driver starts the process, confined, and speaks the monitor's
 * control protocol on the loop.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "base/err.h"

enum vmm_kind {
	VMM_AUTO,
	VMM_QEMU,
};

enum vmm_accel {
	VMM_KVM,
	VMM_TCG,
};

#define VMM_CPUS_MAX    8
#define VMM_RAM_MIN_MIB 128
#define VMM_RAM_MAX_MIB 65536

struct vmm_config {
	const char *id;     /* sandbox id, for names and errors */
	unsigned cpus;      /* 1 .. VMM_CPUS_MAX */
	uint64_t ram_bytes; /* a multiple of 1 MiB, VMM_RAM_MIN_MIB .. VMM_RAM_MAX_MIB */
	const char
		*kernel; /* uncompressed ELF with a PVH note; an absolute path that uid can read */
	const char *initramfs; /* the same */
	const char *cmdline;   /* what the image wants; the driver adds what its machine needs */
	int root_fd;           /* raw ext4, opened read-only */
	int scratch_fd;        /* raw ext4, opened read-write */
	int tap_fd;            /* IFF_TAP | IFF_NO_PI | IFF_VNET_HDR; -1: no network device */
	int console_fd;        /* our end's peer of a socketpair: the serial port */
	int netns_fd;          /* network namespace that the process lives in */
	uid_t uid;             /* and gid: what the process runs as, nobody else's */
};

struct vmm; /* one running monitor */

struct vmm_events {
	/* The guest runs (its kernel has been started, no more). */
	void (*running)(void *user);
	/* The process is gone: by itself, killed, or because control was lost. why says which: code
	   0 when the guest powered off or restarted, ECANCELED after vmm_kill(), ETIMEDOUT when it
	   never ran. The pointer is dead after it. */
	void (*exited)(void *user, const struct err *why);
};

/* What this host offers. */
struct vmm_probe {
	bool kvm_present; /* /dev/kvm opens */
	bool kvm_usable;  /* a tiny guest ran at native speed with the instructions that kernels use
			   */
	char kvm_reason[160];  /* why not usable; empty when it is */
	char qemu_version[64]; /* empty when QEMU is missing */
	enum vmm_accel accel;  /* what QEMU will be started with */
	uint32_t tsc_khz;      /* measured; 0 when the TSC is no clock here */
};

/* Looks once, slowly (some 100 ms, up to a second more where KVM hangs); pure facts, changes
 * nothing. */
void vmm_probe(struct vmm_probe *ret);

/* Starts the process and the guest. Descriptors in config stay the caller's (the child has copies).
   The driver takes nothing from the guest on trust. NULL with e set on failure, nothing left
   behind. */
struct vmm *vmm_start(uv_loop_t *loop, const struct vmm_probe *host,
		      const struct vmm_config *config, const struct vmm_events *events, void *user,
		      struct err *e);

pid_t vmm_pid(const struct vmm *v);

/* Kills the process at once; exited() follows from the loop when it is reaped. */
void vmm_kill(struct vmm *v);

/* Writes the guest's RAM to path, for tests and post mortem; done follows, why->code 0 when all is
   written. 0, or -errno: done does not follow. */
int vmm_dump_memory(struct vmm *v, const char *path,
		    void (*done)(void *user, const struct err *why), void *user);
