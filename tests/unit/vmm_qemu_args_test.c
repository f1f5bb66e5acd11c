/* SPDX-License-Identifier: Apache-2.0 */
/* The command line is where QEMU is told what it may touch: what must be there, and what must never
 * be. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/guest.h"
#include "base/str.h"
#include "vmm/qemu_args.h"
#include "vmm/qemu_dir.h"

static const struct vmm_probe tcg_host = {
	.qemu_version = "10.0.2", .accel = VMM_TCG, .tsc_khz = 2596138};
static const struct vmm_probe kvm_host = {
	.qemu_version = "10.0.2", .accel = VMM_KVM, .kvm_present = true, .kvm_usable = true};

static struct vmm_config config_of(bool boots)
{
	return (struct vmm_config){
		.id = "box",
		.dir = "/run/a,b/box",
		.scratch_fd = 41,
		.tap_fd = 42,
		.netns_fd = -1,
		.uid = 1000,
		.boots = boots,
	};
}

static struct qemu_args args_of(const struct vmm_probe *host, const struct vmm_config *config)
{
	struct qemu_args a;
	struct err e = {0};

	if (qemu_args_build(host, config, &a, &e) < 0)
		fail_msg("%s", e.text);
	assert_null(a.argv[a.count]);
	return a;
}

/* The n-th value of an option, or NULL. */
static const char *value_of(const struct qemu_args *a, const char *name, unsigned n)
{
	for (size_t i = 1; i + 1 < a->count; i++)
		if (str_eq(a->argv[i], name) && n-- == 0)
			return a->argv[i + 1];
	return NULL;
}

static bool has(const struct qemu_args *a, const char *name)
{
	for (size_t i = 1; i < a->count; i++)
		if (str_eq(a->argv[i], name))
			return true;
	return false;
}

static bool mentions(const struct qemu_args *a, const char *part)
{
	for (size_t i = 1; i < a->count; i++)
		if (strstr(a->argv[i], part))
			return true;
	return false;
}

static void machine_has_no_device_but_those_needed(void **state)
{
	struct vmm_config config = config_of(false);
	struct qemu_args a = args_of(&tcg_host, &config);

	(void)state;
	assert_true(has(&a, "-nodefaults"));
	assert_true(has(&a, "-no-user-config"));
	assert_true(has(&a, "-no-reboot"));
	assert_true(str_starts(value_of(&a, "-M", 0), "microvm,acpi=on,"));
	assert_true(str_starts(value_of(&a, "-device", 0), "virtio-blk-device,drive=root,"));
	assert_true(str_starts(value_of(&a, "-device", 1), "virtio-blk-device,drive=scratch,"));
	assert_non_null(strstr(value_of(&a, "-device", 1), ",werror=report,"));
	assert_non_null(strstr(value_of(&a, "-device", 1), ",cyls="));
	assert_true(str_starts(value_of(&a, "-device", 2), "virtio-rng-device,"));
	assert_non_null(strstr(value_of(&a, "-device", 3), "mac=" GUEST_MAC));
	assert_null(value_of(&a, "-device", 4));
	assert_false(has(&a, "-daemonize"));
	qemu_args_done(&a);
}

static void no_tap_means_no_network_device(void **state)
{
	struct vmm_config config = config_of(false);

	(void)state;
	config.tap_fd = -1;
	struct qemu_args a = args_of(&tcg_host, &config);
	assert_false(has(&a, "-netdev"));
	assert_false(mentions(&a, "virtio-net"));
	qemu_args_done(&a);
}

static void seccomp_is_on(void **state)
{
	struct vmm_config config = config_of(false);
	struct qemu_args a = args_of(&tcg_host, &config);

	(void)state;
	assert_string_equal(value_of(&a, "-sandbox", 0), "on,obsolete=deny,elevateprivileges=deny,"
							 "spawn=deny,resourcecontrol=deny");
	qemu_args_done(&a);
}

static void monitor_waits_and_knows_nothing_of_its_machine(void **state)
{
	struct vmm_config config = config_of(false);
	struct qemu_args a = args_of(&tcg_host, &config);
	static const char *const later[] = {"-m", "-kernel", "-initrd", "-append", "-blockdev"};

	(void)state;
	assert_true(has(&a, "--preconfig"));
	assert_string_equal(value_of(&a, "-incoming", 0), "defer");
	for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++)
		assert_false(has(&a, later[i]));
	assert_false(mentions(&a, "/run/")); /* its directory comes by descriptor */
	qemu_args_done(&a);

	config = config_of(true);
	a = args_of(&tcg_host, &config);
	assert_true(has(&a, "--preconfig"));
	assert_false(has(&a, "-incoming"));
	qemu_args_done(&a);
}

