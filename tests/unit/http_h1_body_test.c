/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies, whole and cut at every place; heads and chunks written, and read back. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "http/h1.h"

struct result {
	char data[256];
	size_t len;
	size_t consumed;
	int error;
};

static void feed(struct h1_body *b, const char *s, size_t n, struct result *r)
{
	auto_free uint8_t *copy = malloc(n ? n : 1);
	memcpy(copy, s, n);
	size_t pos = 0;
	while (!r->error) {
		const uint8_t *run;
		size_t len;
		ssize_t used = h1_body_read(b, copy + pos, n - pos, &run, &len);
		if (used < 0)
			r->error = (int)used;
		if (used <= 0)
			break;
		assert_true(len <= (size_t)used && run >= copy + pos && run + len <= copy + n);
		assert_true(r->len + len <= sizeof(r->data));
		memcpy(r->data + r->len, run, len);
		r->len += len;
		pos += (size_t)used;
	}
	r->consumed += pos;
}

/* Reads s cut at cut; returns whether the body was done. */
static bool read_body(const struct http_head *h, const char *s, size_t n, size_t cut,
		      struct result *r)
{
	struct h1_body b;
	*r = (struct result){.len = 0};
	h1_body_init(&b, h);
	feed(&b, s, cut, r);
	if (r->consumed == cut)
		feed(&b, s + cut, n - cut, r);
	return h1_body_done(&b);
}

static void gives_n(const struct http_head *h, const char *s, size_t n, const char *data,
		    size_t left)
{
	for (size_t cut = 0; cut <= n; cut++) {
		struct result r;
		bool done = read_body(h, s, n, cut, &r);
		assert_int_equal(r.error, 0);
		assert_true(done);
		assert_int_equal(r.consumed, n - left);
		assert_int_equal(r.len, strlen(data));
		assert_memory_equal(r.data, data, r.len);
	}
}

static void gives(const char *s, const char *data, size_t left)
{
	const struct http_head h = {.framing = HTTP_CHUNKED};
	gives_n(&h, s, strlen(s), data, left);
}

static void bad_n(const char *s, size_t n)
{
	const struct http_head h = {.framing = HTTP_CHUNKED};
	struct result whole;
	read_body(&h, s, n, n, &whole);
	if (whole.error != -EBADMSG)
		fail_msg("accepted: %s", s);
	for (size_t cut = 0; cut < n; cut++) {
		struct result r;
		assert_false(read_body(&h, s, n, cut, &r));
		assert_int_equal(r.error, -EBADMSG);
		assert_int_equal(r.len, whole.len);
		assert_memory_equal(r.data, whole.data, r.len);
	}
}

static void bad(const char *s)
{
	bad_n(s, strlen(s));
}

static void body_of_a_length_ends_there(void **state)
{
	(void)state;
	const struct http_head h = {.framing = HTTP_LENGTH, .length = 5};
	gives_n(&h, "helloGET", 8, "hello", 3);
	const struct http_head empty = {.framing = HTTP_LENGTH};
	gives_n(&empty, "GET", 3, "", 3);
	const struct http_head none = {.framing = HTTP_NO_BODY, .length = 7};
	gives_n(&none, "GET", 3, "", 3);
}

static void body_to_close_never_ends(void **state)
{
	(void)state;
	const struct http_head h = {.framing = HTTP_TO_CLOSE};
	struct result r;
	assert_false(read_body(&h, "0\r\n\r\n", 5, 2, &r));
	assert_int_equal(r.error, 0);
	assert_int_equal(r.len, 5);
}

static void chunks_are_joined(void **state)
{
	(void)state;
	gives("5\r\nhello\r\n0\r\n\r\n", "hello", 0);
	gives("5\r\nhello\r\n0\r\n\r\nGET /", "hello", 5);
	gives("0\r\n\r\n", "", 0);
	gives("000\r\n\r\n", "", 0);
	gives("1\r\na\r\n2\r\nbc\r\nA\r\n0123456789\r\n0b\r\n0123456789a\r\n0\r\n\r\n",
	      "abc01234567890123456789a", 0);
	gives("4\r\n\r\n\r\n\r\n0\r\n\r\n", "\r\n\r\n", 0);
	gives("0000000000000001\r\nx\r\n0000000000000001\r\ny\r\n0\r\n\r\n", "xy", 0);
}

static void chunk_extensions_are_dropped(void **state)
{
	(void)state;
	gives("1;a\r\nx\r\n0;b=c\r\n\r\n", "x", 0);
	gives("1;a=\"q;\\\"\t \xe9\";b=t;c\r\nx\r\n0;z=\"\"\r\n\r\n", "x", 0);
}

