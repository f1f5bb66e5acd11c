/* SPDX-License-Identifier: Apache-2.0 */
/* Which pages are captured: the pure parts, and then of a real process that has a file mapped as a
 * monitor has its memory. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "vmm/pages.h"

#define PAGES 600 /* more than are copied at a time */
#define BYTES ((uint64_t)PAGES * PAGE_BYTES)

static const char *const plain =
	"55e0a000-55e0b000 r--p 00000000 fe:00 77                 /usr/bin/other\n"
	"7f0000000000-7f0000100000 rw-p 00000000 fe:00 42         /run/a b/memory (deleted)\n"
	"7f0000100000-7f0000200000 rw-p 00100000 fe:00 42         /run/a b/memory (deleted)\n"
	"7f0000200000-7f0000201000 ---p 00000000 00:00 0 \n";

static void mapping_is_found_by_inode(void **state)
{
	uint64_t at = 0;

	(void)state;
	assert_int_equal(pages_find(plain, 42, 0x200000, &at), 0);
	assert_int_equal(at, 0x7f0000000000);
}

static void mapping_that_is_not_all_of_the_file_is_refused(void **state)
{
	static const char *const bad[] = {
		"",
		"nonsense\n",
		/* too short, too long, with a gap, not from the start, twice, shared, unwritable */
		"1000-2000 rw-p 00000000 fe:00 42 /m\n",
		"1000-9000 rw-p 00000000 fe:00 42 /m\n",
		"1000-2000 rw-p 00000000 fe:00 42 /m\n3000-4000 rw-p 00001000 fe:00 42 /m\n",
		"1000-3000 rw-p 00001000 fe:00 42 /m\n",
		"1000-3000 rw-p 00000000 fe:00 42 /m\n3000-5000 rw-p 00000000 fe:00 42 /m\n",
		"1000-3000 rw-s 00000000 fe:00 42 /m\n",
		"1000-3000 r--p 00000000 fe:00 42 /m\n",
		"1000-3000 rw-p 00000000 fe:00 43 /m\n",
		/* what the kernel never says */
		"3000-1000 rw-p 00000000 fe:00 42 /m\n",
		"1000-1000 rw-p 00000000 fe:00 42 /m\n",
		"0-ffffffffffffffff rw-p 00000000 fe:00 42 /m\n",
		"1000-3000 rw-p 00000000 fe:00\n",
	};
	uint64_t at = 7;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (pages_find(bad[i], 42, 0x2000, &at) != -ENODATA)
			fail_msg("found in: %s", bad[i]);
	assert_int_equal(at, 7);
}

static void copies_are_told_from_pages_of_the_file(void **state)
{
	const uint64_t present = UINT64_C(1) << 63, swapped = UINT64_C(1) << 62,
		       file = UINT64_C(1) << 61;

	(void)state;
	assert_false(pages_is_copy(0));
	assert_false(pages_is_copy(present | file));
	assert_false(pages_is_copy(swapped | file)); /* a page of the file on the move */
	assert_false(pages_is_copy(0x7fffff));
	assert_true(pages_is_copy(present));
	assert_true(pages_is_copy(present | 0x1234));
	assert_true(pages_is_copy(swapped));
}

static void zero_pages_are_known(void **state)
{
	uint8_t page[PAGE_BYTES] = {0};

	(void)state;
	assert_true(pages_is_zero(page));
	for (size_t i = 0; i < PAGE_BYTES; i += PAGE_BYTES - 1) {
		page[i] = 1;
		assert_false(pages_is_zero(page));
		page[i] = 0;
	}
}

/* A file whose page i holds byte 1 + i % 7 everywhere, but for holes at every tenth. */
static int make_base(void)
{
	char path[] = "/tmp/space-pages-XXXXXX";
	uint8_t page[PAGE_BYTES];
	int fd = mkostemp(path, O_CLOEXEC);

	assert_true(fd >= 0);
	unlink(path);
	assert_int_equal(ftruncate(fd, BYTES), 0);
	for (off_t i = 0; i < PAGES; i++) {
		memset(page, (int)(1 + i % 7), sizeof(page));
		if (i % 10 != 0)
			assert_int_equal(pwrite(fd, page, PAGE_BYTES, i * PAGE_BYTES), PAGE_BYTES);
	}
	return fd;
}

static void copy_base(int from, int to)
{
	uint8_t page[PAGE_BYTES];

	assert_int_equal(ftruncate(to, BYTES), 0);
	for (off_t i = 0; i < PAGES; i++) {
		assert_int_equal(pread(from, page, PAGE_BYTES, i * PAGE_BYTES), PAGE_BYTES);
		if (!pages_is_zero(page))
			assert_int_equal(pwrite(to, page, PAGE_BYTES, i * PAGE_BYTES), PAGE_BYTES);
	}
}

