/* SPDX-License-Identifier: Apache-2.0 */
/* Paths: the form that is matched and sent, and what is refused because servers read it in two
 * ways. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "policy/policy.h"

#define EACH(i, table)                        \
	size_t i = 0;                         \
	i < sizeof(table) / sizeof(*(table)); \
	i++

static void paths_get_one_form(void **state)
{
	(void)state;
	static const struct {
		const char *target, *path, *query;
	} table[] = {
		{"/", "/", NULL},
		{"/a/b", "/a/b", NULL},
		{"/a/", "/a/", NULL},
		{"/?", "/", ""},
		{"/a?b=c&d=../%2f%00", "/a", "b=c&d=../%2f%00"},
		{"/a?b?c", "/a", "b?c"},
		{"/%41%7e%2d%5F", "/A~-_", NULL},
		{"/%e4%bd%a0", "/%E4%BD%A0", NULL},
		{"/\xe4\xbd\xa0", "/%E4%BD%A0", NULL},
		{"/a;b=c:d@e!$&'()*+,=", "/a;b=c:d@e!$&'()*+,=", NULL},
		{"/%3b%3A%40%21", "/%3B%3A%40%21", NULL},
		{"/a%20b", "/a%20b", NULL},
		{"/a|b[c]{d}^`\"<>", "/a%7Cb%5Bc%5D%7Bd%7D%5E%60%22%3C%3E", NULL},
		{"/100%25", "/100%25", NULL},
		{"/100%25!", "/100%25!", NULL},
		{"/a.b/..c/...", "/a.b/..c/...", NULL},
		{"/.well-known/x", "/.well-known/x", NULL},
		{"/@scope", "/@scope", NULL},
		{"/@scope%2fname", "/@scope%2Fname", NULL},
		{"/a%2Fb%2Fc", "/a%2Fb%2Fc", NULL},
		{"/a%2f", "/a%2F", NULL},
	};
	for (EACH(i, table)) {
		auto_free char *path = NULL;
		const char *query = "unset";
		struct err e = {0};
		if (policy_path_canonical(table[i].target, &path, &query, &e) < 0)
			fail_msg("%s: %s", table[i].target, e.text);
		assert_string_equal(path, table[i].path);
		if (table[i].query)
			assert_string_equal(query, table[i].query);
		else
			assert_null(query);
	}
}

static void the_form_is_its_own_form(void **state)
{
	(void)state;
	static const char *const table[] = {"/%41/\xe4\xbd\xa0|%25%3b", "/a;b/%7e"};
	for (EACH(i, table)) {
		auto_free char *once = NULL, *twice = NULL;
		const char *query;
		assert_int_equal(policy_path_canonical(table[i], &once, &query, NULL), 0);
		assert_int_equal(policy_path_canonical(once, &twice, &query, NULL), 0);
		assert_string_equal(once, twice);
	}
}

static void two_way_paths_are_refused(void **state)
{
	(void)state;
	static const char *const table[][2] = {
		{"", "no path"},
		{"*", "no path"},
		{"a/b", "no path"},
		{"http://example.com/", "no path"},
		{"/a#b", "fragment"},
		{"/a?b#c", "fragment"},
		{"//", "\"//\""},
		{"/a//b", "\"//\""},
		{"//example.com/", "\"//\""},
		{"/a//", "\"//\""},
		{"/.", "segment"},
		{"/..", "segment"},
		{"/a/../b", "segment"},
		{"/a/./b", "segment"},
		{"/a/..", "segment"},
		{"/a/%2e%2e/b", "segment"},
		{"/a/%2E./b", "segment"},
		{"/a/%2e", "segment"},
		{"/a/..;/b", "segment"},
		{"/a/..;x=y/b", "segment"},
		{"/a/.;/b", "segment"},
		{"/a/%2e%2e%3bx/b", "segment"},
		{"/a\\b", "backslash"},
		{"/a/..\\b", "backslash"},
		{"/a%5cb", "encoded backslash"},
		{"/a%5Cb", "encoded backslash"},
		{"/a%2F%2fb", "\"//\""},
		{"/a/%2fb", "\"//\""},
		{"/%2fa", "\"//\""},
		{"/a%2f..%2fb", "segment"},
		{"/a%2F..", "segment"},
		{"/a%252fb", "twice"},
		{"/a%00b", "NUL"},
		{"/a%0d%0ab", "control"},
		{"/a%7f", "control"},
		{"/a%1F", "control"},
		{"/a b", "space"},
		{"/a\tb", "space"},
		{"/a\x7f", "space"},
		{"/a%", "hex digits"},
		{"/a%2", "hex digits"},
		{"/a%zz", "hex digits"},
		{"/a%2g", "hex digits"},
		{"/a%%41", "hex digits"},
		{"/a%?41", "hex digits"},
		{"/a%252e", "twice"},
		{"/%252e%252e/", "twice"},
		{"/a%25%32%65", "twice"},
		{"/a%2541", "twice"},
		{"/%25%35c", "twice"},
		{"/\xff", "UTF-8"},
		{"/%ff", "UTF-8"},
		{"/%c0%ae%c0%ae/", "UTF-8"},
		{"/%c0%af", "UTF-8"},
		{"/%ed%a0%80", "UTF-8"},
	};
	for (EACH(i, table)) {
		char *path = (char *)"untouched";
		const char *query = "untouched";
		struct err e = {0};
		if (policy_path_canonical(table[i][0], &path, &query, &e) != -EINVAL)
			fail_msg("%s is %s", table[i][0], path);
		if (!strstr(e.text, table[i][1]))
			fail_msg("%s: %s", table[i][0], e.text);
		assert_string_equal(path, "untouched");
		assert_string_equal(query, "untouched");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paths_get_one_form),
		cmocka_unit_test(the_form_is_its_own_form),
		cmocka_unit_test(two_way_paths_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
