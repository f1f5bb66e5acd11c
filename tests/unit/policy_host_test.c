/* SPDX-License-Identifier: Apache-2.0 */
/* Host names and patterns: one spelling, and the ways around it. */
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

static int canonical(const char *s, char ret[POLICY_HOST_MAX], struct err *e)
{
	return policy_host_canonical(s, strlen(s), ret, e);
}

static void names_get_one_spelling(void **state)
{
	(void)state;
	static const char *const table[][2] = {
		{"example.com", "example.com"},
		{"EXAMPLE.Com", "example.com"},
		{"example.com.", "example.com"},
		{"localhost", "localhost"},
		{"_srv.example.com", "_srv.example.com"},
		{"r3---sn-x.example.com", "r3---sn-x.example.com"},
		{"XN--BCHER-KVA.example", "xn--bcher-kva.example"},
		{"127.0.0.1.nip.io", "127.0.0.1.nip.io"},
		{"0x7f.com", "0x7f.com"},
		{"1.com", "1.com"},
		{"a", "a"},
	};
	for (EACH(i, table)) {
		char host[POLICY_HOST_MAX];
		struct err e = {0};
		if (canonical(table[i][0], host, &e) < 0)
			fail_msg("%s: %s", table[i][0], e.text);
		assert_string_equal(host, table[i][1]);
	}
}

static void what_is_no_name_is_refused(void **state)
{
	(void)state;
	static const char *const table[][2] = {
		{"", "empty"},
		{".", "empty"},
		{"..", "empty label"},
		{"example..com", "empty label"},
		{".example.com", "empty label"},
		{"example.com..", "empty label"},
		{"exa mple.com", "letters"},
		{"example.com:443", "letters"},
		{"user@example.com", "letters"},
		{"example.com/", "letters"},
		{"example.com\\", "letters"},
		{"example.com%2e", "letters"},
		{"example.com\r", "letters"},
		{"b\xc3\xbc"
		 "cher.example",
		 "letters"},
		{"\xff\xfe", "letters"},
		{"*.example.com", "letters"},
		{"-a.example.com", "'-'"},
		{"a-.example.com", "'-'"},
		{"127.0.0.1", "IP address"},
		{"127.0.0.1.", "IP address"},
		{"127.1", "IP address"},
		{"2130706433", "IP address"},
		{"0x7f000001", "IP address"},
		{"0X7F.0.0.1", "IP address"},
		{"017700000001", "IP address"},
		{"1.2.3.4.5", "IP address"},
		{"::1", "IP address"},
		{"[::1]", "IP address"},
		{"::ffff:127.0.0.1", "IP address"},
		{"fe80::1%eth0", "letters"},
	};
	for (EACH(i, table)) {
		char host[POLICY_HOST_MAX] = "untouched";
		struct err e = {0};
		if (canonical(table[i][0], host, &e) != -EINVAL)
			fail_msg("\"%s\" is %s", table[i][0], host);
		if (!strstr(e.text, table[i][1]))
			fail_msg("\"%s\": %s", table[i][0], e.text);
		assert_string_equal(host, "untouched");
	}
}

static void nul_in_a_name_is_refused(void **state)
{
	(void)state;
	char host[POLICY_HOST_MAX];
	struct err e = {0};
	assert_int_equal(policy_host_canonical("evil.com\0.example.com", 21, host, &e), -EINVAL);
	assert_non_null(strstr(e.text, "NUL"));
	assert_int_equal(policy_host_canonical("example.com\0", 12, host, NULL), -EINVAL);
}

static void lengths_are_bounded(void **state)
{
	(void)state;
	char s[300], host[POLICY_HOST_MAX];
	memset(s, 'a', sizeof(s));
	struct err e = {0};
	assert_int_equal(policy_host_canonical(s, 63, host, &e), 0);
	assert_int_equal(policy_host_canonical(s, 64, host, &e), -EINVAL);
	assert_non_null(strstr(e.text, "63"));
	s[63] = s[127] = s[191] = '.';
	assert_int_equal(policy_host_canonical(s, 253, host, &e), 0);
	assert_int_equal(strlen(host), 253);
	assert_int_equal(policy_host_canonical(s, 254, host, &e), -EINVAL);
	assert_non_null(strstr(e.text, "253"));
	s[253] = '.';
	assert_int_equal(policy_host_canonical(s, 254, host, &e), 0);
}

