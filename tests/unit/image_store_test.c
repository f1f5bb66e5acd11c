/* SPDX-License-Identifier: Apache-2.0 */
/* The store: images are found whole or not at all, replaced in one step, and removed with all of
 * their versions. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/doc.h"
#include "base/fd.h"
#include "base/sparse.h"
#include "base/str.h"
#include "image/image.h"
#include "image/store.h"

#define HASH_A "aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbccccccccccccccccdddddddddddddddd"
#define HASH_B "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static int setup(void **state)
{
	char *dir = strdup("/tmp/store-test-XXXXXX");
	if (!dir || !mkdtemp(dir))
		return -1;
	*state = dir;
	return 0;
}

static int teardown(void **state)
{
	dir_remove_all(*state);
	free(*state);
	return 0;
}

static char *path_of(const char *store, const char *entry)
{
	char *path = str_printf("%s/%s", store, entry);
	assert_non_null(path);
	return path;
}

static bool exists(const char *store, const char *entry)
{
	struct stat st;
	auto_free char *path = path_of(store, entry);
	return lstat(path, &st) == 0;
}

static void put(const char *dir, const char *file, const char *text)
{
	auto_free char *path = path_of(dir, file);
	assert_int_equal(file_write_atomic(path, text, strlen(text), 0644), 0);
}

/* Puts a version into the store, complete, not linked. */
static void make_version(const char *store, const char *name, const char *hash)
{
	auto_free char *version = store_version(name, hash);
	auto_free char *dir = path_of(store, version);
	assert_int_equal(dir_make_all(dir, 0755), 0);
	put(dir, STORE_KERNEL, "kernel");
	put(dir, STORE_INITRAMFS, "initramfs");
	put(dir, STORE_ROOTFS, "rootfs");
	put(dir, STORE_SCRATCH, "scratch");
	auto_json json_t *env = json_pack("{s:s}", "LANG", "C.UTF-8");
	struct image img = {
		.name = (char *)name,
		.hash = (char *)hash,
		.cmdline = "quiet",
		.user = "user",
		.workdir = "/home/user",
		.warmup = "ls /\ntrue",
		.env = env,
		.built_ms = 1764500000123,
	};
	struct err e = {0};
	assert_int_equal(store_write_manifest(dir, &img, 3, "6.1.0", &e), 0);
}

static void make_image(const char *store, const char *name, const char *hash)
{
	struct err e = {0};
	auto_free char *version = store_version(name, hash);
	make_version(store, name, hash);
	assert_int_equal(store_switch(store, name, version, &e), 0);
}

static void open_fails(const char *store, const char *name, int code, const char *text)
{
	struct image img;
	struct err e = {0};
	assert_int_equal(image_open(store, name, &img, &e), -code);
	if (!strstr(e.text, text))
		fail_msg("'%s' does not say '%s'", e.text, text);
}

static void image_opens_with_its_paths_and_defaults(void **state)
{
	const char *store = *state;
	make_image(store, "base", HASH_A);
	struct image img;
	struct err e = {0};
	assert_int_equal(image_open(store, "base", &img, &e), 0);
	assert_string_equal(img.name, "base");
	assert_string_equal(img.hash, HASH_A);
	assert_string_equal(img.cmdline, "quiet");
	assert_string_equal(img.user, "user");
	assert_string_equal(img.workdir, "/home/user");
	assert_string_equal(img.warmup, "ls /\ntrue");
	assert_string_equal(json_string_value(json_object_get(img.env, "LANG")), "C.UTF-8");
	assert_int_equal(img.built_ms, 1764500000123);
	assert_true(img.size_bytes >= 4 * 512);
	auto_free char *kernel = str_printf("%s/base-aaaaaaaaaaaaaaaa/kernel", store);
	assert_string_equal(img.kernel, kernel);
	assert_int_equal(access(img.initramfs, R_OK) | access(img.rootfs, R_OK) |
				 access(img.scratch, R_OK),
			 0);
	image_done(&img);
}

/* As builders made it before there was a warm-up. */
static void image_without_warmup_opens(void **state)
{
	const char *store = *state;
	make_image(store, "base", HASH_A);
	auto_free char *dir = path_of(store, "base-aaaaaaaaaaaaaaaa");
	put(dir, STORE_MANIFEST,
	    "{\"format\":1,\"hash\":\"x\",\"cmdline\":\"\",\"user\":\"u\",\"workdir\":\"/\",\"env\":{},"
	    "\"built_ms\":1}");
	struct image img;
	struct err e = {0};
	assert_int_equal(image_open(store, "base", &img, &e), 0);
	assert_string_equal(img.warmup, "");
	image_done(&img);
}

