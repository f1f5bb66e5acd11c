/* SPDX-License-Identifier: Apache-2.0 */
/* What a waiting QEMU is told, and in which order. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/doc.h"
#include "base/str.h"
#include "vmm/qemu_setup.h"

static const struct vmm_probe tcg_host = {
	.qemu_version = "10.0.2", .accel = VMM_TCG, .tsc_khz = 2596138};
static const struct vmm_probe kvm_host = {.qemu_version = "10.0.2", .accel = VMM_KVM};
static const struct vmm_machine machine = {
	.cpus = 2, .ram_bytes = UINT64_C(512) << 20, .root = "/images/a,b/root"};

static struct vmm_kernel kernel_of(const char *cmdline)
{
	return (struct vmm_kernel){
		.kernel = "/i/a,b \"c/kernel", .initramfs = "/i/initramfs", .cmdline = cmdline};
}

static struct qemu_setup boot_of(const struct vmm_probe *host, const char *root,
				 const char *cmdline)
{
	const struct vmm_kernel kernel = kernel_of(cmdline);
	struct qemu_setup s;
	struct err e = {0};

	if (qemu_setup_boot(host, &machine, root, &kernel, &s, &e) < 0)
		fail_msg("%s", e.text);
	return s;
}

static struct qemu_setup restore_of(bool run)
{
	struct qemu_setup s;
	struct err e = {0};

	if (qemu_setup_restore(&machine, NULL, run, &s, &e) < 0)
		fail_msg("%s", e.text);
	return s;
}

/* Names of the commands, in order, with a space behind each. */
static char *names_of(const struct qemu_setup *s)
{
	char *all = strdup("");

	for (size_t i = 0; i < s->count; i++) {
		char *longer = str_printf("%s%s ", all, s->commands[i].name);

		free(all);
		all = longer;
	}
	return all;
}

/* A member of the n-th command of that name. */
static const char *text_of(const struct qemu_setup *s, const char *name, unsigned n,
			   const char *member)
{
	for (size_t i = 0; i < s->count; i++)
		if (str_eq(s->commands[i].name, name) && n-- == 0)
			return json_string_value(json_object_get(s->commands[i].arguments, member));
	return NULL;
}

/* What a property of the machine is set to. */
static const json_t *property_of(const struct qemu_setup *s, const char *name)
{
	for (size_t i = 0; i < s->count; i++) {
		const json_t *a = s->commands[i].arguments;

		if (str_eq(s->commands[i].name, "qom-set") &&
		    str_eq(json_string_value(json_object_get(a, "property")), name)) {
			assert_string_equal(json_string_value(json_object_get(a, "path")),
					    "/machine");
			return json_object_get(a, "value");
		}
	}
	return NULL;
}

static const json_t *arguments_of(const struct qemu_setup *s, const char *name, unsigned n)
{
	for (size_t i = 0; i < s->count; i++)
		if (str_eq(s->commands[i].name, name) && n-- == 0)
			return s->commands[i].arguments;
	return NULL;
}

static void boot_ends_with_the_start_of_the_machine(void **state)
{
	struct qemu_setup s = boot_of(&tcg_host, NULL, "");
	auto_free char *names = names_of(&s);

	(void)state;
	assert_string_equal(names, "blockdev-add blockdev-add object-add qom-set qom-set qom-set "
				   "qom-set qom-set qom-set x-exit-preconfig ");
	qemu_setup_done(&s);
}

static void restore_is_told_to_run_or_not_before_the_state_comes(void **state)
{
	struct qemu_setup s = restore_of(true);
	auto_free char *running = names_of(&s);
	const char *common = "blockdev-add blockdev-add object-add qom-set qom-set qom-set "
			     "x-exit-preconfig ";

	(void)state;
	assert_true(str_starts(running, common));
	assert_string_equal(running + strlen(common), "migrate-incoming ");
	assert_string_equal(text_of(&s, "migrate-incoming", 0, "uri"),
			    "file:/proc/self/fd/5/state");
	qemu_setup_done(&s);
	s = restore_of(false);
	auto_free char *paused = names_of(&s);
	assert_string_equal(paused + strlen(common),
			    "stop migrate-set-capabilities migrate-incoming ");
	qemu_setup_done(&s);
}