static void sockets_and_scratch_disk_come_by_descriptor(void **state)
{
	struct vmm_config config = config_of(false);
	struct qemu_args a = args_of(&tcg_host, &config);

	(void)state;
	assert_string_equal(value_of(&a, "-chardev", 0), "socket,id=first,fd=6");
	assert_string_equal(value_of(&a, "-chardev", 1),
			    "socket,id=control,fd=3,server=on,wait=off");
	assert_string_equal(value_of(&a, "-chardev", 2),
			    "socket,id=console,fd=4,server=on,wait=off");
	assert_string_equal(value_of(&a, "-mon", 0), "chardev=first,mode=control");
	assert_string_equal(value_of(&a, "-mon", 1), "chardev=control,mode=control");
	assert_string_equal(value_of(&a, "-add-fd", 0), "fd=7,set=7");
	assert_true(str_starts(value_of(&a, "-netdev", 0), "tap,id=net,fd=8,"));
	/* Our own numbers of descriptors mean nothing to the child. */
	assert_false(mentions(&a, "=41"));
	assert_false(mentions(&a, "=42"));
	qemu_args_done(&a);
}

static void kvm_comes_by_descriptor(void **state)
{
	struct vmm_config config = config_of(false);
	struct qemu_args a = args_of(&kvm_host, &config);

	(void)state;
	assert_string_equal(value_of(&a, "-accel", 0), "kvm,device=/dev/fdset/9");
	assert_false(mentions(&a, "/dev/kvm"));
	qemu_args_done(&a);
	a = args_of(&tcg_host, &config);
	assert_true(str_starts(value_of(&a, "-accel", 0), "tcg,"));
	assert_false(mentions(&a, "kvm"));
	qemu_args_done(&a);
}

static void emulation_without_a_clock_is_refused(void **state)
{
	struct vmm_probe host = tcg_host;
	struct vmm_config config = config_of(false);
	struct qemu_args a = {0};
	struct err e = {0};

	(void)state;
	host.tsc_khz = 0;
	assert_int_equal(qemu_args_build(&host, &config, &a, &e), -ENOTSUP);
	assert_int_equal(a.count, 0);
}

/* What vmm_open() turns away before any process exists. */
static void refuses(const struct vmm_probe *host, const struct vmm_config *config, const char *part)
{
	static const struct vmm_events none;
	struct err e = {0};

	assert_null(vmm_open(NULL, host, config, &none, NULL, &e));
	if (!strstr(e.text, part))
		fail_msg("'%s' is not in: %s", part, e.text);
}

static void bad_configurations_are_refused(void **state)
{
	const struct vmm_config good = config_of(false);
	struct vmm_config c;
	struct vmm_probe host = tcg_host;

	(void)state;
	c = good, c.uid = 0, refuses(&host, &c, "root");
	c = good, c.uid = (uid_t)-1, refuses(&host, &c, "root");
	c = good, c.id = "a,guest=b", refuses(&host, &c, "name");
	c = good, c.dir = "run", refuses(&host, &c, "absolute");
	c = good, c.scratch_fd = -1, refuses(&host, &c, "disk");
	c = good, c.dir = "/nonexistent/box", refuses(&host, &c, "/nonexistent/box");
	host.qemu_version[0] = '\0';
	refuses(&host, &good, "install qemu-system-x86");
	strcpy(host.qemu_version, "8.2.0");
	refuses(&host, &good, "bookworm-backports");
	host = kvm_host;
	strcpy(host.qemu_version, "7.2.22");
	refuses(&host, &good, "bookworm-backports");
}

/* And vmm_boot() and vmm_restore(), which look at the machine before the monitor. */
static void refuses_machine(struct vmm_machine m, const char *part)
{
	const struct vmm_kernel kernel = {.kernel = "/k", .initramfs = "/i"};
	const struct vmm_frozen frozen = {.memory = "/m", .state = "/s"};
	struct err e = {0};

	assert_int_equal(vmm_boot(NULL, &m, &kernel, NULL, NULL, &e), -EINVAL);
	assert_non_null(strstr(e.text, part));
	assert_int_equal(vmm_restore(NULL, &m, &frozen, true, NULL, NULL, &e), -EINVAL);
	assert_non_null(strstr(e.text, part));
}

