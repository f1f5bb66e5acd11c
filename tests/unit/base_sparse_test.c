/* SPDX-License-Identifier: Apache-2.0 */
/* Copies have the same bytes and the same holes, on one filesystem and between two. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/sparse.h"
#include "base/str.h"

#define SIZE (1 << 30)

static int setup(void **state)
{
	char *dir = strdup("/tmp/sparse-test-XXXXXX");
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

static int unnamed(const char *dir)
{
	int fd = sparse_open_unnamed(dir);
	assert_true(fd >= 0);
	return fd;
}

static void expect(int fd, off_t at, const char *text)
{
	char got[16] = "";
	size_t n = strlen(text);
	assert_int_equal(pread(fd, got, n, at), n);
	assert_memory_equal(got, text, n);
}

static void fill(int fd)
{
	assert_int_equal(ftruncate(fd, SIZE), 0);
	assert_int_equal(pwrite(fd, "first", 5, 1024), 5);
	assert_int_equal(pwrite(fd, "middle", 6, (700 << 20) + 3), 6);
	assert_int_equal(pwrite(fd, "last", 4, SIZE - 4), 4);
}

static void expect_filled(int fd)
{
	struct stat st;
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, SIZE);
	assert_true(st.st_blocks < 1024);
	expect(fd, 1024, "first");
	expect(fd, (700 << 20) + 3, "middle");
	expect(fd, SIZE - 4, "last");
}

static void unnamed_file_leaves_nothing_behind(void **state)
{
	const char *dir = *state;
	auto_fd int fd = unnamed(dir);
	struct stat st;
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_nlink, 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR);
	assert_int_equal(rmdir(dir), 0);
	assert_int_equal(sparse_open_unnamed(dir), -ENOENT);
}

static void copy_keeps_bytes_and_holes(void **state)
{
	auto_fd int from = unnamed(*state);
	auto_fd int to = unnamed(*state);
	fill(from);
	assert_int_equal(sparse_copy(from, to), 0);
	expect_filled(to);
	assert_int_equal(pwrite(to, "other", 5, 1024), 5);
	expect(from, 1024, "first");
}

static void copy_keeps_them_between_filesystems(void **state)
{
	auto_fd int from = unnamed(*state);
	auto_fd int memory = memfd_create("sparse-test", MFD_CLOEXEC);
	auto_fd int back = unnamed(*state);
	assert_true(memory >= 0);
	fill(from);
	assert_int_equal(sparse_copy(from, memory), 0);
	expect_filled(memory);
	assert_int_equal(sparse_copy(memory, back), 0);
	expect_filled(back);
}

static void copy_of_holes_alone_takes_no_space(void **state)
{
	auto_fd int from = unnamed(*state);
	auto_fd int to = unnamed(*state);
	struct stat st;
	assert_int_equal(sparse_copy(from, to), 0);
	assert_int_equal(ftruncate(from, SIZE), 0);
	assert_int_equal(sparse_copy(from, to), 0);
	assert_int_equal(fstat(to, &st), 0);
	assert_int_equal(st.st_size, SIZE);
	assert_int_equal(st.st_blocks, 0);
}

static void copy_does_not_move_past_a_limit_in_silence(void **state)
{
	auto_fd int from = unnamed(*state);
	auto_fd int to = unnamed(*state);
	fill(from);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct rlimit limit = {1 << 20, 1 << 20};
		signal(SIGXFSZ, SIG_IGN);
		_exit(setrlimit(RLIMIT_FSIZE, &limit) == 0 && sparse_copy(from, to) == -EFBIG ? 0
											      : 1);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(sparse_copy(-1, to), -EBADF);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(unnamed_file_leaves_nothing_behind),
		TEST(copy_keeps_bytes_and_holes),
		TEST(copy_keeps_them_between_filesystems),
		TEST(copy_of_holes_alone_takes_no_space),
		TEST(copy_does_not_move_past_a_limit_in_silence),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
