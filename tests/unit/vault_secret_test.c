/* SPDX-License-Identifier: Apache-2.0 */
/* Secrets: what is refused when they are loaded, whom they are for, where their values are kept. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "vault/placeholder.h"
#include "vault/secret.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif

#define NOW       1000        /* ms */
#define PLACE_MAX (16u << 20) /* bytes of a mapping that may hold a value */

static json_t *secret(const char *name, const char *value, size_t n, const char *hosts)
{
	json_t *list = json_array();
	auto_free char *copy = strdup(hosts);
	char *save = NULL;
	for (char *h = strtok_r(copy, " ", &save); h; h = strtok_r(NULL, " ", &save))
		json_array_append_new(list, json_string(h));
	return json_pack("{s:s, s:s#, s:o}", "name", name, "value", value, (int)n, "hosts", list);
}

static int add(struct secrets *set, const char *name, const char *value, const char *hosts,
	       struct err *e)
{
	auto_json json_t *j = secret(name, value, strlen(value), hosts);
	return secrets_put(set, j, NOW, e);
}

static struct policy_dest dest(enum policy_scheme scheme, const char *host)
{
	struct policy_dest d = {.scheme = scheme, .port = 443};
	snprintf(d.host, sizeof(d.host), "%s", host);
	return d;
}

static void drop(void *user, const uint8_t *p, size_t n)
{
	(void)user;
	(void)p;
	(void)n;
}

/* Somebody has its first len bytes echoed, then something else. */
static void guess(struct secrets *set, const char *value, size_t len)
{
	struct scan *s = scan_new(secrets_values(set), true);
	assert_int_equal(scan_push(s, (const uint8_t *)value, len, drop, NULL, NULL), 0);
	assert_int_equal(scan_push(s, (const uint8_t *)"?", 1, drop, NULL, NULL), 0);
	scan_free(s);
}

#define GUESSED_VALUE "qwErtYuiOp4aSdFgH"

static void value_under_two_names_is_guessed_for_both(void **state)
{
	(void)state;
	struct secrets *set = secrets_new();
	struct err e = {0};
	assert_int_equal(add(set, "A", GUESSED_VALUE, "a.example", &e), 0);
	assert_int_equal(add(set, "B", GUESSED_VALUE, "b.example", &e), 0);
	assert_int_equal(add(set, "C", "another-0123456789", "c.example", &e), 0);
	for (size_t len = 5; len < 8; len++)
		guess(set, GUESSED_VALUE, len);
	assert_string_equal(secret_name(secrets_stop_guessed(set)), "A");
	assert_string_equal(secret_name(secrets_stop_guessed(set)), "B");
	assert_null(secrets_stop_guessed(set));
	secrets_free(set);
}

/* Under another name, too. */
static void value_that_is_granted_again_is_guarded_again(void **state)
{
	(void)state;
	static const char *const names[] = {"A", "B"};
	for (size_t i = 0; i < 2; i++) {
		struct secrets *set = secrets_new();
		struct err e = {0};
		assert_int_equal(add(set, "A", GUESSED_VALUE, "a.example", &e), 0);
		for (size_t len = 5; len < 8; len++)
			guess(set, GUESSED_VALUE, len);
		assert_string_equal(secret_name(secrets_stop_guessed(set)), "A");
		assert_int_equal(add(set, names[i], GUESSED_VALUE, "a.example", &e), 0);
		assert_null(secrets_stop_guessed(set)); /* whoever grants it has seen the alarm */
		for (size_t len = 8; len < 11; len++)
			guess(set, GUESSED_VALUE, len);
		struct secret *stopped = secrets_stop_guessed(set);
		assert_non_null(stopped);
		assert_string_equal(secret_name(stopped), names[i]);
		secrets_free(set);
	}
}

/* A source is asked again every few minutes, and mostly says the same. */
static void renewal_forgives_guesses_of_another_value_alone(void **state)
{
	(void)state;
	static const char *const values[] = {GUESSED_VALUE, "another-0123456789"};
	for (size_t i = 0; i < 2; i++) {
		struct secrets *set = secrets_new();
		struct err e = {0};
		auto_json json_t *update = json_pack("{s:s, s:s}", "name", "A", "value", values[i]);
		assert_int_equal(add(set, "A", GUESSED_VALUE, "a.example", &e), 0);
		guess(set, GUESSED_VALUE, 5);
		guess(set, GUESSED_VALUE, 6);
		assert_int_equal(secrets_renew(set, update, &e), 0);
		assert_null(secrets_stop_guessed(set));
		guess(set, values[i], 7 + 8 * i); /* behind what others begin with, too */
		assert_int_equal(secrets_stop_guessed(set) != NULL, i == 0);
		secrets_free(set);
	}
}

