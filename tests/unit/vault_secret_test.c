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
#include "vault/secret.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif

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
	return secrets_add(set, j, e);
}

static struct policy_dest dest(enum policy_scheme scheme, const char *host)
{
	struct policy_dest d = {.scheme = scheme, .port = 443};
	snprintf(d.host, sizeof(d.host), "%s", host);
	return d;
}

static void value_becomes_a_bearer_token(void **state)
{
	(void)state;
	struct secrets *set = secrets_new();
	struct err e = {0};
	assert_int_equal(add(set, "API_TOKEN", "s3cr3t-value", "api.example.com", &e), 0);
	struct policy_dest to = dest(POLICY_HTTPS, "api.example.com");
	const struct secret *s = secrets_for(set, &to);
	assert_non_null(s);
	assert_string_equal(secret_name(s), "API_TOKEN");
	char *text = secret_authorization(s);
	assert_string_equal(text, "Bearer s3cr3t-value");
	secret_text_free(text);
	secrets_free(set);
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
		assert_int_equal(secrets_add(set, j, &e), -EINVAL);
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

static void a_name_is_given_once(void **state)
{
	(void)state;
	struct secrets *set = secrets_new();
	struct err e = {0};
	assert_int_equal(add(set, "T", "v", "a.example.com", &e), 0);
	assert_int_equal(add(set, "T", "v", "b.example.com", &e), -EINVAL);
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

/* The page of anonymous memory, a mapping of its own, that begins with text; NULL: none. */
static const char *find_page(const char *text)
{
	auto_file FILE *maps = fopen("/proc/self/maps", "re");
	char line[1024];
	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps)) {
		uintptr_t from, to;
		if (!strstr(line, "rw-p 00000000 00:00 0") || strchr(line, '[') ||
		    sscanf(line, "%lx-%lx", &from, &to) != 2 || to - from != 4096)
			continue;
		if (!memcmp((const void *)from, text, strlen(text)))
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

static void placeholders_differ_and_say_whose_they_are(void **state)
{
	(void)state;
	auto_free char *a = secret_placeholder("API_TOKEN");
	auto_free char *b = secret_placeholder("API_TOKEN");
	assert_true(str_starts(a, "sp_API_TOKEN_"));
	assert_int_equal(strlen(a), strlen("sp_API_TOKEN_") + 32);
	assert_string_not_equal(a, b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(value_becomes_a_bearer_token),
		cmocka_unit_test(secret_is_for_its_hosts_over_https_alone),
		cmocka_unit_test(value_with_control_characters_is_refused),
		cmocka_unit_test(value_longer_than_the_cap_is_refused),
		cmocka_unit_test(names_and_hosts_are_checked),
		cmocka_unit_test(a_host_has_one_secret),
		cmocka_unit_test(a_name_is_given_once),
		cmocka_unit_test(secret_needs_a_rule_for_https),
		cmocka_unit_test(value_is_kept_out_of_dumps_and_gone_afterwards),
		cmocka_unit_test(credential_fields_are_known_without_case),
		cmocka_unit_test(placeholders_differ_and_say_whose_they_are),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
