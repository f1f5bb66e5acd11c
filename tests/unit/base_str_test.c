/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers with units, names, UTF-8, base64, hex. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/str.h"

static void sizes_take_units_and_default_to_mib(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		uint64_t mib;
	} good[] = {{"512", 512}, {"512M", 512},  {"1G", 1024},
		    {"8g", 8192}, {"2GiB", 2048}, {"0", 0}};
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		uint64_t v;
		assert_int_equal(str_to_mib(good[i].text, &v), 0);
		assert_int_equal(v, good[i].mib);
	}
	static const char *const bad[] = {"", "G", "-1", "+1", "1.5G", "1 G", "1T", "0x10", "1GG"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint64_t v;
		assert_int_equal(str_to_mib(bad[i], &v), -EINVAL);
	}
	uint64_t v;
	assert_int_equal(str_to_mib("18446744073709551616", &v), -ERANGE);
	assert_int_equal(str_to_mib("18446744073709551615G", &v), -ERANGE);
}

static void durations_take_units_and_default_to_seconds(void **state)
{
	(void)state;
	uint64_t v;
	assert_int_equal(str_to_ms("90", &v), 0);
	assert_int_equal(v, 90000);
	assert_int_equal(str_to_ms("5m", &v), 0);
	assert_int_equal(v, 300000);
	assert_int_equal(str_to_ms("250ms", &v), 0);
	assert_int_equal(v, 250);
	assert_int_equal(str_to_ms("5x", &v), -EINVAL);
	assert_int_equal(str_to_ms("", &v), -EINVAL);
}