static void bad_machines_are_refused(void **state)
{
	const struct vmm_machine good = {.cpus = 1, .ram_bytes = UINT64_C(512) << 20, .root = "/r"};
	const struct vmm_kernel relative = {.kernel = "k", .initramfs = "/i"};
	const struct vmm_frozen half = {.memory = "/m"};
	struct vmm_machine m;
	struct err e = {0};

	(void)state;
	m = good, m.cpus = 0, refuses_machine(m, "CPUs");
	m = good, m.cpus = VMM_CPUS_MAX + 1, refuses_machine(m, "CPUs");
	m = good, m.ram_bytes = UINT64_C(1) << 20, refuses_machine(m, "MiB of memory");
	m = good, m.ram_bytes += 1, refuses_machine(m, "MiB of memory");
	m = good, m.ram_bytes = UINT64_C(1) << 60, refuses_machine(m, "MiB of memory");
	m = good, m.root = NULL, refuses_machine(m, "absolute");
	m = good, m.root = "r", refuses_machine(m, "absolute");
	assert_int_equal(vmm_boot(NULL, &good, &relative, NULL, NULL, &e), -EINVAL);
	assert_int_equal(vmm_restore(NULL, &good, &half, true, NULL, NULL, &e), -EINVAL);
}

static void fingerprint_tells_hosts_apart(void **state)
{
	struct vmm_probe other = tcg_host;
	auto_free char *one = vmm_fingerprint(&tcg_host), *same = vmm_fingerprint(&tcg_host);
	auto_free char *kvm = vmm_fingerprint(&kvm_host);

	(void)state;
	assert_non_null(strstr(one, "10.0.2"));
	assert_non_null(strstr(one, "microvm"));
	assert_non_null(strstr(one, "-cpu max,-svm"));
	assert_non_null(strstr(one, "virtio-net-device"));
	assert_true(vmm_fingerprint_fits(one, same));
	assert_false(vmm_fingerprint_fits(one, kvm));
	assert_false(vmm_fingerprint_fits(NULL, one));
	assert_false(vmm_fingerprint_fits("", one));
	assert_false(vmm_fingerprint_fits("\nclock x kHz\n", one));
	other.tsc_khz += 3; /* measured again */
	auto_free char *again = vmm_fingerprint(&other);
	assert_true(vmm_fingerprint_fits(one, again));
	other.tsc_khz += 100000;
	auto_free char *faster = vmm_fingerprint(&other);
	assert_false(vmm_fingerprint_fits(one, faster));
	other = tcg_host;
	strcpy(other.qemu_version, "10.0.3");
	auto_free char *newer = vmm_fingerprint(&other);
	assert_false(vmm_fingerprint_fits(one, newer));
}

/* QEMU moves the control socket between two of its threads while it starts, and both may accept. */
static void sockets_are_never_waited_at(void **state)
{
	char dir[] = "/tmp/space-vmm-XXXXXX";
	struct err e;

	(void)state;
	assert_non_null(mkdtemp(dir));
	auto_fd int dirfd = open(dir, O_PATH | O_CLOEXEC);
	auto_fd int fd = qemu_dir_listen(dirfd, QEMU_NAME_CONTROL, &e);
	assert_true(fd >= 0);
	assert_int_equal(accept(fd, NULL, NULL), -1);
	assert_int_equal(errno, EAGAIN);
	qemu_dir_remove(dirfd, QEMU_NAME_CONTROL);
	rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(machine_has_no_device_but_those_needed),
		cmocka_unit_test(no_tap_means_no_network_device),
		cmocka_unit_test(seccomp_is_on),
		cmocka_unit_test(monitor_waits_and_knows_nothing_of_its_machine),
		cmocka_unit_test(sockets_and_scratch_disk_come_by_descriptor),
		cmocka_unit_test(kvm_comes_by_descriptor),
		cmocka_unit_test(emulation_without_a_clock_is_refused),
		cmocka_unit_test(bad_configurations_are_refused),
		cmocka_unit_test(bad_machines_are_refused),
		cmocka_unit_test(fingerprint_tells_hosts_apart),
		cmocka_unit_test(sockets_are_never_waited_at),
	};

	return cmocka_run_group_tests_name("vmm_qemu_args", tests, NULL, NULL);
}
