/* SPDX-License-Identifier: Apache-2.0 */
/* Recipes: what a request gets of each kind of credential, and what of the guest's stays behind. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "vault/inject.h"

/* A set with one secret, from an entry whose ' are ". */
struct fixture {
	struct secrets *set;
	struct secret *secret;
	struct injection injection;
};

static json_t *parsed(const char *text)
{
	auto_free char *copy = strdup(text);
	for (char *at = copy; (at = strchr(at, '\''));)
		*at = '"';
	struct err e = {0};
	json_t *j = doc_parse_json(copy, strlen(copy), &e);
	if (!j)
		fail_msg("%s: %s", text, e.text);
	return j;
}

static void load(struct fixture *f, const char *inject, const char *value)
{
	struct err e = {0};
	auto_free char *text = str_printf(
		"{'name':'TOKEN','hosts':['api.example.com'],'variables':{'TOKEN':'sp_placeholder'},"
		"'inject':%s,'value':%s}",
		inject, value);
	auto_json json_t *entry = parsed(text);
	secrets_free(f->set);
	f->set = secrets_new();
	if (secrets_put(f->set, entry, 1, &e) < 0)
		fail_msg("%s: %s", text, e.text);
	f->secret = secrets_at(f->set, 0);
}

static void ask(struct fixture *f, const struct inject_request *q)
{
	struct err e = {0};
	injection_done(&f->injection);
	if (inject(f->secret, q, &f->injection, &e) < 0)
		fail_msg("%s", e.text);
}

static int set_up(void **state)
{
	*state = calloc(1, sizeof(struct fixture));
	return *state ? 0 : -1;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	injection_done(&f->injection);
	secrets_free(f->set);
	free(f);
	return 0;
}

static const struct inject_request plain = {
	.method = "GET", .host = "api.example.com", .path = "/v1/x", .query = "a=1"};

static void assert_field(const struct fixture *f, const char *name, const char *value)
{
	assert_int_equal(f->injection.count, 1);
	assert_string_equal(f->injection.fields[0].name, name);
	assert_string_equal(f->injection.fields[0].value, value);
	assert_null(f->injection.query);
	assert_true(f->injection.used);
}

static void bearer_is_basic_for_git(void **state)
{
	struct fixture *f = *state;
	load(f, "{'kind':'bearer'}", "'V'");
	ask(f, &plain);
	assert_field(f, "Authorization", "Bearer V");
	static const struct {
		const char *path, *query;
		bool git;
	} cases[] = {
		{"/o/r.git/info/refs", "service=git-upload-pack", true},
		{"/o/r.git/info/refs", "x=1&service=git-receive-pack", true},
		{"/o/r.git/info/refs", "service=git-upload-packs", false},
		{"/o/r.git/info/refs", "noservice=git-upload-pack", false},
		{"/o/r.git/info/refs", NULL, false},
		{"/o/r.git/git-upload-pack", NULL, true},
		{"/o/r.git/git-receive-pack", NULL, true},
		{"/o/r.git/git-receive-packs", NULL, false},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct inject_request q = plain;
		q.path = cases[i].path;
		q.query = cases[i].query;
		ask(f, &q);
		assert_field(f, "Authorization",
			     cases[i].git ? "Basic eC1hY2Nlc3MtdG9rZW46Vg==" : "Bearer V");
	}
	load(f, "{'kind':'bearer','gitUser':'u'}", "'V'");
	struct inject_request q = plain;
	q.path = "/git-upload-pack";
	ask(f, &q);
	assert_field(f, "Authorization", "Basic dTpW");
}

static void basic_has_its_user_or_both_in_the_value(void **state)
{
	struct fixture *f = *state;
	load(f, "{'kind':'basic','user':'u'}", "'p:w'");
	ask(f, &plain);
	assert_field(f, "Authorization", "Basic dTpwOnc=");
	load(f, "{'kind':'basic'}", "'u:p'");
	ask(f, &plain);
	assert_field(f, "Authorization", "Basic dTpw");
}

static void header_is_written_by_its_template(void **state)
{
	struct fixture *f = *state;
	load(f, "{'kind':'header','name':'x-api-key'}", "'V'");
	ask(f, &plain);
	assert_field(f, "x-api-key", "V");
	load(f, "{'kind':'header','name':'Authorization','template':'token {};v=1'}", "'V'");
	ask(f, &plain);
	assert_field(f, "Authorization", "token V;v=1");
	assert_true(inject_strips(f->secret, "authorization"));
	load(f, "{'kind':'header','name':'X-Mine'}", "'V'");
	assert_true(inject_strips(f->secret, "x_mine"));
	assert_true(inject_strips(f->secret, "Cookie"));
	assert_false(inject_strips(f->secret, "X-Yours"));
}

