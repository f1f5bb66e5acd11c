/* SPDX-License-Identifier: Apache-2.0 */
/* Policies learned from records: what they say, and that they allow what was done. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "daemon/learn.h"
#include "policy/policy.h"

#define HEADER_LINES 3

static void take(struct learn *l, json_t *record)
{
	assert_non_null(record);
	assert_int_equal(learn_take(l, record), 0);
	json_decref(record);
}

static void request(struct learn *l, const char *method, const char *scheme, const char *host,
		    int port, const char *path)
{
	take(l, json_pack("{s:s, s:s, s:s, s:i, s:s, s:s}", "kind", "egress.request", "scheme",
			  scheme, "host", host, "port", port, "method", method, "path", path));
}

static void get(struct learn *l, const char *path)
{
	request(l, "GET", "https", "a.example", 443, path);
}

static char *yaml_of(const struct learn *l)
{
	struct err e = {0};
	char *text = learn_to_yaml(l, &e);
	if (!text)
		fail_msg("%s", e.text);
	return text;
}

/* Without the lines that say what it is. */
static void expect(const struct learn *l, const char *want)
{
	auto_free char *text = yaml_of(l);
	const char *p = text;
	for (int i = 0; i < HEADER_LINES; i++) {
		assert_int_equal(*p, '#');
		p = strchr(p, '\n') + 1;
	}
	assert_string_equal(p, want);
}

static struct policy *compiled(const struct learn *l)
{
	struct err e = {0};
	struct doc doc;
	auto_free char *text = yaml_of(l);
	assert_int_equal(doc_load(&doc, "learned", text, strlen(text), &e), 0);
	struct policy *p = policy_compile(&doc, &e);
	if (!p)
		fail_msg("%s", e.text);
	doc_done(&doc);
	return p;
}

static bool allows(const struct policy *p, const char *method, const char *url)
{
	struct policy_dest dest;
	struct policy_verdict v;
	char *path = NULL;
	struct err e = {0};
	if (policy_dest_from_url(url, &dest, &path, &e) < 0)
		fail_msg("%s: %s", url, e.text);
	dest.method = path ? method : NULL;
	policy_decide(p, &dest, &v);
	free(path);
	return v.allow;
}

static void nothing_teaches_nothing(void **state)
{
	(void)state;
	struct learn *l = learn_new();
	take(l, json_pack("{s:s, s:s, s:s, s:i}", "kind", "egress.deny", "scheme", "https", "host",
			  "evil.example", "port", 443));
	take(l, json_pack("{s:s, s:s}", "kind", "egress.dns", "name", "evil.example"));
	take(l, json_pack("{s:s, s:s}", "kind", "egress.request", "scheme", "https"));
	expect(l, "egress: []\n");
	learn_free(l);
}

static void one_rule_for_each_origin_in_one_order(void **state)
{
	(void)state;
	static const char want[] = "egress:\n"
				   "  - host: \"a.example\"\n"
				   "    scheme: http\n"
				   "    methods: [\"GET\"]\n"
				   "    paths:\n"
				   "      - \"/\"\n"
				   "  - host: \"a.example\"\n"
				   "    methods: [\"GET\", \"POST\"]\n"
				   "    paths:\n"
				   "      - \"/user\"\n"
				   "      - \"/user/\"\n"
				   "  - host: \"b.example\"\n"
				   "    ports: [8443]\n"
				   "    methods: [\"GET\"]\n"
				   "    paths:\n"
				   "      - \"/x\"\n";
	struct learn *l = learn_new(), *m = learn_new();
	request(l, "GET", "https", "b.example", 8443, "/x");
	get(l, "/user/");
	request(l, "POST", "https", "a.example", 443, "/user");
	request(l, "GET", "http", "a.example", 80, "/");
	request(m, "GET", "http", "a.example", 80, "/");
	request(m, "POST", "https", "a.example", 443, "/user");
	get(m, "/user/");
	get(m, "/user");
	request(m, "GET", "https", "b.example", 8443, "/x");
	request(m, "GET", "https", "b.example", 8443, "/x");
	expect(l, want);
	expect(m, want);
	assert_int_equal(learn_rules(l), 3);
	learn_free(l);
	learn_free(m);
}

