/* SPDX-License-Identifier: Apache-2.0 */
/* What rules of documents decide: methods, paths, addresses, denials, schemes, and the words for
 * it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "policy/policy.h"

#define EACH(i, table)                        \
	size_t i = 0;                         \
	i < sizeof(table) / sizeof(*(table)); \
	i++

static struct policy *compiled(const char *text)
{
	struct err e = {0};
	struct doc doc;
	if (doc_load(&doc, "p.yaml", text, strlen(text), &e) < 0)
		fail_msg("%s", e.text);
	struct policy *p = policy_compile(&doc, &e);
	if (!p)
		fail_msg("%s", e.text);
	doc_done(&doc);
	return p;
}

/* The verdict about "METHOD URL", or about a connection where there is no method. */
static struct policy_verdict asked(const struct policy *p, const char *question)
{
	struct policy_verdict v;
	struct policy_dest dest;
	struct err e = {0};
	char method[80] = "";
	auto_free char *path = NULL;
	const char *space = strchr(question, ' ');
	if (space)
		snprintf(method, sizeof(method), "%.*s", (int)(space - question), question);
	if (policy_dest_from_url(space ? space + 1 : question, &dest, &path, &e) < 0)
		fail_msg("%s: %s", question, e.text);
	dest.method = *method ? method : NULL;
	if (!dest.method)
		dest.path = NULL;
	memset(&v, 0xaa, sizeof(v));
	policy_decide(p, &dest, &v);
	for (size_t i = 0; i < policy_rule_count(p) && i <= v.index; i++)
		assert_int_equal(policy_rule_differs(p, i, &dest) == NULL, i == v.index);
	return v;
}

struct answer {
	const char *question;
	const char *rule; /* NULL: default deny */
	const char *hint; /* of a denial */
};

static void check_answers(const char *document, const struct answer *table, size_t count)
{
	struct policy *p = compiled(document);
	for (size_t i = 0; i < count; i++) {
		struct policy_verdict v = asked(p, table[i].question);
		bool denied = !table[i].rule || strncmp(table[i].rule, "deny ", 5) == 0;
		const char *rule = table[i].rule ? table[i].rule : "default deny";
		if (v.allow == denied || strcmp(v.rule, rule) != 0)
			fail_msg("%s: %d %s", table[i].question, v.allow, v.rule);
		assert_int_equal(v.index == POLICY_NO_RULE, !table[i].rule);
		if (strcmp(v.hint, table[i].hint ? table[i].hint : "") != 0)
			fail_msg("%s: %s", table[i].question, v.hint);
	}
	policy_free(p);
}

#define CHECK(document, table) check_answers(document, table, sizeof(table) / sizeof(*(table)))

static void methods_and_paths_are_judged(void **state)
{
	(void)state;
	static const struct answer table[] = {
		{"GET https://a.example/repos/x", "https://a.example:443 GET,HEAD /repos/**,/user",
		 NULL},
		{"HEAD https://a.example/user?q=/x",
		 "https://a.example:443 GET,HEAD /repos/**,/user", NULL},
		{"GET https://a.example/repos", "https://a.example:443 GET,HEAD /repos/**,/user",
		 NULL},
		{"GET https://a.example/user/x", NULL,
		 "- {host: a.example, methods: [GET], paths: [/user/x]}"},
		{"POST https://a.example/user", NULL,
		 "- {host: a.example, methods: [POST], paths: [/user]}"},
		{"get https://a.example/user", NULL, "- {host: a.example, paths: [/user]}"},
		{"TRUE https://a.example/a,b", NULL,
		 "- {host: a.example, methods: [\"TRUE\"], paths: [\"/a,b\"]}"},
		{"https://a.example/", "https://a.example:443 GET,HEAD /repos/**,/user", NULL},
		{"POST https://a.example:8443/up", "https://a.example:8443 POST", NULL},
		{"GET https://a.example:8443/up", NULL,
		 "- {host: a.example, ports: [8443], methods: [GET], paths: [/up]}"},
		{"GET http://a.example/", NULL, "--allow-host http://a.example"},
		{"PUT http://3.example/v1/**", NULL,
		 "- {host: \"3.example\", scheme: http, methods: [PUT], paths: [/v1/**]}"},
		{"GET http://3.example/v1/x", "http://3.example:80 GET /v*/x", NULL},
		{"GET http://3.example/v1/x/", NULL,
		 "- {host: \"3.example\", scheme: http, methods: [GET], paths: [/v1/x/]}"},
	};
	CHECK("egress:\n"
	      "- {host: a.example, methods: [GET, HEAD], paths: [/repos/**, /user]}\n"
	      "- {host: a.example, ports: [8443], methods: [POST]}\n"
	      "- {host: 3.example, scheme: http, methods: [GET], paths: [/v*/x]}\n",
	      table);
}

