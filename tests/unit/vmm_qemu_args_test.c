/* SPDX-License-Identifier: Apache-2.0 */
/* The command line is where QEMU is told what it may touch: what must be there, and what must never
 * be. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/guest.h"
#include "base/str.h"
#include "vmm/qemu_args.h"

static const struct vmm_probe tcg_host = {
	.qemu_version = "10.0.2", .accel = VMM_TCG, .tsc_khz = 2596138};
static const struct vmm_probe kvm_host = {
	.qemu_version = "10.0.2", .accel = VMM_KVM, .kvm_present = true, .kvm_usable = true};

static struct vmm_config config_of(const char *cmdline)
{
	return (struct vmm_config){
		.id = "box",
		.cpus = 2,
		.ram_bytes = UINT64_C(512) << 20,
		.kernel = "/images/a,b/kernel",
		.initramfs = "/images/a,b/initramfs",
		.cmdline = cmdline,
		.root_fd = 40,
		.scratch_fd = 41,
		.tap_fd = 42,
		.console_fd = 43,
		.netns_fd = -1,
		.uid = 1000,
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
	struct vmm_config config = config_of("");
	struct qemu_args a = args_of(&tcg_host, &config);

	(void)state;
	assert_true(has(&a, "-nodefaults"));
	assert_true(has(&a, "-no-user-config"));
	assert_true(has(&a, "-no-reboot"));
	assert_true(str_starts(value_of(&a, "-M", 0), "microvm,acpi=on,"));
	assert_true(str_starts(value_of(&a, "-device", 0), "virtio-blk-device,drive=root,"));
	assert_true(str_starts(value_of(&a, "-device", 1), "virtio-blk-device,drive=scratch,"));
	assert_non_null(strstr(value_of(&a, "-device", 1), ",werror=report,"));
	assert_true(str_starts(value_of(&a, "-device", 2), "virtio-rng-device,"));
	assert_non_null(strstr(value_of(&a, "-device", 3), "mac=" GUEST_MAC));
	assert_null(value_of(&a, "-device", 4));
	assert_false(has(&a, "-daemonize"));
	qemu_args_done(&a);
}

static void no_tap_means_no_network_device(void **state)
{
	struct vmm_config config = config_of("");

	(void)state;
	config.tap_fd = -1;
	struct qemu_args a = args_of(&tcg_host, &config);
	assert_false(has(&a, "-netdev"));
	assert_false(mentions(&a, "virtio-net"));
	qemu_args_done(&a);
}

static void seccomp_is_on(void **state)
{
	struct vmm_config config = config_of("");
	struct qemu_args a = args_of(&tcg_host, &config);

	(void)state;
	assert_string_equal(value_of(&a, "-sandbox", 0), "on,obsolete=deny,elevateprivileges=deny,"
							 "spawn=deny,resourcecontrol=deny");
	qemu_args_done(&a);
}

static void disks_come_by_descriptor_and_the_root_is_read_only(void **state)
{
	struct vmm_config config = config_of("");
	struct qemu_args a = args_of(&tcg_host, &config);
	const char *root = value_of(&a, "-blockdev", 0), *scratch = value_of(&a, "-blockdev", 1);

	(void)state;
	assert_non_null(strstr(root, "driver=raw,node-name=root,read-only=on"));
	assert_non_null(strstr(root, "file.filename=/dev/fdset/5,file.locking=off"));
	assert_non_null(strstr(scratch, "driver=raw,node-name=scratch,discard=unmap"));
	assert_non_null(strstr(scratch, "file.filename=/dev/fdset/6"));
	assert_null(strstr(scratch, "read-only"));
	assert_string_equal(value_of(&a, "-add-fd", 0), "fd=5,set=5");
	assert_string_equal(value_of(&a, "-add-fd", 1), "fd=6,set=6");
	/* Our own numbers of descriptors mean nothing to the child. */
	assert_false(mentions(&a, "=40"));
	assert_false(mentions(&a, "=41"));
	qemu_args_done(&a);
}

static void emulation_is_told_the_tsc_rate(void **state)
{
	struct vmm_config config = config_of("init=/x");
	struct qemu_args a = args_of(&tcg_host, &config);
	const char *line = value_of(&a, "-append", 0);

	(void)state;
	assert_true(str_starts(value_of(&a, "-accel", 0), "tcg,"));
	assert_non_null(strstr(line, " tsc_early_khz=2596138 "));
	assert_non_null(strstr(line, " tsc=reliable "));
	assert_true(str_ends(line, " init=/x"));
	assert_false(mentions(&a, "kvm"));
	qemu_args_done(&a);
}

