/* SPDX-License-Identifier: Apache-2.0 */
/* Frozen machines come back as they were, replace each other in one step, and go when they are
 * told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "image/image.h"
#include "image/store.h"
#include "image_frozen_fixture.h"

static int setup(void **state)
{
	return setup_in("/tmp/frozen-test-XXXXXX", state);
}

static void frozen_comes_back_as_it_was(void **state)
{
	const char *dir = *state;
	struct frozen f;
	struct err e = {0};
	mode_t mask = umask(077);
	uint64_t before = clock_wall_ms();
	make(dir, "x", 7);
	umask(mask);
	assert_int_equal(open_frozen(dir, "x", &f, &e), 0);
	assert_int_equal(f.ram_bytes, RAM_BYTES);
	assert_false(f.compressed);
	assert_string_equal(json_string_value(json_object_get(f.extra, "note")), "kept");
	assert_in_range(f.made_ms, before, clock_wall_ms());
	assert_in_range(f.used_ms, before - 1000, clock_wall_ms());
	assert_in_range(f.size_bytes, 2 * DATA_COUNT * 4096 + STATE_BYTES, 256 << 10);
	assert_int_equal(mode_of(f.dir), 0700);
	assert_int_equal(mode_of(f.memory), 0444);
	assert_int_equal(mode_of(f.state), 0444);
	assert_int_equal(mode_of(f.disk), 0600);
	auto_free char *manifest = file_of(dir, "x", "frozen.json");
	assert_int_equal(mode_of(manifest), 0600);
	struct stat st;
	assert_int_equal(stat(f.root, &st), 0);
	assert_int_equal(st.st_nlink, 2);
	frozen_done(&f);
	expect_whole(dir, "x", 7);
}

static void disk_is_cloned(void **state)
{
	const char *dir = *state;
	struct frozen f;
	struct err e = {0};
	make(dir, "x", 7);
	assert_int_equal(open_frozen(dir, "x", &f, &e), 0);
	auto_free char *path = path_of(dir, "clone");
	auto_fd int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(frozen_clone_disk(&f, fd, &e), 0);
	expect_data(path, DISK_BYTES, 8);
	assert_int_equal(pwrite(fd, "mine", 4, 0), 4);
	frozen_done(&f);
	expect_whole(dir, "x", 7);
}

static void commit_replaces_in_one_step(void **state)
{
	const char *dir = *state;
	struct frozen f;
	struct err e = {0};
	make(dir, "x", 7);
	assert_int_equal(open_frozen(dir, "x", &f, &e), 0);
	auto_fd int old = open(f.memory, O_RDONLY | O_CLOEXEC);
	frozen_done(&f);
	make(dir, "x", 50);
	expect_whole(dir, "x", 50);
	assert_int_equal(count_entries(dir, ""), 1);
	uint8_t byte; /* who had it open goes on with what it opened */
	assert_int_equal(pread(old, &byte, 1, 0), 1);
	assert_int_equal(byte, 7);
}

static void zeros_become_holes(void **state)
{
	const char *dir = *state;
	auto_free char *parent = path_of(dir, "frozen");
	auto_free char *root = path_of(dir, "rootfs");
	struct frozen_new n;
	struct err e = {0};
	assert_int_equal(frozen_begin(parent, root, 0, &n, &e), 0);
	assert_int_equal(fill(&n, 7), 0);
	uint8_t zeros[128 << 10] = {0};
	assert_int_equal(pwrite(n.memory_fd, zeros, sizeof(zeros), 64 << 10), sizeof(zeros));
	auto_json json_t *extra = json_pack("{s:i}", "seed", 7);
	assert_int_equal(frozen_commit(&n, "x", RAM_BYTES, extra, false, &e), 0);
	expect_whole(dir, "x", 7);
	/* And the sum is the same with the zeros written out. */
	auto_free char *memory = file_of(dir, "x", "memory");
	auto_fd int fd = open(memory, O_RDWR | O_CLOEXEC);
	assert_int_equal(pwrite(fd, zeros, sizeof(zeros), 64 << 10), sizeof(zeros));
	struct frozen f;
	assert_int_equal(open_frozen(dir, "x", &f, &e), 0);
	assert_int_equal(frozen_verify(&f, &e), 0);
	frozen_done(&f);
}

static void abort_leaves_nothing(void **state)
{
	const char *dir = *state;
	auto_free char *parent = path_of(dir, "frozen");
	auto_free char *root = path_of(dir, "rootfs");
	struct frozen_new f = {0};
	struct err e = {0};
	frozen_abort(&f); /* never begun */
	assert_int_equal(frozen_begin(parent, root, 4096, &f, &e), 0);
	assert_int_equal(count_entries(dir, FROZEN_NEW_PREFIX), 1);
	assert_int_equal(fill(&f, 1), 0);
	frozen_abort(&f);
	assert_int_equal(count_entries(dir, ""), 0);
	frozen_abort(&f);
}