static void chunk_trailers_are_dropped(void **state)
{
	(void)state;
	gives("1\r\nx\r\n0\r\nA: b\r\nC:\r\nContent-Length: 5\r\n\r\nrest", "x", 4);
}

static void chunk_sizes_are_exact(void **state)
{
	(void)state;
	bad("\r\n");
	bad(";a\r\n");
	bad("x\r\n");
	bad("-1\r\nx");
	bad("+1\r\nx");
	bad("0x1\r\nx");
	bad(" 1\r\nx");
	bad("1 \r\nx");
	bad("1\t;a\r\nx");
	bad("1\nx\r\n0\r\n\r\n");
	bad("1\rx\r\n0\r\n\r\n");
	bad("1\r\rx");
	bad("1.\r\n");
	bad("1,1\r\n");
	bad("00000000000000001\r\nx\r\n0\r\n\r\n");
	bad("8000000000000000\r\nx");
	bad("ffffffffffffffff\r\nx");
	bad("10000000000000000\r\n");
	static const char nul[] = "1\0\r\nx";
	bad_n(nul, sizeof(nul) - 1);
}

static void chunk_ends_are_exact(void **state)
{
	(void)state;
	bad("1\r\nxy\r\n0\r\n\r\n");
	bad("1\r\nx0\r\n\r\n");
	bad("1\r\nx\n0\r\n\r\n");
	bad("1\r\nx\r0\r\n\r\n");
	bad("2\r\nx\r\n0\r\n\r\n");
	bad("1\r\nx\r\n\r\n0\r\n\r\n");
	bad("1\r\nx\r\n\r\n\r\n");
	bad("1\r\nxy\n0\r\n\r\n");
}

static void chunk_extensions_are_checked(void **state)
{
	(void)state;
	bad("1;\r\nx");
	bad("1;;\r\nx");
	bad("1;a=\r\nx");
	bad("1;=b\r\nx");
	bad("1; a\r\nx");
	bad("1;a =b\r\nx");
	bad("1;a=b c\r\nx");
	bad("1;a=\"b\r\nx");
	bad("1;a=\"b\"c\r\nx");
	bad("1;a=\"\\\r\nx");
	bad("1;a\nx\r\n");
	bad("1;a\rb\r\nx");
	bad("1;a=\"\n\"\r\nx");
	bad("1;a=\"\x7f\"\r\nx");
	static const char nul[] = "1;a=\"\0\"\r\nx";
	bad_n(nul, sizeof(nul) - 1);
}

static void chunk_trailers_are_checked(void **state)
{
	(void)state;
	bad("0\r\n\n");
	bad("0\r\nA\r\n\r\n");
	bad("0\r\nA : b\r\n\r\n");
	bad("0\r\n A: b\r\n\r\n");
	bad("0\r\nA: b\r\n c\r\n\r\n");
	bad("0\r\nA: b\n\r\n");
	bad("0\r\nA: b\rc\r\n\r\n");
	bad("0\r\n: b\r\n\r\n");
	bad("0\r\nA: \x01\r\n\r\n");
	bad("0\r\nA: b\r\n\rx");
}

static int read_repeated(const char *head, char fill, size_t count, const char *tail)
{
	const struct http_head h = {.framing = HTTP_CHUNKED};
	size_t n = strlen(head);
	auto_free char *s = malloc(n + count + strlen(tail) + 1);
	memcpy(s, head, n);
	memset(s + n, fill, count);
	strcpy(s + n + count, tail);
	struct result r;
	bool done = read_body(&h, s, strlen(s), strlen(s), &r);
	return r.error ? r.error : done;
}

static void chunk_lines_and_trailers_are_capped(void **state)
{
	(void)state;
	size_t line = HTTP_CHUNKLINE_MAX - strlen("1;\r\n");
	assert_int_equal(read_repeated("1;", 'a', line, "\r\nx\r\n0\r\n\r\n"), 1);
	assert_int_equal(read_repeated("1;", 'a', line + 1, "\r\nx\r\n0\r\n\r\n"), -EBADMSG);
	assert_int_equal(read_repeated("1;", 'a', HTTP_CHUNKLINE_MAX, ""), -EBADMSG);
	size_t trailers = HTTP_TRAILERS_MAX - strlen("A:\r\n\r\n");
	assert_int_equal(read_repeated("0\r\nA:", 'a', trailers, "\r\n\r\n"), 1);
	assert_int_equal(read_repeated("0\r\nA:", 'a', trailers + 1, "\r\n\r\n"), -EBADMSG);
	assert_int_equal(read_repeated("0\r\nA:", 'a', HTTP_TRAILERS_MAX, ""), -EBADMSG);
}