static void kvm_comes_by_descriptor(void **state)
{
	struct vmm_config config = config_of("");
	struct qemu_args a = args_of(&kvm_host, &config);

	(void)state;
	assert_string_equal(value_of(&a, "-accel", 0), "kvm,device=/dev/fdset/8");
	assert_false(mentions(&a, "/dev/kvm"));
	assert_null(strstr(value_of(&a, "-append", 0), "tsc"));
	qemu_args_done(&a);
}

static void paths_are_taken_as_they_are(void **state)
{
	struct vmm_config config = config_of("");
	struct qemu_args a = args_of(&tcg_host, &config);

	(void)state;
	assert_string_equal(value_of(&a, "-kernel", 0), "/images/a,b/kernel");
	assert_string_equal(value_of(&a, "-initrd", 0), "/images/a,b/initramfs");
	assert_string_equal(value_of(&a, "-m", 0), "512");
	assert_string_equal(value_of(&a, "-smp", 0), "2");
	qemu_args_done(&a);
}

static void kernel_command_line_is_never_cut(void **state)
{
	auto_free char *words = malloc(QEMU_CMDLINE_MAX + 1);
	struct qemu_args a = {0};
	struct err e = {0};
	size_t fits = 0;

	(void)state;
	for (size_t n = 0; n <= QEMU_CMDLINE_MAX; n++) {
		memset(words, 'x', n);
		words[n] = '\0';
		struct vmm_config config = config_of(words);
		int rc = qemu_args_build(&tcg_host, &config, &a, &e);
		if (rc < 0) {
			assert_int_equal(rc, -E2BIG);
			break;
		}
		const char *line = value_of(&a, "-append", 0);
		assert_true(strlen(line) <= QEMU_CMDLINE_MAX);
		assert_true(str_ends(line, words));
		fits = strlen(line);
		qemu_args_done(&a);
	}
	assert_in_range(fits, QEMU_CMDLINE_MAX - 1, QEMU_CMDLINE_MAX);
	assert_non_null(strstr(e.text, "2047"));
}

static void emulation_without_a_clock_is_refused(void **state)
{
	struct vmm_probe host = tcg_host;
	struct vmm_config config = config_of("");
	struct qemu_args a = {0};
	struct err e = {0};

	(void)state;
	host.tsc_khz = 0;
	assert_int_equal(qemu_args_build(&host, &config, &a, &e), -ENOTSUP);
	assert_int_equal(a.count, 0);
}

/* What vmm_start() turns away before any process exists. */
static void refuses(const struct vmm_probe *host, const struct vmm_config *config, const char *part)
{
	static const struct vmm_events none;
	struct err e = {0};

	assert_null(vmm_start(NULL, host, config, &none, NULL, &e));
	if (!strstr(e.text, part))
		fail_msg("'%s' is not in: %s", part, e.text);
}

static void bad_configurations_are_refused(void **state)
{
	const struct vmm_config good = config_of("");
	struct vmm_config c;
	struct vmm_probe host = tcg_host;

	(void)state;
	c = good, c.cpus = 0, refuses(&host, &c, "CPUs");
	c = good, c.cpus = VMM_CPUS_MAX + 1, refuses(&host, &c, "CPUs");
	c = good, c.ram_bytes = UINT64_C(1) << 20, refuses(&host, &c, "MiB of memory");
	c = good, c.ram_bytes += 1, refuses(&host, &c, "MiB of memory");
	c = good, c.ram_bytes = UINT64_C(1) << 60, refuses(&host, &c, "MiB of memory");
	c = good, c.uid = 0, refuses(&host, &c, "root");
	c = good, c.id = "a,guest=b", refuses(&host, &c, "name");
	c = good, c.kernel = "kernel", refuses(&host, &c, "absolute");
	c = good, c.scratch_fd = -1, refuses(&host, &c, "disks");
	host.qemu_version[0] = '\0';
	refuses(&host, &good, "install qemu-system-x86");
	strcpy(host.qemu_version, "6.2.0");
	refuses(&host, &good, "bookworm-backports");
	host = kvm_host;
	strcpy(host.qemu_version, "7.2.22");
	refuses(&host, &good, "bookworm-backports");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(machine_has_no_device_but_those_needed),
		cmocka_unit_test(no_tap_means_no_network_device),
		cmocka_unit_test(seccomp_is_on),
		cmocka_unit_test(disks_come_by_descriptor_and_the_root_is_read_only),
		cmocka_unit_test(emulation_is_told_the_tsc_rate),
		cmocka_unit_test(kvm_comes_by_descriptor),
		cmocka_unit_test(paths_are_taken_as_they_are),
		cmocka_unit_test(kernel_command_line_is_never_cut),
		cmocka_unit_test(emulation_without_a_clock_is_refused),
		cmocka_unit_test(bad_configurations_are_refused),
	};

	return cmocka_run_group_tests_name("vmm_qemu_args", tests, NULL, NULL);
}
