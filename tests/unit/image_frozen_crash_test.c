/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whenever a maker dies, and wherever the disk is full, what has a name is whole: the old one or
 * the new one. Makers are killed before and after each system call that they make, one after the
 * other; disks are filled up to each page.
 */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "image_frozen_fixture.h"

#define STEPS_MAX 20000 /* of one maker */

/* In memory where that can be: each maker syncs, and there are hundreds. */
static int setup(void **state)
{
	return setup_in(access("/dev/shm", W_OK) == 0 ? "/dev/shm/frozen-test-XXXXXX"
						      : "/tmp/frozen-test-XXXXXX",
			state);
}

struct deed {
	const char *dir;
	int (*act)(const struct deed *d);
};

/* Lets a child act and kills it at stop number steps. True when it had ended before. -1: can't be
   traced here. */
static int act_and_die(const struct deed *d, unsigned steps)
{
	int status;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
			_exit(77);
		raise(SIGSTOP);
		_exit(d->act(d) < 0 ? 1 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	for (unsigned i = 0; i < steps && WIFSTOPPED(status); i++) {
		assert_int_equal(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
	}
	if (WIFSTOPPED(status)) {
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		return 0;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		return -1;
	assert_int_equal(status, 0);
	return 1;
}

/* after() looks at what each death left, once what is dead has been swept. */
static void die_everywhere(const struct deed *d, void (*before)(const char *dir),
			   void (*after)(const char *dir, bool done))
{
	auto_free char *parent = path_of(d->dir, "frozen");
	struct err e = {0};
	int done = 0;
	for (unsigned steps = 1; !done; steps++) {
		assert_true(steps < STEPS_MAX);
		before(d->dir);
		done = act_and_die(d, steps);
		if (done < 0) {
			print_message("no ptrace here\n");
			skip();
		}
		assert_true(frozen_sweep(parent, &e) >= 0);
		assert_int_equal(count_entries(d->dir, "."), 0);
		after(d->dir, done);
	}
}

static void nothing_before(const char *dir)
{
	(void)dir;
}

static void old_before(const char *dir)
{
	auto_free char *path = path_of(dir, "frozen/x");
	dir_remove_all(path);
	make(dir, "x", 7);
}

static int act_make(const struct deed *d)
{
	return try_make(d->dir, "x", 50, false, NULL);
}

static void none_or_new(const char *dir, bool done)
{
	auto_free char *path = path_of(dir, "frozen/x");
	if (access(path, F_OK) == 0)
		expect_whole(dir, "x", 50);
	else
		assert_false(done);
	dir_remove_all(path);
}

static void maker_may_die_at_any_step(void **state)
{
	const struct deed d = {.dir = *state, .act = act_make};
	die_everywhere(&d, nothing_before, none_or_new);
}

static void old_or_new(const char *dir, bool done)
{
	unsigned seed = expect_whole(dir, "x", -1);
	assert_true(seed == 50 || (seed == 7 && !done));
}

static void replacer_may_die_at_any_step(void **state)
{
	const struct deed d = {.dir = *state, .act = act_make};
	die_everywhere(&d, old_before, old_or_new);
}

static int act_remove(const struct deed *d)
{
	auto_free char *parent = str_printf("%s/frozen", d->dir);
	return frozen_remove(parent, "x", NULL);
}

static void none_or_old(const char *dir, bool done)
{
	auto_free char *path = path_of(dir, "frozen/x");
	if (access(path, F_OK) == 0) {
		assert_false(done);
		expect_whole(dir, "x", 7);
	}
}

static void remover_may_die_at_any_step(void **state)
{
	const struct deed d = {.dir = *state, .act = act_remove};
	die_everywhere(&d, old_before, none_or_old);
}

static int change(const struct deed *d, int (*how)(struct frozen *, struct err *))
{
	struct frozen f;
	auto_free char *parent = str_printf("%s/frozen", d->dir);
	int r = frozen_open(parent, "x", &f, NULL);
	if (r < 0)
		return r;
	r = how(&f, NULL);
	frozen_done(&f);
	return r;
}

static int act_compress(const struct deed *d)
{
	return change(d, frozen_compress);
}

static int act_expand(const struct deed *d)
{
	return change(d, frozen_expand);
}

static void packed_before(const char *dir)
{
	const struct deed d = {.dir = dir};
	old_before(dir);
	assert_int_equal(act_compress(&d), 0);
}

/* Both ways are open after each death. */
static void still_whole(const char *dir, bool done)
{
	const struct deed d = {.dir = dir};
	(void)done;
	expect_whole(dir, "x", 7);
	assert_int_equal(act_compress(&d), 0);
	expect_whole(dir, "x", 7);
	assert_int_equal(act_expand(&d), 0);
	expect_whole(dir, "x", 7);
}

static void compressor_may_die_at_any_step(void **state)
{
	const struct deed d = {.dir = *state, .act = act_compress};
	die_everywhere(&d, old_before, still_whole);
}

static void expander_may_die_at_any_step(void **state)
{
	const struct deed d = {.dir = *state, .act = act_expand};
	die_everywhere(&d, packed_before, still_whole);
}

/* A filesystem of so many pages and inodes at dir/full, with a directory like setup()'s in it. */
static char *mount_small(const char *dir, const char *options)
{
	char *full = path_of(dir, "full");
	assert_int_equal(mkdir(full, 0700), 0);
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("small", full, "tmpfs", 0, options) < 0) {
		print_message("no right to mount here\n");
		free(full);
		skip();
	}
	auto_free char *root = path_of(full, "rootfs");
	assert_int_equal(file_write_atomic(root, "root filesystem", 15, 0644), 0);
	return full;
}

/* Fills the filesystem but for so many pages. */
static void leave_pages(const char *full, off_t pages)
{
	static const uint8_t block[4096] = {1};
	auto_free char *path = path_of(full, "filler");
	auto_fd int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	off_t size = 0;
	while (write(fd, block, sizeof(block)) == sizeof(block))
		size += (off_t)sizeof(block);
	assert_int_equal(errno, ENOSPC);
	assert_int_equal(ftruncate(fd, size - pages * (off_t)sizeof(block)), 0);
}

/* With more and more pages left: fails with ENOSPC, the old one whole, until there are enough. */
static void full_everywhere(const struct deed *d)
{
	int r = -ENOSPC;
	for (off_t pages = 0; r < 0; pages++) {
		assert_true(pages < 200);
		leave_pages(d->dir, pages);
		r = d->act(d);
		if (r < 0)
			assert_int_equal(r, -ENOSPC);
		assert_int_equal(count_entries(d->dir, ""), 1);
		expect_whole(d->dir, "x", r < 0 ? 7 : -1);
	}
	auto_free char *filler = path_of(d->dir, "filler");
	assert_int_equal(unlink(filler), 0);
}

static void full_disk_leaves_the_old_one(void **state)
{
	struct deed d = {.act = act_make};
	auto_free char *full = mount_small(*state, "size=1m");
	d.dir = full;
	make(full, "x", 7);
	full_everywhere(&d);
	old_before(full);
	d.act = act_compress;
	full_everywhere(&d);
	d.act = act_expand;
	full_everywhere(&d);
	assert_int_equal(umount2(full, MNT_DETACH), 0);
}

static void lack_of_inodes_leaves_the_old_one(void **state)
{
	auto_free char *full = mount_small(*state, "size=1m,nr_inodes=24");
	struct err e = {0};
	char path[256];
	int count = 0;
	make(full, "x", 7);
	for (;; count++) {
		snprintf(path, sizeof(path), "%s/inode-%d", full, count);
		int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0)
			break;
		close(fd);
	}
	assert_int_equal(errno, ENOSPC);
	int r;
	while ((r = try_make(full, "x", 50, false, &e)) < 0) {
		assert_int_equal(r, -ENOSPC);
		assert_non_null(strstr(e.text, "free some"));
		assert_int_equal(count_entries(full, ""), 1);
		expect_whole(full, "x", 7);
		assert_true(count > 0);
		snprintf(path, sizeof(path), "%s/inode-%d", full, --count);
		assert_int_equal(unlink(path), 0);
	}
	expect_whole(full, "x", 50);
	assert_int_equal(umount2(full, MNT_DETACH), 0);
}

/* A living maker's lock protects it from a sweep by another process; its death gives it up. */
static void sweep_tells_living_from_dead(void **state)
{
	const char *dir = *state;
	auto_free char *parent = path_of(dir, "frozen");
	auto_free char *root = path_of(dir, "rootfs");
	struct err e = {0};
	int ready[2];
	char byte;
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct frozen_new f;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (frozen_begin(parent, root, 0, &f, NULL) < 0 || write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	assert_int_equal(frozen_sweep(parent, &e), 0);
	assert_int_equal(count_entries(dir, FROZEN_NEW_PREFIX), 1);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(frozen_sweep(parent, &e), 1);
	assert_int_equal(count_entries(dir, ""), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(maker_may_die_at_any_step),         TEST(replacer_may_die_at_any_step),
		TEST(remover_may_die_at_any_step),       TEST(compressor_may_die_at_any_step),
		TEST(expander_may_die_at_any_step),      TEST(full_disk_leaves_the_old_one),
		TEST(lack_of_inodes_leaves_the_old_one), TEST(sweep_tells_living_from_dead),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
