/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses: one spelling each, what hides inside IPv6, what is no destination. */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/str.h"
#include "net/address.h"

#define EACH(i, table)                        \
	size_t i = 0;                         \
	i < sizeof(table) / sizeof(*(table)); \
	i++

static struct address parsed(const char *s)
{
	struct address a;
	if (address_parse(s, &a) < 0)
		fail_msg("%s does not parse", s);
	return a;
}

static void parse_takes_the_one_spelling(void **state)
{
	(void)state;
	static const char *const table[][2] = {
		{"0.0.0.0", "0.0.0.0"},
		{"192.0.2.255", "192.0.2.255"},
		{"::", "::"},
		{"::1", "::1"},
		{"2001:DB8::1", "2001:db8::1"},
		{"2001:db8:0:0:0:0:0:1", "2001:db8::1"},
		{"::ffff:1.2.3.4", "::ffff:1.2.3.4"},
	};
	for (EACH(i, table)) {
		char text[INET6_ADDRSTRLEN];
		struct address a = parsed(table[i][0]);
		address_format(&a, text);
		assert_string_equal(text, table[i][1]);
	}
}

static void parse_refuses_other_spellings(void **state)
{
	(void)state;
	static const char *const table[] = {
		"",
		"1",
		"1.2.3",
		"1.2.3.4.5",
		"1.2.3.4.",
		".1.2.3.4",
		"01.2.3.4",
		"1.2.3.04",
		"1.2.3.256",
		"0x7f.0.0.1",
		"0177.0.0.1",
		"2130706433",
		"127.1",
		" 1.2.3.4",
		"1.2.3.4 ",
		"1.2.3.4\n",
		"1.2.3.-4",
		"+1.2.3.4",
		"1..2.3",
		"::1%lo",
		"fe80::1%1",
		"[::1]",
		":::",
		"1::2::3",
		"12345::",
		"1:2:3:4:5:6:7",
		"::ffff:1.2.3",
		"::ffff:01.2.3.4",
		"g::",
		"1.2.3.4/8",
		"::1.2.3.4.5",
		"1:2:3:4:5:6:7:8:9",
	};
	for (EACH(i, table)) {
		struct address a = {.family = 77};
		if (address_parse(table[i], &a) != -EINVAL)
			fail_msg("\"%s\" parsed", table[i]);
		assert_int_equal(a.family, 77);
	}
}

