/* SPDX-License-Identifier: Apache-2.0 */
/* POST /run's body: what is taken, and the one line that says what is wrong. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "daemon/request.h"

static int parse(const char *text, struct run_request *q, struct err *e)
{
	return run_request_parse(NULL, text, strlen(text), q, e);
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
	assert_false(q.spec.detached);
	assert_false(q.spec.cold);
	assert_false(q.spec.sized);
	assert_false(q.spec.pause_on_timeout);
	assert_int_equal(q.spec.timeout_ms, 0);
	assert_int_equal(q.spec.idle_ms, 0);
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
		      "\"envs\":{\"K\":\"V\"},\"cwd\":\"/\"},\"user\":\"root\",\"stdin\":true,\"cold\":true,"
		      "\"onTimeout\":\"pause\",\"idleTimeout\":60}",
		      &q, &e),
		0);
	assert_int_equal(q.spec.memory_mib, 1024);
	assert_int_equal(q.spec.timeout_ms, 1501);
	assert_int_equal(q.spec.idle_ms, 60001);
	assert_true(q.spec.pause_on_timeout && q.spec.cold && q.spec.sized);
	assert_true(q.spec.keep && q.detach && q.spec.detached);
	assert_int_equal(json_array_size(q.spec.command), 3);
	const json_t *secret = json_array_get(q.spec.secrets, 0);
	const json_t *variables = json_object_get(secret, "variables");
	const char *held = json_string_value(json_object_get(variables, "TOKEN"));
	assert_int_equal(json_object_size(variables), 1);
	assert_non_null(held);
	assert_null(strstr(held, "s3cret"));
	run_request_done(&q);
}

static void one_that_learns_gets_no_secrets(void **state)
{
	(void)state;
	struct run_request q;
	struct err e;
	assert_int_equal(parse("{\"learn\":true,\"process\":{\"cmd\":\"x\"}}", &q, &e), 0);
	assert_true(policy_learns(q.spec.policy));
	run_request_done(&q);
	assert_int_equal(parse("{\"learn\":false,\"process\":{\"cmd\":\"x\"}}", &q, &e), 0);
	assert_false(policy_learns(q.spec.policy));
	run_request_done(&q);
	assert_true(
		parse("{\"learn\":true,\"allow\":[\"a.example\"],\"secrets\":[{\"name\":\"T\","
		      "\"hosts\":[\"a.example\"],\"value\":\"v\"}],\"process\":{\"cmd\":\"x\"}}",
		      &q, &e) < 0);
	assert_non_null(strstr(e.text, "learns gets no secrets"));
	assert_true(parse("{\"learn\":true,\"network\":false,\"process\":{\"cmd\":\"x\"}}", &q,
			  &e) < 0);
	assert_non_null(strstr(e.text, "no network"));
}

static void variable_of_a_credential_is_not_given(void **state)
{
	(void)state;
	struct run_request q;
	struct err e = {0};
	assert_int_equal(
		parse("{\"allow\":[\"api.example.com\"],\"secrets\":[{\"name\":\"TOKEN\",\"hosts\":"
		      "[\"api.example.com\"],\"value\":\"s3cret\"}],\"process\":{\"cmd\":\"sh\","
		      "\"envs\":{\"TOKEN\":\"s3cret\"}}}",
		      &q, &e),
		-EINVAL);
	assert_non_null(strstr(e.text, "leave out -e TOKEN"));
	assert_null(strstr(e.text, "s3cret"));
}

static int parse_named(const char *name, const char *inject, struct err *e)
{
	struct run_request q;
	auto_free char *text = str_printf(
		"{\"allow\":[\"api.example.com\"],\"secrets\":[{\"name\":\"%s\",\"hosts\":"
		"[\"api.example.com\"],\"value\":%s,\"inject\":{\"kind\":\"%s\"%s}}],"
		"\"process\":{\"cmd\":\"sh\"}}",
		name,
		str_eq(inject, "sigv4")
			? "{\"accessKeyId\":\"AKIDEXAMPLE\",\"secretAccessKey\":\"v\"}"
			: "\"s3cret\"",
		inject,
		str_eq(inject, "sigv4") ? ",\"service\":\"s3\",\"region\":\"eu-central-1\"" : "");
	int r = parse(text, &q, e);
	if (r == 0)
		run_request_done(&q);
	return r;
}

static void no_credential_takes_a_variable_that_a_task_depends_on(void **state)
{
	(void)state;
	static const char *const refused[] = {"PATH",
					      "HOME",
					      "SHELL",
					      "USER",
					      "LOGNAME",
					      "IFS",
					      "ENV",
					      "BASH_ENV",
					      "LD_PRELOAD",
					      "LD_LIBRARY_PATH",
					      "HTTP_PROXY",
					      "https_proxy",
					      "SSL_CERT_FILE",
					      "CURL_CA_BUNDLE",
					      "NODE_EXTRA_CA_CERTS"};
	static const char *const taken[] = {"PATH_TOKEN", "LDAP_TOKEN", "PROXY_TOKEN",
					    "USER_TOKEN"};
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		struct err e = {0};
		if (parse_named(refused[i], "bearer", &e) != -EINVAL || !strstr(e.text, refused[i]))
			fail_msg("%s: %s", refused[i], e.text);
		assert_null(strstr(e.text, "s3cret"));
	}
	for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
		struct err e = {0};
		if (parse_named(taken[i], "bearer", &e) != 0)
			fail_msg("%s: %s", taken[i], e.text);
	}
	/* Its variables are AWS's, whatever it is called. */
	struct err e = {0};
	if (parse_named("PATH", "sigv4", &e) != 0)
		fail_msg("%s", e.text);
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
		{"{\"idleTimeout\":0,\"process\":{\"cmd\":\"x\"}}",
		 "idleTimeout must be more than 0"},
		{"{\"onTimeout\":\"stop\",\"process\":{\"cmd\":\"x\"}}",
		 "onTimeout must be kill or pause"},
		{"{\"cold\":1,\"process\":{\"cmd\":\"x\"}}", "cold"},
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
		cmocka_unit_test(variable_of_a_credential_is_not_given),
		cmocka_unit_test(no_credential_takes_a_variable_that_a_task_depends_on),
		cmocka_unit_test(wrong_requests_are_refused_in_words),
		cmocka_unit_test(one_that_learns_gets_no_secrets),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