static void begin_refuses_and_leaves_nothing(void **state)
{
	const char *dir = *state;
	auto_free char *parent = path_of(dir, "frozen");
	auto_free char *root = path_of(dir, "rootfs");
	auto_free char *nowhere = path_of(dir, "nowhere");
	auto_free char *below_file = path_of(root, "frozen");
	struct frozen_new f;
	struct err e = {0};
	assert_int_equal(frozen_begin(parent, nowhere, 0, &f, &e), -ENOENT);
	expect_says(&e, nowhere);
	assert_int_equal(frozen_begin(parent, root, UINT64_MAX, &f, &e), -ENOSPC);
	expect_says(&e, "free some");
	assert_int_equal(frozen_begin(below_file, root, 0, &f, &e), -ENOTDIR);
	assert_int_equal(count_entries(dir, ""), 0);
}

static void commit_fails(const char *dir, const char *name, uint64_t ram_bytes, bool with_state,
			 const json_t *extra, const char *text)
{
	auto_free char *parent = path_of(dir, "frozen");
	auto_free char *root = path_of(dir, "rootfs");
	struct frozen_new f;
	struct err e = {0};
	assert_int_equal(frozen_begin(parent, root, 0, &f, &e), 0);
	assert_int_equal(fill(&f, 9), 0);
	if (!with_state)
		assert_int_equal(ftruncate(f.state_fd, 0), 0);
	assert_true(frozen_commit(&f, name, ram_bytes, extra, false, &e) < 0);
	expect_says(&e, text);
	assert_int_equal(count_entries(dir, ""), 1);
	expect_whole(dir, "x", 7);
}

static void commit_refuses_and_leaves_the_old_one(void **state)
{
	const char *dir = *state;
	auto_json json_t *extra = json_object();
	auto_json json_t *list = json_array();
	make(dir, "x", 7);
	commit_fails(dir, "x", RAM_BYTES + 4096, true, extra, "memory has 1048576 bytes");
	commit_fails(dir, "x", 0, true, extra, "no memory");
	commit_fails(dir, "x", RAM_BYTES, false, extra, "state is empty");
	commit_fails(dir, "x", RAM_BYTES, true, list, "no manifest");
	commit_fails(dir, "../x", RAM_BYTES, true, extra, "name");
	commit_fails(dir, "", RAM_BYTES, true, extra, "name");
	commit_fails(dir, FROZEN_NEW_PREFIX "x", RAM_BYTES, true, extra, "name");
	auto_free char *text = malloc(2 << 20);
	memset(text, 'x', (2 << 20) - 1);
	text[(2 << 20) - 1] = '\0';
	json_object_set_new(extra, "text", json_string(text));
	commit_fails(dir, "x", RAM_BYTES, true, extra, "too long");
	/* Nested deeper than a reader goes. */
	auto_json json_t *deep = json_object();
	for (int i = 0; i < 80; i++)
		deep = json_pack("{s:o}", "a", deep);
	commit_fails(dir, "x", RAM_BYTES, true, deep, "manifest");
}

static void root_of_another_filesystem_is_copied(void **state)
{
	const char *dir = *state;
	struct stat here;
	struct stat there;
	assert_int_equal(stat(dir, &here), 0);
	if (stat("/dev/shm", &there) < 0 || here.st_dev == there.st_dev) {
		print_message("/dev/shm is no other filesystem\n");
		skip();
	}
	char root[] = "/dev/shm/frozen-test-XXXXXX";
	auto_fd int fd = mkostemp(root, O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "elsewhere", 9, 0), 9);
	auto_free char *parent = path_of(dir, "frozen");
	struct frozen_new n;
	struct err e = {0};
	assert_int_equal(frozen_begin(parent, root, 0, &n, &e), 0);
	unlink(root);
	assert_int_equal(fill(&n, 7), 0);
	auto_json json_t *extra = json_pack("{s:i}", "seed", 7);
	assert_int_equal(frozen_commit(&n, "x", RAM_BYTES, extra, false, &e), 0);
	expect_whole(dir, "x", 7);
	auto_free char *path = file_of(dir, "x", "root");
	auto_free char *text = NULL;
	assert_int_equal(file_read(path, 64, &text, NULL), 0);
	assert_string_equal(text, "elsewhere");
	assert_int_equal(mode_of(path), 0444);
}

struct seen {
	char names[256];
	size_t bad;
};

static void see(void *user, const char *name, const struct frozen *f, const struct err *bad)
{
	struct seen *s = user;
	size_t len = strlen(s->names);
	snprintf(s->names + len, sizeof(s->names) - len, "%s%s ", name, bad ? "!" : "");
	assert_non_null(f->dir);
	assert_true(f->size_bytes > 0);
	assert_true(f->used_ms > 0);
	if (bad) {
		s->bad++;
		expect_says(bad, "missing");
	} else {
		assert_int_equal(f->ram_bytes, RAM_BYTES);
	}
}