static void query_parameter_takes_the_place_of_the_guests(void **state)
{
	struct fixture *f = *state;
	static const char *const cases[][2] = {
		{NULL, "key=V%2F%20%26"},
		{"", "key=V%2F%20%26"},
		{"a=1", "a=1&key=V%2F%20%26"},
		{"key=mine&a=1", "a=1&key=V%2F%20%26"},
		{"a=1&key=mine", "a=1&key=V%2F%20%26"},
		{"a=1&%6bey=mine&KEY=x&key&b", "a=1&b&key=V%2F%20%26"},
		{"a=1;key=mine", "a=1&key=V%2F%20%26"},
		{"keys=1&ke=2&=3", "keys=1&ke=2&=3&key=V%2F%20%26"},
	};
	load(f, "{'kind':'query','name':'key'}", "'V/ &'");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct inject_request q = plain;
		q.query = cases[i][0];
		ask(f, &q);
		assert_int_equal(f->injection.count, 0);
		assert_string_equal(f->injection.query, cases[i][1]);
	}
	assert_true(inject_slot_query(f->secret, "key"));
	assert_true(inject_slot_query(f->secret, "%4Bey"));
	assert_false(inject_slot_query(f->secret, "keys"));
	assert_false(inject_slot_query(f->secret, NULL));
}

static void placeholder_is_replaced_in_its_slot_alone(void **state)
{
	struct fixture *f = *state;
	load(f, "{'kind':'placeholder','header':'X-Mixed'}", "'V'");
	const struct inject_field fields[] = {{"X-Other", "sp_placeholder"},
					      {"x-mixed", "a sp_placeholder b sp_placeholder"}};
	struct inject_request q = plain;
	q.fields = fields;
	q.field_count = 1;
	ask(f, &q);
	assert_false(f->injection.used);
	assert_int_equal(f->injection.count, 0);
	q.field_count = 2;
	ask(f, &q);
	assert_field(f, "X-Mixed", "a V b V");
	assert_true(inject_slot_field(f->secret, "x-mixed"));
	assert_false(inject_strips(f->secret, "X-Mixed"));
	assert_false(inject_slot_field(f->secret, "X-Other"));

	load(f, "{'kind':'placeholder','query':'k'}", "'V&'");
	q.query = "a=sp_placeholder&k=1-sp_placeholder&b=2";
	ask(f, &q);
	assert_true(f->injection.used);
	assert_string_equal(f->injection.query, "a=sp_placeholder&k=1-V%26&b=2");
	q.query = "b=1&k=sp_placeholder;a=sp_placeholder&c";
	ask(f, &q);
	assert_string_equal(f->injection.query, "b=1&k=V%26;a=sp_placeholder&c");
	static const char *const left[] = {"k=1;a=sp_placeholder", "a=1;k=sp_placeholder"};
	for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
		q.query = left[i];
		ask(f, &q);
		assert_false(f->injection.used);
	}
	q.query = "k=own";
	ask(f, &q);
	assert_false(f->injection.used);
	assert_null(f->injection.query);
}

static void recipe_that_cannot_be_is_refused(void **state)
{
	(void)state;
	static const char *const cases[][2] = {
		{"{'kind':'magic'}", "none of bearer"},
		{"{'kind':'bearer','name':'x'}", "name"},
		{"{'kind':'bearer','gitUser':'a:b'}", "gitUser"},
		{"{'kind':'header'}", "name"},
		{"{'kind':'header','name':'a b'}", "no name of a header"},
		{"{'kind':'header','name':'content-length'}", "not for credentials"},
		{"{'kind':'header','name':'host'}", "not for credentials"},
		{"{'kind':'header','name':'Transfer_Encoding'}", "not for credentials"},
		{"{'kind':'header','name':'X','template':'none'}", "one {}"},
		{"{'kind':'header','name':'X','template':'{}{}'}", "one {}"},
		{"{'kind':'header','name':'X','template':'{}\\r\\nY: z'}", "one {}"},
		{"{'kind':'query','name':'a=b'}", "parameter"},
		{"{'kind':'placeholder'}", "one slot"},
		{"{'kind':'placeholder','header':'X','query':'y'}", "one slot"},
		{"{'kind':'sigv4','service':'s3'}", "region"},
		{"{'kind':'sigv4','service':'S3','region':'x'}", "service"},
		{"{'kind':'certificate','name':'x'}", "name"},
		{"'bearer'", "inject"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct err e = {0};
		struct secrets *set = secrets_new();
		auto_free char *text = str_printf(
			"{'name':'TOKEN','hosts':['api.example.com'],'inject':%s,'value':'s3cr3t'}",
			cases[i][0]);
		auto_json json_t *entry = parsed(text);
		assert_int_equal(secrets_put(set, entry, 1, &e), -EINVAL);
		if (!strstr(e.text, cases[i][1]) || !strstr(e.text, "TOKEN") ||
		    strstr(e.text, "s3cr3t"))
			fail_msg("%s: %s", cases[i][0], e.text);
		secrets_free(set);
	}
}

#define WITH_SET(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_SET(bearer_is_basic_for_git),
		WITH_SET(basic_has_its_user_or_both_in_the_value),
		WITH_SET(header_is_written_by_its_template),
		WITH_SET(query_parameter_takes_the_place_of_the_guests),
		WITH_SET(placeholder_is_replaced_in_its_slot_alone),
		cmocka_unit_test(recipe_that_cannot_be_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
