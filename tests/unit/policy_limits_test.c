/* SPDX-License-Identifier: Apache-2.0 */
/* Limits and the proxy of a document. */
#include "base/cleanup.h"
#include "base/str.h"
#include "policy_fixture.h"

static void check(const struct policy *p)
{
	const struct policy_limits *all = policy_limits(p, POLICY_NO_RULE);
	assert_int_equal(all->requests, 10);
	assert_int_equal(all->requests_per_minute, 20);
	assert_int_equal(all->connections, 30);
	assert_int_equal(all->bytes_up, 5000000000);
	assert_int_equal(all->bytes_down, 64000);
	assert_int_equal(all->body_bytes, INT64_MAX);
	assert_int_equal(all->lifetime_s, 60);
	assert_int_equal(policy_rule_count(p), 2);
	const struct policy_limits *rule = policy_limits(p, 0);
	assert_int_equal(rule->body_bytes, 3000000);
	assert_int_equal(rule->requests, 0);
	static const struct policy_limits none;
	assert_memory_equal(policy_limits(p, 1), &none, sizeof(none));
	assert_memory_equal(policy_limits(p, 2), &none, sizeof(none));
	assert_string_equal(policy_proxy(p), "socks5://proxy.example:1080");
}

static void limits_are_read_and_travel(void **state)
{
	(void)state;
	struct policy *p = compiled(
		"limits: {requests: 10, requestsPerMinute: 20, connections: 30, bytesUp: 5GB, "
		"bytesDown: 64 kB, bodyBytes: 9223372036854775807, lifetimeSeconds: 60}\n"
		"egress:\n"
		"- {host: a.example, limits: {bodyBytes: 3MB, requests: null}}\n"
		"- {host: b.example, limits: {}}\n"
		"proxy: {url: 'socks5://Proxy.example:1080/'}\n");
	check(p);
	auto_json json_t *j = policy_to_json(p);
	policy_free(p);
	struct policy *q = policy_from_json(j, NULL);
	check(q);
	auto_json json_t *again = policy_to_json(q);
	assert_true(json_equal(j, again));
	policy_free(q);
}

static void what_is_no_limit_is_said(void **state)
{
	(void)state;
	static const char *const table[][2] = {
		{"limits: 5", "p.yaml:1:9: limits: must be a mapping with requests, requestsPer"},
		{"limits: {request: 5}", "p.yaml:1:19: limits.request: unknown field; allowed are"},
		{"limits: {requests: 0}",
		 "p.yaml:1:20: limits.requests: must be a number from 1 up"},
		{"limits: {requests: -1}", "limits.requests: must be a number"},
		{"limits: {requests: 1.5}", "limits.requests: must be a number"},
		{"limits: {requests: 5kB}", "limits.requests: must be a number"},
		{"limits: {requests: true}", "limits.requests: must be a number"},
		{"limits: {bytesUp: 0}", "limits.bytesUp: must be a number of bytes from 1 up"},
		{"limits: {bytesUp: 0kB}", "limits.bytesUp: must be a number of bytes"},
		{"limits: {bytesUp: 5K}", "kB, MB or GB"},
		{"limits: {bytesUp: kB}", "kB, MB or GB"},
		{"limits: {bytesUp: 5kB5}", "kB, MB or GB"},
		{"limits: {bytesUp: 99999999999999999999999999kB}", "kB, MB or GB"},
		{"limits: {bytesUp: 9223372036854775807GB}", "kB, MB or GB"},
		{"limits: {bytesUp: []}", "kB, MB or GB"},
		{"egress: [{host: a.example, limits: 5}]",
		 "p.yaml:1:36: egress[0].limits: must be a mapping"},
		{"egress: [{host: a.example, limits: true}]",
		 "p.yaml:1:10: egress[0].limits: must be a mapping"},
		{"egress: [{host: a.example, limits: {x: 1}}]",
		 "p.yaml:1:40: egress[0].limits.x: unknown field"},
		{"egress: [{host: a.example, limits: {connections: x}}]",
		 "p.yaml:1:50: egress[0].limits.connections: must be a number from 1 up"},
		{"egress: [{host: a.example, deny: true, limits: {requests: 1}}]",
		 "egress[0].limits: nothing passes a deny rule"},
	};
	for (EACH(i, table))
		assert_wrong(table[i][0], table[i][1]);
}

static void a_proxy_has_one_spelling(void **state)
{
	(void)state;
	static const char *const good[][2] = {
		{"http://proxy.corp.example:3128", "http://proxy.corp.example:3128"},
		{"http://PROXY.:0080/", "http://proxy:80"},
		{"socks5://10.0.0.1:1", "socks5://10.0.0.1:1"},
		{"socks5://[FD00:0::1]:65535", "socks5://[fd00::1]:65535"},
	};
	static const char *const bad[][2] = {
		{"https://p.example:1", "must be http://HOST:PORT or socks5://HOST:PORT"},
		{"p.example:1", "must be http://HOST:PORT"},
		{"http://u:p@p.example:1", "no user and password"},
		{"http://p.example", "a port from 1 to 65535 stands behind the host"},
		{"http://p.example:", "a port from 1"},
		{"http://p.example:0", "a port from 1"},
		{"http://p.example:1234567890", "a port from 1"},
		{"http://p.example:1/x", "a port from 1"},
		{"http://:1", "empty host name"},
		{"http://[]:1", "IP address"},
		{"http://[10.0.0.1]:1", "no IPv6 address between the brackets"},
		{"http://[x]:1", "no IPv6 address between the brackets"},
		{"http://fd00::1:1", "IP address"},
		{"http://0x7f.1:1", "IP address"},
		{"http://", "a port from 1"},
		{"http://[::1:1", "IP address"},
		{"http://[x:1", "IP address"},
		{"", "must be http://HOST:PORT"},
	};
	for (EACH(i, good)) {
		auto_free char *text = str_printf("proxy: {url: '%s'}", good[i][0]);
		struct policy *p = compiled(text);
		assert_string_equal(policy_proxy(p), good[i][1]);
		policy_free(p);
	}
	for (EACH(i, bad)) {
		auto_free char *text = str_printf("proxy: {url: '%s'}", bad[i][0]);
		assert_wrong(text, "p.yaml:1:14: proxy.url: ");
		assert_wrong(text, bad[i][1]);
	}
	char text[400] = "proxy: {url: 'http://";
	memset(text + strlen(text), 'a', 300);
	strcpy(text + strlen(text), ":1'}");
	assert_wrong(text, "too long");
}

static void the_proxy_is_a_mapping(void **state)
{
	(void)state;
	static const char *const table[][2] = {
		{"proxy: http://p.example:1", "p.yaml:1:8: proxy: must be a mapping with url"},
		{"proxy: {}", "p.yaml:1:8: proxy.url: missing"},
		{"proxy: {url: 5}", "p.yaml:1:14: proxy.url: must be a string"},
		{"proxy: {uri: x}", "p.yaml:1:14: proxy.uri: unknown field; allowed are url"},
	};
	for (EACH(i, table))
		assert_wrong(table[i][0], table[i][1]);
	struct policy *p = compiled("proxy:\nlimits:\n");
	assert_null(policy_proxy(p));
	policy_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(limits_are_read_and_travel),
		cmocka_unit_test(what_is_no_limit_is_said),
		cmocka_unit_test(a_proxy_has_one_spelling),
		cmocka_unit_test(the_proxy_is_a_mapping),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
