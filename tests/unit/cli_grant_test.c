/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a sandbox's secrets, read from the environment once more. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/doc.h"
#include "cli/grant.h"

static struct err e;

static const struct grant all_of_w = {.ref = "w", .otherwise = "or leave them out"};

static json_t *sandbox(void)
{
	return json_pack("{s:[{s:s, s:[s]}, {s:s, s:[s]}]}", "secrets", "name", "CLI_A", "hosts",
			 "a.example", "name", "CLI_B", "hosts", "b.example");
}

static const char *member(const json_t *array, size_t i, const char *key)
{
	return json_string_value(json_object_get(json_array_get(array, i), key));
}

static int each(void **state)
{
	(void)state;
	e = (struct err){0};
	setenv("CLI_A", "alpha", 1);
	setenv("CLI_B", "beta", 1);
	return 0;
}

static void all_values_are_collected(void **state)
{
	(void)state;
	auto_json json_t *box = sandbox(), *values = NULL;
	bool all = false;
	assert_int_equal(grant_collect(&all_of_w, box, &values, &all, &e), 0);
	assert_true(all);
	assert_int_equal(json_array_size(values), 2);
	assert_string_equal(member(values, 0, "name"), "CLI_A");
	assert_string_equal(member(values, 0, "value"), "alpha");
	assert_string_equal(member(values, 1, "value"), "beta");
	assert_int_equal(json_object_size(json_array_get(values, 0)), 2);
}

static void sandbox_without_secrets_needs_no_value(void **state)
{
	(void)state;
	auto_json json_t *box = json_object(), *values = NULL;
	bool all = false;
	assert_int_equal(grant_collect(&all_of_w, box, &values, &all, &e), 0);
	assert_true(all);
	assert_int_equal(json_array_size(values), 0);
}

static void missing_variables_are_all_named_and_no_value_is(void **state)
{
	(void)state;
	auto_json json_t *box = sandbox(), *values = NULL;
	bool all;
	unsetenv("CLI_A");
	assert_int_equal(grant_collect(&all_of_w, box, &values, &all, &e), -ENOENT);
	assert_string_equal(
		e.text, "w needs its secrets' values again: 'export CLI_A=...', or leave them out");
	setenv("CLI_B", "", 1);
	assert_int_equal(grant_collect(&all_of_w, box, &values, &all, &e), -ENOENT);
	assert_non_null(strstr(e.text, "'export CLI_A=... CLI_B=...'"));
	assert_null(values);
}

static void many_missing_variables_leave_room_for_what_to_do(void **state)
{
	(void)state;
	auto_json json_t *box = json_object(), *values = NULL;
	json_t *secrets = json_array();
	char name[256];
	for (int i = 0; i < 200; i++) {
		size_t len = i < 20 ? 9 : sizeof(name) - 1; /* short ones, then one too much */
		memset(name, 'A' + i % 26, len);
		name[len] = 0;
		json_array_append_new(secrets, json_pack("{s:s}", "name", name));
	}
	json_object_set_new(box, "secrets", secrets);
	bool all;
	assert_int_equal(grant_collect(&all_of_w, box, &values, &all, &e), -ENOENT);
	assert_non_null(strstr(e.text, ", or leave them out"));
}

static void only_named_values_are_read(void **state)
{
	(void)state;
	auto_json json_t *box = sandbox(), *values = NULL, *only = json_array();
	bool all = true;
	assert_int_equal(grant_name(only, "CLI_B", &e), 0);
	assert_int_equal(grant_name(only, "CLI_B", &e), 0);
	assert_int_equal(json_array_size(only), 1);
	unsetenv("CLI_A");
	struct grant g = all_of_w;
	g.only = only;
	assert_int_equal(grant_collect(&g, box, &values, &all, &e), 0);
	assert_false(all);
	assert_int_equal(json_array_size(values), 1);
	assert_string_equal(member(values, 0, "name"), "CLI_B");
}

static void name_that_the_sandbox_has_not_is_an_error(void **state)
{
	(void)state;
	auto_json json_t *box = sandbox(), *values = NULL, *only = json_array();
	bool all;
	setenv("CLI_C", "gamma", 1);
	assert_int_equal(grant_name(only, "CLI_C", &e), 0);
	struct grant g = all_of_w;
	g.only = only;
	assert_int_equal(grant_collect(&g, box, &values, &all, &e), -EINVAL);
	assert_non_null(strstr(e.text, "w has no secret CLI_C"));
	assert_null(strstr(e.text, "gamma"));
}