static void secret_is_for_its_hosts_over_https_alone(void **state)
{
	(void)state;
	struct secrets *set = secrets_new();
	struct err e = {0};
	assert_int_equal(add(set, "A", "x", "API.example.com. *.svc.example.com", &e), 0);
	assert_int_equal(add(set, "B", "y", "**.example.org", &e), 0);
	static const struct {
		const char *host;
		const char *name;
	} cases[] = {
		{"api.example.com", "A"},      {"x.svc.example.com", "A"},
		{"svc.example.com", NULL},     {"x.y.svc.example.com", NULL},
		{"evilapi.example.com", NULL}, {"api.example.com.evil.net", NULL},
		{"example.org", "B"},          {"a.b.example.org", "B"},
		{"evilexample.org", NULL},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct policy_dest https = dest(POLICY_HTTPS, cases[i].host);
		struct policy_dest http = dest(POLICY_HTTP, cases[i].host);
		const struct secret *s = secrets_for(set, &https);
		assert_true(cases[i].name ? s && str_eq(secret_name(s), cases[i].name) : !s);
		assert_null(secrets_for(set, &http));
	}
	secrets_free(set);
}

static void value_with_control_characters_is_refused(void **state)
{
	(void)state;
	static const struct {
		const char *value;
		size_t n;
	} bad[] = {
		{"", 0},     {"a\r\nX: y", 7}, {"a\n", 2},   {"a\rb", 3},   {"hidden\0z", 8},
		{"a\tb", 3}, {"\x7f", 1},      {" lead", 5}, {"trail ", 6},
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct secrets *set = secrets_new();
		struct err e = {0};
		auto_json json_t *j = secret("T", bad[i].value, bad[i].n, "a.example.com");
		assert_int_equal(secrets_put(set, j, NOW, &e), -EINVAL);
		assert_non_null(strstr(e.text, "T"));
		assert_null(strstr(e.text, "hidden"));
		struct policy_dest to = dest(POLICY_HTTPS, "a.example.com");
		assert_null(secrets_for(set, &to));
		secrets_free(set);
	}
}

static void value_longer_than_the_cap_is_refused(void **state)
{
	(void)state;
	struct secrets *set = secrets_new();
	struct err e = {0};
	auto_free char *big = malloc(SECRET_VALUE_MAX + 2);
	memset(big, 'x', SECRET_VALUE_MAX + 1);
	big[SECRET_VALUE_MAX + 1] = '\0';
	assert_int_equal(add(set, "T", big, "a.example.com", &e), -EINVAL);
	big[SECRET_VALUE_MAX] = '\0';
	assert_int_equal(add(set, "T", big, "a.example.com", &e), 0);
	secrets_free(set);
}

static void names_and_hosts_are_checked(void **state)
{
	(void)state;
	static const struct {
		const char *name, *hosts;
	} bad[] = {
		{"", "a.example.com"},
		{"1A", "a.example.com"},
		{"A B", "a.example.com"},
		{"A-B", "a.example.com"},
		{"T", ""},
		{"T", "*"},
		{"T", "*.com"},
		{"T", "*x.example.com"},
		{"T", "a..example.com"},
		{"T", "10.0.0.1"},
		{"T", "0x7f.1"},
		{"T", "[::1]"},
		{"T", "u@example.com"},
		{"T", "a.example.com:443"},
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct secrets *set = secrets_new();
		struct err e = {0};
		assert_int_equal(add(set, bad[i].name, "value", bad[i].hosts, &e), -EINVAL);
		assert_true(e.text[0]);
		secrets_free(set);
	}
}

