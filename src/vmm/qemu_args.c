/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine: QEMU's microvm with ACPI, through which a stock kernel finds the virtio-mmio
 * devices. Only what a sandbox needs: serial port, two disks, a network card, a random number
 * source. It waits before it has memory, disks or kernel (--preconfig); qemu_setup.c has what it
 * is told then. Nearly all from outside comes by descriptor, the rest through a directory that
 * is this process's alone.
 *
 * The firmware is qboot, not microvm's default SeaBIOS: that one puts the ACPI tables at the end of
 * RAM, where QEMU loads the initramfs, and for some sizes of it the guest hangs without a word; and
 * qboot starts 0.2 s faster.
 */
#include "vmm/qemu_args.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/guest.h"

/* virtio-mmio transports. Linux finds the highest number first, and names disks in that order. */
enum transport {
	TRANSPORT_NET,
	TRANSPORT_RNG,
	TRANSPORT_SCRATCH,
	TRANSPORT_ROOT,
};

/* Translated code, MiB. It is touched as it fills: a sandbox that does little pays little. */
#define TCG_CACHE_MIB 128

static int put(struct qemu_args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int put(struct qemu_args *a, const char *fmt, ...)
{
	va_list ap;
	int n;

	assert(a->count < QEMU_ARGS_MAX);
	va_start(ap, fmt);
	n = vasprintf(&a->argv[a->count], fmt, ap);
	va_end(ap);
	if (n < 0) {
		a->argv[a->count] = NULL;
		return -ENOMEM;
	}
	a->count++;
	return 0;
}

/* An option and its value; rc chains the first failure through. */
#define option(rc, a, name, ...)                    \
	do {                                        \
		if ((rc) == 0)                      \
			(rc) = put(a, "%s", name);  \
		if ((rc) == 0)                      \
			(rc) = put(a, __VA_ARGS__); \
	} while (0)

static int put_machine(struct qemu_args *a, const struct vmm_probe *host,
		       const struct vmm_config *config)
{
	int rc = put(a, "%s", QEMU_BINARY);

	option(rc, a, "-name", "%s", config->id);
	/* With a second I/O APIC, which QEMU adds by default, the first transport's interrupt is
	 * never delivered. */
	option(rc, a, "-M",
	       "microvm,acpi=on,ioapic2=off,pit=on,pic=on,rtc=on,dump-guest-core=off,mem-merge=off,"
	       "suppress-vmdesc=on");
	option(rc, a, "-bios", "qboot.rom");
	if (host->accel == VMM_KVM) {
		option(rc, a, "-accel", "kvm,device=/dev/fdset/%d", QEMU_FD_KVM);
		option(rc, a, "-add-fd", "fd=%d,set=%d", QEMU_FD_KVM, QEMU_FD_KVM);
		option(rc, a, "-cpu", "host,-svm,-vmx");
	} else {
		/* Without erms and fsrm the guest copies by loops, which TCG runs several times
		 * faster than "rep movsb". */
		option(rc, a, "-accel", "tcg,tb-size=%d", TCG_CACHE_MIB);
		option(rc, a, "-cpu", "max,-svm,-la57,-erms,-fsrm");
	}
	/* As many as there may ever be: TCG divides its cache by this. The machine's own number is
	 * set later, as is its memory. */
	option(rc, a, "-smp", "%d", VMM_CPUS_MAX);
	option(rc, a, "-global", "migration.send-configuration=off");
	if (rc == 0)
		rc = put(a, "--preconfig");
	if (!config->boots)
		option(rc, a, "-incoming", "defer");
	return rc;
}

/* No file of the host, no program, no privilege from inside QEMU. */
static int put_confinement(struct qemu_args *a)
{
	static const char *const flags[] = {"-nodefaults", "-no-user-config", "-no-reboot"};
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < sizeof(flags) / sizeof(flags[0]); i++)
		rc = put(a, "%s", flags[i]);
	option(rc, a, "-display", "none");
	option(rc, a, "-sandbox",
	       "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
	return rc;
}

/* Two ways to control it. One is connected before it starts, for a connection that comes while it
 * moves a listening socket from its main loop to another thread's is lost now and then: both go to
 * accept it. The other listens, for a later process of ours. */
static int put_control(struct qemu_args *a)
{
	int rc = 0;

	option(rc, a, "-chardev", "socket,id=first,fd=%d", QEMU_FD_FIRST);
	option(rc, a, "-mon", "chardev=first,mode=control");
	option(rc, a, "-chardev", "socket,id=control,fd=%d,server=on,wait=off", QEMU_FD_CONTROL);
	option(rc, a, "-mon", "chardev=control,mode=control");
	option(rc, a, "-chardev", "socket,id=console,fd=%d,server=on,wait=off", QEMU_FD_CONSOLE);
	option(rc, a, "-serial", "chardev:console");
	return rc;
}

/* Else QEMU would look for a partition table to make one up, in a thread that it has to start. */
#define GEOMETRY "cyls=1024,heads=16,secs=63"

/* What the guest sees of its disks; what is behind them comes later, by the same names. One
 * virtio-mmio transport each, by number: the guest names disks in the order of the transports. */
static int put_disks(struct qemu_args *a)
{
	int rc = 0;

	option(rc, a, "-add-fd", "fd=%d,set=%d", QEMU_FD_SCRATCH, QEMU_FD_SCRATCH);
	option(rc, a, "-device",
	       "virtio-blk-device,drive=root,num-queues=1," GEOMETRY ",bus=virtio-mmio-bus.%d",
	       TRANSPORT_ROOT);
	/* On a full host the guest gets an error. Else QEMU would stop it, for good and unseen. */
	option(rc, a, "-device",
	       "virtio-blk-device,drive=scratch,werror=report,num-queues=1," GEOMETRY
	       ",bus=virtio-mmio-bus.%d",
	       TRANSPORT_SCRATCH);
	return rc;
}

static int put_devices(struct qemu_args *a, const struct vmm_config *config)
{
	int rc = put_disks(a);

	option(rc, a, "-object", "rng-builtin,id=rng");
	option(rc, a, "-device", "virtio-rng-device,rng=rng,bus=virtio-mmio-bus.%d", TRANSPORT_RNG);
	if (config->tap_fd < 0)
		return rc;
	option(rc, a, "-netdev", "tap,id=net,fd=%d,vhost=off", QEMU_FD_TAP);
	/* Its slot knows where it is: a guest that was restored has nobody to tell. */
	option(rc, a, "-device",
	       "virtio-net-device,netdev=net,mac=%s,guest_announce=off,bus=virtio-mmio-bus.%d",
	       GUEST_MAC, TRANSPORT_NET);
	return rc;
}

int qemu_args_build(const struct vmm_probe *host, const struct vmm_config *config,
		    struct qemu_args *ret, struct err *e)
{
	struct qemu_args a = {0};
	int rc;

	if (host->accel == VMM_TCG && host->tsc_khz == 0)
		return err_set(e, ENOTSUP,
			       "this host's time stamp counter is no clock, and an emulated guest "
			       "needs one: see `space doctor`");
	rc = put_machine(&a, host, config);
	if (rc == 0)
		rc = put_confinement(&a);
	if (rc == 0)
		rc = put_control(&a);
	if (rc == 0)
		rc = put_devices(&a, config);
	if (rc < 0) {
		qemu_args_done(&a);
		return err_sys(e, -rc, "QEMU's command line");
	}
	*ret = a;
	return 0;
}

void qemu_args_done(struct qemu_args *a)
{
	for (size_t i = 0; i < a->count; i++)
		free(a->argv[i]);
	memset(a, 0, sizeof(*a));
}
