/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of paths: what they match, and what is none. Asked through documents, as all is. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "policy/policy.h"
#include "policy/rules.h"

#define EACH(i, table)                        \
	size_t i = 0;                         \
	i < sizeof(table) / sizeof(*(table)); \
	i++

static void patterns_match_segments(void **state)
{
	(void)state;
	static const struct {
		const char *pattern, *path;
		bool matches;
	} table[] = {
		{"/", "/", true},
		{"/", "/a", false},
		{"/a", "/a", true},
		{"/a", "/a/", false},
		{"/a/", "/a", false},
		{"/a", "/A", false},
		{"/a", "/ab", false},
		{"/ab", "/a", false},
		{"/a/b", "/a", false},
		{"/*", "/", true},
		{"/*", "/a", true},
		{"/*", "/a/b", false},
		{"/*/", "/a/", true},
		{"/*/b", "/a/b", true},
		{"/*/b", "/a/c/b", false},
		{"/v*", "/v", true},
		{"/v*", "/v12", true},
		{"/v*", "/w", false},
		{"/v*x", "/v1x", true},
		{"/v*x", "/vxyx", true},
		{"/v*x", "/vxy", false},
		{"/*a*b*", "/xaybz", true},
		{"/*a*b*", "/ba", false},
		{"/*ab", "/aab", true},
		{"/**", "/", true},
		{"/**", "/a", true},
		{"/**", "/a/b/", true},
		{"/a/**", "/a", true},
		{"/a/**", "/a/", true},
		{"/a/**", "/a/b/c", true},
		{"/a/**", "/ab", false},
		{"/a/**", "/b/a", false},
		{"/**/b", "/b", true},
		{"/**/b", "/a/c/b", true},
		{"/**/b", "/a/c/b/d", false},
		{"/**/b", "/ab", false},
		{"/a/**/b", "/a/b", true},
		{"/a/**/b", "/a/x/y/b", true},
		{"/a/**/b", "/a/b/b", true},
		{"/a/**/b", "/a", false},
		{"/a/**/b/*", "/a/b/b/c", true},
		{"/a/**/b/**", "/a/b", true},
		{"/**/a/**/b", "/x/a/y/a/z/b", true},
		{"/**/a/**/b", "/x/b/y/a", false},
		{"/**/**", "/", true},
		{"/**/*/x", "/x", false},
		{"/**/*/x", "/y/x", true},
		{"/%2A", "/%2A", true},
		{"/%2A", "/x", false},
	};
	for (EACH(i, table))
		if (policy_path_pattern_matches(table[i].pattern, table[i].path) != table[i].matches)
			fail_msg("%s %s", table[i].pattern, table[i].path);
}

static void patterns_get_the_form_of_paths(void **state)
{
	(void)state;
	static const char *const good[][2] = {
		{"/%41/*", "/A/*"},
		{"/\xc3\xa4/**", "/%C3%A4/**"},
		{"/@x%2f*", "/@x%2F*"},
	};
	static const char *const bad[][2] = {
		{"", "begins with '/'"},    {"a", "begins with '/'"},
		{"*", "begins with '/'"},   {"/a?b", "query"},
		{"/a#b", "fragment"},       {"/a**", "whole segments"},
		{"/**a", "whole segments"}, {"/a/***", "whole segments"},
		{"/***", "whole segments"}, {"/a//b", "\"//\""},
		{"/a/../b", "segment"},     {"/a b", "space"},
		{"/%zz", "hex digits"},     {"/a%5c", "backslash"},
	};
	for (EACH(i, good)) {
		auto_free char *pattern = NULL;
		assert_int_equal(policy_path_pattern_canonical(good[i][0], &pattern, NULL), 0);
		assert_string_equal(pattern, good[i][1]);
	}
	for (EACH(i, bad)) {
		struct err e = {0};
		char *pattern = NULL;
		if (policy_path_pattern_canonical(bad[i][0], &pattern, &e) >= 0)
			fail_msg("%s is %s", bad[i][0], pattern);
		if (!strstr(e.text, bad[i][1]))
			fail_msg("%s: %s", bad[i][0], e.text);
	}
	char text[1100];
	struct err e = {0};
	char *pattern = NULL;
	memset(text, 'a', sizeof(text));
	text[0] = '/';
	text[1025] = '\0';
	assert_true(policy_path_pattern_canonical(text, &pattern, &e) < 0);
	assert_string_equal(e.text, "longer than 1024 bytes");
	text[1024] = '\0';
	assert_int_equal(policy_path_pattern_canonical(text, &pattern, &e), 0);
	free(pattern);
}

/* A guest chooses the path: no pattern may make that expensive. */
static void matching_takes_no_more_than_the_product(void **state)
{
	(void)state;
	char path[16384], pattern[512] = "";
	for (size_t i = 0; i < sizeof(path) - 1; i += 1)
		path[i] = i % 2 ? 'a' : '/';
	path[sizeof(path) - 1] = '\0';
	for (size_t i = 0; i < 60; i++)
		strcat(pattern, "/**/*a*");
	strcat(pattern, "/b");
	assert_false(policy_path_pattern_matches(pattern, path));
}

static void methods_are_in_upper_case(void **state)
{
	(void)state;
	static const char *const good[] = {"GET", "M-SEARCH", "A", "X_1",
					   "ABCDEFGHIJKLMNOPQRSTUVWX"};
	static const char *const bad[] = {"",    "get",       "Get",
					  "-A",  "_A",        "1A",
					  "A B", "G\xc3\x84", "ABCDEFGHIJKLMNOPQRSTUVWXY"};
	for (EACH(i, good))
		assert_true(policy_method_is_name(good[i]));
	for (EACH(i, bad))
		assert_false(policy_method_is_name(bad[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(patterns_match_segments),
		cmocka_unit_test(patterns_get_the_form_of_paths),
		cmocka_unit_test(matching_takes_no_more_than_the_product),
		cmocka_unit_test(methods_are_in_upper_case),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
