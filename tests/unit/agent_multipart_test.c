/* SPDX-License-Identifier: Apache-2.0 */
/* Forms, whole and in every cut: parts, their data to the byte, and what is no form. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/multipart.h"
#include "base/buf.h"
#include "base/cleanup.h"

#define TYPE "multipart/form-data; boundary=BoUnD"

/* Feeds body in pieces of `piece` bytes and writes down what happens: "[name|filename]data;" and
 * "END". */
static int read_form(const char *type, const char *body, size_t n, size_t piece, struct buf *out)
{
	struct multipart m;
	int r = multipart_init(&m, type);
	if (r < 0)
		return r;
	enum multipart_event event = MULTIPART_MORE;
	for (size_t at = 0; r == 0 && at < n; at += piece) {
		const uint8_t *p = (const uint8_t *)body + at;
		size_t left = n - at < piece ? n - at : piece;
		do {
			ssize_t used = multipart_read(&m, p, left, &event);
			if (used < 0) {
				r = (int)used;
				break;
			}
			p += used;
			left -= (size_t)used;
			if (event == MULTIPART_PART)
				buf_printf(out, "[%s|%s]", m.name ? m.name : "-",
					   m.filename ? m.filename : "-");
			else if (event == MULTIPART_DATA)
				buf_append(out, m.data, m.len);
			else if (event == MULTIPART_PART_END)
				buf_append_str(out, ";");
		} while (event != MULTIPART_MORE && event != MULTIPART_END);
	}
	if (r == 0)
		buf_append_str(out, multipart_complete(&m) ? "END" : "OPEN");
	multipart_done(&m);
	return r;
}

static void expect(const char *body, size_t n, const char *want)
{
	for (size_t piece = 1; piece <= n; piece++) {
		struct buf out;
		buf_init(&out, 1 << 20);
		assert_int_equal(read_form(TYPE, body, n, piece, &out), 0);
		auto_free char *got = buf_take_str(&out);
		assert_string_equal(got, want);
	}
}

static void expect_refused(const char *body, size_t n)
{
	for (size_t piece = 1; piece <= n; piece++) {
		struct buf out;
		buf_init(&out, 1 << 20);
		assert_int_equal(read_form(TYPE, body, n, piece, &out), -EBADMSG);
		buf_done(&out);
	}
}

#define EXPECT(body, want) expect(body, sizeof(body) - 1, want)
#define REFUSED(body)      expect_refused(body, sizeof(body) - 1)
#define HEAD               "Content-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n"

static void form_with_one_part(void **state)
{
	(void)state;
	EXPECT("--BoUnD\r\n" HEAD "hello\r\n--BoUnD--\r\n", "[file|f]hello;END");
}

static void form_with_parts_preamble_and_epilogue(void **state)
{
	(void)state;
	EXPECT("pre\r\namble\r\n--BoUnD  \r\nContent-Type: a/b\r\ncontent-disposition:form-data;name=x\r\n\r\n"
	       "1\r\n--BoUnD\r\n" HEAD "\r\n--BoUnD--epilogue --BoUnD\r\n",
	       "[x|-]1;[file|f];END");
}

static void form_data_that_looks_like_a_boundary(void **state)
{
	(void)state;
	EXPECT("--BoUnD\r\n" HEAD
	       "\r\n--BoUnX\r\r\n\r\n-\r\n--BoUn\r\n--Bo--BoUnD\r\n\r\n--BoUnD--",
	       "[file|f]\r\n--BoUnX\r\r\n\r\n-\r\n--BoUn\r\n--Bo--BoUnD\r\n;END");
}

static void form_data_with_a_false_start_right_before_the_boundary(void **state)
{
	(void)state;
	EXPECT("--BoUnD\r\n" HEAD "a\r\r\n--BoUnD--", "[file|f]a\r;END");
	EXPECT("--BoUnD\r\n" HEAD "a\r\n--\r\n--BoUnD--", "[file|f]a\r\n--;END");
}

static void form_without_an_end_is_not_complete(void **state)
{
	(void)state;
	EXPECT("--BoUnD\r\n" HEAD "hello\r\n--BoUnD", "[file|f]hello;OPEN");
	EXPECT("--BoUnD\r\n" HEAD "hello\r\n--BoUnD-", "[file|f]hello;OPEN");
	EXPECT("nothing at all", "OPEN");
}

