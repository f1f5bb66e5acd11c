/* SPDX-License-Identifier: Apache-2.0 */
/* One destination: what the address, Host and the target say must agree. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "egress/target.h"

static unsigned judge(enum policy_scheme scheme, uint16_t port, const char *host,
		      const char *target, const char *want_path, const char *want_query)
{
	struct policy_dest origin = {.scheme = scheme, .host = "api.example.com", .port = port};
	struct http_field field = {"Host", host};
	char method[] = "GET", *copy = strdup(target);
	struct http_head head = {
		.method = method, .target = copy, .minor = 1, .fields = {&field, host ? 1 : 0}};
	auto_free char *path = NULL;
	const char *query = NULL;
	struct err e = {0};
	unsigned status = target_judge(&head, &origin, &path, &query, &e);
	if (!status) {
		assert_string_equal(path, want_path);
		assert_true(want_query ? str_eq(query, want_query) : !query);
	} else {
		assert_true(e.text[0]);
	}
	free(copy);
	return status;
}

static void host_must_be_the_host_that_was_connected_to(void **state)
{
	(void)state;
	static const struct {
		const char *host;
		uint16_t port;
		unsigned status;
	} cases[] = {
		{"api.example.com", 443, 0},
		{"API.Example.COM", 443, 0},
		{"api.example.com.", 443, 0},
		{"api.example.com:443", 443, 0},
		{"api.example.com:8443", 8443, 0},
		{"api.example.com", 8443, 421},
		{"api.example.com:8443", 443, 421},
		{"api.example.com:80", 443, 421},
		{"other.example.com", 443, 421},
		{"api.example.com..", 443, 421},
		{"evilapi.example.com", 443, 421},
		{"198.18.0.1", 443, 421},
		{"127.1", 443, 421},
		{"[::1]", 443, 421},
		{"", 443, 421},
		{NULL, 443, 400},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(judge(POLICY_HTTPS, cases[i].port, cases[i].host, "/", "/", NULL),
				 cases[i].status);
	assert_int_equal(judge(POLICY_HTTP, 80, "api.example.com", "/", "/", NULL), 0);
	assert_int_equal(judge(POLICY_HTTP, 80, "api.example.com:443", "/", "/", NULL), 421);
}

static void absolute_form_must_say_the_same(void **state)
{
	(void)state;
	static const struct {
		const char *target, *path, *query;
		unsigned status;
	} cases[] = {
		{"https://api.example.com/a?b=c", "/a", "b=c", 0},
		{"HTTPS://API.example.com:443/a", "/a", NULL, 0},
		{"https://api.example.com", "/", NULL, 0},
		{"https://api.example.com?q", "/", "q", 0},
		{"https://other.example.com/a", NULL, NULL, 400},
		{"http://api.example.com/a", NULL, NULL, 400},
		{"https://api.example.com:8443/a", NULL, NULL, 400},
		{"https://user@api.example.com/a", NULL, NULL, 400},
		{"https://api.example.com@evil.net/", NULL, NULL, 400},
		{"ftp://api.example.com/", NULL, NULL, 400},
		{"api.example.com:443", NULL, NULL, 400},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(judge(POLICY_HTTPS, 443, "api.example.com", cases[i].target,
				       cases[i].path, cases[i].query),
				 cases[i].status);
}

static void path_is_refused_or_canonical(void **state)
{
	(void)state;
	static const struct {
		const char *target, *path, *query;
		unsigned status;
	} cases[] = {
		{"/a/b?x=%2F..%2F", "/a/b", "x=%2F..%2F", 0},
		{"/%61/b", "/a/b", NULL, 0},
		{"/?", "/", "", 0},
		{"*", "*", NULL, 0},
		{"/a/../b", NULL, NULL, 400},
		{"/a/%2e%2e/b", NULL, NULL, 400},
		{"/a//b", NULL, NULL, 400},
		{"/a%2fb", "/a%2Fb", NULL, 0}, /* the policy's to judge */
		{"/a%2F..%2Fb", NULL, NULL, 400},
		{"/a%5Cb", NULL, NULL, 400},
		{"/a%00", NULL, NULL, 400},
		{"/a%252e", NULL, NULL, 400},
		{"/a%", NULL, NULL, 400},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(judge(POLICY_HTTPS, 443, "api.example.com", cases[i].target,
				       cases[i].path, cases[i].query),
				 cases[i].status);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(host_must_be_the_host_that_was_connected_to),
		cmocka_unit_test(absolute_form_must_say_the_same),
		cmocka_unit_test(path_is_refused_or_canonical),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
