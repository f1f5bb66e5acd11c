/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever is wrong with a frozen machine, it is refused, and with the name of the file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "image/content.h"
#include "image_frozen_fixture.h"

static int setup(void **state)
{
	return setup_in("/tmp/frozen-test-XXXXXX", state);
}

static void verify_fails(const char *dir, const char *name, const char *text)
{
	struct frozen f;
	struct err e = {0};
	assert_int_equal(open_frozen(dir, name, &f, &e), 0);
	assert_int_equal(frozen_verify(&f, &e), -EBADMSG);
	expect_says(&e, text);
	frozen_done(&f);
}

static void open_tells_missing_from_damaged(void **state)
{
	const char *dir = *state;
	open_fails(dir, "x", ENOENT, "there is no");
	open_fails(dir, "../x", EINVAL, "name");
	open_fails(dir, "", EINVAL, "name");
	make(dir, "x", 7);
	open_fails(dir, "y", ENOENT, "frozen/y");
	auto_free char *file = path_of(dir, "frozen/file");
	put(file, "x", 1);
	open_fails(dir, "file", EBADMSG, "no directory");
	auto_free char *link = path_of(dir, "frozen/link");
	assert_int_equal(symlink("x", link), 0);
	open_fails(dir, "link", EBADMSG, "no directory");
}

static void open_misses_each_file(void **state)
{
	const char *dir = *state;
	static const char *const files[] = {"memory", "state", "disk", "root", "frozen.json"};
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		auto_free char *missing = str_printf("%s is missing", files[i]);
		auto_free char *plain = str_printf("%s is no plain file", files[i]);
		auto_free char *path = file_of(dir, "x", files[i]);
		make(dir, "x", 7);
		assert_int_equal(unlink(path), 0);
		open_fails(dir, "x", EBADMSG, missing);
		assert_int_equal(mkfifo(path, 0644), 0);
		open_fails(dir, "x", EBADMSG, plain);
		assert_int_equal(unlink(path), 0);
		assert_int_equal(symlink("/etc/hostname", path), 0);
		open_fails(dir, "x", EBADMSG, plain);
	}
}

static void open_sees_other_sizes(void **state)
{
	const char *dir = *state;
	static const struct {
		const char *file;
		off_t size;
	} cases[] = {{"memory", 0},       {"memory", RAM_BYTES - 4096}, {"memory", RAM_BYTES + 1},
		     {"state", 0},        {"state", STATE_BYTES - 1},   {"state", STATE_BYTES + 1},
		     {"disk", 0},         {"disk", DISK_BYTES - 1},     {"disk", DISK_BYTES + 4096},
		     {"frozen.json", 0},  {"frozen.json", 1},           {"frozen.json", 100},
		     {"frozen.json", 300}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		make(dir, "x", 7);
		auto_free char *path = file_of(dir, "x", cases[i].file);
		assert_int_equal(truncate(path, cases[i].size), 0);
		open_fails(dir, "x", EBADMSG, path);
	}
}

static void open_refuses_a_manifest_with_any_byte_changed(void **state)
{
	const char *dir = *state;
	make(dir, "x", 7);
	auto_free char *path = file_of(dir, "x", "frozen.json");
	struct stat st;
	assert_int_equal(stat(path, &st), 0);
	for (off_t at = 0; at < st.st_size; at++)
		for (unsigned mask = 1; mask < 256; mask <<= 1) {
			flip(path, at, (uint8_t)mask);
			open_fails(dir, "x", EBADMSG, "frozen.json is damaged");
			flip(path, at, (uint8_t)mask);
		}
	expect_whole(dir, "x", 7);
}

/* The manifest with change() made to it and a sum that is right. */
static void forge(const char *dir, const char *name, void (*change)(json_t *manifest))
{
	auto_free char *path = file_of(dir, name, "frozen.json");
	auto_free char *text = NULL;
	size_t len;
	assert_int_equal(file_read(path, 1 << 20, &text, &len), 0);
	auto_json json_t *outer = doc_parse_json(text, len, NULL);
	json_t *inner = json_object_get(outer, "manifest");
	change(inner);
	auto_free char *changed = doc_to_text(inner);
	char sum[CONTENT_HEX_SIZE];
	assert_int_equal(content_sum_bytes(changed, strlen(changed), sum), 0);
	json_object_set_new(outer, "sha256", json_string(sum));
	auto_free char *again = doc_to_text(outer);
	put(path, again, strlen(again));
}

static void set_format(json_t *j)
{
	json_object_set_new(j, "format", json_integer(2));
}

static void drop_disk(json_t *j)
{
	json_object_del(j, "disk");
}

static void add_member(json_t *j)
{
	json_object_set_new(j, "surprise", json_true());
}

static void set_extra(json_t *j)
{
	json_object_set_new(j, "extra", json_array());
}

static void set_sum(json_t *j)
{
	json_object_set_new(json_object_get(j, "state"), "sha256", json_string("abc"));
}

static void set_bytes(json_t *j)
{
	json_object_set_new(json_object_get(j, "state"), "bytes", json_integer(-1));
}

