/* SPDX-License-Identifier: Apache-2.0 */
/* Filters of system calls, put on child processes. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/calls.h"
#include "base/cleanup.h"

static const struct calls_rule rules[] = {
	CALL(exit_group),
	CALL(getppid),
	CALL_FAILS(getpgid, ENOSYS),
	CALL_IF(fcntl, 1, CALLS_INT, F_GETFD),
	{.call = SYS_clone, .where = {{CLONE_NEWUSER | CLONE_THREAD, CLONE_THREAD, 0}}},
	{.call = SYS_socket, .where = {{CALLS_INT, AF_INET, 0}, {0xf, SOCK_DGRAM, 1}}},
};

static struct calls_filter filter_of(void)
{
	const struct calls_rule *lists[] = {rules};
	const size_t counts[] = {sizeof(rules) / sizeof(rules[0])};
	struct calls_filter f;
	struct err e = {0};

	if (calls_compile(lists, counts, 1, &f, &e) < 0)
		fail_msg("%s", e.text);
	return f;
}

/* How a child ends that makes a call under a filter: its errno, 0 when it worked, or -signal. */
static int end_of_call(const struct calls_filter *f, const long a[static 7])
{
	int status;
	struct err e;
	pid_t pid = fork();

	if (pid == 0) {
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || calls_enforce(f, &e) < 0)
			_exit(255);
		long rc = syscall(a[0], a[1], a[2], a[3], a[4], a[5], a[6]);
		syscall(SYS_exit_group, rc < 0 ? errno : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}
#define call(f, ...) end_of_call(f, (const long[7]){__VA_ARGS__})

static void check(const struct calls_filter *f)
{
	assert_int_equal(call(f, SYS_getppid), 0);
	assert_int_equal(call(f, SYS_getpgid, 0), ENOSYS);
	assert_int_equal(call(f, SYS_getpid), -SIGSYS);
	assert_int_equal(call(f, SYS_fcntl, 0, F_GETFD), 0);
	assert_int_equal(call(f, SYS_fcntl, 0, F_SETFL, 0), -SIGSYS);
	/* The kernel doesn't look at the upper half of an int; nor does the filter. */
	assert_int_equal(call(f, SYS_fcntl, 0, (long)(UINT64_C(1) << 32 | F_GETFD)), 0);
	assert_int_equal(call(f, SYS_clone, CLONE_NEWUSER | SIGCHLD), -SIGSYS);
	assert_int_equal(call(f, SYS_clone, CLONE_NEWUSER | CLONE_THREAD), -SIGSYS);
	assert_int_equal(call(f, SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC), 0);
	assert_int_equal(call(f, SYS_socket, AF_INET, SOCK_RAW), -SIGSYS);
	assert_int_equal(call(f, SYS_socket, AF_UNIX, SOCK_DGRAM), -SIGSYS);
	assert_int_equal(call(f, 0x40000000 | SYS_getppid), -SIGSYS);
}

static void unlisted_call_ends_the_process(void **state)
{
	struct calls_filter f = filter_of();

	(void)state;
	check(&f);
	calls_done(&f);
}

static void filter_is_the_same_by_way_of_text(void **state)
{
	struct calls_filter f = filter_of(), again;
	char *text = NULL;
	size_t n = 0;

	(void)state;
	FILE *to = open_memstream(&text, &n);
	assert_non_null(to);
	assert_int_equal(calls_print(&f, to), 0);
	fclose(to);
	assert_int_equal(calls_parse(text, &again), 0);
	assert_int_equal(again.count, f.count);
	check(&again);
	calls_done(&again);
	calls_done(&f);
	free(text);
}

static void text_that_is_no_filter_is_refused(void **state)
{
	static const char *const bad[] = {
		"", "x", "1 2 3\n", "70000 0 0 0\n", "6 256 0 0\n", "6 0 0 0\nusage: x\n"};
	struct calls_filter f;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(calls_parse(bad[i], &f), -EBADMSG);
	assert_int_equal(calls_parse(NULL, &f), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unlisted_call_ends_the_process),
		cmocka_unit_test(filter_is_the_same_by_way_of_text),
		cmocka_unit_test(text_that_is_no_filter_is_refused),
	};

	return cmocka_run_group_tests_name("base_calls", tests, NULL, NULL);
}
