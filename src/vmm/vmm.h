/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A virtual machine monitor behind one small interface. A monitor process is started before it is
 * known what it will run (that is most of a start), and waits; then it either boots a kernel or
 * restores a frozen machine, whose memory it maps copy-on-write and never copies. It outlives its
 * caller: another can take it over with vmm_adopt().
 *
 *   vmm_open ─► waiting ─ vmm_boot ───────────────► running ◄─ vmm_pause/vmm_resume ─► paused
 *                    └── vmm_restore ─► restored ──────▲         vmm_save: when paused
 *   vmm_kill at any time ─► exited()
 *
 * Each asynchronous call has one done(user, why): why->code 0 when it succeeded. It comes from the
 * loop, never from within the call, and also (with ECANCELED or EIO) when the process ends first;
 * exited() comes after it. At most one such call is under way at a time (-EBUSY), but for
 * vmm_kill().
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

/* What a monitor is started with. */
struct vmm_config {
	const char *id;  /* sandbox id, for names and errors */
	const char *dir; /* absolute path of a directory that is the monitor's alone, mode 0711, in
			    one that only root can search. Its sockets are here, files go to it
			    through here for a moment, and its memory's file is linked here as long
			    as it lives: so on the filesystem of all files given below */
	int scratch_fd;  /* raw disk, opened read-write. May be empty until vmm_boot() or
			    vmm_restore() */
	int tap_fd;      /* IFF_TAP | IFF_NO_PI | IFF_VNET_HDR; -1: no network device */
	int netns_fd;    /* network namespace that the process lives in */
	uid_t uid;       /* and gid: what the process runs as, nobody else's */
	bool boots;      /* for vmm_boot(); else for vmm_restore() */
};

struct vmm_machine {
	unsigned cpus;      /* 1 .. VMM_CPUS_MAX */
	uint64_t ram_bytes; /* a multiple of 1 MiB, VMM_RAM_MIN_MIB .. VMM_RAM_MAX_MIB */
	const char *root;   /* raw ext4; a file that every uid may read, in a directory that it need
			       not be   able to search */
};

struct vmm_kernel {
	const char
		*kernel; /* uncompressed ELF with a PVH note; an absolute path that uid can read */
	const char *initramfs; /* the same */
	const char *cmdline;   /* what the image wants; the driver adds what its machine needs */
};

/* A frozen machine, both as vmm_save() wrote them. Files that every uid may read (mode 0444). */
struct vmm_frozen {
	const char *memory; /* exactly ram_bytes, sparse */
	const char *state;
};

struct vmm; /* one monitor */

struct vmm_events {
	/* The process is gone: by itself, killed, or because control was lost. why says which: code
	   0 when the guest powered off or restarted, ECANCELED after vmm_kill(). The pointer is
	   dead after it. */
	void (*exited)(void *user, const struct err *why);
};

typedef void (*vmm_done_fn)(void *user, const struct err *why);

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

/* All that a frozen machine depends on besides its files: monitor and version, machine type,
   devices, CPU flags, accelerator, this processor's model, clock rate. Two hosts with the same text
   can exchange frozen machines. A heap string; NULL: no memory. */
char *vmm_fingerprint(const struct vmm_probe *host);

/* Whether a machine that was frozen where the one text holds (NULL: unknown, so no) can be used
   where the other does: the same but for what measuring the clock makes of it. */
bool vmm_fingerprint_fits(const char *frozen, const char *here);

/* How a monitor of that uid is confined: each step of a start as a line. A heap string; NULL with e
   set. */
char *vmm_jail_text(const struct vmm_probe *host, uid_t uid, struct err *e);

/* Starts the process, which waits. Descriptors in config stay the caller's (the child has copies).
   NULL with e set on failure, nothing left behind but empty sockets in dir. The calling thread may
   end: the process lives on, and exited() is nobody's. */
struct vmm *vmm_open(uv_loop_t *loop, const struct vmm_probe *host, const struct vmm_config *config,
		     const struct vmm_events *events, void *user, struct err *e);

/* Boots a kernel; done: the guest runs (its kernel has been started, no more). Memory begins as
   zeroes. 0 or -errno with e set: done does not follow. */
int vmm_boot(struct vmm *v, const struct vmm_machine *machine, const struct vmm_kernel *kernel,
	     vmm_done_fn done, void *user, struct err *e);

/* Restores a frozen machine, and lets it run if so asked (else it is paused). done: it does. The
   files may be removed once done has been called: the process has them open. */
int vmm_restore(struct vmm *v, const struct vmm_machine *machine, const struct vmm_frozen *frozen,
		bool run, vmm_done_fn done, void *user, struct err *e);

int vmm_pause(struct vmm *v, vmm_done_fn done, void *user);
int vmm_resume(struct vmm *v, vmm_done_fn done, void *user);

/* The first half of freezing, in whatever state: makes memory_fd (an empty file, read-write) a
   sparse copy of what the machine's memory was when it was booted or restored (reflink where the
   filesystem has it, else data extents only). In a worker thread: a copy of some 100 MB. */
int vmm_copy_base(struct vmm *v, int memory_fd, vmm_done_fn done, void *user);

/* The second half, of a paused machine: puts the pages that differ into memory_fd (as zeroes:
   punched out) and the devices' state into state_fd (an empty file, O_WRONLY). In a worker thread.
   The machine stays paused and whole, whatever the result. What the guest wrote to its disk is in
   scratch_fd then. */
int vmm_save(struct vmm *v, int memory_fd, int state_fd, vmm_done_fn done, void *user);

/* The serial port: a new connection, non-blocking, the caller's. What the guest writes while there
   is none is lost. One at a time. -errno. */
int vmm_console(const struct vmm *v, struct err *e);

/* Who the process is, for a record that a later process trusts: pids come again, pairs don't. */
struct vmm_identity {
	pid_t pid;
	uint64_t started; /* field 22 of /proc/PID/stat: clock ticks since the host's start */
};
struct vmm_identity vmm_identity(const struct vmm *v);

/* Takes over the monitor that another process opened and left running. done: it is controlled;
   *ret_running (valid when done is called without error) says whether its guest runs. NULL with e
   set: -ESRCH when that process is gone, -EPERM when it is not that uid's. */
struct vmm *vmm_adopt(uv_loop_t *loop, const char *id, const char *dir, uid_t uid,
		      const struct vmm_identity *who, bool *ret_running, vmm_done_fn done,
		      const struct vmm_events *events, void *user, struct err *e);

/* What an adopted monitor was opened with, for its new owner: a new descriptor of its network
   namespace, and of its scratch disk (read-write), which is known by its device and inode. -errno.
 */
int vmm_netns(const struct vmm *v, struct err *e);
int vmm_scratch(const struct vmm *v, dev_t dev, ino_t inode, struct err *e);

/* Ends monitors that nobody will adopt: all processes that have a directory below parent as theirs
   (as vmm_config.dir), but those of keep. For a process that starts after another's death. Returns
   how many, or -errno. */
int vmm_sweep(const char *parent, const pid_t *keep, size_t nkeep, struct err *e);

/* Kills the process at once; exited() follows from the loop when it is gone. */
void vmm_kill(struct vmm *v);

/* Writes the guest's RAM to path as an ELF core, for tests and post mortem. 0, or -errno: done does
 * not follow. */
int vmm_dump_memory(struct vmm *v, const char *path, vmm_done_fn done, void *user);