static void a_host_has_one_secret(void **state)
{
	(void)state;
	static const struct {
		const char *first, *second;
		bool overlap;
	} cases[] = {
		{"a.example.com", "a.example.com", true},
		{"a.example.com", "A.example.com.", true},
		{"a.example.com", "b.example.com", false},
		{"a.example.com", "*.example.com", true},
		{"*.example.com", "example.com", false},
		{"**.example.com", "example.com", true},
		{"*.example.com", "**.example.com", true},
		{"*.a.example.com", "**.example.com", true},
		{"**.a.example.com", "*.example.com", true},
		{"*.a.example.com", "*.b.example.com", false},
		{"**.a.example.com", "**.b.example.com", false},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct secrets *set = secrets_new();
		struct err e = {0};
		assert_int_equal(add(set, "FIRST", "value1", cases[i].first, &e), 0);
		assert_int_equal(add(set, "SECOND", "value2", cases[i].second, &e),
				 cases[i].overlap ? -EINVAL : 0);
		assert_null(strstr(e.text, "value"));
		secrets_free(set);
	}
}

/* An entry whose ' are ". */
static json_t *entry(const char *text)
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

static int put(struct secrets *set, const char *text, struct err *e)
{
	auto_json json_t *j = entry(text);
	return secrets_put(set, j, NOW, e);
}

static struct secret *put_one(struct secrets *set, const char *text)
{
	struct err e = {0};
	if (put(set, text, &e) < 0)
		fail_msg("%s: %s", text, e.text);
	return secrets_at(set, 0);
}

static const char *value_of(const struct secret *s)
{
	return secret_value(s, SECRET_VALUE, NULL);
}

static void grant_holds_for_its_methods_and_paths(void **state)
{
	(void)state;
	struct secrets *set = secrets_new();
	put_one(set, "{'name':'T','hosts':['a.test'],'methods':['GET','PUT'],"
		     "'paths':['/repos/**','/user'],'value':'v'}");
	static const struct {
		const char *method, *path;
		bool in;
	} cases[] = {
		{"GET", "/repos/a/b", true}, {"PUT", "/user", true},  {"POST", "/user", false},
		{"GET", "/users", false},    {"get", "/user", false}, {"GET", "/", false},
		{NULL, NULL, true},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct policy_dest d = dest(POLICY_HTTPS, "a.test");
		d.method = cases[i].method;
		d.path = cases[i].path;
		assert_int_equal(secrets_for(set, &d) != NULL, cases[i].in);
	}
	assert_true(secrets_concern(set, "a.test"));
	assert_false(secrets_concern(set, "b.test"));
	secrets_free(set);
}

static void grant_ends_by_time_uses_and_bytes(void **state)
{
	(void)state;
	struct err e = {0};
	struct secrets *set = secrets_new();
	struct secret *s =
		put_one(set, "{'name':'T','hosts':['a.test'],'expiresMs':50,'value':'v'}");
	assert_int_equal(secret_unusable(s, NOW + 49, &e), 0);
	assert_int_equal(secrets_next_end_ms(set, NOW), NOW + 50);
	assert_int_equal(secret_unusable(s, NOW + 50, &e), 403);
	assert_string_equal(e.text, "the grant of T has expired");
	assert_int_equal(secrets_next_end_ms(set, NOW + 50), 0);

	put_one(set, "{'name':'T','hosts':['a.test'],'uses':2,'value':'v'}");
	assert_int_equal(secret_unusable(s, NOW + 50, &e), 0);
	assert_int_equal(secret_use(s), 1);
	assert_int_equal(secret_unusable(s, NOW, &e), 0);
	assert_int_equal(secret_use(s), 2);
	assert_int_equal(secret_unusable(s, NOW, &e), 403);
	assert_non_null(strstr(e.text, "used up"));
	assert_int_equal(secret_stopped(s, NOW, &e), 0); /* the last use may go on */

	put_one(set, "{'name':'T','hosts':['a.test'],'bytes':10,'value':'v'}");
	assert_true(secret_charge(s, 6));
	assert_int_equal(secret_unusable(s, NOW, &e), 0);
	assert_false(secret_charge(s, 5));
	assert_int_equal(secret_unusable(s, NOW, &e), 403);
	assert_int_equal(secret_stopped(s, NOW, &e), 403);

	put_one(set, "{'name':'T','hosts':['a.test'],'uses':0,'value':'v'}");
	assert_int_equal(secret_unusable(s, NOW, &e), 403);
	put_one(set, "{'name':'T','hosts':['a.test'],'expiresMs':0,'value':'v'}");
	assert_int_equal(secret_unusable(s, NOW, &e), 403);
	secrets_free(set);
}