static void form_file_names_are_unescaped(void **state)
{
	(void)state;
	EXPECT("--BoUnD\r\nContent-Disposition: form-data; filename=\"a/%22b%22%0d%0A%41.txt\"; name=\"file\"\r\n\r\n\r\n--BoUnD--",
	       "[file|a/\"b\"\r\n%41.txt];END");
	EXPECT("--BoUnD\r\nContent-Disposition: form-data; name=\"a;b=\\\"c\\\\\"; filename=\"x\\y\"\r\n\r\n\r\n--BoUnD--",
	       "[a;b=\"c\\|x\\y];END");
}

static void form_head_that_is_none_is_refused(void **state)
{
	(void)state;
	REFUSED("--BoUnD\r\n\r\nx\r\n--BoUnD--");
	REFUSED("--BoUnD\r\nContent-Type: a/b\r\n\r\nx\r\n--BoUnD--");
	REFUSED("--BoUnD\r\nContent-Disposition: attachment; name=file\r\n\r\nx\r\n--BoUnD--");
	REFUSED("--BoUnD\r\n"
		"Content-Disposition: form-data; name=a\r\nContent-Disposition: form-data; name=b\r\n\r\n");
	REFUSED("--BoUnD\r\nno colon\r\n\r\n");
	REFUSED("--BoUnD\r\nA: b\r\n folded\r\n\r\n");
	REFUSED("--BoUnD\r\nA: b\nContent-Disposition: form-data; name=a\r\n\r\n");
	REFUSED("--BoUnD\r\nA: \0\r\n\r\n");
}

static void form_boundary_line_with_more_on_it_is_refused(void **state)
{
	(void)state;
	REFUSED("--BoUnDx\r\n" HEAD);
	REFUSED("--BoUnD-x");
	REFUSED("--BoUnD\r\r\n");
	REFUSED("--BoUnD \n");
}

static void form_head_has_a_limit(void **state)
{
	(void)state;
	struct buf body, out;
	buf_init(&body, MULTIPART_HEAD_MAX * 2);
	buf_init(&out, 1024);
	buf_append_str(&body, "--BoUnD\r\nX: ");
	for (size_t i = 0; i < MULTIPART_HEAD_MAX; i++)
		buf_append(&body, "x", 1);
	assert_int_equal(read_form(TYPE, (char *)body.data, body.len, 100, &out), -EBADMSG);
	buf_done(&body);
	buf_done(&out);
}

static void form_type_must_have_a_boundary(void **state)
{
	static const char *const bad[] = {
		"multipart/form-data",
		"multipart/form-data; boundary=",
		"multipart/form-data; boundary=\"\"",
		"multipart/form-data; boundary=a\rb",
		"multipart/form-data; boundary=\"ends with space \"",
		"multipart/form-data; boundary=a%b",
		"multipart/form-dataX; boundary=a",
		"multipart/mixed; boundary=a",
		"multipart/form-data; xboundary=a",
		"multipart/form-data; boundary=1234567890123456789012345678901234567890123456789012345678901234567890x",
	};
	static const char *const good[] = {
		"multipart/form-data; boundary=a",
		"Multipart/Form-Data;charset=utf-8;  BOUNDARY=\"a b\"",
		"multipart/form-data; boundary=----formdata-undici-082449547297",
		"multipart/form-data; boundary=1234567890123456789012345678901234567890123456789012345678901234567890",
	};
	(void)state;
	struct multipart m;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(multipart_init(&m, bad[i]), -EINVAL);
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(multipart_init(&m, good[i]), 0);
		multipart_done(&m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(form_with_one_part),
		cmocka_unit_test(form_with_parts_preamble_and_epilogue),
		cmocka_unit_test(form_data_that_looks_like_a_boundary),
		cmocka_unit_test(form_data_with_a_false_start_right_before_the_boundary),
		cmocka_unit_test(form_without_an_end_is_not_complete),
		cmocka_unit_test(form_file_names_are_unescaped),
		cmocka_unit_test(form_head_that_is_none_is_refused),
		cmocka_unit_test(form_boundary_line_with_more_on_it_is_refused),
		cmocka_unit_test(form_head_has_a_limit),
		cmocka_unit_test(form_type_must_have_a_boundary),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
