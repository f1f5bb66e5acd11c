/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each allocation of the codec fails in turn: -ENOMEM, nothing half done; LeakSanitizer sees what
 * is left behind.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "http/envelope.h"
#include "http/h1.h"

/* The linker sends the codec's allocations here (--wrap). */
void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__real_reallocarray(void *p, size_t count, size_t size);
void *__wrap_reallocarray(void *p, size_t count, size_t size);
char *__real_strndup(const char *s, size_t n);
char *__wrap_strndup(const char *s, size_t n);

static int allowed = -1; /* allocations until one fails; < 0: none does */

static bool denied(void)
{
	return allowed >= 0 && allowed-- == 0;
}

void *__wrap_malloc(size_t n)
{
	return denied() ? NULL : __real_malloc(n);
}

void *__wrap_reallocarray(void *p, size_t count, size_t size)
{
	return denied() ? NULL : __real_reallocarray(p, count, size);
}

char *__wrap_strndup(const char *s, size_t n)
{
	return denied() ? NULL : __real_strndup(s, n);
}

/* Runs step with the first, the second, … allocation failing until none does; step returns 0 or
 * -ENOMEM. */
static void fail_each(int (*step)(void), int at_least)
{
	int n = 0;
	for (int r = -ENOMEM; r; n++) {
		allowed = n;
		r = step();
		bool failed = allowed < 0;
		allowed = -1;
		assert_int_equal(r, failed ? -ENOMEM : 0);
		assert_true(n < 1000);
	}
	assert_true(n > at_least);
}

static int read_request(void)
{
	static const char s[] =
		"POST /x HTTP/1.1\r\nHost: a\r\nA: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\nE: 5\r\n"
		"F: 6\r\nG: 7\r\nH: 8\r\n\r\n";
	struct http_head h = {0};
	enum h1_fault fault;
	ssize_t r = h1_read_request((const uint8_t *)s, sizeof(s) - 1, &h, &fault);
	assert_true(r >= 0 || (!h.method && !h.fields.list));
	http_head_done(&h);
	return r > 0 ? 0 : (int)r;
}

static int read_response(void)
{
	static const char s[] = "HTTP/1.1 200 OK\r\nA: 1\r\nContent-Length: 1\r\n\r\n";
	struct http_head h = {0};
	ssize_t r = h1_read_response((const uint8_t *)s, sizeof(s) - 1, "GET", &h);
	assert_true(r >= 0 || !h.fields.list);
	http_head_done(&h);
	return r > 0 ? 0 : (int)r;
}

static int write_messages(void)
{
	struct http_field host = {"Host", "a"};
	const struct http_head request = {
		.method = (char *)"GET", .target = (char *)"/", .fields = {&host, 1}};
	const struct http_head reply = {.status = 200};
	int (*const writers[])(struct buf *, const struct http_head *) = {h1_write_request,
									  h1_write_response};
	for (int i = 0; i < 4; i++) {
		auto_buf struct buf b;
		buf_init(&b, 4096);
		int r = i == 2   ? h1_write_chunk(&b, "x", 1)
			: i == 3 ? envelope_write(&b, ENVELOPE_END, "{}", 2)
				 : writers[i](&b, i ? &reply : &request);
		if (r < 0) {
			assert_int_equal(b.len, 0);
			return r;
		}
	}
	return 0;
}

static int add_fields(void)
{
	struct http_fields f = {0};
	int r = 0;
	for (int i = 0; i < 20 && r == 0; i++) {
		size_t before = f.count;
		r = http_fields_addf(&f, "a", "%d", i);
		assert_int_equal(f.count, before + (r == 0));
	}
	http_fields_done(&f);
	return r;
}

static int read_query(void)
{
	char *value = NULL;
	int r = http_query_get("/f?x=1&a=2", "a", &value);
	assert_true(r == 0 || !value);
	free(value);
	return r;
}

static void no_memory_is_reported_and_nothing_is_left(void **state)
{
	(void)state;
	fail_each(read_request, 12);
	fail_each(read_response, 3);
	fail_each(write_messages, 4);
	fail_each(add_fields, 22);
	fail_each(read_query, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_memory_is_reported_and_nothing_is_left),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