static void encoded_slashes_pass_where_a_rule_says_so(void **state)
{
	(void)state;
	static const struct answer table[] = {
		{"GET https://npm.example/@x%2fy", "https://npm.example:443 /@*", NULL},
		{"GET https://npm.example/@x%2fy/z", "deny npm.example /**/z,/b/*,/d%2Fe", NULL},
		{"GET https://npm.example/@x%2fz", "deny npm.example /**/z,/b/*,/d%2Fe", NULL},
		{"GET https://npm.example/@x%2Fy%2Fw", "https://npm.example:443 /@*", NULL},
		{"GET https://npm.example/b%2Fc", "deny npm.example /**/z,/b/*,/d%2Fe", NULL},
		{"GET https://npm.example/d%2Fe", "deny npm.example /**/z,/b/*,/d%2Fe", NULL},
		{"GET https://npm.example/d/e", NULL,
		 "- {host: npm.example, methods: [GET], paths: [/d/e]}"},
		{"GET https://a.example/x", "https://a.example:443", NULL},
		{"GET https://d.example/z%2Fy", NULL,
		 "- {host: d.example, methods: [GET], paths: [/z%2Fy], encodedSlash: true}"},
		{"GET https://d.example/x%2Fy", NULL,
		 "- {host: d.example, methods: [GET], paths: [/x%2Fy], encodedSlash: true}"},
		{"GET https://a.example/x%2fy", NULL,
		 "- {host: a.example, methods: [GET], paths: [/x%2Fy], encodedSlash: true}"},
		{"GET https://c.example/x%2fy", NULL,
		 "- {host: c.example, methods: [GET], paths: [/x%2Fy], encodedSlash: true}"},
	};
	CHECK("egress:\n"
	      "- {host: npm.example, deny: true, paths: [/**/z, /b/*, /d%2fe]}\n"
	      "- {host: npm.example, paths: ['/@*'], encodedSlash: true}\n"
	      "- {host: a.example}\n"
	      "- {host: d.example, paths: ['/x*']}\n",
	      table);
}

static void a_deny_rule_refuses_all_that_it_does_not_narrow(void **state)
{
	(void)state;
	static const struct answer table[] = {
		{"GET https://evil.a.example/", "deny evil.a.example", NULL},
		{"GET http://evil.a.example:81/", "deny evil.a.example", NULL},
		{"tls://evil.a.example", "deny evil.a.example", NULL},
		{"tcp://evil.a.example:5432", "deny evil.a.example", NULL},
		{"https://evil.a.example/", "deny evil.a.example", NULL},
		{"GET https://b.a.example/admin/x", "deny b.a.example /admin/**", NULL},
		{"GET https://b.a.example/", "https://*.a.example:443", NULL},
		{"https://b.a.example/", "https://*.a.example:443", NULL},
		{"tls://b.a.example", "tls://b.a.example:443", NULL},
		{"DELETE https://c.a.example/", "deny https://c.a.example:443 DELETE,PUT", NULL},
		{"GET https://c.a.example/", "https://*.a.example:443", NULL},
		{"https://c.a.example/", "https://*.a.example:443", NULL},
		{"https://d.a.example/", "deny https://d.a.example /x,/**", NULL},
		{"https://e.a.example/", "https://*.a.example:443", NULL},
	};
	CHECK("egress:\n"
	      "- {host: evil.a.example, deny: true}\n"
	      "- {host: b.a.example, deny: true, paths: [/admin/**]}\n"
	      "- {host: c.a.example, deny: true, scheme: https, ports: [443], methods: [DELETE, PUT]}\n"
	      "- {host: d.a.example, deny: true, scheme: https, paths: [/x, /**]}\n"
	      "- {host: e.a.example, deny: true, methods: [GET], paths: [/**]}\n"
	      "- {host: '*.a.example'}\n"
	      "- {host: b.a.example, scheme: tls}\n"
	      "- {host: evil.a.example, scheme: tcp, ports: [5432]}\n",
	      table);
}

