/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine: QEMU's microvm with ACPI, through which a stock kernel finds the virtio-mmio
 * devices. Only what a sandbox needs: serial port, two disks, a network card, a random number
 * source. Everything from outside comes by descriptor, so QEMU needs no path but those of its own
 * firmware, the kernel and the initramfs.
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

#include "base/buf.h"
#include "base/guest.h"

#define MIB (UINT64_C(1) << 20)

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
	       "microvm,acpi=on,ioapic2=off,pit=on,pic=on,rtc=on,dump-guest-core=off,mem-merge=off");
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
	option(rc, a, "-smp", "%u", config->cpus);
	option(rc, a, "-m", "%llu", (unsigned long long)(config->ram_bytes / MIB));
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

static int put_control(struct qemu_args *a)
{
	int rc = 0;

	option(rc, a, "-chardev", "socket,id=qmp,fd=%d", QEMU_FD_QMP);
	option(rc, a, "-mon", "chardev=qmp,mode=control");
	option(rc, a, "-chardev", "socket,id=console,fd=%d", QEMU_FD_CONSOLE);
	option(rc, a, "-serial", "chardev:console");
	return rc;
}

/* One virtio-mmio transport each, by number: the guest names disks in the order of the transports.
 */
static int put_disks(struct qemu_args *a)
{
	int rc = 0;

	option(rc, a, "-add-fd", "fd=%d,set=%d", QEMU_FD_ROOT, QEMU_FD_ROOT);
	option(rc, a, "-add-fd", "fd=%d,set=%d", QEMU_FD_SCRATCH, QEMU_FD_SCRATCH);
	option(rc, a, "-blockdev",
	       "driver=raw,node-name=root,read-only=on,"
	       "file.driver=file,file.filename=/dev/fdset/%d,file.locking=off",
	       QEMU_FD_ROOT);
	/* The disk dies with the sandbox, so a flush has nothing to make durable. */
	option(rc, a, "-blockdev",
	       "driver=raw,node-name=scratch,discard=unmap,detect-zeroes=off,cache.no-flush=on,"
	       "file.driver=file,file.filename=/dev/fdset/%d,file.locking=off,"
	       "file.discard=unmap,file.cache.no-flush=on",
	       QEMU_FD_SCRATCH);
	option(rc, a, "-device", "virtio-blk-device,drive=root,num-queues=1,bus=virtio-mmio-bus.%d",
	       TRANSPORT_ROOT);
	/* On a full host the guest gets an error. Else QEMU would stop it, for good and unseen. */
	option(rc, a, "-device",
	       "virtio-blk-device,drive=scratch,werror=report,num-queues=1,bus=virtio-mmio-bus.%d",
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
	option(rc, a, "-device", "virtio-net-device,netdev=net,mac=%s,bus=virtio-mmio-bus.%d",
	       GUEST_MAC, TRANSPORT_NET);
	return rc;
}

/*
 * The kernel's words. What the machine needs comes first: the image's win where they differ, and
 * what follows " -- " is init's. A stock kernel spends a quarter of its start on checking itself
 * and on keys for module signatures, which protect nothing here: in the sandbox the task may be
 * root. The blacklist names what does that.
 */
#define CMDLINE_MACHINE \
	"console=ttyS0 8250.nr_uarts=1 reboot=t panic=-1 quiet pci=off random.trust_cpu=on"
#define CMDLINE_SHORTER                                                                       \
	" mitigations=off cryptomgr.notests initcall_blacklist=load_system_certificate_list," \
	"crypto_kdf108_init,init_encrypted,pci_arch_init"

static int put_kernel(struct qemu_args *a, const struct vmm_probe *host,
		      const struct vmm_config *config, struct err *e)
{
	auto_buf struct buf line;
	int rc;

	buf_init(&line, QEMU_CMDLINE_MAX);
	rc = buf_append_str(&line, CMDLINE_MACHINE CMDLINE_SHORTER);
	if (rc == 0 && host->accel == VMM_TCG)
		rc = buf_printf(&line, " tsc_early_khz=%u tsc=reliable no_timer_check",
				host->tsc_khz);
	if (rc == 0 && config->cmdline && config->cmdline[0])
		rc = buf_printf(&line, " %s", config->cmdline);
	if (rc == -EMSGSIZE)
		return err_set(e, E2BIG, "kernel command line is longer than %d bytes",
			       QEMU_CMDLINE_MAX);
	option(rc, a, "-kernel", "%s", config->kernel);
	option(rc, a, "-initrd", "%s", config->initramfs);
	option(rc, a, "-append", "%.*s", (int)line.len, (const char *)line.data);
	return rc < 0 ? err_sys(e, -rc, "QEMU's command line") : 0;
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
	rc = rc < 0 ? err_sys(e, -rc, "QEMU's command line") : put_kernel(&a, host, config, e);
	if (rc < 0) {
		qemu_args_done(&a);
		return rc;
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
