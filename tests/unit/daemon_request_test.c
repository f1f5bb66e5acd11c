/* SPDX-License-Identifier: Apache-2.0 */
/* POST /run's body: what is taken, and the one line that says what is wrong. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/request.h"

static int parse(const char *text, struct run_request *q, struct err *e)
{
	return run_request_parse(text, strlen(text), q, e);
}

static void small_request_gets_defaults(void **state)
{
	(void)state;
	struct run_request q;
	struct err e;
	assert_int_equal(parse("{\"process\":{\"cmd\":\"true\"}}", &q, &e), 0);
	assert_string_equal(q.spec.image, "base");
	assert_null(q.spec.name);
	assert_int_equal(q.spec.cpus, 1);
	assert_int_equal(q.spec.memory_mib, 512);
	assert_true(q.spec.network);
	assert_false(q.spec.keep);
	assert_false(q.detach);
	assert_int_equal(q.timeout_ms, 0);
	run_request_done(&q);
}

static void whole_request_is_taken(void **state)
{
	(void)state;
	struct run_request q;
	struct err e;
	assert_int_equal(
		parse("{\"name\":\"w\",\"image\":\"base\",\"cpus\":2,\"memoryMB\":1024,\"timeout\":1.5,\"detach\":true,"
		      "\"remove\":false,\"allow\":[\"api.example.com\"],\"secrets\":[{\"name\":\"TOKEN\",\"hosts\":"
		      "[\"api.example.com\"],\"value\":\"s3cret\"}],\"process\":{\"cmd\":\"sh\",\"args\":[\"-c\",\"x\"],"
		      "\"envs\":{\"K\":\"V\"},\"cwd\":\"/\"},\"user\":\"root\",\"stdin\":true}",
		      &q, &e),
		0);
	assert_int_equal(q.spec.memory_mib, 1024);
	assert_int_equal(q.timeout_ms, 1501);
	assert_true(q.spec.keep && q.detach);
	assert_int_equal(json_array_size(q.spec.command), 3);
	const json_t *secret = json_array_get(q.spec.secrets, 0);
	assert_non_null(json_object_get(secret, "placeholder"));
	assert_null(strstr(json_string_value(json_object_get(secret, "placeholder")), "s3cret"));
	run_request_done(&q);
}

static void wrong_requests_are_refused_in_words(void **state)
{
	(void)state;
	static const struct {
		const char *text, *says;
	} cases[] = {
		{"", "not valid JSON"},
		{"[]", "must be an object"},
		{"{}", "process is missing"},
		{"{\"process\":{}}", "cmd is missing"},
		{"{\"process\":{\"cmd\":\"\"}}", "cmd is empty"},
		{"{\"process\":{\"cmd\":\"x\",\"args\":[1]}}", "args must be a list of strings"},
		{"{\"process\":{\"cmd\":\"x\",\"envs\":{\"A=B\":\"v\"}}}", "envs: A=B"},
		{"{\"proces\":{\"cmd\":\"x\"}}", "proces is not known here"},
		{"{\"memoryMB\":1,\"process\":{\"cmd\":\"x\"}}",
		 "memoryMB must be from 128 to 65536"},
		{"{\"cpus\":0,\"process\":{\"cmd\":\"x\"}}", "cpus must be from 1 to 8"},
		{"{\"cpus\":\"2\",\"process\":{\"cmd\":\"x\"}}", "cpus must be a whole number"},
		{"{\"timeout\":0,\"process\":{\"cmd\":\"x\"}}", "timeout must be more than 0"},
		{"{\"timeout\":-1,\"process\":{\"cmd\":\"x\"}}", "timeout must be more than 0"},
		{"{\"name\":\"../x\",\"process\":{\"cmd\":\"x\"}}", "name: use 1 to 63"},
		{"{\"image\":\"a/b\",\"process\":{\"cmd\":\"x\"}}", "image: no name of an image"},
		{"{\"allow\":[\"no host\"],\"process\":{\"cmd\":\"x\"}}", "host"},
		{"{\"network\":false,\"allow\":[\"x.org\"],\"process\":{\"cmd\":\"x\"}}",
		 "there is no network to allow"},
		{"{\"policy\":{\"name\":\"p.yaml\",\"text\":\"egress: [\"},\"process\":{\"cmd\":\"x\"}}",
		 "p.yaml:2:1: "},
		{"{\"secrets\":[{\"name\":\"T\",\"hosts\":[\"x.org\"],\"value\":\"v\"}],\"process\":{\"cmd\":\"x\"}}",
		 "x.org"},
		{"{\"allow\":[\"x.org\"],\"secrets\":[{\"name\":\"T\",\"hosts\":[\"x.org\"],\"value\":\"a\\nb\"}],"
		 "\"process\":{\"cmd\":\"x\"}}",
		 "T"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct run_request q;
		struct err e = {0};
		int r = parse(cases[i].text, &q, &e);
		if (r != -EINVAL || !strstr(e.text, cases[i].says))
			fail_msg("case %zu: %d, \"%s\" lacks \"%s\"", i, r, e.text, cases[i].says);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_request_gets_defaults),
		cmocka_unit_test(whole_request_is_taken),
		cmocka_unit_test(wrong_requests_are_refused_in_words),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