static void body_error_is_final(void **state)
{
	(void)state;
	const struct http_head h = {.framing = HTTP_CHUNKED};
	struct h1_body b;
	h1_body_init(&b, &h);
	const uint8_t *run;
	size_t len;
	assert_int_equal(h1_body_read(&b, (const uint8_t *)"x", 1, &run, &len), -EBADMSG);
	assert_int_equal(h1_body_read(&b, (const uint8_t *)"0\r\n\r\n", 5, &run, &len), -EBADMSG);
	assert_false(h1_body_done(&b));
}

static void writes_chunks_that_can_be_read(void **state)
{
	(void)state;
	auto_buf struct buf b;
	buf_init(&b, 4096);
	assert_int_equal(h1_write_chunk(&b, "hello", 5), 0);
	assert_int_equal(h1_write_chunk(&b, "0123456789abcdefg", 17), 0);
	assert_int_equal(h1_write_last_chunk(&b), 0);
	auto_free char *s = buf_take_str(&b);
	assert_string_equal(s, "5\r\nhello\r\n11\r\n0123456789abcdefg\r\n0\r\n\r\n");
	gives(s, "hello0123456789abcdefg", 0);
}

static void writes_whole_or_nothing(void **state)
{
	(void)state;
	auto_buf struct buf b;
	buf_init(&b, 9);
	assert_int_equal(h1_write_chunk(&b, "hello", 5), -EMSGSIZE);
	assert_int_equal(b.len, 0);
	struct http_head h = {.status = 200};
	assert_int_equal(h1_write_response(&b, &h), -EMSGSIZE);
	assert_int_equal(b.len, 0);
}

static void check_written(int r, struct buf *b, const char *expected)
{
	assert_int_equal(r, 0);
	auto_free char *s = buf_take_str(b);
	assert_string_equal(s, expected);
}

