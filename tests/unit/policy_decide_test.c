/* SPDX-License-Identifier: Apache-2.0 */
/* Decisions, what they say, and the rules of the command line. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "policy/policy.h"

#define EACH(i, table)                        \
	size_t i = 0;                         \
	i < sizeof(table) / sizeof(*(table)); \
	i++

static struct policy *allowing(const char *spec)
{
	struct err e = {0};
	struct policy *p = policy_new_empty();
	if (policy_allow(p, spec, &e) < 0)
		fail_msg("%s", e.text);
	return p;
}

static struct policy_verdict decide(const struct policy *p, enum policy_scheme scheme,
				    const char *host, uint16_t port)
{
	struct policy_dest dest = {.scheme = scheme, .port = port, .method = "GET", .path = "/"};
	strcpy(dest.host, host);
	struct policy_verdict v;
	policy_decide(p, &dest, &v);
	return v;
}

static void specs_open_what_they_name(void **state)
{
	(void)state;
	static const struct {
		const char *spec;
		enum policy_scheme scheme;
		const char *host;
		uint16_t port;
		const char *rule;
	} table[] = {
		{"api.example.com", POLICY_HTTPS, "api.example.com", 443,
		 "https://api.example.com:443"},
		{"API.example.com.", POLICY_HTTPS, "api.example.com", 443,
		 "https://api.example.com:443"},
		{"api.example.com:8443", POLICY_HTTPS, "api.example.com", 8443,
		 "https://api.example.com:8443"},
		{"api.example.com:80", POLICY_HTTP, "api.example.com", 80,
		 "http://api.example.com:80"},
		{"http://api.example.com", POLICY_HTTP, "api.example.com", 80,
		 "http://api.example.com:80"},
		{"HTTP://api.example.com:8080", POLICY_HTTP, "api.example.com", 8080,
		 "http://api.example.com:8080"},
		{"http://api.example.com:443", POLICY_HTTP, "api.example.com", 443,
		 "http://api.example.com:443"},
		{"https://api.example.com", POLICY_HTTPS, "api.example.com", 443,
		 "https://api.example.com:443"},
		{"https://api.example.com:80", POLICY_HTTPS, "api.example.com", 80,
		 "https://api.example.com:80"},
		{"*.example.com", POLICY_HTTPS, "x.example.com", 443, "https://*.example.com:443"},
		{"**.example.com:1", POLICY_HTTPS, "example.com", 1, "https://**.example.com:1"},
		{"localhost:65535", POLICY_HTTPS, "localhost", 65535, "https://localhost:65535"},
	};
	for (EACH(i, table)) {
		struct policy *p = allowing(table[i].spec);
		struct policy_verdict v = decide(p, table[i].scheme, table[i].host, table[i].port);
		assert_true(v.allow);
		assert_string_equal(v.rule, table[i].rule);
		assert_string_equal(v.hint, "");
		enum policy_scheme other =
			table[i].scheme == POLICY_HTTP ? POLICY_HTTPS : POLICY_HTTP;
		assert_false(decide(p, other, table[i].host, table[i].port).allow);
		assert_false(decide(p, table[i].scheme, table[i].host, 2).allow);
		assert_false(decide(p, table[i].scheme, "other.example.org", table[i].port).allow);
		policy_free(p);
	}
}

static void specs_that_are_none_say_why(void **state)
{
	(void)state;
	static const char *const table[][2] = {
		{"", "empty"},
		{":443", "empty"},
		{"http://", "empty"},
		{"ftp://a.example", "scheme is https, http, tls or tcp"},
		{"://a.example", "scheme is https, http, tls or tcp"},
		{"a.example:", "port is a number from 1 to 65535"},
		{"a.example:0", "port is a number"},
		{"a.example:65536", "port is a number"},
		{"a.example:https", "port is a number"},
		{"a.example:+1", "port is a number"},
		{"a.example: 1", "port is a number"},
		{"a.example/path", "no user, path or query"},
		{"https://a.example/", "no user, path or query"},
		{"user@a.example", "no user, path or query"},
		{"https://user:pw@a.example", "no user, path or query"},
		{"a.example?x", "no user, path or query"},
		{"a.example#x", "no user, path or query"},
		{"127.0.0.1", "an IP address is no host name; name the host"},
		{"10.0.0.0/8", "no user, path or query"},
		{"127.0.0.1:80", "an IP address is no host name"},
		{"0x7f.1", "an IP address is no host name"},
		{"::1", "an IP address is no host name"},
		{"[::1]:443", "an IP address is no host name"},
		{"[::1]", "an IP address is no host name"},
		{"*", "every host"},
		{"*:443", "every host"},
		{"*.com", "public suffix"},
		{"a b", "letters, digits"},
		{"a.example,b.example", "letters, digits"},
	};
	for (EACH(i, table)) {
		struct err e = {0};
		struct policy *p = policy_new_empty();
		if (policy_allow(p, table[i][0], &e) != -EINVAL)
			fail_msg("\"%s\" is allowed", table[i][0]);
		if (!strstr(e.text, table[i][1]))
			fail_msg("\"%s\": %s", table[i][0], e.text);
		assert_int_equal(strncmp(e.text, "allow ", 6), 0);
		assert_int_equal(policy_allow(p, table[i][0], NULL) < 0, 1);
		policy_free(p);
	}
}

static void nothing_matches_nothing(void **state)
{
	(void)state;
	struct policy *p = policy_new_empty();
	struct policy_verdict v = decide(p, POLICY_HTTPS, "api.example.com", 443);
	assert_false(v.allow);
	assert_string_equal(v.rule, "default deny");
	assert_string_equal(v.hint, "--allow-host api.example.com");
	v = decide(p, POLICY_HTTPS, "", 443);
	assert_false(v.allow);
	assert_string_equal(v.hint, "");
	const char *address, *ca;
	assert_false(policy_resolve(p, "api.example.com", &address, &ca));
	policy_free(p);
	policy_free(NULL);
}

/* What a denial proposes must open just that. */
static void hints_allow_what_was_denied(void **state)
{
	(void)state;
	static const struct {
		enum policy_scheme scheme;
		uint16_t port;
		const char *hint;
	} table[] = {
		{POLICY_HTTPS, 443, "--allow-host api.example.com"},
		{POLICY_HTTPS, 8443, "--allow-host api.example.com:8443"},
		{POLICY_HTTPS, 80, "--allow-host https://api.example.com:80"},
		{POLICY_HTTP, 80, "--allow-host http://api.example.com"},
		{POLICY_HTTP, 8080, "--allow-host http://api.example.com:8080"},
		{POLICY_HTTP, 443, "--allow-host http://api.example.com:443"},
	};
	for (EACH(i, table)) {
		struct policy *p = policy_new_empty();
		struct policy_verdict v =
			decide(p, table[i].scheme, "api.example.com", table[i].port);
		assert_string_equal(v.hint, table[i].hint);
		assert_int_equal(policy_allow(p, v.hint + strlen("--allow-host "), NULL), 0);
		assert_true(decide(p, table[i].scheme, "api.example.com", table[i].port).allow);
		policy_free(p);
	}
}