static void patterns_get_one_spelling(void **state)
{
	(void)state;
	static const char *const table[][2] = {
		{"api.example.com", "api.example.com"},
		{"*.Example.com.", "*.example.com"},
		{"**.example.co.uk", "**.example.co.uk"},
		{"b\xc3\xbc"
		 "cher.example",
		 "xn--bcher-kva.example"},
		{"*.B\xc3\x9c"
		 "CHER.example",
		 "*.xn--bcher-kva.example"},
		{"stra\xc3\x9f"
		 "e.de",
		 "xn--strae-oqa.de"},
		{"\xef\xbc\xa5xample.com", "example.com"}, /* a full-width E */
	};
	for (EACH(i, table)) {
		char pattern[POLICY_PATTERN_MAX];
		struct err e = {0};
		if (policy_pattern_canonical(table[i][0], pattern, &e) < 0)
			fail_msg("%s: %s", table[i][0], e.text);
		assert_string_equal(pattern, table[i][1]);
		assert_int_equal(policy_pattern_check(table[i][0], NULL), 0);
	}
}

static void patterns_that_say_too_much_are_refused(void **state)
{
	(void)state;
	static const char *const table[][2] = {
		{"*", "every host"},
		{"**", "every host"},
		{"*.", "empty"},
		{"**.", "empty"},
		{"*example.com", "whole labels"},
		{"***.example.com", "whole labels"},
		{"*.*.example.com", "whole labels"},
		{"api.*.com", "whole labels"},
		{"api.*", "whole labels"},
		{"*.com", "public suffix"},
		{"**.com", "public suffix"},
		{"*.COM.", "public suffix"},
		{"*.co.uk", "public suffix"},
		{"**.github.io", "public suffix"},
		{"*.internal", "public suffix"},
		{"*.xn--p1ai", "public suffix"},
		{"*.\xd1\x80\xd1\x84", "public suffix"},
		{"*.127.0.0.1", "IP address"},
		{"*..example.com", "empty label"},
		{"10.0.0.0/8", "letters"},
		{"\xef\xbc\x91\xef\xbc\x92\xef\xbc\x97.0.0.1",
		 "IP address"}, /* full-width digits */
		{"b\xc3", "internationalised"},
		{"", "empty"},
	};
	for (EACH(i, table)) {
		char pattern[POLICY_PATTERN_MAX] = "untouched";
		struct err e = {0};
		if (policy_pattern_canonical(table[i][0], pattern, &e) != -EINVAL)
			fail_msg("\"%s\" is %s", table[i][0], pattern);
		if (!strstr(e.text, table[i][1]))
			fail_msg("\"%s\": %s", table[i][0], e.text);
		assert_string_equal(pattern, "untouched");
		assert_int_equal(policy_pattern_check(table[i][0], NULL), -EINVAL);
	}
}

static void patterns_match_whole_labels(void **state)
{
	(void)state;
	static const struct {
		const char *pattern, *host;
		bool matches;
	} table[] = {
		{"example.com", "example.com", true},
		{"example.com", "api.example.com", false},
		{"example.com", "evilexample.com", false},
		{"example.com", "example.com.evil.org", false},
		{"*.example.com", "api.example.com", true},
		{"*.example.com", "example.com", false},
		{"*.example.com", "a.b.example.com", false},
		{"*.example.com", "evilexample.com", false},
		{"*.example.com", ".example.com", false},
		{"*.example.com", "api.example.com.evil.org", false},
		{"**.example.com", "example.com", true},
		{"**.example.com", "api.example.com", true},
		{"**.example.com", "a.b.example.com", true},
		{"**.example.com", "evilexample.com", false},
		{"**.example.com", "com", false},
		{"*.example.com", "", false},
		{"**.example.com", "", false},
		{"example.com", "*.example.com", false},
	};
	for (EACH(i, table))
		if (policy_pattern_matches(table[i].pattern, table[i].host) != table[i].matches)
			fail_msg("%s against %s", table[i].pattern, table[i].host);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_get_one_spelling),
		cmocka_unit_test(what_is_no_name_is_refused),
		cmocka_unit_test(nul_in_a_name_is_refused),
		cmocka_unit_test(lengths_are_bounded),
		cmocka_unit_test(patterns_get_one_spelling),
		cmocka_unit_test(patterns_that_say_too_much_are_refused),
		cmocka_unit_test(patterns_match_whole_labels),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
