/* SPDX-License-Identifier: Apache-2.0 */
/* Flags as people spell them, and what is no flag. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "cli/flags.h"

enum { F_INPUT = 1, F_TTY, F_ENV, F_RM };

static const struct flag table[] = {
	{F_INPUT, 'i', "interactive", FLAG_SWITCH, NULL, ""},
	{F_TTY, 't', "tty", FLAG_SWITCH, NULL, ""},
	{F_ENV, 'e', "env", FLAG_VALUE, "K=V", ""},
	{F_RM, 0, "rm", FLAG_SWITCH, NULL, ""},
	{0},
};

static struct flag_parser p;
static struct flag_found f;
static struct err e;

#define PARSE(...)                                                  \
	static char *words[] = {(char *)"verb", __VA_ARGS__, NULL}; \
	flags_init(&p, table, (int)(sizeof(words) / sizeof(words[0])) - 1, words)

static void expect_flag(int id, const char *value)
{
	assert_int_equal(flags_next(&p, &f, &e), 1);
	assert_int_equal(f.id, id);
	if (value)
		assert_string_equal(f.value, value);
}

static void flags_take_values_in_each_spelling(void **state)
{
	(void)state;
	PARSE("--env", "A=1", "--env=B=2", "-e", "C=3", "-eD=4", "-e=E");
	expect_flag(F_ENV, "A=1");
	expect_flag(F_ENV, "B=2");
	expect_flag(F_ENV, "C=3");
	expect_flag(F_ENV, "D=4");
	expect_flag(F_ENV, "E");
	assert_int_equal(flags_next(&p, &f, &e), 0);
}

static void flags_split_groups_of_letters(void **state)
{
	(void)state;
	PARSE("-ite", "A=1", "-ti");
	expect_flag(F_INPUT, NULL);
	expect_flag(F_TTY, NULL);
	expect_flag(F_ENV, "A=1");
	expect_flag(F_TTY, NULL);
	expect_flag(F_INPUT, NULL);
	assert_int_equal(flags_next(&p, &f, &e), 0);
}

static void switch_can_be_turned_off(void **state)
{
	(void)state;
	PARSE("--rm", "--rm=false", "--rm=true", "--rm=no");
	expect_flag(F_RM, NULL);
	assert_true(f.on);
	expect_flag(F_RM, NULL);
	assert_false(f.on);
	expect_flag(F_RM, NULL);
	assert_true(f.on);
	assert_int_equal(flags_next(&p, &f, &e), -EINVAL);
	assert_non_null(strstr(e.text, "'no'"));
}

static void flags_reject_what_is_not_in_the_table(void **state)
{
	(void)state;
	static const char *const bad[] = {"--nope", "--en", "--environment", "-x", "-ix",
					  "--=v",   "---"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char *words[] = {(char *)"verb", (char *)bad[i], NULL};
		flags_init(&p, table, 2, words);
		int r;
		while ((r = flags_next(&p, &f, &e)) > 0)
			;
		assert_int_equal(r, -EINVAL);
		assert_non_null(strstr(e.text, "unknown flag"));
	}
}

static void value_that_is_missing_is_an_error(void **state)
{
	(void)state;
	PARSE("-i", "--env");
	expect_flag(F_INPUT, NULL);
	assert_int_equal(flags_next(&p, &f, &e), -EINVAL);
	assert_string_equal(e.text, "--env needs a value");
}

static void dashes_end_the_flags(void **state)
{
	(void)state;
	PARSE("-i", "--", "-t", "--env");
	expect_flag(F_INPUT, NULL);
	expect_flag(0, "-t");
	expect_flag(0, "--env");
	assert_int_equal(flags_next(&p, &f, &e), 0);
}

static void lone_dash_is_a_word(void **state)
{
	(void)state;
	PARSE("-", "x");
	expect_flag(0, "-");
	expect_flag(0, "x");
}

static void rest_is_what_was_not_looked_at(void **state)
{
	(void)state;
	PARSE("-i", "sh", "-c", "--", "x");
	expect_flag(F_INPUT, NULL);
	expect_flag(0, "sh");
	char **rest;
	assert_int_equal(flags_rest(&p, &rest), 3);
	assert_string_equal(rest[0], "-c");
	assert_string_equal(rest[1], "--");
}

static void help_is_in_every_table(void **state)
{
	(void)state;
	PARSE("--help", "-h", "-ih");
	expect_flag(FLAG_HELP, NULL);
	expect_flag(FLAG_HELP, NULL);
	expect_flag(F_INPUT, NULL);
	expect_flag(FLAG_HELP, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flags_take_values_in_each_spelling),
		cmocka_unit_test(flags_split_groups_of_letters),
		cmocka_unit_test(switch_can_be_turned_off),
		cmocka_unit_test(flags_reject_what_is_not_in_the_table),
		cmocka_unit_test(value_that_is_missing_is_an_error),
		cmocka_unit_test(dashes_end_the_flags),
		cmocka_unit_test(lone_dash_is_a_word),
		cmocka_unit_test(rest_is_what_was_not_looked_at),
		cmocka_unit_test(help_is_in_every_table),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