static void renewed_one_stays_where_it_is(void **state)
{
	(void)state;
	struct err e = {0};
	struct secrets *set = secrets_new();
	struct secret *s = put_one(set, "{'name':'T','hosts':['a.test'],'uses':1,'value':'v1'}");
	unsigned version = secret_version(s);
	secret_use(s);
	auto_json json_t *fresh = entry("{'name':'T','value':'v2'}");
	auto_json json_t *gone = entry("{'name':'T','unavailable':'the helper timed out'}");
	auto_json json_t *other = entry("{'name':'U','value':'v2'}");
	auto_json json_t *bad = entry("{'name':'T','value':'a\\nb'}");
	assert_int_equal(secrets_renew(set, fresh, &e), 0);
	assert_string_equal(value_of(s), "v2");
	assert_int_not_equal(secret_version(s), version);
	assert_int_equal(secret_unusable(s, NOW, &e), 403); /* its use stays counted */
	assert_int_equal(secrets_renew(set, other, &e), -ENOENT);
	assert_int_equal(secrets_renew(set, bad, &e), -EINVAL);
	assert_string_equal(value_of(s), "v2");

	put_one(set, "{'name':'T','hosts':['b.test'],'value':'v3'}");
	assert_ptr_equal(secrets_at(set, 0), s);
	assert_null(secrets_at(set, 1));
	assert_int_equal(secrets_renew(set, gone, &e), 0);
	assert_int_equal(secret_unusable(s, NOW, &e), 503);
	assert_non_null(strstr(e.text, "T is not available: the helper timed out"));
	assert_int_equal(secrets_renew(set, fresh, &e), 0);
	assert_int_equal(secret_unusable(s, NOW, &e), 0);
	secrets_free(set);
}

static void failed_renewal_changes_nothing(void **state)
{
	(void)state;
	struct err e = {0};
	struct secrets *set = secrets_new();
	struct secret *s = put_one(set, "{'name':'T','hosts':['a.test'],'value':'v1'}");
	assert_int_equal(put(set, "{'name':'T','hosts':['b.test'],'value':''}", &e), -EINVAL);
	assert_int_equal(put(set, "{'name':'T','hosts':[],'value':'v2'}", &e), -EINVAL);
	assert_string_equal(value_of(s), "v1");
	assert_true(secrets_concern(set, "a.test"));
	assert_false(secrets_concern(set, "b.test"));
	secrets_free(set);
}

static void revoked_one_is_a_mark_on_its_hosts(void **state)
{
	(void)state;
	struct err e = {0};
	struct secrets *set = secrets_new();
	struct secret *s = put_one(set, "{'name':'T','hosts':['a.test'],'value':'v1'}");
	struct policy_dest d = dest(POLICY_HTTPS, "a.test");
	assert_int_equal(secrets_revoke(set, "U"), -ENOENT);
	assert_int_equal(secrets_revoke(set, "T"), 0);
	assert_int_equal(secrets_revoke(set, "T"), -ENOENT);
	assert_ptr_equal(secrets_for(set, &d), s);
	assert_int_equal(secret_unusable(s, NOW, &e), 403);
	assert_string_equal(e.text, "the grant of T was revoked");
	assert_true(secrets_concern(set, "a.test"));
	/* Its host is free for another, which has it then. */
	assert_int_equal(put(set, "{'name':'U','hosts':['a.test'],'value':'w'}", &e), 0);
	assert_ptr_equal(secrets_for(set, &d), secrets_at(set, 1));

	struct policy_dest post = d;
	post.method = "POST";
	assert_int_equal(
		put(set, "{'name':'U','hosts':['a.test'],'methods':['GET'],'value':'w'}", &e), 0);
	assert_null(secrets_for(set, &post)); /* the mark says nothing beside one that lives */
	assert_int_equal(put(set, "{'name':'U','hosts':['a.test'],'expiresMs':0,'value':'w'}", &e),
			 0);
	assert_int_equal(secrets_revoke(set, "U"), 0);
	assert_ptr_equal(secrets_for(set, &d), secrets_at(set, 1)); /* the latest */
	assert_int_equal(secret_unusable(secrets_at(set, 1), NOW, &e), 403);
	assert_string_equal(e.text, "the grant of U has expired");
	assert_int_equal(put(set, "{'name':'U','hosts':['a.test'],'value':'w'}", &e), 0);

	auto_json json_t *keep = entry("[{'name':'V'}]");
	secrets_keep_only(set, keep);
	assert_int_equal(secret_unusable(secrets_at(set, 1), NOW, &e), 403);
	secrets_free(set);
}

