/* SPDX-License-Identifier: Apache-2.0 */
/* Sources of credentials: what programs and files give, what they do wrong, and threads that wait
 * for them. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/doc.h"
#include "base/fd.h"
#include "base/str.h"
#include "daemon/source.h"
#include "daemon/source_command.h"

#define DEADLINE_MS 30000

static void define(struct definition *d, const char *text)
{
	struct err e = {0};
	auto_json json_t *j = doc_parse_json(text, strlen(text), &e);
	if (definition_read("API_TOKEN", j, DEFINITION_IN_STORE, d, &e) < 0)
		fail_msg("%s", e.text);
}

/* A definition whose command is sh -c script. */
static void define_command(struct definition *d, const char *inject, const char *script)
{
	struct err e = {0};
	auto_json json_t *j =
		json_pack("{s:[s], s:o, s:{s:[s,s,s], s:i}}", "hosts", "a.example", "inject",
			  doc_parse_json(inject, strlen(inject), &e), "source", "command", "sh",
			  "-c", script, "timeoutSeconds", 5);
	assert_non_null(j);
	if (definition_read("API_TOKEN", j, DEFINITION_IN_STORE, d, &e) < 0)
		fail_msg("%s", e.text);
}

static int ask(const char *inject, const char *printed, struct source_value *v, struct err *e)
{
	struct definition d;
	auto_free char *script = str_printf("printf '%%s' '%s'", printed);
	auto_json json_t *none = json_object();
	define_command(&d, inject, script);
	int r = source_read(&d, none, -1, v, e);
	definition_done(&d);
	return r;
}

#define BEARER "{\"kind\":\"bearer\"}"

static void expiry_is_taken_in_each_form(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		uint64_t ms;
	} forms[] = {
		{"{\"value\":\"v\"}", 0},
		{"{\"value\":\"v\",\"expires\":null}", 0},
		{"{\"value\":\"v\",\"expires\":\"2100-01-01T00:00:00Z\"}", 4102444800000},
		{"{\"value\":\"v\",\"expiration\":\"2100-01-01T01:00:00.5+01:00\"}", 4102444800500},
		{"{\"value\":\"v\",\"Expiration\":4102444800}", 4102444800000},
		{"{\"value\":\"v\",\"expires\":4102444800.25}", 4102444800250},
	};
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		struct source_value v;
		struct err e = {0};
		if (ask(BEARER, forms[i].text, &v, &e) < 0)
			fail_msg("%s: %s", forms[i].text, e.text);
		assert_int_equal(v.expires_ms, forms[i].ms);
		assert_string_equal(json_string_value(v.value), "v");
		source_value_done(&v);
	}
	struct source_value v;
	struct err e = {0};
	uint64_t before = clock_wall_ms();
	assert_int_equal(ask(BEARER, "{\"token\":\"v\",\"expires_in\":100}", &v, &e), 0);
	assert_in_range(v.expires_ms, before + 100000, clock_wall_ms() + 100000);
	source_value_done(&v);
}

static void user_and_password_become_one(void **state)
{
	(void)state;
	struct source_value v;
	struct err e = {0};
	static const char printed[] = "{\"username\":\"ann\",\"password\":\"p\"}";
	assert_int_equal(ask("{\"kind\":\"basic\"}", printed, &v, &e), 0);
	assert_string_equal(json_string_value(v.value), "ann:p");
	source_value_done(&v);
	assert_int_equal(ask("{\"kind\":\"basic\",\"user\":\"bob\"}", printed, &v, &e), 0);
	assert_string_equal(json_string_value(v.value), "p");
	source_value_done(&v);
	assert_int_equal(ask(BEARER, printed, &v, &e), 0);
	assert_string_equal(json_string_value(v.value), "p");
	source_value_done(&v);
}

static void garbage_is_refused_and_never_quoted(void **state)
{
	(void)state;
	static const char *const bad[] = {
		"hunter2",
		"\"hunter2\"",
		"{\"value\":\"hunter2\"",
		"{\"value\":\"hunter2\",\"value\":\"hunter2\"}",
		"{\"hunter2\":1}",
		"{\"value\":[\"hunter2\"]}",
		"{\"value\":\"hunter2\",\"password\":\"hunter2\"}",
		"{\"value\":\"v\",\"expires\":\"hunter2\"}",
		"{\"value\":\"v\",\"expires\":0}",
		"{\"value\":\"v\",\"expires\":1e300}",
		"{\"value\":\"v\",\"expires_in\":\"hunter2\"}",
		"{\"value\":\"v\",\"expires_in\":1e300}",
		"{\"value\":\"v\",\"expires_in\":-1}",
		"{\"value\":\"v\",\"expires\":\"2001-01-01T00:00:00Z\"}",
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct source_value v;
		struct err e = {0};
		if (ask(BEARER, bad[i], &v, &e) == 0)
			fail_msg("%s is taken", bad[i]);
		assert_null(strstr(e.text, "hunter2"));
		assert_null(v.value);
	}
}

/* -- programs -- */

static int run(const char *script, uint64_t timeout_ms, int stop_fd, size_t max, struct err *e)
{
	const char *argv[] = {"sh", "-c", script, NULL};
	char *text = NULL;
	size_t n = 0;
	e->text[0] = '\0';
	int r = command_output(argv, timeout_ms, stop_fd, max, &text, &n, e);
	if (r == 0)
		assert_int_equal(strlen(text), n);
	free(text);
	return r;
}