static void sockaddr_there_and_back(void **state)
{
	(void)state;
	static const char *const table[] = {"1.2.3.4", "2001:db8::7"};
	for (EACH(i, table)) {
		struct address a = parsed(table[i]), b;
		struct sockaddr_storage sa;
		socklen_t len;
		uint16_t port;
		address_to_sockaddr(&a, 443, &sa, &len);
		assert_int_equal(len, i ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
		assert_int_equal(address_from_sockaddr((struct sockaddr *)&sa, &b, &port), 0);
		assert_memory_equal(&a, &b, sizeof(a));
		assert_int_equal(port, 443);
		assert_int_equal(address_from_sockaddr((struct sockaddr *)&sa, &b, NULL), 0);
	}
	struct sockaddr sa = {.sa_family = AF_UNIX};
	struct address a;
	assert_int_equal(address_from_sockaddr(&sa, &a, NULL), -EAFNOSUPPORT);
}

static void unwrap_finds_ipv4_inside_ipv6(void **state)
{
	(void)state;
	static const char *const table[][2] = {
		{"::ffff:10.0.0.1", "10.0.0.1"},
		{"::ffff:7f00:1", "127.0.0.1"},
		{"::ffff:0:127.0.0.1", "127.0.0.1"},
		{"::127.0.0.1", "127.0.0.1"},
		{"::2", "0.0.0.2"},
		{"64:ff9b::169.254.169.254", "169.254.169.254"},
		{"64:ff9b:1::10.0.0.1", "10.0.0.1"},
		{"64:ff9b:1:a00:0:100::", "10.0.0.1"},
		{"2002:7f00:1::", "127.0.0.1"},
		{"2002:a9fe:a9fe:1234::5", "169.254.169.254"},
		{"2001:0:808:808:0:0:80ff:fffe", "127.0.0.1"},
		/* themselves */
		{"::", "::"},
		{"::1", "::1"},
		{"64:ff9b:1:808:8:800::1", "64:ff9b:1:808:8:800:0:1"},
		{"64:ff9b:2::1", "64:ff9b:2::1"},
		{"2001:db8::1", "2001:db8::1"},
		{"2606:4700::1111", "2606:4700::1111"},
		{"1.2.3.4", "1.2.3.4"},
	};
	for (EACH(i, table)) {
		char text[INET6_ADDRSTRLEN];
		struct address a = parsed(table[i][0]);
		address_unwrap(&a);
		address_format(&a, text);
		assert_string_equal(text, table[i][1]);
	}
}

static void special_names_each_range_to_its_edges(void **state)
{
	(void)state;
	static const char *const table[][2] = {
		{"0.0.0.0", "this network"},
		{"0.255.255.255", "this network"},
		{"1.0.0.0", NULL},
		{"9.255.255.255", NULL},
		{"10.0.0.0", "private"},
		{"10.255.255.255", "private"},
		{"11.0.0.0", NULL},
		{"100.63.255.255", NULL},
		{"100.64.0.0", "shared"},
		{"100.127.255.255", "shared"},
		{"100.128.0.0", NULL},
		{"126.255.255.255", NULL},
		{"127.0.0.0", "loopback"},
		{"127.255.255.255", "loopback"},
		{"128.0.0.0", NULL},
		{"169.253.255.255", NULL},
		{"169.254.0.0", "link-local"},
		{"169.254.255.255", "link-local"},
		{"169.255.0.0", NULL},
		{"172.15.255.255", NULL},
		{"172.16.0.0", "private"},
		{"172.31.255.255", "private"},
		{"172.32.0.0", NULL},
		{"191.255.255.255", NULL},
		{"192.0.0.0", "protocol assignments"},
		{"192.0.0.255", "protocol assignments"},
		{"192.0.1.0", NULL},
		{"192.0.2.1", "documentation"},
		{"192.0.3.0", NULL},
		{"192.88.99.1", "6to4 relay"},
		{"192.167.255.255", NULL},
		{"192.168.0.0", "private"},
		{"192.168.255.255", "private"},
		{"192.169.0.0", NULL},
		{"198.17.255.255", NULL},
		{"198.18.0.0", "benchmarking"},
		{"198.19.255.255", "benchmarking"},
		{"198.20.0.0", NULL},
		{"198.51.100.7", "documentation"},
		{"203.0.113.7", "documentation"},
		{"223.255.255.255", NULL},
		{"224.0.0.0", "multicast"},
		{"239.255.255.255", "multicast"},
		{"240.0.0.0", "reserved"},
		{"255.255.255.254", "reserved"},
		{"255.255.255.255", "broadcast"},
		{"::", "unspecified"},
		{"::1", "loopback"},
		{"100::1", "reserved"},
		{"1fff::1", "reserved"},
		{"2000::1", NULL},
		{"2001:1ff::1", "protocol assignments"},
		{"2001:200::1", NULL},
		{"2001:db8:ffff::", "documentation"},
		{"2606:4700::1111", NULL},
		{"3fff:fff::1", "documentation"},
		{"3fff:1000::1", NULL},
		{"4000::1", "reserved"},
		{"5f00::1", "reserved"},
		{"fbff::1", "reserved"},
		{"fc00::", "private"},
		{"fdff:ffff::", "private"},
		{"fe00::1", "reserved"},
		{"fe80::1", "link-local"},
		{"febf::1", "link-local"},
		{"fec0::1", "site-local"},
		{"feff::1", "site-local"},
		{"ff00::", "multicast"},
		{"ff02::fb", "multicast"},
		{"64:ff9b:1:808:8:800::1", "local NAT64"},
		/* wrapped: the inner address is judged */
		{"::ffff:8.8.8.8", NULL},
		{"::ffff:10.1.1.1", "private"},
		{"64:ff9b::8.8.8.8", NULL},
		{"64:ff9b::192.168.0.1", "private"},
		{"2002:808:808::1", NULL},
		{"2002:c0a8:1::1", "private"},
		{"2001:0:808:808:0:0:f7f7:f7f7", NULL},
		{"2001:0:808:808:0:0:3f57:fffe", "private"},
		{"::ffff:169.254.169.254", "metadata"},
	};
	for (EACH(i, table)) {
		struct address a = parsed(table[i][0]);
		const char *what = address_special(&a);
		if (what != table[i][1] && !str_eq(what, table[i][1]))
			fail_msg("%s is %s", table[i][0], what ? what : "public");
	}
}

static void metadata_is_found_in_every_wrapping(void **state)
{
	(void)state;
	static const char *const table[] = {
		"169.254.169.254",      "fd00:ec2::254",
		"169.254.170.2",        "100.100.100.200",
		"168.63.129.16",        "::ffff:169.254.169.254",
		"::169.254.169.254",    "64:ff9b::169.254.169.254",
		"2002:a9fe:a9fe::1",    "64:ff9b:1:a9fe:a9:fe00::",
		"64:ff9b:1::a9fe:a9fe", "2001:0:1:1:0:0:5601:5601",
	};
	for (EACH(i, table)) {
		struct address a = parsed(table[i]);
		if (!address_is_metadata(&a) || !str_eq(address_special(&a), "metadata"))
			fail_msg("%s passes", table[i]);
	}
	static const char *const others[] = {"169.254.169.255", "fd00:ec2::253", "8.8.8.8", "::1"};
	for (EACH(i, others)) {
		struct address a = parsed(others[i]);
		assert_false(address_is_metadata(&a));
	}
}

static void prefix_holds_its_addresses_alone(void **state)
{
	(void)state;
	static const struct {
		const char *prefix, *address;
		bool in;
	} table[] = {
		{"10.0.0.0/8", "10.255.0.1", true},
		{"10.0.0.0/8", "11.0.0.0", false},
		{"10.1.2.3", "10.1.2.3", true},
		{"10.1.2.3", "10.1.2.2", false},
		{"0.0.0.0/0", "255.1.2.3", true},
		{"0.0.0.0/0", "::1", false},
		{"198.18.0.0/15", "198.19.255.255", true},
		{"198.18.0.0/15", "198.20.0.0", false},
		{"198.18.0.0/15", "198.17.255.255", false},
		{"fd00::/8", "fdff::1", true},
		{"fd00::/8", "fc00::1", false},
		{"::1/128", "::1", true},
		{"::1/128", "::2", false},
		{"::/0", "1.2.3.4", false},
		{"fe80::/10", "febf::", true},
		{"fe80::/10", "fec0::", false},
		{"255.255.255.255/32", "255.255.255.255", true},
	};
	for (EACH(i, table)) {
		struct address_prefix p;
		struct address a = parsed(table[i].address);
		assert_int_equal(address_prefix_parse(table[i].prefix, &p), 0);
		if (address_in(&a, &p) != table[i].in)
			fail_msg("%s in %s", table[i].address, table[i].prefix);
	}
}

static void prefix_refuses_what_is_none(void **state)
{
	(void)state;
	static const char *const table[] = {
		"",
		"/8",
		"10.0.0.0/",
		"10.0.0.0/33",
		"10.0.0.0/-1",
		"10.0.0.1/8",
		"10.0.0.0/08",
		"10.0.0.0/8 ",
		"10/8",
		"fd00::/129",
		"fd00::1/64",
		"::1%lo/128",
		"10.0.0.0/8/8",
		"10.0.0.0/255.0.0.0",
		"0000:0000:0000:0000:0000:0000:0000:0000:0000:0000/8",
	};
	for (EACH(i, table)) {
		struct address_prefix p;
		if (address_prefix_parse(table[i], &p) != -EINVAL)
			fail_msg("\"%s\" parsed", table[i]);
	}
}

static void numeric_hosts_are_known_in_every_spelling(void **state)
{
	(void)state;
	static const char *const table[] = {
		"127.0.0.1",  "127.1",        "127.0.1",    "2130706433", "0x7f000001",
		"0X7F000001", "017700000001", "0177.0.0.1", "0x7f.1",     "127.0.0.1.",
		"1.2.3.08",   "1.2.3.256",    "4294967296", "0",          "0x",
		"0x.0x",      "1.2.3.4.5",    "example.1",  "foo.0x7f",   "99999999999999999999",
	};
	for (EACH(i, table))
		if (!address_is_numeric_host(table[i]))
			fail_msg("%s is a name", table[i]);
	static const char *const names[] = {
		"",   ".",  "example.com", "1.com", "127.0.0.1.nip.io", "0x7f.com", "1.2.3.4.com.",
		"a1", "1a", "0xg",         "x0",    "deadbeef",         "1-2",      "1.2.3.4..",
	};
	for (EACH(i, names))
		if (address_is_numeric_host(names[i]))
			fail_msg("%s is a number", names[i]);
}

static void a_prefix_opens_special_ranges_only_from_within(void **state)
{
	(void)state;
	static const struct {
		const char *prefix, *address;
		bool opens;
	} table[] = {
		{"8.0.0.0/8", "8.8.8.8", true},
		{"8.0.0.0/8", "9.8.8.8", false},
		{"8.8.8.8", "8.8.8.8", true},
		{"0.0.0.0/1", "8.8.8.8", true},
		{"0.0.0.0/1", "10.0.0.1", false},
		{"8.0.0.0/6", "10.0.0.1", false},
		{"10.0.0.0/7", "10.0.0.1", false},
		{"10.0.0.0/8", "10.0.0.1", true},
		{"10.0.0.0/24", "10.0.0.1", true},
		{"10.0.0.1", "10.0.0.1", true},
		{"127.0.0.0/8", "127.0.0.1", true},
		{"240.0.0.0/4", "240.0.0.1", true},
		{"240.0.0.0/4", "255.255.255.255", false},
		{"224.0.0.0/3", "224.0.0.1", false},
		{"169.254.0.0/16", "169.254.169.254", false},
		{"169.254.169.254", "169.254.169.254", false},
		{"169.254.0.0/16", "169.254.1.1", true},
		{"168.63.129.16", "168.63.129.16", false},
		{"fc00::/7", "fd00:ec2::254", false},
		{"fd00:ec2::254", "fd00:ec2::254", false},
		{"fc00::/7", "fd00::1", true},
		{"fc00::/6", "fd00::1", false},
		{"::/3", "::1", false},
		{"::/3", "1000::1", true},
		{"::/2", "1000::1", false},
		{"::1", "::1", true},
		{"2000::/3", "2606:4700::1111", true},
		{"2000::/3", "2001:db8::1", false},
		{"2001:db8::/32", "2001:db8::1", true},
		{"::/1", "2606:4700::1111", true},
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		struct address_prefix p;
		struct address a;
		assert_int_equal(address_prefix_parse(table[i].prefix, &p), 0);
		assert_int_equal(address_parse(table[i].address, &a), 0);
		if (address_opened_by(&a, &p) != table[i].opens)
			fail_msg("%s %s", table[i].prefix, table[i].address);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parse_takes_the_one_spelling),
		cmocka_unit_test(parse_refuses_other_spellings),
		cmocka_unit_test(sockaddr_there_and_back),
		cmocka_unit_test(unwrap_finds_ipv4_inside_ipv6),
		cmocka_unit_test(special_names_each_range_to_its_edges),
		cmocka_unit_test(metadata_is_found_in_every_wrapping),
		cmocka_unit_test(prefix_holds_its_addresses_alone),
		cmocka_unit_test(prefix_refuses_what_is_none),
		cmocka_unit_test(a_prefix_opens_special_ranges_only_from_within),
		cmocka_unit_test(numeric_hosts_are_known_in_every_spelling),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