static bool known_value(struct secrets *set, const char *text, unsigned whose)
{
	unsigned index = UINT32_MAX;
	bool found = needles_in(secrets_values(set), text, strlen(text), &index);
	assert_true(!found || index == whose);
	return found;
}

static void values_are_recognised_also_when_they_are_no_longer_used(void **state)
{
	(void)state;
	struct err e = {0};
	struct secrets *set = secrets_new();
	assert_null(secrets_values(set));
	put_one(set,
		"{'name':'A','hosts':['a.test'],'value':'alpha-one-111','variables':{'A':'place-of-a'}}");
	put_one(set,
		"{'name':'B','hosts':['b.test'],'value':'gamma-three-3','variables':{'B':'place-of-b'}}");
	assert_true(known_value(set, "{\"x\":\"alpha-one-111\"}", 0));
	assert_true(known_value(set, "Z2FtbWEtdGhyZWUtMw==", 1));
	assert_false(known_value(set, "place-of-a", 0));
	auto_json json_t *fresh = entry("{'name':'A','value':'beta-two-22222'}");
	assert_int_equal(secrets_renew(set, fresh, &e), 0);
	assert_true(known_value(set, "alpha-one-111", 0));
	assert_true(known_value(set, "beta-two-22222", 0));
	put_one(set, "{'name':'B','hosts':['c.test'],'value':'delta-four-444'}");
	assert_true(known_value(set, "gamma-three-3", 1));
	assert_int_equal(secrets_revoke(set, "A"), 0);
	assert_true(known_value(set, "beta-two-22222", 0));
	unsigned index = 9;
	assert_true(needles_in(secrets_placeholders(set), "place-of-a", 10, &index));
	assert_int_equal(index, 0);
	secrets_free(set);
}

/* Base64 of a text, as a server's log may have it of what it was sent. */
static char *base64(const char *text)
{
	char *out = malloc(base64_encoded_len(strlen(text)) + 1);
	base64_encode(text, strlen(text), out);
	return out;
}