static void the_longest_name_fits(void **state)
{
	(void)state;
	char host[POLICY_HOST_MAX], spec[POLICY_HOST_MAX + 32] = "https://";
	memset(host, 'a', sizeof(host));
	host[63] = host[127] = host[191] = '.';
	host[253] = '\0';
	strcat(spec, host);
	strcat(spec, ":65534");
	struct policy *p = allowing(spec);
	struct policy_verdict v = decide(p, POLICY_HTTPS, host, 65534);
	assert_true(v.allow);
	assert_string_equal(v.rule, spec);
	v = decide(p, POLICY_HTTP, host, 65535);
	assert_false(v.allow);
	assert_non_null(strstr(v.hint, ":65535"));
	policy_free(p);
}

static void the_first_rule_that_fits_is_named(void **state)
{
	(void)state;
	struct policy *p = allowing("*.example.com");
	assert_int_equal(policy_allow(p, "**.example.com", NULL), 0);
	assert_int_equal(policy_allow(p, "a.example.com", NULL), 0);
	assert_string_equal(decide(p, POLICY_HTTPS, "a.example.com", 443).rule,
			    "https://*.example.com:443");
	assert_string_equal(decide(p, POLICY_HTTPS, "a.b.example.com", 443).rule,
			    "https://**.example.com:443");
	policy_free(p);
}

static void names_are_known_for_any_port(void **state)
{
	(void)state;
	struct policy *p = allowing("http://*.example.com:8080");
	assert_true(policy_knows_host(p, "a.example.com"));
	assert_false(policy_knows_host(p, "example.com"));
	assert_false(policy_knows_host(p, "a.b.example.com"));
	assert_false(policy_knows_host(p, ""));
	policy_free(p);
}