static void addresses_need_a_rule_of_their_own(void **state)
{
	(void)state;
	static const struct answer table[] = {
		{"tcp://10.1.2.3:5432", "tcp://10.1.0.0/16:5432", NULL},
		{"tcp://10.1.9.9:5432", "deny 10.1.9.0/24", NULL},
		{"tcp://10.2.0.1:5432", NULL,
		 "- {cidr: \"10.2.0.1/32\", ports: [5432], scheme: tcp}"},
		{"tcp://[::ffff:10.1.2.3]:5432", "tcp://10.1.0.0/16:5432", NULL},
		{"GET https://8.8.8.8/", "https://8.0.0.0/6:443", NULL},
		{"GET https://10.1.2.3/", NULL, "- {cidr: \"10.1.2.3/32\"}"},
		{"GET https://[2001:db8::1]/x", "https://[2001:db8::/32]:443 GET /x", NULL},
		{"GET https://[2001:db8::1]/y", NULL,
		 "- {cidr: \"2001:db8::1/128\", methods: [GET], paths: [/y]}"},
		{"GET http://[2001:db8::1]:81/y", NULL,
		 "- {cidr: \"2001:db8::1/128\", ports: [81], scheme: http}"},
		{"tcp://169.254.169.254:80", NULL, NULL},
		{"tcp://[fd00:ec2::254]:80", NULL, NULL},
		{"tcp://169.254.1.1:80", "tcp://169.254.0.0/16:80", NULL},
		{"tcp://[fd00::1]:80", "tcp://[fc00::/7]:80", NULL},
		{"tcp://[::1]:80", NULL, "- {cidr: \"::1/128\", ports: [80], scheme: tcp}"},
		{"tcp://[1000::1]:80", "tcp://[1000::/4]:80", NULL},
		{"tcp://db.example:5432", NULL, "--allow-host tcp://db.example:5432"},
		{"tls://db.example", NULL, "--allow-host tls://db.example"},
		{"tls://db.example:444", NULL, "--allow-host tls://db.example:444"},
	};
	CHECK("egress:\n"
	      "- {cidr: 10.1.9.0/24, deny: true}\n"
	      "- {cidr: 10.1.0.0/16, scheme: tcp, ports: [5432]}\n"
	      "- {cidr: 8.0.0.0/6, ports: [443]}\n"
	      "- {cidr: '2001:db8::/32', methods: [GET], paths: [/x]}\n"
	      "- {cidr: 169.254.0.0/16, scheme: tcp, ports: [80]}\n"
	      "- {cidr: 'fc00::/7', scheme: tcp, ports: [80]}\n"
	      "- {cidr: '1000::/4', scheme: tcp, ports: [80]}\n"
	      "- {cidr: '::/3', scheme: tcp, ports: [80]}\n",
	      table);
}

/* A denial by default proposes a rule; with that rule the request must pass. */
static void hints_are_rules_that_allow(void **state)
{
	(void)state;
	static const char *const questions[] = {
		"POST https://a.example/x",
		"POST https://a.example/a:b,c;d='e'!(f)*g",
		"M-SEARCH https://a.example/x%2Fy/%C3%A4",
		"NULL https://a.example/",
		"bad https://a.example/a**b/c",
		"POST https://a.example/**",
		"POST https://a.example/",
		"POST https://a.example/0123456789012345678901234567890123456789012345678901234567"
		"/0123456789012345678901234567890123456789012345678901234567890123456789012345678"
		"/0123456789012345678901234567890123456789012345678901234567890123456789012345678"
		"/0123456789012345678901234567890123456789012345678901234567890123456789012345678"
		"/0123456789012345678901234567890123456789012345678901234567890123456789012345678"
		"/0123456789012345678901234567890123456789012345678901234567890123456789012345678",
		"GET https://true/a%2Fb",
		"GET https://1e3.x.example/a%2Fb",
		"GET http://10.0.0.1:8080/x",
		"tcp://[fd00::7]:22",
	};
	for (EACH(i, questions)) {
		struct policy *p = compiled("egress: [{host: a.example, methods: [PUT]}]\n");
		struct policy_verdict v = asked(p, questions[i]);
		assert_false(v.allow);
		char text[640];
		snprintf(text, sizeof(text), "egress:\n%s\n", v.hint);
		struct policy *q = compiled(text);
		if (!asked(q, questions[i]).allow)
			fail_msg("%s: %s", questions[i], v.hint);
		policy_free(p);
		policy_free(q);
	}
}