static void disks_are_named_as_the_devices_want_them(void **state)
{
	struct qemu_setup s = boot_of(&tcg_host, NULL, "");
	const json_t *root = arguments_of(&s, "blockdev-add", 0);
	const json_t *scratch = arguments_of(&s, "blockdev-add", 1);

	(void)state;
	assert_string_equal(text_of(&s, "blockdev-add", 0, "node-name"), "root");
	assert_string_equal(text_of(&s, "blockdev-add", 0, "filename"), "/proc/self/fd/5/root");
	assert_true(json_is_true(json_object_get(root, "read-only")));
	assert_string_equal(text_of(&s, "blockdev-add", 1, "node-name"), "scratch");
	assert_string_equal(text_of(&s, "blockdev-add", 1, "filename"), "/dev/fdset/7");
	assert_string_equal(text_of(&s, "blockdev-add", 1, "discard"), "unmap");
	assert_null(json_object_get(scratch, "read-only"));
	/* The host keeps what it has cached of them. */
	assert_true(json_is_false(json_object_get(root, "drop-cache")));
	assert_true(json_is_false(json_object_get(scratch, "drop-cache")));
	qemu_setup_done(&s);
	s = boot_of(&tcg_host, "/images/a,b/root", "");
	assert_string_equal(text_of(&s, "blockdev-add", 0, "filename"), "/images/a,b/root");
	qemu_setup_done(&s);
}

static void memory_is_a_read_only_file_mapped_privately(void **state)
{
	struct qemu_setup s = restore_of(true);
	const json_t *memory = arguments_of(&s, "object-add", 0);

	(void)state;
	assert_string_equal(text_of(&s, "object-add", 0, "qom-type"), "memory-backend-file");
	assert_string_equal(text_of(&s, "object-add", 0, "mem-path"), "/proc/self/fd/5/memory");
	assert_string_equal(text_of(&s, "object-add", 0, "rom"), "off");
	assert_true(json_is_true(json_object_get(memory, "readonly")));
	assert_false(json_is_true(json_object_get(memory, "share")));
	assert_int_equal(json_integer_value(json_object_get(memory, "size")), machine.ram_bytes);
	assert_int_equal(json_integer_value(json_object_get(property_of(&s, "memory"), "size")),
			 machine.ram_bytes);
	assert_int_equal(json_integer_value(json_object_get(property_of(&s, "smp"), "cpus")), 2);
	qemu_setup_done(&s);
}

static void kernel_is_opened_in_the_own_directory(void **state)
{
	struct qemu_setup s = boot_of(&tcg_host, NULL, "");

	(void)state;
	assert_string_equal(json_string_value(property_of(&s, "kernel")), "/proc/self/fd/5/kernel");
	assert_string_equal(json_string_value(property_of(&s, "initrd")),
			    "/proc/self/fd/5/initramfs");
	qemu_setup_done(&s);
}

static void emulation_is_told_the_tsc_rate(void **state)
{
	struct qemu_setup s = boot_of(&tcg_host, NULL, "init=/x");
	const char *line = json_string_value(property_of(&s, "append"));

	(void)state;
	assert_non_null(strstr(line, " tsc_early_khz=2596138 "));
	assert_non_null(strstr(line, " tsc=reliable "));
	assert_true(str_ends(line, " init=/x"));
	qemu_setup_done(&s);
	s = boot_of(&kvm_host, NULL, NULL);
	assert_null(strstr(json_string_value(property_of(&s, "append")), "tsc"));
	qemu_setup_done(&s);
}

static void kernel_command_line_is_never_cut(void **state)
{
	auto_free char *words = malloc(QEMU_CMDLINE_MAX + 1);
	struct qemu_setup s;
	struct err e = {0};
	size_t fits = 0;

	(void)state;
	for (size_t n = 0; n <= QEMU_CMDLINE_MAX; n++) {
		memset(words, 'x', n);
		words[n] = '\0';
		const struct vmm_kernel kernel = kernel_of(words);
		int rc = qemu_setup_boot(&tcg_host, &machine, NULL, &kernel, &s, &e);
		if (rc < 0) {
			assert_int_equal(rc, -E2BIG);
			break;
		}
		const char *line = json_string_value(property_of(&s, "append"));
		assert_true(strlen(line) <= QEMU_CMDLINE_MAX);
		assert_true(str_ends(line, words));
		fits = strlen(line);
		qemu_setup_done(&s);
	}
	assert_in_range(fits, QEMU_CMDLINE_MAX - 1, QEMU_CMDLINE_MAX);
	assert_non_null(strstr(e.text, "2047"));
}

static void command_line_that_is_no_text_is_refused(void **state)
{
	const struct vmm_kernel kernel = kernel_of("\xff");
	struct qemu_setup s;
	struct err e = {0};

	(void)state;
	assert_true(qemu_setup_boot(&tcg_host, &machine, NULL, &kernel, &s, &e) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(boot_ends_with_the_start_of_the_machine),
		cmocka_unit_test(restore_is_told_to_run_or_not_before_the_state_comes),
		cmocka_unit_test(disks_are_named_as_the_devices_want_them),
		cmocka_unit_test(memory_is_a_read_only_file_mapped_privately),
		cmocka_unit_test(kernel_is_opened_in_the_own_directory),
		cmocka_unit_test(emulation_is_told_the_tsc_rate),
		cmocka_unit_test(kernel_command_line_is_never_cut),
		cmocka_unit_test(command_line_that_is_no_text_is_refused),
	};

	return cmocka_run_group_tests_name("vmm_qemu_setup", tests, NULL, NULL);
}