static void exact_hosts_are_told_in_order(void **state)
{
	(void)state;
	struct policy *p = policy_new_empty();
	assert_null(policy_exact_host(p, 0));
	assert_int_equal(policy_allow(p, "B.example", NULL), 0);
	assert_int_equal(policy_allow(p, "*.a.example", NULL), 0);
	assert_int_equal(policy_allow(p, "http://a.example:81", NULL), 0);
	assert_string_equal(policy_exact_host(p, 0), "b.example");
	assert_string_equal(policy_exact_host(p, 1), "");
	assert_string_equal(policy_exact_host(p, 2), "a.example");
	assert_null(policy_exact_host(p, 3));
	policy_free(p);
}

static void learning_allows_every_name_over_https_and_http(void **state)
{
	(void)state;
	static const char denial[] = "{\"egress\":[{\"host\":\"evil.example\",\"deny\":true}]}";
	struct err e = {0};
	struct doc doc;
	assert_int_equal(doc_load(&doc, "p", denial, strlen(denial), &e), 0);
	struct policy *p = policy_compile(&doc, &e);
	doc_done(&doc);
	assert_non_null(p);
	assert_false(policy_learns(p) || decide(p, POLICY_HTTPS, "a.example", 443).allow);
	policy_learn(p);
	json_t *j = policy_to_json(p);
	policy_free(p);
	p = policy_from_json(j, &e);
	json_decref(j);
	assert_true(p && policy_learns(p));

	assert_true(policy_knows_host(p, "a.example"));
	struct policy_verdict v = decide(p, POLICY_HTTPS, "a.example", 8443);
	assert_true(v.allow && v.index == POLICY_NO_RULE);
	assert_string_equal(v.rule, "learn");
	assert_true(decide(p, POLICY_HTTP, "a.example", 80).allow);
	assert_false(decide(p, POLICY_TLS, "a.example", 443).allow);
	assert_false(decide(p, POLICY_TCP, "a.example", 5432).allow);
	assert_false(decide(p, POLICY_HTTPS, "evil.example", 443).allow);

	struct policy_dest dest = {.host = "a.example", .port = 443};
	assert_int_equal(policy_first_scheme(p, &dest, 1u << POLICY_TLS | 1u << POLICY_HTTPS),
			 POLICY_HTTPS);
	assert_int_equal(policy_first_scheme(p, &dest, 1u << POLICY_TLS), -ENOENT);
	dest.address = (struct address){.family = AF_INET, .bytes = {1, 1, 1, 1}};
	policy_decide(p, &dest, &v);
	assert_false(v.allow);
	assert_int_equal(policy_first_scheme(p, &dest, (1u << POLICY_SCHEMES) - 1), -ENOENT);
	policy_free(p);
}

static void no_person_writes_that_a_policy_learns(void **state)
{
	(void)state;
	static const char text[] = "egress: []\nlearn: true\n";
	struct err e = {0};
	struct doc doc;
	assert_int_equal(doc_load(&doc, "p.yaml", text, strlen(text), &e), 0);
	assert_null(policy_compile(&doc, &e));
	assert_non_null(strstr(e.text, "learn: unknown field"));
	doc_done(&doc);
}

static void rules_are_bounded(void **state)
{
	(void)state;
	struct policy *p = policy_new_empty();
	for (size_t i = 0; i < 1024; i++)
		assert_int_equal(policy_allow(p, "a.example", NULL), 0);
	struct err e = {0};
	assert_int_equal(policy_allow(p, "a.example", &e), -E2BIG);
	assert_string_equal(e.text, "a policy has at most 1024 rules");
	policy_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(specs_open_what_they_name),
		cmocka_unit_test(specs_that_are_none_say_why),
		cmocka_unit_test(nothing_matches_nothing),
		cmocka_unit_test(hints_allow_what_was_denied),
		cmocka_unit_test(the_longest_name_fits),
		cmocka_unit_test(the_first_rule_that_fits_is_named),
		cmocka_unit_test(names_are_known_for_any_port),
		cmocka_unit_test(exact_hosts_are_told_in_order),
		cmocka_unit_test(rules_are_bounded),
		cmocka_unit_test(learning_allows_every_name_over_https_and_http),
		cmocka_unit_test(no_person_writes_that_a_policy_learns),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
