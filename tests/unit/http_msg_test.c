/* SPDX-License-Identifier: Apache-2.0 */
/* Field lists, percent-encoding, query parameters. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "http/msg.h"

static void fields_are_found_without_case(void **state)
{
	(void)state;
	struct http_fields f = {0};
	assert_int_equal(http_fields_add(&f, "Set-Cookie", "a=1"), 0);
	assert_int_equal(http_fields_add(&f, "X_Y", "\t padded \t"), 0);
	assert_int_equal(http_fields_addf(&f, "set-cookie", "b=%d", 2), 0);
	assert_string_equal(http_fields_get(&f, "SET-COOKIE"), "a=1");
	assert_string_equal(http_fields_get(&f, "x_y"), "padded");
	assert_int_equal(http_fields_count(&f, "set-cookie"), 2);
	assert_null(http_fields_get(&f, "set-cooki"));
	assert_null(http_fields_get(&f, "set-cookie2"));
	assert_null(http_fields_get(&f, "X?Y"));
	assert_null(http_fields_get(&f, ""));
	http_fields_done(&f);
	assert_int_equal(f.count, 0);
}

/* '@' and '`', '[' and '{' differ in the same bit as 'A' and 'a'. */
static void field_names_differ_in_more_than_case(void **state)
{
	(void)state;
	struct http_fields f = {0};
	assert_int_equal(http_fields_add(&f, "a^b`c|~", "x"), 0);
	assert_null(http_fields_get(&f, "a^b@c|~"));
	assert_null(http_fields_get(&f, "a~b`c|~"));
	assert_null(http_fields_get(&f, "a^b`c\\~"));
	assert_string_equal(http_fields_get(&f, "A^B`C|~"), "x");
	http_fields_done(&f);
}

static void fields_refuse_injection(void **state)
{
	(void)state;
	struct http_fields f = {0};
	assert_int_equal(http_fields_add(&f, "", "x"), -EINVAL);
	assert_int_equal(http_fields_add(&f, "a b", "x"), -EINVAL);
	assert_int_equal(http_fields_add(&f, "a:", "x"), -EINVAL);
	assert_int_equal(http_fields_add(&f, "a\r\nb", "x"), -EINVAL);
	assert_int_equal(http_fields_add(&f, "a", "x\r\nb: y"), -EINVAL);
	assert_int_equal(http_fields_add(&f, "a", "x\n"), -EINVAL);
	assert_int_equal(http_fields_add(&f, "a", "\x7f"), -EINVAL);
	assert_int_equal(http_fields_addf(&f, "a", "%s", "x\ry"), -EINVAL);
	assert_int_equal(f.count, 0);
	assert_int_equal(http_fields_add(&f, "a", "x\ty \xff"), 0);
	http_fields_done(&f);
}

static void fields_are_capped(void **state)
{
	(void)state;
	struct http_fields f = {0};
	for (int i = 0; i < HTTP_FIELDS_MAX; i++)
		assert_int_equal(http_fields_addf(&f, "a", "%d", i), 0);
	assert_int_equal(http_fields_add(&f, "a", "x"), -E2BIG);
	assert_string_equal(f.list[HTTP_FIELDS_MAX - 1].value, "127");
	http_fields_done(&f);
}

/* The list grows and shrinks across the sizes where its block is moved. */
static void fields_can_be_removed_and_added_again(void **state)
{
	(void)state;
	struct http_fields f = {0};
	for (int round = 0; round < 40; round++) {
		for (int i = 0; i <= round; i++)
			assert_int_equal(http_fields_addf(&f, i % 2 ? "odd" : "even", "%d", i), 0);
		http_fields_remove(&f, "ODD");
		assert_int_equal(http_fields_count(&f, "odd"), 0);
		assert_int_equal(f.count, round / 2 + 1);
		assert_string_equal(f.list[0].value, "0");
		http_fields_add(&f, "odd", "x");
		http_fields_remove(&f, "even");
		assert_int_equal(f.count, 1);
		http_fields_remove(&f, "odd");
		assert_int_equal(f.count, 0);
	}
	http_fields_done(&f);
}

static void reasons_are_known(void **state)
{
	(void)state;
	assert_string_equal(http_reason(200), "OK");
	assert_string_equal(http_reason(431), "Request Header Fields Too Large");
	assert_string_equal(http_reason(299), "Unknown");
}