static void each_shows_whole_and_damaged_ones(void **state)
{
	const char *dir = *state;
	auto_free char *parent = path_of(dir, "frozen");
	struct seen s = {0};
	struct err e = {0};
	assert_int_equal(frozen_each(parent, see, &s, &e), 0);
	assert_string_equal(s.names, "");
	make(dir, "x", 7);
	make(dir, "broken", 8);
	auto_free char *state_file = file_of(dir, "broken", "state");
	assert_int_equal(unlink(state_file), 0);
	auto_free char *dead = path_of(dir, "frozen/" FROZEN_NEW_PREFIX "abc");
	assert_int_equal(mkdir(dead, 0700), 0);
	assert_int_equal(frozen_each(parent, see, &s, &e), 0);
	assert_int_equal(s.bad, 1);
	assert_non_null(strstr(s.names, "x "));
	assert_non_null(strstr(s.names, "broken! "));
	assert_int_equal(strlen(s.names), 10);
}

static void remove_takes_whole_and_damaged_ones(void **state)
{
	const char *dir = *state;
	auto_free char *parent = path_of(dir, "frozen");
	struct err e = {0};
	assert_int_equal(frozen_remove(parent, "x", &e), -ENOENT);
	expect_says(&e, "there is no");
	make(dir, "x", 7);
	make(dir, "y", 8);
	auto_free char *manifest = file_of(dir, "x", "frozen.json");
	assert_int_equal(unlink(manifest), 0);
	assert_int_equal(frozen_remove(parent, "x", &e), 0);
	assert_int_equal(frozen_remove(parent, "x", &e), -ENOENT);
	assert_int_equal(frozen_remove(parent, "../frozen/y", &e), -EINVAL);
	assert_int_equal(count_entries(dir, ""), 1);
	expect_whole(dir, "y", 8);
	auto_free char *root = path_of(dir, "rootfs");
	assert_int_equal(access(root, F_OK), 0);
}

static void sweep_takes_dead_ones_alone(void **state)
{
	const char *dir = *state;
	auto_free char *parent = path_of(dir, "frozen");
	auto_free char *root = path_of(dir, "rootfs");
	struct frozen_new f;
	struct err e = {0};
	assert_int_equal(frozen_sweep(parent, &e), 0);
	make(dir, "x", 7);
	assert_int_equal(frozen_begin(parent, root, 0, &f, &e), 0);
	auto_free char *dead = path_of(dir, "frozen/" FROZEN_NEW_PREFIX "dead00/a/b");
	auto_free char *file = path_of(dir, "frozen/" FROZEN_NEW_PREFIX "file");
	assert_int_equal(dir_make_all(dead, 0700), 0);
	put(file, "x", 1);
	assert_int_equal(frozen_sweep(parent, &e), -ENOTDIR); /* none of ours: told, not touched */
	assert_int_equal(unlink(file), 0);
	assert_int_equal(count_entries(dir, ""), 2);
	assert_int_equal(fill(&f, 9), 0);
	auto_json json_t *extra = json_pack("{s:i}", "seed", 9);
	assert_int_equal(frozen_commit(&f, "y", RAM_BYTES, extra, false, &e), 0);
	assert_int_equal(frozen_sweep(parent, &e), 0);
	expect_whole(dir, "x", 7);
	expect_whole(dir, "y", 9);
}

static void image_may_go_and_what_was_frozen_stays(void **state)
{
	const char *dir = *state;
	auto_free char *store = path_of(dir, "images");
	auto_free char *version = path_of(dir, "images/base-0123456789abcdef");
	auto_free char *root = path_of(version, "rootfs");
	auto_free char *parent = path_of(dir, "frozen");
	struct frozen_new n;
	struct err e = {0};
	assert_int_equal(dir_make_all(version, 0755), 0);
	put(root, "of an image", 11);
	assert_int_equal(store_switch(store, "base", "base-0123456789abcdef", &e), 0);
	assert_int_equal(frozen_begin(parent, root, 0, &n, &e), 0);
	assert_int_equal(fill(&n, 7), 0);
	auto_json json_t *extra = json_pack("{s:i}", "seed", 7);
	assert_int_equal(frozen_commit(&n, "x", RAM_BYTES, extra, false, &e), 0);
	assert_int_equal(image_remove(store, "base", &e), 0);
	assert_int_equal(access(root, F_OK), -1);
	expect_whole(dir, "x", 7);
	auto_free char *linked = file_of(dir, "x", "root");
	auto_free char *text = NULL;
	assert_int_equal(file_read(linked, 64, &text, NULL), 0);
	assert_string_equal(text, "of an image");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(frozen_comes_back_as_it_was),
		TEST(disk_is_cloned),
		TEST(commit_replaces_in_one_step),
		TEST(zeros_become_holes),
		TEST(abort_leaves_nothing),
		TEST(begin_refuses_and_leaves_nothing),
		TEST(commit_refuses_and_leaves_the_old_one),
		TEST(root_of_another_filesystem_is_copied),
		TEST(each_shows_whole_and_damaged_ones),
		TEST(remove_takes_whole_and_damaged_ones),
		TEST(sweep_takes_dead_ones_alone),
		TEST(image_may_go_and_what_was_frozen_stays),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
