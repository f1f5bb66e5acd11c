/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes, ages and columns as people read them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/table.h"

static void sizes_have_three_digits(void **state)
{
	(void)state;
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {
		{0, "0 B"},
		{999, "999 B"},
		{1000, "1.0 kB"},
		{99949, "99.9 kB"},
		{99950, "100 kB"},
		{999499, "999 kB"},
		{999500, "1.0 MB"},
		{12345678, "12.3 MB"},
		{8ull << 30, "8.6 GB"},
		{UINT64_MAX, "18446744 TB"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[TABLE_SIZE_MAX];
		table_format_size(cases[i].bytes, text);
		assert_string_equal(text, cases[i].text);
	}
}

static void expect(char *text, const char *want)
{
	assert_string_equal(text, want);
	free(text);
}

static void members_of_another_type_are_shown_as_missing(void **state)
{
	(void)state;
	auto_json json_t *j = json_pack("{s:s, s:i, s:f, s:i}", "text", "a\x1b", "number", 7,
					"real", 1.5, "negative", -1);
	expect(table_text(j, "text"), "a\\x1b");
	expect(table_text(j, "number"), "-");
	expect(table_text(j, "none"), "-");
	expect(table_number(j, "number", "M"), "7M");
	expect(table_number(j, "text", "M"), "-");
	expect(table_size(j, "number"), "7 B");
	expect(table_size(j, "negative"), "-");
	expect(table_size(j, "text"), "-");
	expect(table_size(j, "none"), "-");
	expect(table_age(j, "number"), "-");
	expect(table_age(j, "text"), "-");
}

static void ages_have_one_unit(void **state)
{
	(void)state;
	static const struct {
		int64_t seconds;
		const char *text;
	} cases[] = {
		{-3600, "0s"}, {119, "119s"},   {120, "2m"},    {7199, "119m"},
		{7200, "2h"},  {172799, "47h"}, {172800, "2d"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char time[CLOCK_RFC3339_SIZE];
		auto_free char *got = NULL;
		uint64_t now;
		do { /* within one second */
			now = clock_wall_ms() / 1000;
			clock_rfc3339((uint64_t)((int64_t)now - cases[i].seconds) * 1000, time);
			auto_json json_t *j = json_pack("{s:s}", "at", time);
			free(got);
			got = table_age(j, "at");
		} while (clock_wall_ms() / 1000 != now);
		assert_string_equal(got, cases[i].text);
	}
}

static void columns_are_as_wide_as_their_widest_cell(void **state)
{
	(void)state;
	static const char *const titles[] = {"A", "LONG", "LAST"};
	struct table t;
	assert_int_equal(table_init(&t, titles, 3, 2), 0);
	table_row(&t, 0)[0] = strdup("wide cell");
	table_row(&t, 0)[2] = strdup("z");
	table_row(&t, 1)[1] = strdup("b");
	fflush(stdout);
	auto_free char *text = NULL;
	size_t n;
	FILE *saved = stdout;
	stdout = open_memstream(&text, &n);
	table_print(&t);
	fclose(stdout);
	stdout = saved;
	table_done(&t);
	assert_string_equal(text, "A          LONG  LAST\n"
				  "wide cell        z\n"
				  "           b     \n");
}

static void times_left_and_lists_are_shown(void **state)
{
	(void)state;
	char soon[CLOCK_RFC3339_SIZE], later[CLOCK_RFC3339_SIZE];
	clock_rfc3339(clock_wall_ms() + 100500, soon);
	clock_rfc3339(clock_wall_ms() + 3 * 86400000 + 60000, later);
	auto_json json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:[s, i, s], s:[]}", "soon", soon,
					"later", later, "past", "2001-01-01T00:00:00Z", "odd",
					"\x1b", "list", "a\x1b", 7, "b", "empty");
	auto_free char *left = table_left(j, "soon");
	assert_in_range(atoi(left), 60, 101); /* it may have taken a while */
	assert_int_equal(left[strlen(left) - 1], 's');
	expect(table_left(j, "later"), "3d");
	expect(table_left(j, "past"), "over");
	expect(table_left(j, "odd"), "-");
	expect(table_left(j, "none"), "-");
	expect(table_list(j, "list"), "a\\x1b,b");
	expect(table_list(j, "empty"), "-");
	expect(table_list(j, "soon"), "-");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_have_three_digits),
		cmocka_unit_test(members_of_another_type_are_shown_as_missing),
		cmocka_unit_test(ages_have_one_unit),
		cmocka_unit_test(columns_are_as_wide_as_their_widest_cell),
		cmocka_unit_test(times_left_and_lists_are_shown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