static void long_rules_are_cut(void **state)
{
	(void)state;
	struct policy *p = compiled(
		"egress: [{host: a.example, paths: ["
		"/0123456789012345678901234567890123456789012345678901234567890123456789012345678,"
		"/0123456789012345678901234567890123456789012345678901234567890123456789012345678,"
		"/0123456789012345678901234567890123456789012345678901234567890123456789012345678,"
		"/0123456789012345678901234567890123456789012345678901234567890123456789012345678,"
		"/x]}]");
	struct policy_verdict v = asked(p, "GET https://a.example/x");
	assert_true(v.allow);
	assert_int_equal(strlen(v.rule), sizeof(v.rule) - 1);
	assert_string_equal(v.rule + sizeof(v.rule) - 4, "...");
	policy_free(p);
}

static int first(const struct policy *p, const char *url, unsigned among)
{
	struct policy_dest dest;
	auto_free char *path = NULL;
	assert_int_equal(policy_dest_from_url(url, &dest, &path, NULL), 0);
	return policy_first_scheme(p, &dest, among);
}

static void the_first_rule_says_how_a_connection_is_read(void **state)
{
	(void)state;
	enum { HTTPS = 1 << POLICY_HTTPS, TLS = 1 << POLICY_TLS, TCP = 1 << POLICY_TCP };
	struct policy *p = compiled("egress:\n"
				    "- {host: a.x.example, scheme: tls}\n"
				    "- {host: '**.x.example', paths: [/x]}\n"
				    "- {host: b.x.example, scheme: tls}\n"
				    "- {host: c.test, scheme: https, deny: true}\n"
				    "- {host: c.test, scheme: tls}\n"
				    "- {host: c.test}\n"
				    "- {cidr: 10.0.0.0/8, scheme: tcp, ports: [443]}\n");
	assert_int_equal(first(p, "https://a.x.example", HTTPS | TLS), POLICY_TLS);
	assert_int_equal(first(p, "https://a.x.example", HTTPS), POLICY_HTTPS);
	assert_int_equal(first(p, "tls://b.x.example", HTTPS | TLS), POLICY_HTTPS);
	assert_int_equal(first(p, "tls://b.x.example", TLS), POLICY_TLS);
	assert_int_equal(first(p, "tls://b.x.example", TCP), -ENOENT);
	assert_int_equal(first(p, "tls://b.x.example:444", HTTPS | TLS), -ENOENT);
	assert_int_equal(first(p, "https://c.test", HTTPS | TLS), POLICY_TLS);
	assert_int_equal(first(p, "https://c.test", HTTPS), -ENOENT);
	assert_int_equal(first(p, "https://10.0.0.1", HTTPS | TLS | TCP), POLICY_TCP);
	assert_int_equal(first(p, "https://11.0.0.1", HTTPS | TLS | TCP), -ENOENT);
	policy_free(p);
}