static void value_given_as_name_is_not_repeated(void **state)
{
	(void)state;
	auto_json json_t *only = json_array();
	static const char *const bad[] = {"K=hunter2", "K@hunter2", "hunter2!", ""};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(grant_name(only, bad[i], &e), -EINVAL);
		assert_null(strstr(e.text, "hunter2"));
	}
	assert_int_equal(json_array_size(only), 0);
}

static void value_that_is_no_text_is_an_error(void **state)
{
	(void)state;
	auto_json json_t *box = sandbox(), *values = NULL;
	bool all;
	setenv("CLI_B", "\xff\xfe", 1);
	assert_int_equal(grant_collect(&all_of_w, box, &values, &all, &e), -EINVAL);
	assert_non_null(strstr(e.text, "CLI_B is not valid UTF-8"));
}

static json_t *granted(const char *name, const char *member, const char *value)
{
	return json_pack("{s:s, s:[s], s:s}", "name", name, "hosts", "a.example", member, value);
}

static void what_the_node_has_and_what_ended_needs_no_value(void **state)
{
	(void)state;
	auto_json json_t *box = json_pack(
		"{s:[o, o, o, o, o, {s:s, s:{s:s}}]}", "secrets",
		granted("CLI_NONE", "stored", "CLI_NONE"), granted("CLI_NONE", "state", "revoked"),
		granted("CLI_NONE", "state", "expired"), granted("CLI_NONE", "state", "used up"),
		granted("CLI_A", "state", "unavailable"), "name", "CLI_NONE", "source", "systemd",
		"x");
	auto_json json_t *only = json_pack("[s]", "CLI_A"), *values = NULL, *named = NULL;
	bool all = false;
	unsetenv("CLI_NONE");
	assert_int_equal(grant_collect(&all_of_w, box, &values, &all, &e), 0);
	assert_true(all);
	assert_int_equal(json_array_size(values), 1);
	assert_string_equal(member(values, 0, "name"), "CLI_A");

	struct grant g = {.ref = "w", .only = only, .otherwise = ""};
	all = false;
	assert_int_equal(grant_collect(&g, box, &named, &all, &e), 0);
	assert_true(all); /* none was left out that had to be given */
}

static void values_have_the_form_of_their_kind(void **state)
{
	(void)state;
	auto_json json_t *box = json_pack("{s:[o]}", "secrets", granted("CLI_A", "kind", "sigv4"));
	auto_json json_t *values = NULL;
	bool all;
	setenv("AWS_ACCESS_KEY_ID", "AKIA", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "s3", 1);
	assert_int_equal(grant_collect(&all_of_w, box, &values, &all, &e), 0);
	const json_t *value = json_object_get(json_array_get(values, 0), "value");
	assert_string_equal(json_string_value(json_object_get(value, "accessKeyId")), "AKIA");
}

static void answer_of_another_shape_is_an_error(void **state)
{
	(void)state;
	static const char *const bad[] = {"{\"secrets\":{}}", "{\"secrets\":[1]}",
					  "{\"secrets\":[{}]}", "{\"secrets\":[{\"name\":3}]}"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		auto_json json_t *box = doc_parse_json(bad[i], strlen(bad[i]), NULL),
				 *values = NULL;
		bool all;
		assert_int_equal(grant_collect(&all_of_w, box, &values, &all, &e), -EINVAL);
		assert_null(values);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(all_values_are_collected, each),
		cmocka_unit_test_setup(sandbox_without_secrets_needs_no_value, each),
		cmocka_unit_test_setup(missing_variables_are_all_named_and_no_value_is, each),
		cmocka_unit_test_setup(many_missing_variables_leave_room_for_what_to_do, each),
		cmocka_unit_test_setup(only_named_values_are_read, each),
		cmocka_unit_test_setup(name_that_the_sandbox_has_not_is_an_error, each),
		cmocka_unit_test_setup(value_given_as_name_is_not_repeated, each),
		cmocka_unit_test_setup(value_that_is_no_text_is_an_error, each),
		cmocka_unit_test_setup(what_the_node_has_and_what_ended_needs_no_value, each),
		cmocka_unit_test_setup(values_have_the_form_of_their_kind, each),
		cmocka_unit_test_setup(answer_of_another_shape_is_an_error, each),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
