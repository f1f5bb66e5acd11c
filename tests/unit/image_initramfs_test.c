/* SPDX-License-Identifier: Apache-2.0 */
/* The archive is read back with the same library's reader: what the kernel sees, entry by entry. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "image/initramfs.h"

/* gzip of "packed module" */
static const uint8_t packed[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0x2b,
				 0x48, 0x4c, 0xce, 0x4e, 0x4d, 0x51, 0xc8, 0xcd, 0x4f, 0x29, 0xcd,
				 0x49, 0x05, 0x00, 0x62, 0xc1, 0x48, 0xd6, 0x0d, 0x00, 0x00, 0x00};

struct place {
	char dir[64];
	char *agent;
	char *modules_dir;
	char *out;
	struct modules modules;
};

static void put(const char *dir, const char *file, const void *p, size_t n)
{
	auto_free char *path = str_printf("%s/%s", dir, file);
	assert_non_null(path);
	assert_int_equal(file_write_atomic(path, p, n, 0644), 0);
}

static int setup(void **state)
{
	struct place *p = calloc(1, sizeof(*p));
	if (!p)
		return -1;
	snprintf(p->dir, sizeof(p->dir), "/tmp/initramfs-test-XXXXXX");
	if (!mkdtemp(p->dir))
		return -1;
	p->agent = str_printf("%s/agent", p->dir);
	p->modules_dir = str_printf("%s/modules", p->dir);
	p->out = str_printf("%s/out", p->dir);
	auto_free char *deep = str_printf("%s/kernel/a", p->modules_dir);
	assert_int_equal(dir_make_all(deep, 0755), 0);
	put(p->dir, "agent", "the agent", 9);
	put(p->modules_dir, "kernel/a/plain.ko", "plain module", 12);
	put(p->modules_dir, "kernel/a/virtio-rng.ko.gz", packed, sizeof(packed));
	p->modules.paths[0] = strdup("kernel/a/virtio-rng.ko.gz");
	p->modules.paths[1] = strdup("kernel/a/plain.ko");
	p->modules.count = 2;
	*state = p;
	return 0;
}

static int teardown(void **state)
{
	struct place *p = *state;
	dir_remove_all(p->dir);
	modules_done(&p->modules);
	free(p->agent);
	free(p->modules_dir);
	free(p->out);
	free(p);
	return 0;
}

static int make(const struct place *p, struct err *e)
{
	return initramfs_write(p->out, p->agent, p->modules_dir, &p->modules, e);
}

static void has_entry(struct archive *a, const char *name, mode_t mode, const char *text)
{
	struct archive_entry *entry;
	char data[64] = "";
	assert_int_equal(archive_read_next_header(a, &entry), ARCHIVE_OK);
	assert_string_equal(archive_entry_pathname(entry), name);
	assert_int_equal(archive_entry_mode(entry), mode);
	assert_int_equal(archive_entry_uid(entry), 0);
	assert_int_equal(archive_entry_gid(entry), 0);
	assert_int_equal(archive_entry_mtime(entry), 0);
	if (S_ISCHR(mode))
		assert_int_equal(archive_entry_rdev(entry), makedev(5, 1));
	assert_true(archive_read_data(a, data, sizeof(data) - 1) >= 0);
	assert_string_equal(data, text);
}

static void initramfs_holds_agent_and_modules_in_order(void **state)
{
	struct place *p = *state;
	struct err e = {0};
	assert_int_equal(make(p, &e), 0);
	struct archive *a = archive_read_new();
	archive_read_support_format_cpio(a);
	assert_int_equal(archive_read_open_filename(a, p->out, 4096), ARCHIVE_OK);
	has_entry(a, "dev", S_IFDIR | 0755, "");
	has_entry(a, "dev/console", S_IFCHR | 0600, "");
	has_entry(a, "modules", S_IFDIR | 0755, "");
	has_entry(a, "init", S_IFREG | 0755, "the agent");
	has_entry(a, "modules/virtio-rng.ko", S_IFREG | 0644, "packed module");
	has_entry(a, "modules/plain.ko", S_IFREG | 0644, "plain module");
	has_entry(a, "modules/order", S_IFREG | 0644, "virtio-rng.ko\nplain.ko\n");
	struct archive_entry *entry;
	assert_int_equal(archive_read_next_header(a, &entry), ARCHIVE_EOF);
	archive_read_free(a);
}

static void initramfs_is_reproducible(void **state)
{
	struct place *p = *state;
	struct err e = {0};
	auto_free char *first = NULL;
	auto_free char *second = NULL;
	size_t first_len;
	size_t second_len;
	assert_int_equal(make(p, &e), 0);
	assert_int_equal(file_read(p->out, 1 << 20, &first, &first_len), 0);
	unlink(p->out);
	put(p->dir, "agent", "the agent", 9); /* another inode, another time */
	assert_int_equal(make(p, &e), 0);
	assert_int_equal(file_read(p->out, 1 << 20, &second, &second_len), 0);
	assert_int_equal(first_len, second_len);
	assert_memory_equal(first, second, first_len);
}

static void initramfs_size_spares_the_acpi_tables(void **state)
{
	struct place *p = *state;
	for (size_t n = 1; n < 12000; n += 509) {
		struct err e = {0};
		struct stat st;
		auto_free char *text = calloc(1, n);
		assert_non_null(text);
		put(p->dir, "agent", text, n);
		unlink(p->out);
		assert_int_equal(make(p, &e), 0);
		assert_int_equal(stat(p->out, &st), 0);
		assert_int_equal(st.st_size % 4096, 512);
	}
}

static void initramfs_names_what_it_can_not_read(void **state)
{
	struct place *p = *state;
	struct err e = {0};
	unlink(p->agent);
	assert_int_equal(make(p, &e), -ENOENT);
	assert_non_null(strstr(e.text, p->agent));
	unlink(p->out);
	put(p->dir, "agent", "x", 1);
	put(p->modules_dir, "kernel/a/virtio-rng.ko.gz", packed, sizeof(packed) / 2);
	assert_int_equal(make(p, &e), -EINVAL);
	assert_non_null(strstr(e.text, "virtio-rng.ko: damaged"));
	assert_int_equal(make(p, &e), -EEXIST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(initramfs_holds_agent_and_modules_in_order, setup,
						teardown),
		cmocka_unit_test_setup_teardown(initramfs_is_reproducible, setup, teardown),
		cmocka_unit_test_setup_teardown(initramfs_size_spares_the_acpi_tables, setup,
						teardown),
		cmocka_unit_test_setup_teardown(initramfs_names_what_it_can_not_read, setup,
						teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