static void writes_requests_in_canonical_form(void **state)
{
	(void)state;
	struct buf b;
	buf_init(&b, 4096);
	struct http_head h = {.method = strdup("POST"), .target = strdup("/x?y"), .minor = 1};
	http_fields_add(&h.fields, "Host", " a.example ");
	http_fields_add(&h.fields, "Content-length", "99");
	http_fields_add(&h.fields, "TRANSFER-ENCODING", "gzip");
	http_fields_add(&h.fields, "connection", "x-secret");
	http_fields_add(&h.fields, "X", "");
	h.keep_alive = true;
	check_written(h1_write_request(&b, &h), &b,
		      "POST /x?y HTTP/1.1\r\nHost: a.example\r\nX: \r\n\r\n");
	h.framing = HTTP_CHUNKED;
	h.keep_alive = false;
	check_written(h1_write_request(&b, &h), &b,
		      "POST /x?y HTTP/1.1\r\nHost: a.example\r\nX: \r\n"
		      "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
	h.framing = HTTP_LENGTH;
	h.length = INT64_MAX;
	h.keep_alive = true;
	h.minor = 0;
	check_written(h1_write_request(&b, &h), &b,
		      "POST /x?y HTTP/1.1\r\nHost: a.example\r\nX: \r\n"
		      "Content-Length: 9223372036854775807\r\nConnection: keep-alive\r\n\r\n");
	http_head_done(&h);
}

static void writes_responses_in_canonical_form(void **state)
{
	(void)state;
	struct buf b;
	buf_init(&b, 4096);
	struct http_head h = {
		.status = 200, .minor = 1, .keep_alive = true, .framing = HTTP_LENGTH};
	check_written(h1_write_response(&b, &h), &b,
		      "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	h.status = 299;
	h.framing = HTTP_TO_CLOSE;
	check_written(h1_write_response(&b, &h), &b,
		      "HTTP/1.1 299 Unknown\r\nConnection: close\r\n\r\n");
	h.status = 204;
	h.framing = HTTP_CHUNKED;
	check_written(h1_write_response(&b, &h), &b, "HTTP/1.1 204 No Content\r\n\r\n");
	h.status = 100;
	h.keep_alive = false;
	check_written(h1_write_response(&b, &h), &b, "HTTP/1.1 100 Continue\r\n\r\n");
	h.status = 304;
	h.framing = HTTP_LENGTH;
	h.length = 5;
	check_written(
		h1_write_response(&b, &h), &b,
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nConnection: close\r\n\r\n");
}

static int try_request(const char *method, const char *target, const char *name, const char *value)
{
	struct http_field fields[] = {{"Host", "a.example"}, {name, value}};
	struct http_head h = {.method = (char *)method,
			      .target = (char *)target,
			      .minor = 1,
			      .fields = {fields, name ? 2 : 1}};
	auto_buf struct buf b;
	buf_init(&b, 1u << 20);
	int r = h1_write_request(&b, &h);
	assert_true(r == 0 || b.len == 0);
	return r;
}

static void refuses_to_write_what_it_would_not_read(void **state)
{
	(void)state;
	assert_int_equal(try_request("GET", "/", NULL, NULL), 0);
	assert_int_equal(try_request("GET", "/", "X", "a\r\nY: b"), -EINVAL);
	assert_int_equal(try_request("GET", "/", "X", "a\nb"), -EINVAL);
	assert_int_equal(try_request("GET", "/", "X: y\r\nZ", "b"), -EINVAL);
	assert_int_equal(try_request("GET", "/", "", "b"), -EINVAL);
	assert_int_equal(try_request("GET", "/", "host", "b"), -EINVAL);
	assert_int_equal(try_request("GET", "/", "Expect", "200-ok"), -EINVAL);
	assert_int_equal(try_request("GET", "/ HTTP/1.1\r\nX: y", NULL, NULL), -EINVAL);
	assert_int_equal(try_request("GET", "/ x", NULL, NULL), -EINVAL);
	assert_int_equal(try_request("GET", "", NULL, NULL), -EINVAL);
	assert_int_equal(try_request("GET", "x", NULL, NULL), -EINVAL);
	assert_int_equal(try_request("GET", "*", NULL, NULL), -EINVAL);
	assert_int_equal(try_request("GET", "http://b.example/", NULL, NULL), -EINVAL);
	assert_int_equal(try_request("GET /", "/", NULL, NULL), -EINVAL);
	assert_int_equal(try_request("", "/", NULL, NULL), -EINVAL);
	assert_int_equal(try_request("CONNECT", "/", NULL, NULL), -EINVAL);
	assert_int_equal(try_request("Trace", "/", NULL, NULL), -EINVAL);

	auto_free char *longer = malloc(HTTP_HEAD_MAX);
	memset(longer, 'x', HTTP_HEAD_MAX - 1);
	longer[HTTP_HEAD_MAX - 1] = '\0';
	assert_int_equal(try_request("GET", "/", "X", longer), -EMSGSIZE);
	longer[0] = '/';
	longer[HTTP_START_MAX] = '\0';
	assert_int_equal(try_request("GET", longer, NULL, NULL), -EMSGSIZE);
}

static void refuses_to_write_other_heads(void **state)
{
	(void)state;
	auto_buf struct buf b;
	buf_init(&b, 4096);
	struct http_field host = {"Host", "a"};
	struct http_head h = {.method = (char *)"GET", .target = (char *)"/", .minor = 1};
	assert_int_equal(h1_write_request(&b, &h), -EINVAL);
	h.fields = (struct http_fields){&host, 1};
	h.framing = HTTP_TO_CLOSE;
	assert_int_equal(h1_write_request(&b, &h), -EINVAL);
	struct http_head none = {.status = 0};
	assert_int_equal(h1_write_response(&b, &none), -EINVAL);
	none.status = 600;
	assert_int_equal(h1_write_response(&b, &none), -EINVAL);
	struct http_head huge = {.status = 200, .framing = HTTP_LENGTH, .length = 1ull << 63};
	assert_int_equal(h1_write_response(&b, &huge), -EINVAL);
	assert_int_equal(b.len, 0);
}

static void counts_the_fields_that_it_writes(void **state)
{
	(void)state;
	auto_buf struct buf b;
	buf_init(&b, 1u << 20);
	struct http_head h = {
		.status = 200, .minor = 1, .keep_alive = true, .framing = HTTP_LENGTH};
	for (int i = 0; i < HTTP_FIELDS_MAX; i++)
		assert_int_equal(http_fields_add(&h.fields, "a", "b"), 0);
	assert_int_equal(h1_write_response(&b, &h), -EMSGSIZE);
	h.status = 204;
	assert_int_equal(h1_write_response(&b, &h), 0);
	http_head_done(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(body_of_a_length_ends_there),
		cmocka_unit_test(body_to_close_never_ends),
		cmocka_unit_test(chunks_are_joined),
		cmocka_unit_test(chunk_extensions_are_dropped),
		cmocka_unit_test(chunk_trailers_are_dropped),
		cmocka_unit_test(chunk_sizes_are_exact),
		cmocka_unit_test(chunk_ends_are_exact),
		cmocka_unit_test(chunk_extensions_are_checked),
		cmocka_unit_test(chunk_trailers_are_checked),
		cmocka_unit_test(chunk_lines_and_trailers_are_capped),
		cmocka_unit_test(body_error_is_final),
		cmocka_unit_test(writes_chunks_that_can_be_read),
		cmocka_unit_test(writes_whole_or_nothing),
		cmocka_unit_test(writes_requests_in_canonical_form),
		cmocka_unit_test(writes_responses_in_canonical_form),
		cmocka_unit_test(refuses_to_write_what_it_would_not_read),
		cmocka_unit_test(refuses_to_write_other_heads),
		cmocka_unit_test(counts_the_fields_that_it_writes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