static void set_boot(json_t *j)
{
	json_object_set_new(j, "boot", json_string("another"));
}

static void open_reads_the_manifest_strictly(void **state)
{
	const char *dir = *state;
	static const struct {
		void (*change)(json_t *);
		const char *text;
	} cases[] = {{set_format, "format"},
		     {drop_disk, "disk"},
		     {add_member, "surprise"},
		     {set_extra, "extra"},
		     {set_sum, "sha256"},
		     {set_bytes, "bytes"},
		     {set_boot, "restart of the host"}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		make(dir, "x", 7);
		forge(dir, "x", cases[i].change);
		open_fails(dir, "x", EBADMSG, cases[i].text);
	}
}

static void verify_sees_any_flipped_byte(void **state)
{
	const char *dir = *state;
	static const struct {
		const char *file;
		off_t size;
		off_t step;
	} cases[] = {{"memory", RAM_BYTES, 9973},
		     {"state", STATE_BYTES, 101},
		     {"disk", DISK_BYTES, 1999999}};
	make(dir, "x", 7);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		auto_free char *path = file_of(dir, "x", cases[i].file);
		auto_free char *text = str_printf("%s is damaged", cases[i].file);
		for (off_t at = 0; at < cases[i].size; at += cases[i].step) {
			flip(path, at, 0x10);
			verify_fails(dir, "x", text);
			flip(path, at, 0x10);
		}
		flip(path, cases[i].size - 1, 1);
		verify_fails(dir, "x", text);
		flip(path, cases[i].size - 1, 1);
	}
	struct frozen f;
	struct err e = {0};
	assert_int_equal(open_frozen(dir, "x", &f, &e), 0);
	assert_int_equal(frozen_verify(&f, &e), 0);
	frozen_done(&f);
}

static void swap(const char *dir, const char *a, const char *b)
{
	auto_free char *from = path_of(dir, a);
	auto_free char *to = path_of(dir, b);
	assert_int_equal(renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE), 0);
}

static void verify_sees_swapped_files(void **state)
{
	const char *dir = *state;
	make(dir, "x", 7);
	make(dir, "y", 8);
	swap(dir, "frozen/x/memory", "frozen/y/memory");
	verify_fails(dir, "x", "memory is damaged");
	verify_fails(dir, "y", "memory is damaged");
	swap(dir, "frozen/x/memory", "frozen/y/memory");
	swap(dir, "frozen/x/state", "frozen/y/state");
	verify_fails(dir, "x", "state is damaged");
	swap(dir, "frozen/x/state", "frozen/y/state");
	swap(dir, "frozen/x/disk", "frozen/y/disk");
	verify_fails(dir, "x", "disk is damaged");
	swap(dir, "frozen/x/disk", "frozen/y/disk");
	swap(dir, "frozen/x/frozen.json", "frozen/y/frozen.json");
	verify_fails(dir, "x", "is damaged");
	swap(dir, "frozen/x/memory", "frozen/x/disk");
	open_fails(dir, "x", EBADMSG, "memory has");
}

static void move_block(const char *path)
{
	uint8_t block[4096];
	uint8_t zeros[4096] = {0};
	auto_fd int fd = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(pread(fd, block, sizeof(block), 0), sizeof(block));
	assert_int_equal(pwrite(fd, block, sizeof(block), 8192), sizeof(block));
	assert_int_equal(pwrite(fd, zeros, sizeof(zeros), 0), sizeof(zeros));
}

static void verify_sees_moved_blocks(void **state)
{
	const char *dir = *state;
	make(dir, "x", 7);
	auto_free char *memory = file_of(dir, "x", "memory");
	move_block(memory);
	verify_fails(dir, "x", "memory is damaged");
}

static void open_sees_another_root(void **state)
{
	const char *dir = *state;
	make(dir, "x", 7);
	auto_free char *path = file_of(dir, "x", "root");
	const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	open_fails(dir, "x", EBADMSG, "root was changed");
	make(dir, "x", 7);
	put(path, "another root", 12);
	open_fails(dir, "x", EBADMSG, "root has 12 bytes");
}

static void fleeting_one_lives_until_the_host_restarts(void **state)
{
	const char *dir = *state;
	struct frozen f;
	struct err e = {0};
	assert_int_equal(try_make(dir, "x", 7, true, &e), 0);
	expect_whole(dir, "x", 7);
	assert_int_equal(open_frozen(dir, "x", &f, &e), 0);
	assert_int_equal(frozen_compress(&f, &e), -EINVAL);
	frozen_done(&f);
	expect_whole(dir, "x", 7);
	forge(dir, "x", set_boot);
	open_fails(dir, "x", EBADMSG, "not made to outlive");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(open_tells_missing_from_damaged),
		TEST(open_misses_each_file),
		TEST(open_sees_other_sizes),
		TEST(open_refuses_a_manifest_with_any_byte_changed),
		TEST(open_reads_the_manifest_strictly),
		TEST(verify_sees_any_flipped_byte),
		TEST(verify_sees_swapped_files),
		TEST(verify_sees_moved_blocks),
		TEST(open_sees_another_root),
		TEST(fleeting_one_lives_until_the_host_restarts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