static void identifiers_become_stars(void **state)
{
	(void)state;
	struct learn *l = learn_new();
	get(l, "/repos/17/issues/4");
	get(l, "/repos/9/issues/12");
	get(l, "/u/123e4567-e89b-12d3-a456-426614174000/x");
	get(l, "/blob/0123456789abcdef0123456789abcdef01234567");
	get(l, "/v1/cafe");
	expect(l, "egress:\n"
		  "  - host: \"a.example\"\n"
		  "    methods: [\"GET\"]\n"
		  "    paths:\n"
		  "      - \"/blob/*\"\n"
		  "      - \"/repos/*/issues/*\"\n"
		  "      - \"/u/*/x\"\n"
		  "      - \"/v1/cafe\"\n");
	learn_free(l);
}

static void what_branches_much_becomes_a_prefix(void **state)
{
	(void)state;
	struct learn *l = learn_new();
	char path[64];
	for (int i = 0; i < 9; i++) {
		snprintf(path, sizeof(path), "/simple/p%c/", 'a' + i);
		get(l, path);
		struct policy *p = compiled(l);
		assert_int_equal(allows(p, "GET", "https://a.example/simple/z/"), i == 8);
		policy_free(p);
	}
	get(l, "/simple");
	get(l, "/other");
	expect(l, "egress:\n"
		  "  - host: \"a.example\"\n"
		  "    methods: [\"GET\"]\n"
		  "    paths:\n"
		  "      - \"/other\"\n"
		  "      - \"/simple/**\"\n");
	for (int i = 0; i < 9; i++) {
		snprintf(path, sizeof(path), "/q%c", 'a' + i);
		get(l, path);
	}
	expect(l, "egress:\n"
		  "  - host: \"a.example\"\n"
		  "    methods: [\"GET\"]\n");
	learn_free(l);
}

static void what_the_policy_said_besides_stays(void **state)
{
	(void)state;
	static const char policy[] =
		"{\"egress\":[{\"host\":\"x.example\",\"deny\":true},{\"host\":\"y.example\"}],"
		"\"resolve\":[{\"host\":\"a.example\",\"address\":\"10.0.0.7\"},"
		"{\"host\":\"unused.example\",\"address\":\"10.0.0.8\"}],"
		"\"limits\":{\"requests\":7},\"proxy\":{\"url\":\"http://proxy.example:3128\"},"
		"\"learn\":true}";
	struct err e = {0};
	struct learn *l = learn_new();
	take(l, json_pack("{s:s, s:o}", "kind", "sandbox.create", "policy",
			  doc_parse_json(policy, strlen(policy), &e)));
	get(l, "/");
	expect(l, "egress:\n"
		  "  - {\"host\":\"x.example\",\"deny\":true}\n"
		  "  - host: \"a.example\"\n"
		  "    methods: [\"GET\"]\n"
		  "    paths:\n"
		  "      - \"/\"\n"
		  "resolve: [{\"host\":\"a.example\",\"address\":\"10.0.0.7\"}]\n"
		  "limits: {\"requests\":7}\n"
		  "proxy: {\"url\":\"http://proxy.example:3128\"}\n");
	struct policy *p = compiled(l);
	assert_false(policy_learns(p));
	policy_free(p);
	learn_free(l);
}

static void connections_and_addresses_have_rules_too(void **state)
{
	(void)state;
	struct learn *l = learn_new();
	take(l, json_pack("{s:s, s:s, s:s, s:i}", "kind", "egress.request", "scheme", "tcp", "host",
			  "db.example", "port", 5432));
	take(l, json_pack("{s:s, s:s, s:s, s:i}", "kind", "egress.request", "scheme", "tls", "host",
			  "t.example", "port", 443));
	request(l, "GET", "https", "93.184.216.34", 8443, "/a");
	struct policy *p = compiled(l);
	assert_true(allows(p, "GET", "https://93.184.216.34:8443/a"));
	assert_false(allows(p, "GET", "https://93.184.216.35:8443/a"));
	assert_true(allows(p, NULL, "tcp://db.example:5432"));
	assert_true(allows(p, NULL, "tls://t.example"));
	policy_free(p);
	learn_free(l);
}