static void what_is_sent_is_recognised_in_the_spelling_in_which_it_is_sent(void **state)
{
	(void)state;
	static const struct {
		const char *inject, *value, *sent;
	} cases[] = {
		{"{'kind':'basic','user':'u'}", "'pass-word-1'", "dTpwYXNzLXdvcmQtMQ=="},
		{"{'kind':'basic'}", "'ci:pass-word-1'", "Y2k6cGFzcy13b3JkLTE="},
		{"{'kind':'basic'}", "'ci:pass-word-1'", "{\"password\": \"pass-word-1\"}"},
		{"{'kind':'bearer'}", "'pass-word-1'", "eC1hY2Nlc3MtdG9rZW46cGFzcy13b3JkLTE="},
		{"{'kind':'bearer','gitUser':'g'}", "'pass-word-1'", "ZzpwYXNzLXdvcmQtMQ=="},
		{"{'kind':'query','name':'k'}", "'pass/word+1 %'", "pass%2Fword%2B1%20%25"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct secrets *set = secrets_new();
		auto_free char *text =
			str_printf("{'name':'T','hosts':['a.test'],'inject':%s,'value':%s}",
				   cases[i].inject, cases[i].value);
		auto_free char *logged = base64(cases[i].sent);
		put_one(set, text);
		if (!known_value(set, cases[i].sent, 0) || !known_value(set, logged, 0))
			fail_msg("%s", cases[i].sent);
		secrets_free(set);
	}
}

static void former_values_are_recognised_whatever_their_part(void **state)
{
	(void)state;
	struct err e = {0};
	struct secrets *set = secrets_new();
	put_one(set,
		"{'name':'A','hosts':['a.test'],'inject':{'kind':'sigv4','service':'s3','region':'x'},"
		"'value':{'accessKeyId':'AKIAfirst111','secretAccessKey':'secret-first-1',"
		"'sessionToken':'session-first-1'}}");
	auto_json json_t *fresh = entry("{'name':'A','value':{'accessKeyId':'AKIAsecond22',"
					"'secretAccessKey':'secret-second-2'}}");
	for (int i = 0; i < 20; i++) /* the same again pushes nothing out */
		assert_int_equal(secrets_renew(set, fresh, &e), 0);
	static const char *const known[] = {"AKIAfirst111", "secret-first-1", "session-first-1",
					    "AKIAsecond22", "secret-second-2"};
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		assert_true(known_value(set, known[i], 0));

	put_one(set, "{'name':'A','hosts':['a.test'],'value':'bearer-number-0'}");
	for (int i = 1; i <= 4; i++) {
		auto_json json_t *next = json_pack("{s:s, s:o}", "name", "A", "value",
						   json_sprintf("bearer-number-%d", i));
		assert_int_equal(secrets_renew(set, next, &e), 0);
	}
	for (int i = 0; i <= 4; i++) {
		auto_free char *text = str_printf("bearer-number-%d", i);
		assert_true(known_value(set, text, 0));
	}
	secrets_free(set);
}

static void host_that_was_sent_a_value_stays_concerned(void **state)
{
	(void)state;
	struct secrets *set = secrets_new();
	struct policy_dest d = dest(POLICY_HTTPS, "a.test");
	put_one(set, "{'name':'T','hosts':['a.test','b.test'],'value':'v'}");
	put_one(set, "{'name':'T','hosts':['b.test'],'value':'v'}");
	put_one(set, "{'name':'T','hosts':['*.c.test'],'value':'v'}");
	assert_true(secrets_concern(set, "a.test"));
	assert_true(secrets_concern(set, "b.test"));
	assert_true(secrets_concern(set, "x.c.test"));
	assert_false(secrets_concern(set, "d.test"));
	assert_null(secrets_for(set, &d)); /* but it gets none any more */
	put_one(set, "{'name':'T','hosts':['a.test'],'value':'v'}");
	assert_non_null(secrets_for(set, &d));
	secrets_free(set);
}

static void canary_needs_no_value(void **state)
{
	(void)state;
	struct err e = {0};
	struct secrets *set = secrets_new();
	struct secret *s = put_one(set, "{'name':'T','hosts':['a.test'],'canary':true}");
	assert_true(secret_is_canary(s));
	assert_int_equal(secret_unusable(s, NOW, &e), 503);
	assert_int_equal(put(set, "{'name':'U','hosts':['b.test']}", &e), -EINVAL);
	secrets_free(set);
}

static void kinds_with_several_values_need_them_all(void **state)
{
	(void)state;
	static const char *const bad[][2] = {
		{"'sigv4','service':'s3','region':'x'", "'text'"},
		{"'sigv4','service':'s3','region':'x'", "{'accessKeyId':'AKIA'}"},
		{"'sigv4','service':'s3','region':'x'", "{'accessKeyId':'A','secretAccessKey':''}"},
		{"'sigv4','service':'s3','region':'x'",
		 "{'accessKeyId':'A','secretAccessKey':'s','sessionToken':'a\\r'}"},
		{"'certificate'", "'text'"},
		{"'certificate'", "{'certificate':'x','key':'-----BEGIN PRIVATE KEY-----'}"},
		{"'certificate'", "{'certificate':'-----BEGIN CERTIFICATE-----','key':'x'}"},
		{"'basic'", "'nocolon'"},
		{"'bearer'", "{'x':'y'}"},
		{"'bearer'", "7"},
	};
	struct secrets *set = secrets_new();
	struct err e = {0};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		auto_free char *text = str_printf(
			"{'name':'T','hosts':['a.test'],'inject':{'kind':%s},'value':%s}",
			bad[i][0], bad[i][1]);
		if (put(set, text, &e) != -EINVAL || !strstr(e.text, "T"))
			fail_msg("%s: %s", text, e.text);
	}
	struct secret *s = put_one(
		set,
		"{'name':'T','hosts':['a.test'],'inject':{'kind':'sigv4','service':'s3',"
		"'region':'x'},'value':{'accessKeyId':'A','secretAccessKey':'s','sessionToken':'t'}}");
	assert_string_equal(secret_value(s, SECRET_ID, NULL), "A");
	assert_string_equal(secret_value(s, SECRET_SESSION, NULL), "t");
	assert_string_equal(secret_recipe(s, "region"), "x");
	secrets_free(set);
}

