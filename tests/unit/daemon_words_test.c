/* SPDX-License-Identifier: Apache-2.0 */
/* A jailed program's words in spaced's log: lines, made printable, not without end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/log.h"
#include "daemon/words.h"

struct fixture {
	uv_loop_t loop;
	struct words *words;
	int program, log, error_before;
	char text[65536];
};

static int set_up(void **state)
{
	static struct fixture f;
	struct err e;
	f = (struct fixture){.log = memfd_create("log", MFD_CLOEXEC)};
	log_init("spaced", false);
	uv_loop_init(&f.loop);
	f.words = words_open(&f.loop, "i1", &f.program, &e);
	assert_non_null(f.words);
	f.error_before = dup(STDERR_FILENO);
	dup2(f.log, STDERR_FILENO);
	*state = &f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	close(f->log);
	return uv_loop_close(&f->loop);
}

static void say(struct fixture *f, const char *p, size_t n)
{
	assert_int_equal(fd_write_all(f->program, p, n), 0);
	uv_run(&f->loop, UV_RUN_NOWAIT);
}

/* The program and its reader are gone: what is in the log? */
static const char *logged(struct fixture *f)
{
	close(f->program);
	words_close(f->words);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	dup2(f->error_before, STDERR_FILENO);
	close(f->error_before);
	ssize_t n = pread(f->log, f->text, sizeof(f->text) - 1, 0);
	assert_true(n >= 0);
	return f->text;
}

static void lines_are_logged_under_a_name_whatever_pieces_they_come_in(void **state)
{
	struct fixture *f = *state;
	say(f, "space-egress: on", 16);
	say(f, "e\n\nspace-egress: two\nlast", 25);
	assert_string_equal(logged(f), "spaced: warning: i1: space-egress: one\n"
				       "spaced: warning: i1: space-egress: two\n"
				       "spaced: warning: i1: last\n");
}

static void what_a_terminal_would_obey_is_not_logged(void **state)
{
	struct fixture *f = *state;
	say(f, "a\x1b[31m\r\0\xc2\x9b\xff\tb\n", 14);
	assert_string_equal(logged(f), "spaced: warning: i1: a?[31m??????b\n");
}

static void flood_ends_in_the_log_not_in_the_pipe(void **state)
{
	struct fixture *f = *state;
	char line[2000];
	memset(line, 'x', sizeof(line));
	line[sizeof(line) - 1] = '\n';
	for (unsigned i = 0; i < 20 * WORDS_LINES_MAX; i++)
		say(f, i % 2 ? line : "short\n", i % 2 ? sizeof(line) : 6);
	const char *text = logged(f);
	size_t lines = 0;
	for (const char *p = text; (p = strchr(p, '\n')); p++)
		lines++;
	assert_int_equal(lines, WORDS_LINES_MAX + 1);
	assert_non_null(strstr(text, "i1: says too much, the rest is dropped\n"));
	assert_true(strlen(text) < WORDS_LINES_MAX * 200);
}

#define WITH_WORDS(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_WORDS(lines_are_logged_under_a_name_whatever_pieces_they_come_in),
		WITH_WORDS(what_a_terminal_would_obey_is_not_logged),
		WITH_WORDS(flood_ends_in_the_log_not_in_the_pipe),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