/* Whatever was done must be allowed, whatever it looked like. */
static void what_was_done_is_allowed(void **state)
{
	(void)state;
	static const char *const segments[] = {
		"a",
		"b.c",
		"17",
		"v2",

		"@s%2Fp",
		"a*b",
		"**",
		"~x",
		"deadbeefdeadbeef",
		"%C3%A9",
		"x;y=1",
		"",
		"123e4567-e89b-12d3-a456-426614174000",
		"-",
		"%25",
		"averyverylongsegmentthatnobodywouldcallanameandthatgoesonandonandonandon"};
	static const char *const methods[] = {"GET", "POST", "M-SEARCH", "PROPFIND"};
	const size_t count = sizeof(segments) / sizeof(segments[0]);
	srand(1);
	for (int round = 0; round < 200; round++) {
		struct learn *l = learn_new();
		char urls[40][1536];
		const char *used[40];
		for (int i = 0; i < 40; i++) {
			char path[1400] = "";
			int depth = 1 + rand() % (round % 2 ? 4 : 15);
			for (int d = 0; d < depth; d++) {
				const char *s = segments[(size_t)rand() % count];
				if (!*s && d + 1 < depth)
					s = "z";
				snprintf(path + strlen(path), sizeof(path) - strlen(path), "/%s",
					 s);
			}
			used[i] = methods[(size_t)rand() % 4];
			snprintf(urls[i], sizeof(urls[i]), "https://h%d.example:%d%s", rand() % 3,
				 443 + rand() % 2, path);
			char host[16] = "";
			int port = 0;
			sscanf(urls[i], "https://%15[^:]:%d", host, &port);
			request(l, used[i], "https", host, port, path);
		}
		struct policy *p = compiled(l);
		for (int i = 0; i < 40; i++)
			if (!allows(p, used[i], urls[i])) {
				auto_free char *text = yaml_of(l);
				fail_msg("%s %s is not allowed by\n%s", used[i], urls[i], text);
			}
		policy_free(p);
		learn_free(l);
	}
}

static void what_is_learned_is_bounded(void **state)
{
	(void)state;
	struct learn *l = learn_new();
	char host[64], path[256];
	for (int i = 0; i < 1200; i++) {
		snprintf(host, sizeof(host), "h%d.example", i);
		for (int k = 0; k < 40; k++) {
			snprintf(path, sizeof(path), "/%c%d/%c%d/a-rather-long-name-%c/%d",
				 'a' + k % 7, k % 7, 'a' + k % 5, i % 5, 'a' + k % 3, k);
			request(l, "GET", "https", host, 443, path);
		}
	}
	auto_free char *text = yaml_of(l);
	assert_true(strlen(text) <= 400 * 1024);
	assert_non_null(strstr(text, "# NOT WHOLE: 8000 requests"));
	assert_int_equal(learn_rules(l), 1000);
	struct policy *p = compiled(l);
	assert_true(allows(p, "GET", "https://h7.example/a0/a2/a-rather-long-name-a/0"));
	policy_free(p);
	learn_free(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_teaches_nothing),
		cmocka_unit_test(one_rule_for_each_origin_in_one_order),
		cmocka_unit_test(identifiers_become_stars),
		cmocka_unit_test(what_branches_much_becomes_a_prefix),
		cmocka_unit_test(what_the_policy_said_besides_stays),
		cmocka_unit_test(connections_and_addresses_have_rules_too),
		cmocka_unit_test(what_was_done_is_allowed),
		cmocka_unit_test(what_is_learned_is_bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