/* A child with the file mapped, that has written some pages and says so. map: whether it keeps it.
 */
static pid_t start_child(int base, bool map)
{
	int ready[2];
	char byte;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* of a test that fails */
		uint8_t *m = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, base, 0);
		if (m == MAP_FAILED)
			_exit(1);
		for (size_t i = 100; i < 500; i++)
			memset(m + i * PAGE_BYTES, 'x', PAGE_BYTES);
		memset(m, 'f', 1);                                        /* a hole of the file */
		memset(m + PAGE_BYTES, 0, PAGE_BYTES);                    /* now zero */
		memset(m + 10 * (size_t)PAGE_BYTES, 0, PAGE_BYTES);       /* as before */
		memset(m + (PAGES - 1) * (size_t)PAGE_BYTES, 'l', 1);     /* the last */
		(void)*(volatile uint8_t *)(m + 20 * (size_t)PAGE_BYTES); /* read only */
		if (!map)
			munmap(m + PAGE_BYTES, PAGE_BYTES);
		(void)!write(ready[1], "r", 1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static int open_proc(pid_t pid)
{
	auto_free char *path = str_printf("/proc/%d", (int)pid);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static int empty_file(void)
{
	char path[] = "/tmp/space-pages-XXXXXX";
	int fd = mkostemp(path, O_CLOEXEC);

	assert_true(fd >= 0);
	unlink(path);
	return fd;
}

static int byte_of(int fd, size_t page)
{
	uint8_t b;

	assert_int_equal(pread(fd, &b, 1, (off_t)(page * PAGE_BYTES)), 1);
	return b;
}

static void written_pages_are_captured_and_no_others(void **state)
{
	auto_fd int base = make_base(), out = empty_file();
	struct err e = {0};

	(void)state;
	copy_base(base, out);
	pid_t pid = start_child(base, true);
	auto_fd int proc = open_proc(pid);
	if (pages_capture(proc, base, BYTES, out, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(byte_of(out, 0), 'f');
	assert_int_equal(byte_of(out, 1), 0);
	assert_int_equal(byte_of(out, 2), 3);
	assert_int_equal(byte_of(out, 10), 0);
	assert_int_equal(byte_of(out, 20), 0);
	assert_int_equal(byte_of(out, 99), 1 + 99 % 7);
	for (size_t i = 100; i < 500; i++)
		assert_int_equal(byte_of(out, i), 'x');
	assert_int_equal(byte_of(out, 500), 0);
	assert_int_equal(byte_of(out, 501), 1 + 501 % 7);
	assert_int_equal(byte_of(out, PAGES - 1), 'l');
	assert_int_equal(byte_of(base, 100), 0); /* a hole still */
	assert_int_equal(lseek(out, PAGE_BYTES, SEEK_DATA), 2 * PAGE_BYTES);
	end_child(pid);
}

static void process_without_the_mapping_is_refused(void **state)
{
	auto_fd int base = make_base(), out = empty_file();
	struct err e = {0};

	(void)state;
	copy_base(base, out);
	pid_t pid = start_child(base, false);
	auto_fd int proc = open_proc(pid);
	assert_int_equal(pages_capture(proc, base, BYTES, out, &e), -ENODATA);
	assert_int_equal(e.code, ENODATA);
	assert_int_equal(pages_capture(proc, out, BYTES, out, &e), -ENODATA);
	end_child(pid);
	assert_true(pages_capture(proc, base, BYTES, out, &e) < 0); /* it is gone */
}

static void full_file_system_is_an_error(void **state)
{
	auto_fd int base = make_base(), full = open("/dev/full", O_RDWR | O_CLOEXEC);
	struct err e = {0};

	(void)state;
	pid_t pid = start_child(base, true);
	auto_fd int proc = open_proc(pid);
	assert_int_equal(pages_capture(proc, base, BYTES, full, &e), -ENOSPC);
	end_child(pid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mapping_is_found_by_inode),
		cmocka_unit_test(mapping_that_is_not_all_of_the_file_is_refused),
		cmocka_unit_test(copies_are_told_from_pages_of_the_file),
		cmocka_unit_test(zero_pages_are_known),
		cmocka_unit_test(written_pages_are_captured_and_no_others),
		cmocka_unit_test(process_without_the_mapping_is_refused),
		cmocka_unit_test(full_file_system_is_an_error),
	};

	return cmocka_run_group_tests_name("vmm_pages", tests, NULL, NULL);
}
