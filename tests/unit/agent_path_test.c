/* SPDX-License-Identifier: Apache-2.0 */
/* Path rules and the merging of environments. */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/env.h"
#include "agent/path.h"
#include "base/cleanup.h"

struct example {
	const char *given, *want;
};

static void path_clean_is_lexical(void **state)
{
	static const struct example list[] = {
		{"/", "/"},           {"//", "/"},
		{"/.", "/"},          {"/..", "/"},
		{"/../../a", "/a"},   {"/a/b/", "/a/b"},
		{"//a///b", "/a/b"},  {"/a/./b/.", "/a/b"},
		{"/a/../b", "/b"},    {"/a/b/../../..", "/"},
		{"/a/...", "/a/..."}, {"/..a/.b", "/..a/.b"},
		{"/a/b/..", "/a"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		char path[64];
		strcpy(path, list[i].given);
		path_clean(path);
		assert_string_equal(path, list[i].want);
	}
}

static void path_starts_where_the_rules_say(void **state)
{
	static const struct example list[] = {
		{"/x", "/x"},
		{"", "/work"},
		{"x", "/home/u/x"},
		{"./x", "/home/u/x"},
		{"../x", "/home/x"},
		{"~", "/home/u"},
		{"~/x/~", "/home/u/x/~"},
		{"x~", "/home/u/x~"},
		{" ", "/home/u/ "},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		auto_free char *path = NULL;
		assert_int_equal(path_resolve(list[i].given, "/home/u", "/work", &path, NULL), 0);
		assert_string_equal(path, list[i].want);
	}
}

static void path_default_is_home_without_a_directory(void **state)
{
	static const struct example list[] = {
		{NULL, "/home/u"}, {"", "/home/u"}, {"~/w", "/home/u/w"}, {"w", "/home/u/w"}};
	(void)state;
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		auto_free char *path = NULL;
		assert_int_equal(path_resolve("", "/home/u", list[i].given, &path, NULL), 0);
		assert_string_equal(path, list[i].want);
	}
}

static void path_refuses_other_homes_and_endless_names(void **state)
{
	char longest[PATH_MAX + 1];
	struct err e = {0};
	auto_free char *path = NULL;
	(void)state;
	assert_int_equal(path_resolve("~root/x", "/h", NULL, &path, &e), -EINVAL);
	assert_non_null(strstr(e.text, "~root/x"));
	memset(longest, 'x', PATH_MAX);
	longest[0] = '/';
	longest[PATH_MAX] = '\0';
	assert_int_equal(path_resolve(longest, "/h", NULL, &path, &e), -ENAMETOOLONG);
	assert_null(path);
}

static void env_last_setting_wins_in_place(void **state)
{
	(void)state;
	auto_env struct env env = {0};
	assert_int_equal(env_set(&env, "A", "1"), 0);
	assert_int_equal(env_set(&env, "AB", "2"), 0);
	assert_int_equal(env_set(&env, "A", "3=4"), 0);
	assert_int_equal(env.count, 2);
	assert_string_equal(env.list[0], "A=3=4");
	assert_string_equal(env.list[1], "AB=2");
	assert_null(env.list[2]);
	assert_string_equal(env_get(&env, "A"), "3=4");
	assert_null(env_get(&env, "B"));
}

static void env_refuses_names_that_are_none(void **state)
{
	(void)state;
	auto_env struct env env = {0};
	assert_int_equal(env_set(&env, "", "x"), -EINVAL);
	assert_int_equal(env_set(&env, "A=B", "x"), -EINVAL);
	assert_int_equal(env.count, 0);
}

static void env_has_a_limit(void **state)
{
	(void)state;
	auto_env struct env env = {0};
	char name[16];
	for (int i = 0; i < ENV_VARIABLES_MAX; i++) {
		snprintf(name, sizeof(name), "V%d", i);
		assert_int_equal(env_set(&env, name, ""), 0);
	}
	assert_int_equal(env_set(&env, "ONE_MORE", ""), -E2BIG);
	assert_int_equal(env_set(&env, "V7", "replaced"), 0);
}

static void env_merges_json_and_lists(void **state)
{
	struct err e = {0};
	(void)state;
	auto_env struct env base = {0}, top = {0};
	auto_json json_t *vars = json_pack("{s:s, s:s}", "B", "2", "C", "=");
	auto_json json_t *wrong = json_pack("{s:i}", "N", 5);
	env_set(&base, "A", "1");
	env_set(&base, "B", "1");
	assert_int_equal(env_set_json(&top, vars, &e), 0);
	assert_int_equal(env_set_json(&top, NULL, &e), 0);
	assert_int_equal(env_set_all(&base, &top), 0);
	assert_string_equal(env_get(&base, "A"), "1");
	assert_string_equal(env_get(&base, "B"), "2");
	assert_string_equal(env_get(&base, "C"), "=");
	assert_int_equal(env_set_json(&top, wrong, &e), -EINVAL);
	assert_non_null(strstr(e.text, "'N'"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(path_clean_is_lexical),
		cmocka_unit_test(path_starts_where_the_rules_say),
		cmocka_unit_test(path_default_is_home_without_a_directory),
		cmocka_unit_test(path_refuses_other_homes_and_endless_names),
		cmocka_unit_test(env_last_setting_wins_in_place),
		cmocka_unit_test(env_refuses_names_that_are_none),
		cmocka_unit_test(env_has_a_limit),
		cmocka_unit_test(env_merges_json_and_lists),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
