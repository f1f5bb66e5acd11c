/* SPDX-License-Identifier: Apache-2.0 */
/* A process is known by pid and start; a stranger with the same pid is not taken for it. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/proc.h"

/* A child that waits to be killed, under a name that tries to look like other fields. */
static pid_t sleeper(void)
{
	int ready[2];
	char c;
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, ") 1 2\nUid: 7");
		(void)!write(ready[1], "", 1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void process_is_found_by_pid_and_start(void **state)
{
	(void)state;
	uint64_t started, ours;
	pid_t pid = sleeper();
	assert_int_equal(proc_started(pid, &started), 0);
	assert_int_equal(proc_started(getpid(), &ours), 0);
	assert_true(started >= ours && ours > 0);
	auto_fd int fd = proc_find(pid, started, getuid());
	assert_true(fd >= 0);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	assert_int_equal(poll(&p, 1, 0), 0);
	end(pid);
	assert_int_equal(poll(&p, 1, 0), 1);
}

static void stranger_with_the_same_pid_is_not_found(void **state)
{
	(void)state;
	uint64_t started;
	pid_t pid = sleeper();
	assert_int_equal(proc_started(pid, &started), 0);
	assert_int_equal(proc_find(pid, started + 1, getuid()), -ESRCH);
	assert_int_equal(proc_find(pid, started, getuid() + 1), -EPERM);
	end(pid);
}

static void process_that_nobody_has_waited_for_is_gone(void **state)
{
	(void)state;
	uint64_t started;
	pid_t pid = sleeper();
	assert_int_equal(proc_started(pid, &started), 0);
	kill(pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
	assert_int_equal(proc_find(pid, started, getuid()), -ESRCH);
	end(pid);
}

static void process_that_is_gone_is_not_found(void **state)
{
	(void)state;
	uint64_t started, now;
	pid_t pid = sleeper();
	assert_int_equal(proc_started(pid, &started), 0);
	end(pid);
	assert_int_equal(proc_started(pid, &now), -ESRCH);
	assert_int_equal(proc_find(pid, started, getuid()), -ESRCH);
	assert_int_equal(proc_find(0, 0, 0), -ESRCH);
	assert_int_equal(proc_find(-1, 0, 0), -ESRCH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(process_is_found_by_pid_and_start),
		cmocka_unit_test(stranger_with_the_same_pid_is_not_found),
		cmocka_unit_test(process_that_nobody_has_waited_for_is_gone),
		cmocka_unit_test(process_that_is_gone_is_not_found),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
