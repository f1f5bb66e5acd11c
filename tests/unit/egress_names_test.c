/* SPDX-License-Identifier: Apache-2.0 */
/* Synthetic addresses: one for each name, of the right network, bounded, and back to the name. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/guest.h"
#include "egress/names.h"

static struct address parse(const char *s)
{
	struct address a;
	assert_int_equal(address_parse(s, &a), 0);
	return a;
}

static void name_gets_one_address_and_back(void **state)
{
	(void)state;
	struct names *n = names_new();
	struct address a, again, b;
	assert_int_equal(names_address(n, "a.example.com", &a), 0);
	assert_int_equal(names_address(n, "b.example.com", &b), 0);
	assert_int_equal(names_address(n, "a.example.com", &again), 0);
	assert_memory_equal(&a, &again, sizeof(a));
	assert_true(memcmp(&a, &b, sizeof(a)) != 0);
	assert_string_equal(names_host(n, &a), "a.example.com");
	assert_string_equal(names_host(n, &b), "b.example.com");
	names_free(n);
}

static void addresses_that_were_not_given_name_nobody(void **state)
{
	(void)state;
	struct names *n = names_new();
	struct address a;
	static const char *const others[] = {
		"198.18.0.0",        "198.18.0.2",    "198.19.255.255", "198.20.0.1",
		"192.0.2.1",         "127.0.0.1",     "0.0.0.0",        "255.255.255.255",
		"::ffff:198.18.0.1", "198.17.255.255"};
	assert_int_equal(names_address(n, "a.example.com", &a), 0);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		struct address other = parse(others[i]);
		assert_null(names_host(n, &other));
	}
	names_free(n);
}

static void names_are_bounded_and_keep_their_addresses(void **state)
{
	(void)state;
	struct names *n = names_new();
	struct address_prefix net;
	char name[64];
	struct address a;
	snprintf(name, sizeof(name), "%s/%d", SYNTHETIC_NET, SYNTHETIC_PREFIX_LEN);
	assert_int_equal(address_prefix_parse(name, &net), 0);
	for (int i = 0; i < NAMES_MAX; i++) {
		snprintf(name, sizeof(name), "h%d.example.com", i);
		assert_int_equal(names_address(n, name, &a), 0);
		assert_true(address_in(&a, &net));
		assert_string_equal(names_host(n, &a), name);
	}
	assert_int_equal(names_address(n, "one.too.many", &a), -ENOSPC);
	assert_int_equal(names_address(n, "h7.example.com", &a), 0);
	assert_string_equal(names_host(n, &a), "h7.example.com");
	names_free(n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(name_gets_one_address_and_back),
		cmocka_unit_test(addresses_that_were_not_given_name_nobody),
		cmocka_unit_test(names_are_bounded_and_keep_their_addresses),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
