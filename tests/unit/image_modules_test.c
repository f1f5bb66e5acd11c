/* SPDX-License-Identifier: Apache-2.0 */
/* Modules come out after what they need, whatever order the texts have. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "image/modules.h"

static const char dep[] = "kernel/net/virtio_net.ko: kernel/net/net_failover.ko kernel/v/virtio.ko "
			  "kernel/v/virtio_ring.ko kernel/net/failover.ko\n"
			  "kernel/net/net_failover.ko: kernel/net/failover.ko\n"
			  "kernel/net/failover.ko:\n"
			  "kernel/v/virtio.ko: kernel/v/virtio_ring.ko\n"
			  "kernel/v/virtio_ring.ko:\n"
			  "kernel/char/virtio-rng.ko.xz: kernel/v/virtio.ko\n";
static const char builtin[] = "kernel/fs/ext4/ext4.ko\nkernel/lib/crc16.ko\n";

static int resolve(const char *text, const char *const *names, size_t count, struct modules *m,
		   struct err *e)
{
	return modules_resolve(text, builtin, names, count, m, e);
}

static void modules_come_after_what_they_need(void **state)
{
	(void)state;
	static const char *const names[] = {"virtio_net", "virtio_rng", "virtio_ring", "ext4"};
	static const char *const want[] = {
		"kernel/net/failover.ko",   "kernel/net/net_failover.ko",
		"kernel/v/virtio_ring.ko",  "kernel/v/virtio.ko",
		"kernel/net/virtio_net.ko", "kernel/char/virtio-rng.ko.xz"};
	struct modules m;
	struct err e = {0};
	assert_int_equal(resolve(dep, names, 4, &m, &e), 0);
	assert_int_equal(m.count, 6);
	for (size_t i = 0; i < m.count; i++)
		assert_string_equal(m.paths[i], want[i]);
	modules_done(&m);
}

static void modules_name_the_one_that_is_missing(void **state)
{
	(void)state;
	static const char *const names[] = {"virtio", "virtio_blk"};
	struct modules m;
	struct err e = {0};
	assert_int_equal(resolve(dep, names, 2, &m, &e), -ENOENT);
	assert_string_equal(e.text, "the kernel has no module virtio_blk");
	assert_int_equal(m.count, 0);
}

static void modules_refuse_circles_and_gaps(void **state)
{
	(void)state;
	static const char *const a[] = {"a"};
	struct modules m;
	struct err e = {0};
	assert_int_equal(resolve("x/a.ko: x/b.ko\nx/b.ko: x/a.ko x/a.ko\n", a, 1, &m, &e), -EINVAL);
	assert_non_null(strstr(e.text, "needs itself"));
	assert_int_equal(resolve("x/a.ko: x/gone.ko\n", a, 1, &m, &e), -EINVAL);
	assert_string_equal(e.text, "modules.dep has no line for x/gone.ko");
	assert_int_equal(resolve("x/a.ko\n:\n\n: x/a.ko\na", a, 1, &m, &e), -ENOENT);
}

static void modules_are_bounded(void **state)
{
	(void)state;
	auto_buf struct buf text;
	buf_init(&text, 1 << 16);
	buf_append_str(&text, "x/a.ko:");
	for (int i = 0; i < MODULES_MAX; i++)
		buf_printf(&text, " x/m%d.ko", i);
	buf_append_str(&text, "\n");
	for (int i = 0; i < MODULES_MAX; i++)
		buf_printf(&text, "x/m%d.ko:\n", i);
	buf_append(&text, "", 1);
	static const char *const a[] = {"a"};
	struct modules m;
	struct err e = {0};
	assert_int_equal(resolve((const char *)text.data, a, 1, &m, &e), -E2BIG);
}

static void module_file_names_lose_path_and_packing(void **state)
{
	(void)state;
	char name[MODULE_FILE_MAX];
	assert_int_equal(modules_file_name("kernel/char/virtio-rng.ko.xz", name), 0);
	assert_string_equal(name, "virtio-rng.ko");
	assert_int_equal(modules_file_name("overlay.ko", name), 0);
	assert_string_equal(name, "overlay.ko");
	assert_int_equal(modules_file_name("kernel/.ko", name), -EINVAL);
	assert_int_equal(modules_file_name("kernel/readme", name), -EINVAL);
	char longest[200];
	memset(longest, 'a', sizeof(longest));
	memcpy(longest + 190, ".ko", 4);
	assert_int_equal(modules_file_name(longest, name), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(modules_come_after_what_they_need),
		cmocka_unit_test(modules_name_the_one_that_is_missing),
		cmocka_unit_test(modules_refuse_circles_and_gaps),
		cmocka_unit_test(modules_are_bounded),
		cmocka_unit_test(module_file_names_lose_path_and_packing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