static void names_are_known_unless_all_is_denied(void **state)
{
	(void)state;
	static const struct {
		const char *host;
		bool known;
	} table[] = {
		{"a.x.example", true},    {"evil.x.example", false}, {"some.x.example", true},
		{"web.x.example", false}, {"both.x.example", true},  {"two.x.example", true},
		{"late.x.example", true}, {"10.0.0.1", false},       {"other.test", false},
	};
	struct policy *p = compiled("egress:\n"
				    "- {cidr: 10.0.0.0/8}\n"
				    "- {host: evil.x.example, deny: true}\n"
				    "- {host: some.x.example, deny: true, paths: [/x/**]}\n"
				    "- {host: web.x.example, deny: true, scheme: https}\n"
				    "- {host: both.x.example, deny: true, ports: [443]}\n"
				    "- {host: two.x.example, deny: true, scheme: tls}\n"
				    "- {host: '*.x.example'}\n"
				    "- {host: late.x.example, deny: true}\n"
				    "- {host: both.x.example, ports: [444, 443]}\n"
				    "- {host: web.x.example}\n");
	for (EACH(i, table))
		if (policy_knows_host(p, table[i].host) != table[i].known)
			fail_msg("%s", table[i].host);
	assert_string_equal(policy_exact_host(p, 0), "");
	assert_string_equal(policy_exact_host(p, 1), "");
	assert_string_equal(policy_exact_host(p, 8), "both.x.example");
	policy_free(p);
}

static void flags_name_every_scheme(void **state)
{
	(void)state;
	static const char *const table[][2] = {
		{"tls://a.example", "tls://a.example:443"},
		{"TLS://a.example:8443", "tls://a.example:8443"},
		{"tcp://*.a.example:22", "tcp://*.a.example:22"},
	};
	for (EACH(i, table)) {
		struct policy *p = policy_new_empty();
		struct err e = {0};
		assert_int_equal(policy_allow(p, table[i][0], NULL), 0);
		char url[64];
		snprintf(url, sizeof(url), "%s", table[i][1]);
		char *star = strchr(url, '*');
		if (star)
			*star = 'x';
		assert_string_equal(asked(p, url).rule, table[i][1]);
		assert_int_equal(policy_allow(p, "tcp://a.example", &e), -EINVAL);
		assert_string_equal(e.text, "allow tcp://a.example: tcp has no port of its own: "
					    "tcp://HOST:PORT");
		policy_free(p);
	}
}

/* Every field of a rule, there and back: what travels is the same policy. */
static void rules_travel_whole(void **state)
{
	(void)state;
	static const char *const questions[] = {
		"GET https://a.x.example/v1%2Fx",
		"PUT https://a.x.example/v1",
		"tls://b.x.example",
		"tcp://10.0.0.1:81",
		"GET https://evil.x.example/y",
		"DELETE http://evil.x.example/x",
		"GET https://[2001:db8::1]:444/x",
	};
	struct policy *p = compiled(
		"egress:\n"
		"- {host: a.x.example, methods: [GET], paths: ['/v*', /w], encodedSlash: true, "
		"limits: {requests: 5}}\n"
		"- {host: evil.x.example, deny: true, methods: [DELETE], paths: [/x]}\n"
		"- {host: '*.x.example', deny: true, scheme: https, ports: [1, 443]}\n"
		"- {host: '**.x.example', scheme: tls}\n"
		"- {cidr: 10.0.0.0/8, scheme: tcp, ports: [80, 81]}\n"
		"- {cidr: '2001:db8::/32', deny: true}\n");
	auto_json json_t *j = policy_to_json(p);
	auto_json json_t *expected =
		json_pack("{s:s, s:s, s:[i], s:[s], s:[s,s], s:b, s:{s:i}}", "host", "a.x.example",
			  "scheme", "https", "ports", 443, "methods", "GET", "paths", "/v*", "/w",
			  "encodedSlash", 1, "limits", "requests", 5);
	assert_true(json_equal(json_array_get(json_object_get(j, "egress"), 0), expected));
	auto_json json_t *last = json_pack("{s:s, s:b}", "cidr", "2001:db8::/32", "deny", 1);
	assert_true(json_equal(json_array_get(json_object_get(j, "egress"), 5), last));
	struct policy *q = policy_from_json(j, NULL);
	assert_non_null(q);
	for (EACH(i, questions)) {
		struct policy_verdict a = asked(p, questions[i]), b = asked(q, questions[i]);
		assert_int_equal(a.index, b.index);
		assert_int_equal(a.allow, b.allow);
		assert_string_equal(a.rule, b.rule);
		assert_string_equal(a.hint, b.hint);
	}
	auto_json json_t *again = policy_to_json(q);
	assert_true(json_equal(j, again));
	policy_free(p);
	policy_free(q);
}