static void secret_needs_a_rule_for_https(void **state)
{
	(void)state;
	static const struct {
		const char *allow, *host;
		bool ok;
	} cases[] = {
		{"api.example.com", "api.example.com", true},
		{"api.example.com:8443", "api.example.com", true},
		{"http://api.example.com", "api.example.com", false},
		{"other.example.com", "api.example.com", false},
		{"*.example.com", "api.example.com", true},
		{"**.example.com", "*.a.example.com", true},
		{"x.a.example.com", "*.a.example.com", false},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct secrets *set = secrets_new();
		struct policy *p = policy_new_empty();
		struct err e = {0};
		assert_int_equal(add(set, "T", "value", cases[i].host, &e), 0);
		assert_int_equal(secrets_check(set, p, &e), -EINVAL);
		assert_non_null(strstr(e.text, cases[i].host));
		assert_int_equal(policy_allow(p, cases[i].allow, &e), 0);
		int r = secrets_check(set, p, &e);
		if (str_eq(cases[i].allow, "x.a.example.com"))
			assert_true(r == 0 || r == -EINVAL); /* a part of the hosts is enough */
		else
			assert_int_equal(r, cases[i].ok ? 0 : -EINVAL);
		policy_free(p);
		secrets_free(set);
	}
}

/* The first rule for a port says whether TLS ends at the gateway; elsewhere nothing can be put in.
 */
static void no_secret_is_for_what_passes_unread(void **state)
{
	(void)state;
	static const struct {
		const char *schemes[2];
		bool ok;
	} cases[] = {
		{{"https", "tls"}, true},  {{"https", "tcp"}, true},  {{"http", "https"}, true},
		{{"tls", "https"}, false}, {{"tcp", "https"}, false}, {{"tls", "tcp"}, false},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct secrets *set = secrets_new();
		struct err e = {0};
		auto_json json_t *document =
			json_pack("{s:[{s:s, s:s, s:[i]}, {s:s, s:s, s:[i]}]}", "egress", "host",
				  "a.test", "scheme", cases[i].schemes[0], "ports", 443, "host",
				  "a.test", "scheme", cases[i].schemes[1], "ports", 443);
		struct policy *p = policy_from_json(document, &e);
		assert_non_null(p);
		assert_int_equal(add(set, "T", "value", "a.test", &e), 0);
		assert_int_equal(secrets_check(set, p, &e), cases[i].ok ? 0 : -EINVAL);
		policy_free(p);
		secrets_free(set);
	}
}

/* Whether the mapping that holds p has this flag in /proc/self/smaps. */
static bool mapping_has(const void *p, const char *flag)
{
	auto_file FILE *f = fopen("/proc/self/smaps", "re");
	char line[1024];
	bool inside = false;
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		uintptr_t from, to;
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = (uintptr_t)p >= from && (uintptr_t)p < to;
		else if (inside && str_starts(line, "VmFlags:"))
			return strstr(line, flag) != NULL;
	}
	return false;
}

/* Memory of anybody's, which a sanitizer may mark as nobody's: not by memcmp(), which it watches.
 */
__attribute__((no_sanitize("address"))) static bool begins_with(const char *p, const char *text)
{
	while (*text && *p == *text) {
		p++;
		text++;
	}
	return !*text;
}

/* The page of anonymous memory that begins with text; NULL: none. */
static const char *find_page(const char *text)
{
	auto_file FILE *maps = fopen("/proc/self/maps", "re");
	char line[1024];
	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps)) {
		uintptr_t from, to;
		if (!strstr(line, "rw-p 00000000 00:00 0") || strchr(line, '[') ||
		    sscanf(line, "%lx-%lx", &from, &to) != 2 || to - from > PLACE_MAX)
			continue;
		for (; from < to; from += 4096)
			if (begins_with((const char *)from, text))
				return (const char *)from;
	}
	return NULL;
}