static void image_that_is_not_there_says_how_to_build_it(void **state)
{
	const char *store = *state;
	open_fails(store, "base", ENOENT, "space image build base");
	open_fails("/nonexistent/store", "base", ENOENT, "space image build base");
	open_fails(store, "", EINVAL, "not the name of an image");
	open_fails(store, "../base", EINVAL, "not the name of an image");
	open_fails(store, "base-0123456789abcdef", EINVAL, "not the name of an image");
}

static void image_link_can_not_lead_elsewhere(void **state)
{
	const char *store = *state;
	struct err e = {0};
	make_version(store, "other", HASH_A);
	assert_int_equal(store_switch(store, "base", "other-aaaaaaaaaaaaaaaa", &e), 0);
	open_fails(store, "base", EINVAL, "image base");
	assert_int_equal(store_switch(store, "base", "../../etc", &e), 0);
	open_fails(store, "base", EINVAL, "image base");
	assert_int_equal(store_switch(store, "base", "base-aaaaaaaaaaaaaaaa", &e), 0);
	open_fails(store, "base", ENOENT, "rebuild it");
}

static void image_with_damage_asks_for_a_rebuild(void **state)
{
	const char *store = *state;
	static const char *const manifests[] = {
		"",
		"{",
		"[]",
		"{}",
		"{\"format\":2}",
		"{\"format\":1,\"hash\":\"x\",\"cmdline\":\"\",\"user\":\"u\",\"workdir\":\"/\","
		"\"env\":{\"A-B\":\"x\"},\"built_ms\":1}",
		"{\"format\":1,\"hash\":\"x\",\"cmdline\":\"\",\"user\":\"u\",\"workdir\":\"/\","
		"\"env\":{\"A\":1},\"built_ms\":1}",
		"{\"format\":1,\"hash\":\"x\",\"cmdline\":\"\",\"user\":\"u\",\"workdir\":\"/\","
		"\"env\":[],\"built_ms\":1}",
		"{\"format\":1,\"hash\":\"x\",\"cmdline\":\"\",\"user\":\"u\",\"workdir\":\"/\","
		"\"env\":{},\"built_ms\":-1}",
		"{\"format\":1,\"hash\":\"x\",\"cmdline\":\"\",\"user\":\"u\",\"workdir\":\"/\","
		"\"env\":{},\"built_ms\":1,\"warmup\":7}",
	};
	auto_free char *dir = path_of(store, "base-aaaaaaaaaaaaaaaa");
	for (size_t i = 0; i < sizeof(manifests) / sizeof(manifests[0]); i++) {
		make_image(store, "base", HASH_A);
		put(dir, STORE_MANIFEST, manifests[i]);
		open_fails(store, "base", EINVAL, "image build --force base");
	}
	make_image(store, "base", HASH_A);
	auto_free char *rootfs = path_of(dir, STORE_ROOTFS);
	unlink(rootfs);
	open_fails(store, "base", ENOENT, "rootfs");
}

static void image_switches_in_one_step(void **state)
{
	const char *store = *state;
	struct image img;
	struct err e = {0};
	make_image(store, "base", HASH_A);
	make_version(store, "base", HASH_B);
	put(store, ".link-base", "left by a crash");
	assert_int_equal(store_switch(store, "base", "base-0123456789abcdef", &e), 0);
	assert_int_equal(image_open(store, "base", &img, &e), 0);
	assert_string_equal(img.hash, HASH_B);
	image_done(&img);
	assert_false(exists(store, ".link-base"));
}

static void prune_keeps_the_two_and_other_images(void **state)
{
	const char *store = *state;
	struct err e = {0};
	make_image(store, "base", HASH_A);
	make_version(store, "base", HASH_B);
	make_version(store, "base", "ffffffffffffffff");
	make_image(store, "base-x", HASH_A);
	assert_int_equal(
		store_prune(store, "base", "base-aaaaaaaaaaaaaaaa", "base-ffffffffffffffff", &e),
		1);
	assert_true(exists(store, "base-aaaaaaaaaaaaaaaa"));
	assert_true(exists(store, "base-ffffffffffffffff"));
	assert_false(exists(store, "base-0123456789abcdef"));
	assert_true(exists(store, "base-x-aaaaaaaaaaaaaaaa"));
}

