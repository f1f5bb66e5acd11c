/* SPDX-License-Identifier: Apache-2.0 */
/* Records are JSON whatever the guest puts into them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/doc.h"
#include "egress/record.h"

static json_t *written(const char *value)
{
	struct buf out;
	struct record r;
	struct err e = {0};
	buf_init(&out, 65536);
	record_open(&r, &out);
	record_string(&r, "before", "x");
	record_object(&r, "inner");
	record_string(&r, "value", value);
	record_number(&r, "number", UINT64_C(9007199254740993));
	record_close(&r);
	record_string(&r, "after", NULL);
	assert_int_equal(record_close(&r), 0);
	json_t *j = doc_parse_json((const char *)out.data, out.len, &e);
	assert_non_null(j);
	assert_string_equal(json_string_value(json_object_get(j, "before")), "x");
	assert_true(json_is_null(json_object_get(j, "after")));
	json_t *number = json_object_get(json_object_get(j, "inner"), "number");
	assert_int_equal(json_integer_value(number), 9007199254740993);
	buf_done(&out);
	return j;
}

static void expect(const char *value, const char *want)
{
	auto_json json_t *j = written(value);
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(j, "inner"), "value")), want);
}

static void text_is_escaped(void **state)
{
	(void)state;
	expect("plain", "plain");
	expect("", "");
	expect("a\"b\\c/d", "a\"b\\c/d");
	expect("\x01\x1f\x7f\n\r\t", "\x01\x1f\x7f\n\r\t");
	expect("\"},{\"kind\":\"forged\"", "\"},{\"kind\":\"forged\"");
	expect("z\xc3\xbcrich \xe2\x82\xac \xf0\x9f\x8c\x8d",
	       "z\xc3\xbcrich \xe2\x82\xac \xf0\x9f\x8c\x8d");
}

static void what_is_not_utf8_is_replaced(void **state)
{
	(void)state;
	expect("a\xff"
	       "b",
	       "a\xef\xbf\xbd"
	       "b");
	expect("\xc3", "\xef\xbf\xbd");                                 /* cut */
	expect("\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd");                 /* overlong */
	expect("\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); /* surrogate */
	expect("\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
	expect("\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd");
}

static void numbers_are_written_whole(void **state)
{
	(void)state;
	static const char want[] = "{\"none\":0,\"ten\":10,\"most\":18446744073709551615}";
	struct buf out;
	struct record r;
	buf_init(&out, 256);
	record_open(&r, &out);
	record_number(&r, "none", 0);
	record_number(&r, "ten", 10);
	record_number(&r, "most", UINT64_MAX);
	assert_int_equal(record_close(&r), 0);
	assert_int_equal(out.len, strlen(want));
	assert_memory_equal(out.data, want, out.len);
	buf_done(&out);
}

static void record_over_its_cap_fails(void **state)
{
	(void)state;
	struct buf out;
	struct record r;
	buf_init(&out, 64);
	record_open(&r, &out);
	for (int i = 0; i < 10; i++)
		record_string(&r, "key", "a value of some length");
	assert_int_equal(record_close(&r), -EMSGSIZE);
	buf_done(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_is_escaped),
		cmocka_unit_test(what_is_not_utf8_is_replaced),
		cmocka_unit_test(numbers_are_written_whole),
		cmocka_unit_test(record_over_its_cap_fails),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