static void one_address_is_named_by_a_rule_for_it_alone(void **state)
{
	(void)state;
	static const struct {
		const char *address;
		bool named;
	} table[] = {
		{"10.0.0.1", true}, {"10.0.0.2", false}, {"10.1.0.1", false},
		{"fd00::1", true},  {"fd00::2", false},  {"10.2.0.1", false},
	};
	struct policy *p = compiled("egress:\n"
				    "- {host: a.example}\n"
				    "- {cidr: 10.2.0.1, deny: true}\n"
				    "- {cidr: 10.1.0.0/16}\n"
				    "- {cidr: 10.0.0.1}\n"
				    "- {cidr: 'fd00::1/128'}\n");
	for (EACH(i, table)) {
		struct address a;
		assert_int_equal(address_parse(table[i].address, &a), 0);
		assert_int_equal(policy_names_address(p, &a), table[i].named);
	}
	policy_free(p);
}

/* A literal is judged by its address, whatever its text says. */
static void the_text_of_an_address_is_no_name(void **state)
{
	(void)state;
	struct policy *p = compiled("egress: [{host: a.example}]");
	struct policy_dest dest = {.port = 443, .host = "a.example"};
	struct policy_verdict v;
	assert_int_equal(address_parse("10.0.0.1", &dest.address), 0);
	policy_decide(p, &dest, &v);
	assert_false(v.allow);
	assert_string_equal(v.hint, "- {cidr: \"10.0.0.1/32\"}");
	policy_free(p);
}

static void urls_are_read_strictly(void **state)
{
	(void)state;
	static const char *const bad[][2] = {
		{"a.example", "a URL begins with"},
		{"ftp://a.example", "a URL begins with"},
		{"https://", "empty host name"},
		{"https://u@a.example/", "no user and password"},
		{"https://a.example:0/", "port is a number"},
		{"https://a.example:/", "port is a number"},
		{"https://0x7f.1/", "IP address"},
		{"https://[::1/", "no ']'"},
		{"https://[::1]x/", "no ']'"},
		{"https://[10.0.0.1]/", "no IPv6 address"},
		{"https://[x]/", "no IPv6 address"},
		{"tcp://a.example", "tcp has no port"},
		{"tcp://a.example:1/x", "tcp has no path"},
		{"tls://a.example?x", "tls has no path"},
		{"https://a.example/../x", "segment"},
		{"https://a.example/#x", "fragment"},
	};
	struct policy_dest dest;
	char *path = NULL;
	for (EACH(i, bad)) {
		struct err e = {0};
		if (policy_dest_from_url(bad[i][0], &dest, &path, &e) != -EINVAL)
			fail_msg("%s", bad[i][0]);
		if (!strstr(e.text, bad[i][1]))
			fail_msg("%s: %s", bad[i][0], e.text);
		assert_null(path);
	}
	assert_int_equal(policy_dest_from_url("HTTPS://B\xc3\xbc.example?q", &dest, &path, NULL),
			 0);
	assert_string_equal(dest.host, "xn--b-eha.example");
	assert_string_equal(path, "/");
	assert_ptr_equal(path, dest.path);
	assert_int_equal(dest.port, 443);
	free(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(methods_and_paths_are_judged),
		cmocka_unit_test(encoded_slashes_pass_where_a_rule_says_so),
		cmocka_unit_test(a_deny_rule_refuses_all_that_it_does_not_narrow),
		cmocka_unit_test(addresses_need_a_rule_of_their_own),
		cmocka_unit_test(hints_are_rules_that_allow),
		cmocka_unit_test(long_rules_are_cut),
		cmocka_unit_test(the_first_rule_says_how_a_connection_is_read),
		cmocka_unit_test(names_are_known_unless_all_is_denied),
		cmocka_unit_test(flags_name_every_scheme),
		cmocka_unit_test(rules_travel_whole),
		cmocka_unit_test(one_address_is_named_by_a_rule_for_it_alone),
		cmocka_unit_test(the_text_of_an_address_is_no_name),
		cmocka_unit_test(urls_are_read_strictly),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
