/* SPDX-License-Identifier: Apache-2.0 */
/* JSON and YAML into one tree; errors that say where. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/doc.h"

static int load(struct doc *doc, const char *text, struct err *e)
{
	return doc_load(doc, "p.yaml", text, strlen(text), e);
}

static void yaml_and_json_give_the_same_tree(void **state)
{
	(void)state;
	struct doc yaml, json;
	struct err e;
	assert_int_equal(load(&yaml, "a: [1, two, true, ~]\nb: {c: -3, d: \"4\"}\ne: yes\n", &e),
			 0);
	assert_int_equal(
		load(&json,
		     "{\"a\":[1,\"two\",true,null],\"b\":{\"c\":-3,\"d\":\"4\"},\"e\":\"yes\"}",
		     &e),
		0);
	assert_true(json_equal(yaml.root, json.root));
	doc_done(&yaml);
	doc_done(&json);
}

static void empty_documents_are_empty_objects(void **state)
{
	(void)state;
	struct doc doc;
	struct err e;
	assert_int_equal(load(&doc, "# nothing\n", &e), 0);
	assert_int_equal(json_object_size(doc.root), 0);
	doc_done(&doc);
}

static void errors_name_file_line_and_column(void **state)
{
	(void)state;
	struct doc doc;
	struct err e;
	assert_int_equal(load(&doc, "a: 1\nb: [1, 2\nc: 3\n", &e), -EINVAL);
	assert_int_equal(strncmp(e.text, "p.yaml:", 7), 0);
	assert_int_equal(load(&doc, "a: 1\nx: 2\na: 3\n", &e), -EINVAL);
	assert_non_null(strstr(e.text, "p.yaml:3:1: this key stands here twice"));
}

static void marks_find_values(void **state)
{
	(void)state;
	struct doc doc;
	struct err e;
	assert_int_equal(load(&doc, "egress:\n  - host: x\n    ports: [70000]\n", &e), 0);
	const json_t *rule = json_array_get(json_object_get(doc.root, "egress"), 0);
	const json_t *port = json_array_get(json_object_get(rule, "ports"), 0);
	assert_int_equal(doc_error(&doc, port, &e, "ports: too large"), -EINVAL);
	assert_string_equal(e.text, "p.yaml:3:13: ports: too large");
	doc_done(&doc);
}

static void yaml_tricks_are_refused(void **state)
{
	(void)state;
	static const char *const bad[] = {
		"a: &x 1\nb: *x\n", "a: &x {b: 1}\n",    "a: &x [1]\n", "a: !!int 3\n",
		"<<: {a: 1}\n",     "a: 1\n---\nb: 2\n", "{a: 1",       "? [1]\n: 2\n",
		"a: \"\\0\"\n",     "\t- x\n",
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct doc doc;
		struct err e = {0};
		assert_int_equal(load(&doc, bad[i], &e), -EINVAL);
		assert_true(e.text[0] != '\0');
	}
}

static void deep_nesting_is_refused(void **state)
{
	(void)state;
	char text[4096];
	struct doc doc;
	struct err e;
	memset(text, '[', 1000);
	memset(text + 1000, ']', 1000);
	text[2000] = '\0';
	assert_int_equal(load(&doc, text, &e), -EINVAL);
	assert_null(doc_parse_json(text, 2000, &e));
	text[0] = '"';
	memset(text + 1, '[', 998);
	text[999] = '"';
	json_t *j = doc_parse_json(text, 1000, &e);
	assert_non_null(j);
	json_decref(j);
}

static void json_is_strict(void **state)
{
	(void)state;
	static const char *const bad[] = {"",     "{",   "{\"a\":1,\"a\":2}", "{a:1}",
					  "[1,]", "1 2", "\"\xff\"",          "nul"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct err e;
		assert_null(doc_parse_json(bad[i], strlen(bad[i]), &e));
	}
}

static void json_errors_quote_nothing(void **state)
{
	(void)state;
	static const char *const bad[] = {"{\"value\":\"s3cret\\u0000\"}",
					  "{\"value\":\"s3cret\" 1}", "{\"value\":s3cret}",
					  "{\"s3cret\":1,\"s3cret\":2}"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct err e;
		assert_null(doc_parse_json(bad[i], strlen(bad[i]), &e));
		assert_non_null(strstr(e.text, "line 1, column"));
		assert_null(strstr(e.text, "s3cret"));
	}
}

static void members_are_checked(void **state)
{
	(void)state;
	struct err e;
	const char text[] = "{\"s\":\"x\",\"n\":5,\"z\":\"a\\u0000b\",\"b\":true,\"null\":null}";
	json_t *j = doc_parse_json(text, strlen(text), &e);
	assert_null(j); /* jansson takes no NUL in strings unless told to */
	const char fine[] = "{\"s\":\"x\",\"n\":5,\"b\":true,\"null\":null}";
	j = doc_parse_json(fine, strlen(fine), &e);
	const char *s = "before";
	uint64_t n = 1;
	bool b = false;
	assert_int_equal(doc_want_string(j, "s", &s, &e), 0);
	assert_string_equal(s, "x");
	assert_int_equal(doc_opt_string(j, "null", &s, &e), 0);
	assert_string_equal(s, "x");
	assert_int_equal(doc_want_string(j, "missing", &s, &e), -EINVAL);
	assert_string_equal(e.text, "missing is missing");
	assert_int_equal(doc_want_uint(j, "n", 0, 4, &n, &e), -EINVAL);
	assert_string_equal(e.text, "n must be from 0 to 4");
	assert_int_equal(doc_want_uint(j, "s", 0, 4, &n, &e), -EINVAL);
	assert_int_equal(doc_opt_bool(j, "b", &b, &e), 0);
	assert_true(b);
	static const char *const known[] = {"s", "n", "b", NULL};
	assert_int_equal(doc_only(j, known, &e), -EINVAL);
	assert_string_equal(e.text, "null is not known here");
	json_decref(j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(yaml_and_json_give_the_same_tree),
		cmocka_unit_test(empty_documents_are_empty_objects),
		cmocka_unit_test(errors_name_file_line_and_column),
		cmocka_unit_test(marks_find_values),
		cmocka_unit_test(yaml_tricks_are_refused),
		cmocka_unit_test(deep_nesting_is_refused),
		cmocka_unit_test(json_is_strict),
		cmocka_unit_test(json_errors_quote_nothing),
		cmocka_unit_test(members_are_checked),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
