/* SPDX-License-Identifier: Apache-2.0 */
/* A guest's serial port: whatever it prints there, whoever watches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/guest.h"
#include "daemon/console.h"

struct fixture {
	uv_loop_t loop;
	char dir[32];
	int guest;
	struct console *console;
	unsigned readies;
};

static int set_up(void **state)
{
	static struct fixture f;
	f = (struct fixture){.dir = "/tmp/console-XXXXXX"};
	uv_loop_init(&f.loop);
	assert_non_null(mkdtemp(f.dir));
	*state = &f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	console_close(f->console);
	close(f->guest);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	dir_remove_all(f->dir);
	return uv_loop_close(&f->loop);
}

static void on_ready(void *user)
{
	struct fixture *f = user;
	f->readies++;
}

static void watch(struct fixture *f, void (*ready)(void *user))
{
	struct err e;
	int ends[2];
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
	f->guest = ends[1];
	f->console = console_open(&f->loop, f->dir, ends[0], ready, f, &e);
	assert_non_null(f->console);
}

static void print(struct fixture *f, const char *text)
{
	assert_int_equal(fd_write_all(f->guest, text, strlen(text)), 0);
	uv_run(&f->loop, UV_RUN_NOWAIT);
}

static void ready_line_is_told(void **state)
{
	struct fixture *f = *state;
	watch(f, on_ready);
	print(f, "one\n" GUEST_READY_LINE "\nlast\n");
	assert_int_equal(f->readies, 1);
	assert_string_equal(console_last_line(f->console), "last");
}

static void ready_line_that_nobody_waits_for_is_a_line(void **state)
{
	struct fixture *f = *state;
	watch(f, NULL);
	print(f, GUEST_READY_LINE "\n");
	assert_string_equal(console_last_line(f->console), GUEST_READY_LINE);
}

static void what_a_terminal_would_obey_is_not_in_the_last_line(void **state)
{
	struct fixture *f = *state;
	watch(f, NULL);
	print(f, "a\x1b[31m\xff\r\n");
	assert_string_equal(console_last_line(f->console), "a?[31m?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(ready_line_is_told, set_up, tear_down),
		cmocka_unit_test_setup_teardown(ready_line_that_nobody_waits_for_is_a_line, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(what_a_terminal_would_obey_is_not_in_the_last_line,
						set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