static void sweep_removes_dead_builds_alone(void **state)
{
	const char *store = *state;
	struct err e = {0};
	make_image(store, "base", HASH_A);
	auto_free char *deep = path_of(store, ".build-abc123/root/usr/bin");
	assert_int_equal(dir_make_all(deep, 0755), 0);
	assert_int_equal(store_sweep(store, &e), 1);
	assert_false(exists(store, ".build-abc123"));
	assert_true(exists(store, "base"));
	assert_true(exists(store, "base-aaaaaaaaaaaaaaaa"));
}

static void count_image(void *user, const struct image *img)
{
	char *names = user;
	strcat(names, img->name);
	strcat(names, " ");
}

static void each_shows_present_images_and_skips_damaged_ones(void **state)
{
	const char *store = *state;
	char names[64] = "";
	struct err e = {0};
	assert_int_equal(image_each(store, count_image, names, &e), 0);
	assert_string_equal(names, "");
	assert_int_equal(image_each("/nonexistent/store", count_image, names, &e), 0);
	make_image(store, "node", HASH_A);
	make_image(store, "base", HASH_A);
	make_version(store, "base", HASH_B);
	make_image(store, "broken", HASH_A);
	auto_free char *dir = path_of(store, "broken-aaaaaaaaaaaaaaaa");
	put(dir, STORE_MANIFEST, "{}");
	assert_int_equal(image_each(store, count_image, names, &e), 0);
	assert_string_equal(names, "base node ");
}

static void remove_takes_every_version(void **state)
{
	const char *store = *state;
	struct err e = {0};
	make_image(store, "base", HASH_A);
	make_version(store, "base", HASH_B);
	make_image(store, "base-x", HASH_A);
	assert_int_equal(image_remove(store, "base", &e), 0);
	assert_false(exists(store, "base"));
	assert_false(exists(store, "base-aaaaaaaaaaaaaaaa"));
	assert_false(exists(store, "base-0123456789abcdef"));
	assert_true(exists(store, "base-x-aaaaaaaaaaaaaaaa"));
	assert_int_equal(image_remove(store, "base", &e), -ENOENT);
	assert_int_equal(image_remove(store, "../x", &e), -EINVAL);
	assert_int_equal(image_remove("/nonexistent/store", "base", &e), -ENOENT);
	assert_false(exists("/nonexistent", "store"));
}

static void scratch_copies_are_equal_and_sparse(void **state)
{
	const char *store = *state;
	auto_free char *path = path_of(store, "disk");
	auto_fd int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	assert_int_equal(ftruncate(fd, 1 << 30), 0);
	assert_int_equal(pwrite(fd, "super", 5, 1024), 5);
	assert_int_equal(pwrite(fd, "middle", 6, 700 << 20), 6);

	struct image img = {.name = "base", .scratch = path};
	struct err e = {0};
	auto_fd int copy = sparse_open_unnamed(store);
	assert_true(copy >= 0);
	assert_int_equal(image_copy_scratch(&img, copy, &e), 0);
	struct stat st;
	assert_int_equal(fstat(copy, &st), 0);
	assert_int_equal(st.st_size, 1 << 30);
	assert_true(st.st_blocks < 1024);
	char text[8] = "";
	assert_int_equal(pread(copy, text, 6, 700 << 20), 6);
	assert_string_equal(text, "middle");
	assert_int_equal(pwrite(copy, "mine", 4, 1024), 4);
	assert_int_equal(pread(fd, text, 5, 1024), 5);
	assert_memory_equal(text, "super", 5);

	img.scratch = "/nonexistent/scratch";
	assert_int_equal(image_copy_scratch(&img, copy, &e), -ENOENT);
	assert_non_null(strstr(e.text, "/nonexistent/scratch"));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(image_opens_with_its_paths_and_defaults),
		TEST(image_without_warmup_opens),
		TEST(image_that_is_not_there_says_how_to_build_it),
		TEST(image_link_can_not_lead_elsewhere),
		TEST(image_with_damage_asks_for_a_rebuild),
		TEST(image_switches_in_one_step),
		TEST(prune_keeps_the_two_and_other_images),
		TEST(sweep_removes_dead_builds_alone),
		TEST(each_shows_present_images_and_skips_damaged_ones),
		TEST(remove_takes_every_version),
		TEST(scratch_copies_are_equal_and_sparse),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