static void decodes_to(const char *s, bool plus, const char *expected)
{
	char out[64];
	ssize_t n = http_percent_decode(s, strlen(s), plus, out);
	assert_int_equal(n, strlen(expected));
	assert_string_equal(out, expected);
}

static void percent_is_decoded(void **state)
{
	(void)state;
	decodes_to("", false, "");
	decodes_to("a%2Fb%2f+c", false, "a/b/+c");
	decodes_to("a+b%2B", true, "a b+");
	decodes_to("%e2%82%AC%01", false, "\xe2\x82\xac\x01");
	decodes_to("%2541", false, "%41");
}

static void percent_refuses_bad_escapes(void **state)
{
	(void)state;
	static const char *const bad[] = {"%",   "a%2",  "%2",  "%zz", "%2g",
					  "%g2", "%%41", "%00", "% 1", "%+1"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		size_t n = strlen(bad[i]);
		auto_free char *exact = malloc(n);
		char out[8];
		memcpy(exact, bad[i], n);
		assert_int_equal(http_percent_decode(exact, n, false, out), -EBADMSG);
	}
	char out[8];
	assert_int_equal(http_percent_decode("%41", 2, false, out), -EBADMSG);
}

static void percent_round_trips_every_byte(void **state)
{
	(void)state;
	char all[256], back[256];
	for (int i = 0; i < 255; i++)
		all[i] = (char)(i + 1);
	all[255] = '\0';
	auto_free char *enc = http_percent_encode(all, false);
	assert_int_equal(
		strspn(enc, "%ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"),
		strlen(enc));
	auto_free char *room = malloc(strlen(enc) + 1);
	assert_int_equal(http_percent_decode(enc, strlen(enc), true, room), 255);
	memcpy(back, room, 256);
	assert_string_equal(back, all);
	auto_free char *path = http_percent_encode("/a b/%", true);
	assert_string_equal(path, "/a%20b/%25");
	auto_free char *part = http_percent_encode("/a", false);
	assert_string_equal(part, "%2Fa");
}

static void query_is(const char *target, const char *name, const char *expected)
{
	char *value = (char *)"untouched";
	assert_int_equal(http_query_get(target, name, &value), 0);
	if (expected)
		assert_string_equal(value, expected);
	else
		assert_null(value);
	free(value);
}

static void query_parameters_are_found(void **state)
{
	(void)state;
	query_is("/files?path=dir%2Fhello+x.txt&username=user", "path", "dir/hello x.txt");
	query_is("/files?path=dir%2Fhello+x.txt&username=user", "username", "user");
	query_is("/files?p%61th=x", "path", "x");
	query_is("/f?a", "a", "");
	query_is("/f?a=", "a", "");
	query_is("/f?a=b=c?d", "a", "b=c?d");
	query_is("/f?a=1&a=2", "a", "1");
	query_is("/f?&&x=1&", "x", "1");
	query_is("/f", "a", NULL);
	query_is("/f?", "a", NULL);
	query_is("/f?ab=1&xa=2", "a", NULL);
	query_is("/a=1", "a", NULL);
	query_is("http://h/p?a=1", "a", "1");
}

static void query_refuses_bad_escapes(void **state)
{
	(void)state;
	char *value = NULL;
	assert_int_equal(http_query_get("/f?a=%2", "a", &value), -EBADMSG);
	assert_int_equal(http_query_get("/f?a=%00", "a", &value), -EBADMSG);
	assert_int_equal(http_query_get("/f?%zz=1&a=1", "a", &value), -EBADMSG);
	assert_null(value);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_are_found_without_case),
		cmocka_unit_test(field_names_differ_in_more_than_case),
		cmocka_unit_test(fields_refuse_injection),
		cmocka_unit_test(fields_are_capped),
		cmocka_unit_test(fields_can_be_removed_and_added_again),
		cmocka_unit_test(reasons_are_known),
		cmocka_unit_test(percent_is_decoded),
		cmocka_unit_test(percent_refuses_bad_escapes),
		cmocka_unit_test(percent_round_trips_every_byte),
		cmocka_unit_test(query_parameters_are_found),
		cmocka_unit_test(query_refuses_bad_escapes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