static void programs_fail_in_every_way(void **state)
{
	(void)state;
	struct err e;
	const char *none[] = {"/no/such/program", NULL};
	const char *directory[] = {"/tmp", NULL};
	char *text = NULL;
	size_t n;
	assert_int_equal(run("echo x", DEADLINE_MS, -1, 2, &e), 0);
	assert_int_equal(run("echo xy", DEADLINE_MS, -1, 2, &e), -EFBIG);
	assert_int_equal(run("exit 3", DEADLINE_MS, -1, 100, &e), -EIO);
	assert_non_null(strstr(e.text, "status 3"));
	assert_int_equal(run("kill -15 $$", DEADLINE_MS, -1, 100, &e), -EIO);
	assert_non_null(strstr(e.text, "signal 15"));
	assert_int_equal(run("sleep 1000", 100, -1, 100, &e), -ETIMEDOUT);
	assert_int_equal(run("trap '' TERM HUP INT; while :; do sleep 1; done", 100, -1, 100, &e),
			 -ETIMEDOUT);
	assert_int_equal(command_output(none, DEADLINE_MS, -1, 100, &text, &n, &e), -ENOENT);
	assert_int_equal(command_output(directory, DEADLINE_MS, -1, 100, &text, &n, &e), -EACCES);
	assert_null(text);
}

static void program_is_told_to_stop(void **state)
{
	(void)state;
	struct err e;
	auto_fd int stop = eventfd(1, EFD_CLOEXEC);
	assert_int_equal(run("sleep 1000", DEADLINE_MS, stop, 100, &e), -ECANCELED);
}

/* Blocked signals and ignored ones are not handed on. */
static void program_starts_afresh(void **state)
{
	(void)state;
	const char *argv[] = {"grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status", NULL};
	char *text = NULL;
	size_t n;
	struct err e;
	sigset_t blocked, before;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	sigprocmask(SIG_BLOCK, &blocked, &before);
	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(command_output(argv, DEADLINE_MS, -1, 1000, &text, &n, &e), 0);
	sigprocmask(SIG_SETMASK, &before, NULL);
	signal(SIGPIPE, SIG_DFL);
	assert_non_null(strstr(text, "SigBlk:\t0000000000000000"));
	assert_non_null(strstr(text, "SigIgn:\t0000000000000000"));
	free(text);
}

/* -- threads -- */

struct seen {
	unsigned fine, failed;
};

static void count(void *user, struct source_value *v, const struct err *why)
{
	struct seen *s = user;
	assert_true(!why == !!v->value);
	if (why)
		s->failed++;
	else
		s->fine++;
}

static void on_late(uv_timer_t *t)
{
	(void)t;
	fail_msg("nothing came within %d ms", DEADLINE_MS);
}

static void run_until(uv_loop_t *loop, const unsigned *count_of, unsigned want)
{
	uv_timer_t late;
	uv_timer_init(loop, &late);
	uv_timer_start(&late, on_late, DEADLINE_MS, 0);
	while (*count_of < want)
		uv_run(loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&late, NULL);
	uv_run(loop, UV_RUN_NOWAIT);
}

static void more_than_there_are_threads(void **state)
{
	(void)state;
	uv_loop_t loop;
	struct err e;
	struct seen s = {0};
	struct definition d;
	auto_json json_t *none = json_object();
	uv_loop_init(&loop);
	struct source_threads *t = source_threads_new(&loop, &e);
	define_command(&d, BEARER, "echo '{\"value\":\"v\"}'");
	for (unsigned i = 0; i < 3 * SOURCE_THREADS; i++)
		assert_non_null(source_start(t, &d, none, count, &s));
	definition_done(&d); /* it was copied */
	assert_int_equal(s.fine, 0);
	run_until(&loop, &s.fine, 3 * SOURCE_THREADS);
	assert_int_equal(s.failed, 0);
	source_threads_free(t);
	assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
	assert_int_equal(uv_loop_close(&loop), 0);
}

static void stopped_ones_tell_nobody(void **state)
{
	(void)state;
	uv_loop_t loop;
	struct err e;
	struct seen s = {0}, other = {0};
	struct definition hang, fine;
	auto_json json_t *none = json_object();
	uv_loop_init(&loop);
	struct source_threads *t = source_threads_new(&loop, &e);
	define(&hang, "{\"hosts\":[\"a.example\"],\"source\":{\"command\":[\"sleep\",\"1000\"],"
		      "\"timeoutSeconds\":60}}");
	define_command(&fine, BEARER, "echo '{\"value\":\"v\"}'");
	struct source_fetch *all[2 * SOURCE_THREADS];
	for (unsigned i = 0; i < 2 * SOURCE_THREADS; i++)
		all[i] = source_start(t, &hang, none, count, &s);
	assert_non_null(source_start(t, &fine, none, count, &other));
	uv_run(&loop, UV_RUN_NOWAIT); /* half of them run, half wait */
	for (unsigned i = 0; i < 2 * SOURCE_THREADS; i++)
		source_stop(all[i]);
	run_until(&loop, &other.fine, 1);
	assert_int_equal(s.fine + s.failed, 0);

	/* At the end nothing is waited for that can be stopped; who began is told. */
	assert_non_null(source_start(t, &hang, none, count, &s));
	uv_run(&loop, UV_RUN_NOWAIT);
	uint64_t before = clock_mono_ms();
	source_threads_free(t);
	assert_true(clock_mono_ms() - before < DEADLINE_MS);
	assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
	assert_int_equal(uv_loop_close(&loop), 0);
	definition_done(&hang);
	definition_done(&fine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(expiry_is_taken_in_each_form),
		cmocka_unit_test(user_and_password_become_one),
		cmocka_unit_test(garbage_is_refused_and_never_quoted),
		cmocka_unit_test(programs_fail_in_every_way),
		cmocka_unit_test(program_is_told_to_stop),
		cmocka_unit_test(program_starts_afresh),
		cmocka_unit_test(more_than_there_are_threads),
		cmocka_unit_test(stopped_ones_tell_nobody),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
