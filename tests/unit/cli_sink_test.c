/* SPDX-License-Identifier: Apache-2.0 */
/* Writing to what we were given as output: whole, in order, waiting for slow readers, noticing gone
 * ones. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "cli/sink.h"

struct probe {
	unsigned calls;
	int result;
};

static void drained(void *user, int r)
{
	struct probe *p = user;
	p->calls++;
	p->result = r;
}

static uint8_t *pattern(size_t n)
{
	uint8_t *p = malloc(n);
	assert_non_null(p);
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(i * 7 + i / 251);
	return p;
}

/* Puts n bytes into fds[1] while reading them from fds[0] a little at a time. */
static void pass_through(const int fds[2], size_t n)
{
	uv_loop_t loop;
	struct sink s;
	struct probe p = {0};
	uv_loop_init(&loop);
	int flags = fcntl(fds[1], F_GETFL);
	assert_int_equal(sink_init(&s, &loop, fds[1], drained, &p), 0);
	assert_int_equal(sink_put(&s, pattern(n), n), 1);
	auto_free uint8_t *want = pattern(n);
	size_t got = 0;
	while (got < n) {
		uint8_t piece[5000];
		ssize_t r = read(fds[0], piece, sizeof(piece));
		assert_true(r > 0);
		assert_memory_equal(piece, want + got, (size_t)r);
		got += (size_t)r;
		if (!p.calls)
			uv_run(&loop, UV_RUN_NOWAIT);
	}
	while (!p.calls)
		uv_run(&loop, UV_RUN_ONCE);
	assert_int_equal(p.calls, 1);
	assert_int_equal(p.result, 0);
	/* Others share the description: it must be as it was. */
	assert_int_equal(fcntl(fds[1], F_GETFL), flags);
	sink_done(&s);
	uv_run(&loop, UV_RUN_NOWAIT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

static void sink_waits_for_a_slow_reader_of_a_pipe(void **state)
{
	(void)state;
	int fds[2];
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pass_through(fds, 1000003);
	close(fds[0]);
	close(fds[1]);
}

static void sink_waits_for_a_slow_reader_of_a_socket(void **state)
{
	(void)state;
	int fds[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	pass_through(fds, 1000003);
	close(fds[0]);
	close(fds[1]);
}

static void sink_writes_files_at_once(void **state)
{
	(void)state;
	char path[] = "cli_sink_test.XXXXXX";
	auto_fd int fd = mkstemp(path);
	unlink(path);
	uv_loop_t loop;
	struct sink s;
	struct probe p = {0};
	uv_loop_init(&loop);
	assert_int_equal(sink_init(&s, &loop, fd, drained, &p), 0);
	assert_int_equal(sink_put(&s, pattern(300000), 300000), 0);
	assert_int_equal(p.calls, 0);
	assert_int_equal(lseek(fd, 0, SEEK_CUR), 300000);
	sink_done(&s);
	uv_run(&loop, UV_RUN_NOWAIT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

static void sink_tells_when_nobody_reads_any_more(void **state)
{
	(void)state;
	int fds[2];
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	uv_loop_t loop;
	struct sink s;
	struct probe p = {0};
	uv_loop_init(&loop);
	assert_int_equal(sink_init(&s, &loop, fds[1], drained, &p), 0);
	assert_int_equal(sink_put(&s, pattern(200000), 200000), 1);
	close(fds[0]);
	while (!p.calls)
		uv_run(&loop, UV_RUN_ONCE);
	assert_int_equal(p.result, -EPIPE);
	assert_int_equal(sink_put(&s, pattern(1), 1), -EPIPE);
	sink_done(&s);
	uv_run(&loop, UV_RUN_NOWAIT);
	assert_int_equal(uv_loop_close(&loop), 0);
	close(fds[1]);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sink_waits_for_a_slow_reader_of_a_pipe),
		cmocka_unit_test(sink_waits_for_a_slow_reader_of_a_socket),
		cmocka_unit_test(sink_writes_files_at_once),
		cmocka_unit_test(sink_tells_when_nobody_reads_any_more),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