static void bytes_take_units_of_a_thousand(void **state)
{
	(void)state;
	uint64_t v;
	assert_int_equal(str_to_bytes("64kB", &v), 0);
	assert_int_equal(v, 64000);
	assert_int_equal(str_to_bytes("1 GB", &v), 0);
	assert_int_equal(v, 1000000000);
	assert_int_equal(str_to_bytes("9223372036GB", &v), 0);
	static const char *const bad[] = {"", "1", "GB", "1gb", "1GBx", "-1GB", "1 G B", "1.5GB"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(str_to_bytes(bad[i], &v), -EINVAL);
	assert_int_equal(str_to_bytes("0GB", &v), -ERANGE);
	assert_int_equal(str_to_bytes("9223372037GB", &v), -ERANGE);
	assert_int_equal(str_to_bytes("99999999999999999999GB", &v), -ERANGE);
}

static void numbers_keep_to_their_range(void **state)
{
	(void)state;
	uint64_t v = 7;
	assert_int_equal(str_to_u64("65535", 1, 65535, &v), 0);
	assert_int_equal(v, 65535);
	assert_int_equal(str_to_u64("65536", 1, 65535, &v), -ERANGE);
	assert_int_equal(str_to_u64("0", 1, 65535, &v), -ERANGE);
	assert_int_equal(str_to_u64("80 ", 1, 65535, &v), -EINVAL);
	assert_int_equal(v, 65535);
}

static void names_are_short_and_plain(void **state)
{
	(void)state;
	char long_name[65];
	memset(long_name, 'a', 64);
	long_name[64] = '\0';
	assert_true(str_is_name("w"));
	assert_true(str_is_name("web-1.test_2"));
	assert_true(str_is_name(long_name + 1));
	assert_false(str_is_name(long_name));
	assert_false(str_is_name(""));
	assert_false(str_is_name("-w"));
	assert_false(str_is_name("../etc"));
	assert_false(str_is_name("a/b"));
	assert_true(str_is_env_name("API_TOKEN"));
	assert_false(str_is_env_name("1A"));
	assert_false(str_is_env_name("A-B"));
	assert_false(str_is_env_name(""));
}

static void utf8_is_judged_strictly(void **state)
{
	(void)state;
	static const struct {
		const char *bytes;
		bool valid;
	} cases[] = {
		{"plain", true},
		{"\xc3\xbc", true},
		{"\xe2\x82\xac", true},
		{"\xf0\x9f\x98\x80", true},
		{"\xc3", false},
		{"\xc0\xaf", false},
		{"\xe0\x80\xaf", false},
		{"\xed\xa0\x80", false},
		{"\xf4\x90\x80\x80", false},
		{"\xff", false},
		{"\x80", false},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(str_is_utf8(cases[i].bytes, strlen(cases[i].bytes)),
				 cases[i].valid);
}

static void base64_round_trips_every_length(void **state)
{
	(void)state;
	uint8_t in[64], out[80];
	char text[96];
	for (size_t n = 0; n <= sizeof(in); n++) {
		for (size_t i = 0; i < n; i++)
			in[i] = (uint8_t)(i * 37 + n);
		size_t len = base64_encode(in, n, text);
		assert_int_equal(len, base64_encoded_len(n));
		assert_int_equal(strlen(text), len);
		assert_int_equal(base64_decode(text, len, out), n);
		assert_memory_equal(in, out, n);
	}
}

static void base64_takes_both_alphabets_and_no_padding(void **state)
{
	(void)state;
	uint8_t out[8];
	assert_int_equal(base64_decode("-_8", 3, out), 2);
	assert_memory_equal(out, "\xfb\xff", 2);
	assert_int_equal(base64_decode("+/8=", 4, out), 2);
	assert_memory_equal(out, "\xfb\xff", 2);
}

static void base64_refuses_what_is_none(void **state)
{
	(void)state;
	static const char *const bad[] = {
		"a", "ab=c", "a===", "====", "ab\n=", "a b=", "abcde", "=", "ab==ab=="};
	uint8_t out[16];
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(base64_decode(bad[i], strlen(bad[i]), out), -EBADMSG);
}

static void base64_judges_every_byte_at_every_place(void **state)
{
	static const char alphabets[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_";
	(void)state;
	for (int c = 0; c < 256; c++) {
		for (size_t place = 0; place < 8; place++) {
			char text[] = "AAAAAAAA";
			uint8_t out[9];
			text[place] = (char)c;
			bool valid = c && strchr(alphabets, c);
			bool padding = c == '=' && place == 7;
			assert_int_equal(base64_decode(text, 8, out), valid     ? 6
								      : padding ? 5
										: -EBADMSG);
		}
	}
}

/* Characters of 1 to 4 bytes, cut after each byte. */
static void partial_sequence_is_dropped_and_nothing_else(void **state)
{
	(void)state;
	static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";
	static const size_t kept[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11};
	for (size_t n = 0; n < sizeof(text); n++) {
		char cut[sizeof(text)] = "";
		memcpy(cut, text, n);
		str_drop_partial(cut);
		assert_int_equal(strlen(cut), kept[n]);
		assert_memory_equal(cut, text, kept[n]);
	}
}

static void long_errors_stay_utf8(void **state)
{
	(void)state;
	char text[ERR_TEXT_MAX + 8] = "";
	for (size_t n = 0; n + 3 < sizeof(text); n += 3)
		memcpy(text + n, "\xe2\x82\xac", 4);
	for (size_t skip = 0; skip < 3; skip++) {
		struct err e;
		err_set(&e, EIO, "%.*s%s", (int)skip, "ab", text);
		assert_true(str_is_utf8(e.text, strlen(e.text)));
		assert_true(strlen(e.text) > ERR_TEXT_MAX - 4);
		err_prefix(&e, "%.*s", (int)skip, "cd");
		assert_true(str_is_utf8(e.text, strlen(e.text)));
		err_sys(&e, EIO, "%.*s%s", (int)skip, "ab", text);
		assert_true(str_is_utf8(e.text, strlen(e.text)));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_take_units_and_default_to_mib),
		cmocka_unit_test(durations_take_units_and_default_to_seconds),
		cmocka_unit_test(bytes_take_units_of_a_thousand),
		cmocka_unit_test(numbers_keep_to_their_range),
		cmocka_unit_test(names_are_short_and_plain),
		cmocka_unit_test(utf8_is_judged_strictly),
		cmocka_unit_test(partial_sequence_is_dropped_and_nothing_else),
		cmocka_unit_test(long_errors_stay_utf8),
		cmocka_unit_test(base64_round_trips_every_length),
		cmocka_unit_test(base64_takes_both_alphabets_and_no_padding),
		cmocka_unit_test(base64_refuses_what_is_none),
		cmocka_unit_test(base64_judges_every_byte_at_every_place),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