static void value_is_kept_out_of_dumps_and_gone_afterwards(void **state)
{
	(void)state;
	static const char value[] = "a-real-credential";
	struct secrets *set = secrets_new();
	struct err e = {0};
	assert_int_equal(add(set, "T", value, "a.example.com", &e), 0);
	const char *page = find_page(value);
	assert_non_null(page);
	assert_true(mapping_has(page, " dd"));                          /* do not dump */
	assert_true(mapping_has(page, " wf"));                          /* wipe on fork */
#if !defined(__SANITIZE_ADDRESS__) && !__has_feature(address_sanitizer) /* it locks nothing */
	assert_true(mapping_has(page, " lo"));
#endif
	secrets_free(set);
	assert_null(find_page(value));
}

static void credential_fields_are_known_without_case(void **state)
{
	(void)state;
	static const char *const yes[] = {"authorization", "AUTHORIZATION", "Proxy-Authorization",
					  "cookie",        "X-Api-Key",     "x-goog-api-key",
					  "Private-Token"};
	static const char *const no[] = {
		"Accept", "Content-Type", "Authorization2", "X-Authorization-Id", "", "User-Agent"};
	for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
		assert_true(secret_is_credential_field(yes[i]));
	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
		assert_false(secret_is_credential_field(no[i]));
}

static void placeholders_differ_and_have_the_shape_that_tools_check(void **state)
{
	(void)state;
	static const struct {
		const char *name, *prefix;
		size_t length;
	} cases[] = {
		{"API_TOKEN", "sp_API_TOKEN_", 13 + 32},
		{"GITHUB_TOKEN", "ghp_", 40},
		{"GH_TOKEN", "ghp_", 40},
		{"ANTHROPIC_API_KEY", "sk-ant-api03-", 108},
		{"OPENAI_API_KEY", "sk-proj-", 56},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		auto_json json_t *a = placeholder_variables(cases[i].name, SECRET_BEARER);
		auto_json json_t *b = placeholder_variables(cases[i].name, SECRET_HEADER);
		const char *text = json_string_value(json_object_get(a, cases[i].name));
		assert_true(str_starts(text, cases[i].prefix));
		assert_int_equal(strlen(text), cases[i].length);
		assert_false(json_equal(a, b));
	}
	auto_json json_t *aws = placeholder_variables("S3", SECRET_SIGV4);
	assert_int_equal(strlen(json_string_value(json_object_get(aws, "AWS_ACCESS_KEY_ID"))), 20);
	assert_int_equal(strlen(json_string_value(json_object_get(aws, "AWS_SECRET_ACCESS_KEY"))),
			 40);
	auto_json json_t *none = placeholder_variables("CERT", SECRET_CERTIFICATE);
	assert_int_equal(json_object_size(none), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(secret_is_for_its_hosts_over_https_alone),
		cmocka_unit_test(value_under_two_names_is_guessed_for_both),
		cmocka_unit_test(value_that_is_granted_again_is_guarded_again),
		cmocka_unit_test(renewal_forgives_guesses_of_another_value_alone),
		cmocka_unit_test(value_with_control_characters_is_refused),
		cmocka_unit_test(value_longer_than_the_cap_is_refused),
		cmocka_unit_test(names_and_hosts_are_checked),
		cmocka_unit_test(a_host_has_one_secret),
		cmocka_unit_test(grant_holds_for_its_methods_and_paths),
		cmocka_unit_test(grant_ends_by_time_uses_and_bytes),
		cmocka_unit_test(renewed_one_stays_where_it_is),
		cmocka_unit_test(failed_renewal_changes_nothing),
		cmocka_unit_test(revoked_one_is_a_mark_on_its_hosts),
		cmocka_unit_test(values_are_recognised_also_when_they_are_no_longer_used),
		cmocka_unit_test(what_is_sent_is_recognised_in_the_spelling_in_which_it_is_sent),
		cmocka_unit_test(former_values_are_recognised_whatever_their_part),
		cmocka_unit_test(host_that_was_sent_a_value_stays_concerned),
		cmocka_unit_test(canary_needs_no_value),
		cmocka_unit_test(kinds_with_several_values_need_them_all),
		cmocka_unit_test(secret_needs_a_rule_for_https),
		cmocka_unit_test(no_secret_is_for_what_passes_unread),
		cmocka_unit_test(value_is_kept_out_of_dumps_and_gone_afterwards),
		cmocka_unit_test(credential_fields_are_known_without_case),
		cmocka_unit_test(placeholders_differ_and_have_the_shape_that_tools_check),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
