/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heads of requests and responses: what is understood, what is refused and with which status, and
 * that the verdict is the same wherever the bytes were cut.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "http/h1.h"
#include "http/syntax.h"

#define GET  "GET / HTTP/1.1\r\nHost: a.example\r\n"
#define POST "POST /x HTTP/1.1\r\nHost: a.example\r\n"
#define OK   "HTTP/1.1 200 OK\r\n"

/* From a heap block of exactly n bytes, so that a sanitizer sees a read past the end. */
static ssize_t read_request(const char *s, size_t n, struct http_head *h, enum h1_fault *fault)
{
	auto_free uint8_t *copy = malloc(n ? n : 1);
	memcpy(copy, s, n);
	return h1_read_request(copy, n, h, fault);
}

static ssize_t read_response(const char *s, size_t n, const char *method, struct http_head *h)
{
	auto_free uint8_t *copy = malloc(n ? n : 1);
	memcpy(copy, s, n);
	return h1_read_response(copy, n, method, h);
}

static void refused_n(const char *s, size_t n, enum h1_fault expected)
{
	struct http_head h;
	enum h1_fault fault = 0;
	ssize_t r = read_request(s, n, &h, &fault);
	if (r != -EBADMSG || fault != expected)
		fail_msg("got %zd, fault %d, not %d, for: %.200s", r, (int)fault, (int)expected, s);

	/* Prefixes: undecided, then this verdict for good. */
	for (size_t k = 0; k < n && n < 2048; k++) {
		r = read_request(s, k, &h, &fault);
		if (r == -EAGAIN)
			continue;
		assert_int_equal(r, -EBADMSG);
		assert_int_equal(fault, expected);
	}
}

static void refused(const char *s, enum h1_fault expected)
{
	refused_n(s, strlen(s), expected);
}

static struct http_head accepted(const char *s)
{
	struct http_head h;
	enum h1_fault fault = 0;
	size_t n = strlen(s);
	ssize_t r = read_request(s, n, &h, &fault);
	if (r != (ssize_t)n)
		fail_msg("got %zd, fault %d, for: %.200s", r, (int)fault, s);
	for (size_t k = 0; k < n; k++) {
		struct http_head none;
		assert_int_equal(read_request(s, k, &none, &fault), -EAGAIN);
	}
	return h;
}

static void takes(const char *s)
{
	struct http_head h = accepted(s);
	http_head_done(&h);
}

static void response_refused(const char *s)
{
	struct http_head h;
	ssize_t r = read_response(s, strlen(s), "GET", &h);
	if (r != -EBADMSG)
		fail_msg("got %zd for: %.200s", r, s);
}

static struct http_head response(const char *s, const char *method)
{
	struct http_head h;
	size_t n = strlen(s);
	ssize_t r = read_response(s, n, method, &h);
	if (r != (ssize_t)n)
		fail_msg("got %zd for: %.200s", r, s);
	for (size_t k = 0; k < n; k++) {
		struct http_head none;
		assert_int_equal(read_response(s, k, method, &none), -EAGAIN);
	}
	return h;
}

static void request_is_read_whole(void **state)
{
	(void)state;
	struct http_head h = accepted("POST /v1/x?y=%20z HTTP/1.1\r\nHost: api.example.com:8443\r\n"
				      "X-A:\t two  words \t\r\nX-Empty:\r\nx_b: \xc3\xa9\r\n"
				      "Content-Length: 18446744\r\n\r\n");
	assert_string_equal(h.method, "POST");
	assert_string_equal(h.target, "/v1/x?y=%20z");
	assert_int_equal(h.minor, 1);
	assert_int_equal(h.fields.count, 5);
	assert_string_equal(h.fields.list[0].name, "Host");
	assert_string_equal(http_fields_get(&h.fields, "host"), "api.example.com:8443");
	assert_string_equal(http_fields_get(&h.fields, "x-a"), "two  words");
	assert_string_equal(http_fields_get(&h.fields, "X-EMPTY"), "");
	assert_string_equal(http_fields_get(&h.fields, "X_B"), "\xc3\xa9");
	assert_int_equal(h.framing, HTTP_LENGTH);
	assert_int_equal(h.length, 18446744);
	assert_true(h.keep_alive);
	assert_false(h.expect_continue);
	http_head_done(&h);
	assert_null(h.method);
}

static void request_leaves_what_follows_the_head(void **state)
{
	(void)state;
	static const char two[] = GET "\r\n" POST "Content-Length: 1\r\n\r\nX";
	struct http_head h;
	enum h1_fault fault;
	size_t first = strlen(GET "\r\n");
	assert_int_equal(read_request(two, strlen(two), &h, &fault), first);
	assert_string_equal(h.method, "GET");
	http_head_done(&h);
	assert_int_equal(read_request(two + first, strlen(two) - first, &h, &fault),
			 strlen(two) - first - 1);
	assert_string_equal(h.method, "POST");
	http_head_done(&h);
}

static void request_line_is_exact(void **state)
{
	(void)state;
	refused("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET /  HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused(" GET / HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET / HTTP/1.1x\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET /\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GE(T / HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("\x16\x03\x01\x02", H1_BAD_REQUEST);
	takes("get / HTTP/1.1\r\nHost: a\r\n\r\n");
	takes("M-SEARCH!# / HTTP/1.1\r\nHost: a\r\n\r\n");
}

static void request_refuses_other_versions(void **state)
{
	(void)state;
	refused("GET / HTTP/1.2\r\nHost: a\r\n\r\n", H1_VERSION);
	refused("GET / HTTP/0.9\r\nHost: a\r\n\r\n", H1_VERSION);
	refused("PRI * HTTP/2.0\r\n\r\n", H1_VERSION);
	refused("GET / HTTP/3.0\r\nHost: a\r\n\r\n", H1_VERSION);
	refused("GET / HTTP/11\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET / HTTP/1.10\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET / http/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET / HTTP/1,1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET / HTTP/+1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET / ICE/1.0\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
}

static void request_refuses_methods_that_tunnel_or_echo(void **state)
{
	(void)state;
	refused("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", H1_METHOD_NOT_ALLOWED);
	refused("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", H1_METHOD_NOT_ALLOWED);
	refused("TRACK / HTTP/1.1\r\nHost: a\r\n\r\n", H1_METHOD_NOT_ALLOWED);
	refused("connect / HTTP/1.1\r\nHost: a\r\n\r\n", H1_METHOD_NOT_ALLOWED);
	refused("Trace / HTTP/1.0\r\n\r\n", H1_METHOD_NOT_ALLOWED);
	takes("CONNECTX / HTTP/1.1\r\nHost: a\r\n\r\n");
}

static void request_target_has_three_forms(void **state)
{
	(void)state;
	takes("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
	takes("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n");
	takes("GET HTTPS://A.example:8443/x?http://b HTTP/1.1\r\nHost: a.EXAMPLE:8443\r\n\r\n");
	takes("OPTIONS http://a HTTP/1.1\r\nHost: a\r\n\r\n");
	takes("GET http://a?q HTTP/1.1\r\nHost: a\r\n\r\n");
	takes("GET http://a/ HTTP/1.0\r\n\r\n");
	takes("GET /{x}|^`\"<>[]?a=\\b HTTP/1.1\r\nHost: a\r\n\r\n");
	refused("GET * HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("OPTIONS ** HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET x HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET ?x HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", H1_BAD_REQUEST);
	refused("GET //:// HTTP/1.1\r\n\r\n", H1_BAD_REQUEST);
	refused("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET ://a/ HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET http:/a/ HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET /#x HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET /a\\b HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET http://a\\b/ HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
}

static void request_refuses_an_authority_that_is_not_its_host(void **state)
{
	(void)state;
	refused("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET http://a:80/ HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET http://ab/ HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET http://u:p@a/ HTTP/1.1\r\nHost: u:p@a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET http://a,b/ HTTP/1.1\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET http://a/ HTTP/1.1\r\n\r\n", H1_BAD_REQUEST);
}

static void request_names_one_host(void **state)
{
	(void)state;
	static const char *const good[] = {
		"a",       "A.example.", "127.0.0.1",         "a_b-c.d:1",
		"a:65535", "[::1]",      "[2001:db8::1]:443", "[::ffff:1.2.3.4]"};
	static const char *const bad[] = {
		"",         "a b",       "a,b",      "a, b",    "u@a",
		"u:p@a",    "a:",        "a:0",      "a:65536", "a:080",
		"a:+1",     "a:1:2",     "a:x",      ":80",     "[::1",
		"::1",      "[]",        "[::1]x",   "[::1]:",  "[fe80::1%25eth0]",
		"[v1.a]",   "[1.2.3.4]", "a/b",      "a?b",     "a\\b",
		"a%2eb",    "a;b",       "\xc3\xa9", "a\tb",    "http://a",
		"a:123456", "[::1]]:80", "[[::1]]",  "*",
	};
	char head[256];
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		snprintf(head, sizeof(head), "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", good[i]);
		takes(head);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		snprintf(head, sizeof(head), "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", bad[i]);
		refused(head, H1_BAD_REQUEST);
		snprintf(head, sizeof(head), "GET / HTTP/1.0\r\nHost: %s\r\n\r\n", bad[i]);
		refused(head, H1_BAD_REQUEST);
	}
	assert_true(http_is_host("[::1]", 5));
	assert_false(http_is_host("[::1\0]", 6));
	assert_false(http_is_host("a\0b", 3));
	refused("GET / HTTP/1.1\r\n\r\n", H1_BAD_REQUEST);
	refused(GET "Host: a.example\r\n\r\n", H1_BAD_REQUEST);
	refused(GET "hOST: b\r\n\r\n", H1_BAD_REQUEST);
	refused("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	takes("GET / HTTP/1.0\r\n\r\n");
}

static void request_refuses_ambiguous_framing(void **state)
{
	(void)state;
	static const char *const bad[] = {
		"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
		"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
		"Content-Length: 5\r\nContent-Length: 5\r\n",
		"Content-Length: 5\r\nContent-Length: 6\r\n",
		"Content-Length: 5\r\ncontent-length: 5\r\n",
		"Content-Length: 5, 5\r\n",
		"Content-Length: 5,\r\n",
		"Content-Length: +5\r\n",
		"Content-Length: -5\r\n",
		"Content-Length: 05\r\n",
		"Content-Length: 00\r\n",
		"Content-Length: 0x5\r\n",
		"Content-Length: 5 0\r\n",
		"Content-Length: 5.0\r\n",
		"Content-Length: 5e1\r\n",
		"Content-Length:\r\n",
		"Content-Length: \"5\"\r\n",
		"Content-Length: 9223372036854775808\r\n",
		"Content-Length: 18446744073709551616\r\n",
		"Content-Length: 99999999999999999999999999\r\n",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
		"Transfer-Encoding: chunked, chunked\r\n",
		"Transfer-Encoding: gzip, chunked\r\n",
		"Transfer-Encoding: chunked, identity\r\n",
		"Transfer-Encoding: identity\r\n",
		"Transfer-Encoding: Chunked\r\n",
		"Transfer-Encoding: \"chunked\"\r\n",
		"Transfer-Encoding: xchunked\r\n",
		"Transfer-Encoding: chunke\r\n",
		"Transfer-Encoding: chunked;q=1\r\n",
		"Transfer-Encoding: \013chunked\r\n",
		"Transfer-Encoding:\r\n",
		"Transfer-Encoding : chunked\r\n",
		"Transfer-Encoding\r\n : chunked\r\n",
		"Transfer-Encoding:\r\n chunked\r\n",
		"Content-Length : 5\r\n",
	};
	char head[512];
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		snprintf(head, sizeof(head), POST "%s\r\n", bad[i]);
		refused(head, H1_BAD_REQUEST);
	}
	refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", H1_BAD_REQUEST);
}

static void request_framing_is_told(void **state)
{
	(void)state;
	struct http_head h = accepted(POST "\r\n");
	assert_int_equal(h.framing, HTTP_NO_BODY);
	http_head_done(&h);
	h = accepted(POST "Content-Length: 0\r\n\r\n");
	assert_int_equal(h.framing, HTTP_LENGTH);
	assert_int_equal(h.length, 0);
	http_head_done(&h);
	h = accepted(POST "Content-Length: \t 9223372036854775807 \r\n\r\n");
	assert_true(h.length == INT64_MAX);
	http_head_done(&h);
	h = accepted(POST "transfer-encoding:chunked\r\n\r\n");
	assert_int_equal(h.framing, HTTP_CHUNKED);
	http_head_done(&h);
}

static void request_refuses_bad_lines(void **state)
{
	(void)state;
	static const char *const bad[] = {
		"X: a\r\n b\r\n", "X: a\r\n\tb\r\n", " X: a\r\n",  "X : a\r\n",   "X\t: a\r\n",
		": a\r\n",        "X\r\n",           "X a\r\n",    "X: a\n",      "X: a\nY: b\r\n",
		"X: a\rb\r\n",    "X: a\r\r\n",      "X\r: a\r\n", "X: \x01\r\n", "X: \x7f\r\n",
		"X: \x1b[0m\r\n", "X\xc3: a\r\n",    "(X): a\r\n", "X,Y: a\r\n",  "\"X\": a\r\n",
		"X/Y: a\r\n",     "X[]: a\r\n",      "X{}: a\r\n", "\r: a\r\n",   "X: a\r\n\n",
	};
	char head[512];
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		snprintf(head, sizeof(head), GET "%s\r\n", bad[i]);
		refused(head, H1_BAD_REQUEST);
	}
	static const char nul[] = GET "X: a\0b\r\n\r\n";
	refused_n(nul, sizeof(nul) - 1, H1_BAD_REQUEST);
	static const char nul_name[] = GET "X\0Y: a\r\n\r\n";
	refused_n(nul_name, sizeof(nul_name) - 1, H1_BAD_REQUEST);
	static const char nul_target[] = "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n";
	refused_n(nul_target, sizeof(nul_target) - 1, H1_BAD_REQUEST);
	static const char nul_host[] = "GET / HTTP/1.1\r\nHost: a\0.b\r\n\r\n";
	refused_n(nul_host, sizeof(nul_host) - 1, H1_BAD_REQUEST);
	refused("GET / HTTP/1.1\nHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("GET / HTTP/1.1\nHost: a\n\n", H1_BAD_REQUEST);
	refused("GET / HTTP/1.1\r\nHost: a\r\n\n", H1_BAD_REQUEST);
	refused("GET / HTTP/1.1\rHost: a\r\n\r\n", H1_BAD_REQUEST);
	refused("\n", H1_BAD_REQUEST);
}

/* Each byte, in a field name and in a value, against the grammar spelled out. */
static void request_knows_every_byte(void **state)
{
	(void)state;
	static const char tchar[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	for (int c = 0; c < 256; c++) {
		char name[] = GET "X?Y: a\r\n\r\n", value[] = GET "X: a?b\r\n\r\n";
		strchr(name, '?')[0] = (char)c;
		strchr(value, '?')[0] = (char)c;
		struct http_head h;
		enum h1_fault fault;
		bool is_name = c == ':' || (c && strchr(tchar, c));
		bool is_value = c == '\t' || (c >= ' ' && c != 0x7f);
		ssize_t r = read_request(name, sizeof(name) - 1, &h, &fault);
		assert_int_equal(r, is_name ? (ssize_t)sizeof(name) - 1 : -EBADMSG);
		if (r >= 0)
			http_head_done(&h);
		r = read_request(value, sizeof(value) - 1, &h, &fault);
		assert_int_equal(r, is_value ? (ssize_t)sizeof(value) - 1 : -EBADMSG);
		if (r >= 0)
			http_head_done(&h);
	}
}

static void request_connection_is_understood(void **state)
{
	(void)state;
	static const struct {
		const char *version, *fields;
		bool keep;
	} cases[] = {
		{"1.1", "", true},
		{"1.1", "Connection: close\r\n", false},
		{"1.1", "Connection: Upgrade, CLOSE\r\n", false},
		{"1.1", "Connection: x\r\nConnection: ,\tclose ,\r\n", false},
		{"1.1", "Connection: keep-alive\r\n", true},
		{"1.1", "Connection: keep-alive, close\r\n", false},
		{"1.1", "Connection: closed\r\n", true},
		{"1.1", "Connection: close-notify, xclose\r\n", true},
		{"1.1", "Connection: ,,,\r\n", true},
		{"1.1", "Connection:\r\n", true},
		{"1.0", "", false},
		{"1.0", "Connection: Keep-Alive\r\n", true},
		{"1.0", "Connection: keep-alive, close\r\n", false},
		{"1.0", "Connection: x, keep-alive\r\n", true},
		{"1.0", "Keep-Alive: timeout=5\r\n", false},
		{"1.0", "Connection: keep-alive\r\nConnection: close\r\n", false},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char head[256];
		snprintf(head, sizeof(head), "GET / HTTP/%s\r\nHost: a\r\n%s\r\n", cases[i].version,
			 cases[i].fields);
		struct http_head h = accepted(head);
		if (h.keep_alive != cases[i].keep)
			fail_msg("keep_alive %d: %s", h.keep_alive, head);
		http_head_done(&h);
	}
}

static void request_expectation_is_continue_or_refused(void **state)
{
	(void)state;
	struct http_head h = accepted(POST "Content-Length: 1\r\nExpect: 100-Continue\r\n\r\n");
	assert_true(h.expect_continue);
	http_head_done(&h);
	h = accepted(POST "Expect: 100-continue\r\n\r\n");
	assert_false(h.expect_continue);
	http_head_done(&h);
	h = accepted("POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n");
	assert_false(h.expect_continue);
	http_head_done(&h);
	refused(POST "Expect: 200-ok\r\n\r\n", H1_EXPECTATION_FAILED);
	refused(POST "Expect:\r\n\r\n", H1_EXPECTATION_FAILED);
	refused(POST "Expect: 100-continue, x\r\n\r\n", H1_EXPECTATION_FAILED);
	refused(POST "Expect: 100-continue\r\nExpect: 100-continue\r\n\r\n", H1_EXPECTATION_FAILED);
}

/* head, then count bytes of fill, then tail; the caller frees. */
static char *padded(const char *head, char fill, size_t count, const char *tail)
{
	size_t n = strlen(head);
	char *s = malloc(n + count + strlen(tail) + 1);
	memcpy(s, head, n);
	memset(s + n, fill, count);
	strcpy(s + n + count, tail);
	return s;
}

static void request_line_is_capped(void **state)
{
	(void)state;
	static const char tail[] = " HTTP/1.1\r\nHost: a\r\n\r\n";
	size_t most = HTTP_START_MAX - strlen("GET / HTTP/1.1\r\n");
	auto_free char *fits = padded("GET /", 'x', most, tail);
	struct http_head h;
	enum h1_fault fault = 0;
	assert_int_equal(read_request(fits, strlen(fits), &h, &fault), strlen(fits));
	http_head_done(&h);

	auto_free char *more = padded("GET /", 'x', most + 1, tail);
	refused(more, H1_URI_TOO_LONG);
	auto_free char *endless = padded("GET /", 'x', HTTP_START_MAX, "");
	refused(endless, H1_URI_TOO_LONG);
	assert_int_equal(read_request(endless, HTTP_START_MAX - 1, &h, &fault), -EAGAIN);
}

static void request_fields_are_capped(void **state)
{
	(void)state;
	size_t most = HTTP_HEAD_MAX - strlen(GET "X: \r\n\r\n");
	auto_free char *fits = padded(GET "X: ", 'x', most, "\r\n\r\n");
	struct http_head h;
	enum h1_fault fault = 0;
	assert_int_equal(read_request(fits, strlen(fits), &h, &fault), HTTP_HEAD_MAX);
	http_head_done(&h);

	auto_free char *more = padded(GET "X: ", 'x', most + 1, "\r\n\r\n");
	refused(more, H1_FIELDS_TOO_LARGE);
	auto_free char *endless = padded(GET "X: ", 'x', HTTP_HEAD_MAX, "");
	refused(endless, H1_FIELDS_TOO_LARGE);
}

static void request_count_of_fields_is_capped(void **state)
{
	(void)state;
	for (size_t extra = 0; extra < 2; extra++) {
		struct buf b;
		buf_init(&b, HTTP_HEAD_MAX);
		buf_append_str(&b, GET);
		for (size_t i = 1; i < HTTP_FIELDS_MAX + extra; i++)
			buf_append_str(&b, "a:\r\n");
		buf_append_str(&b, "\r\n");
		auto_free char *s = buf_take_str(&b);
		if (extra) {
			refused(s, H1_FIELDS_TOO_LARGE);
			continue;
		}
		struct http_head h = accepted(s);
		assert_int_equal(h.fields.count, HTTP_FIELDS_MAX);
		http_head_done(&h);
	}
	/* Not only when the head is whole: 128 fields and one more are enough. */
	struct buf b;
	buf_init(&b, HTTP_HEAD_MAX);
	buf_append_str(&b, GET);
	for (size_t i = 1; i < HTTP_FIELDS_MAX; i++)
		buf_append_str(&b, "a:\r\n");
	auto_free char *s = buf_take_str(&b);
	struct http_head h;
	enum h1_fault fault;
	assert_int_equal(read_request(s, strlen(s), &h, &fault), -EAGAIN);
	auto_free char *more = padded(s, 'a', 1, ":\r\n");
	refused(more, H1_FIELDS_TOO_LARGE);
}

static void response_is_read_whole(void **state)
{
	(void)state;
	struct http_head h =
		response("HTTP/1.1 404 Not  Found\xe9\r\nContent-Length: 3\r\nX: y\r\n\r\n", "GET");
	assert_int_equal(h.status, 404);
	assert_int_equal(h.minor, 1);
	assert_int_equal(h.framing, HTTP_LENGTH);
	assert_int_equal(h.length, 3);
	assert_true(h.keep_alive);
	assert_int_equal(h.fields.count, 2);
	http_head_done(&h);
	h = response("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "GET");
	http_head_done(&h);
	h = response("HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", "GET");
	http_head_done(&h);
}

static void response_line_is_exact(void **state)
{
	(void)state;
	response_refused("HTTP/1.1 99 x\r\n\r\n");
	response_refused("HTTP/1.1 099 x\r\n\r\n");
	response_refused("HTTP/1.1 600 x\r\n\r\n");
	response_refused("HTTP/1.1 2000 x\r\n\r\n");
	response_refused("HTTP/1.1 +20 x\r\n\r\n");
	response_refused("HTTP/1.1  200 x\r\n\r\n");
	response_refused("HTTP/1.1\t200 x\r\n\r\n");
	response_refused("HTTP/1.1 200x\r\n\r\n");
	response_refused("HTTP/1.1 20\r\n\r\n");
	response_refused("HTTP/1.1\r\n\r\n");
	response_refused("HTTP/2.0 200 x\r\n\r\n");
	response_refused("HTTP/1.2 200 x\r\n\r\n");
	response_refused("ICY 200 OK\r\n\r\n");
	response_refused("\r\nHTTP/1.1 200 x\r\n\r\n");
	response_refused("HTTP/1.1 200 a\x01\r\n\r\n");
	response_refused("HTTP/1.1 200 a\rb\r\n\r\n");
	response_refused("<html>");
}

static void response_refuses_ambiguous_framing(void **state)
{
	(void)state;
	response_refused(OK "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n");
	response_refused(OK "Content-Length: 5\r\nContent-Length: 5\r\n\r\n");
	response_refused(OK "Content-Length: 5, 5\r\n\r\n");
	response_refused(OK "Content-Length: +5\r\n\r\n");
	response_refused(OK "Transfer-Encoding: gzip, chunked\r\n\r\n");
	response_refused(OK "Transfer-Encoding: identity\r\n\r\n");
	response_refused("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
	response_refused("HTTP/1.1 204 x\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n");
	response_refused("HTTP/1.1 100 x\r\nContent-Length: 0\r\n\r\n");
	response_refused("HTTP/1.1 101 x\r\nTransfer-Encoding: chunked\r\n\r\n");
}

static void response_refuses_bad_lines(void **state)
{
	(void)state;
	response_refused("HTTP/1.1 200 OK\n\n");
	response_refused(OK "X: a\nContent-Length: 0\r\n\r\n");
	response_refused(OK "X: a\r\n\n");
	response_refused(OK "X: a\r\n b\r\n\r\n");
	response_refused(OK "X : a\r\n\r\n");
	response_refused(OK "X: a\rb\r\n\r\n");
	response_refused(OK "X\r\n\r\n");
	auto_free char *endless = padded(OK "X: ", 'x', HTTP_HEAD_MAX, "");
	response_refused(endless);
	auto_free char *reason = padded("HTTP/1.1 200 ", 'x', HTTP_START_MAX, "");
	response_refused(reason);
}

static void response_framing_follows_the_request(void **state)
{
	(void)state;
	static const struct {
		const char *method, *head;
		enum http_framing framing;
		uint64_t length;
		bool keep;
	} cases[] = {
		{"GET", OK "Content-Length: 5\r\n\r\n", HTTP_LENGTH, 5, true},
		{"GET", OK "Transfer-Encoding: chunked\r\n\r\n", HTTP_CHUNKED, 0, true},
		{"GET", OK "\r\n", HTTP_TO_CLOSE, 0, false},
		{"GET", OK "Connection: keep-alive\r\n\r\n", HTTP_TO_CLOSE, 0, false},
		{"HEAD", OK "Content-Length: 5\r\n\r\n", HTTP_NO_BODY, 0, true},
		{"HEAD", OK "Transfer-Encoding: chunked\r\n\r\n", HTTP_NO_BODY, 0, true},
		{"HEAD", OK "\r\n", HTTP_NO_BODY, 0, true},
		{"GET", "HTTP/1.1 304 x\r\nContent-Length: 5\r\n\r\n", HTTP_NO_BODY, 0, true},
		{"GET", "HTTP/1.1 204 x\r\n\r\n", HTTP_NO_BODY, 0, true},
		{"GET", "HTTP/1.1 204 x\r\nContent-Length: 0\r\n\r\n", HTTP_NO_BODY, 0, true},
		{"GET", "HTTP/1.1 204 x\r\nContent-Length: 5\r\n\r\n", HTTP_NO_BODY, 0, false},
		{"GET", "HTTP/1.1 204 x\r\nTransfer-Encoding: chunked\r\n\r\n", HTTP_NO_BODY, 0,
		 false},
		{"GET", "HTTP/1.1 100 Continue\r\n\r\n", HTTP_NO_BODY, 0, true},
		{"GET", "HTTP/1.1 103 x\r\nLink: a\r\nConnection: close\r\n\r\n", HTTP_NO_BODY, 0,
		 true},
		{"GET", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", HTTP_LENGTH, 5, false},
		{"GET", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n",
		 HTTP_LENGTH, 5, true},
		{"GET", OK "Content-Length: 5\r\nConnection: close\r\n\r\n", HTTP_LENGTH, 5, false},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct http_head h = response(cases[i].head, cases[i].method);
		if (h.framing != cases[i].framing || h.length != cases[i].length ||
		    h.keep_alive != cases[i].keep)
			fail_msg("framing %d, length %d, keep_alive %d for %s %s", (int)h.framing,
				 (int)h.length, h.keep_alive, cases[i].method, cases[i].head);
		http_head_done(&h);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(request_is_read_whole),
		cmocka_unit_test(request_leaves_what_follows_the_head),
		cmocka_unit_test(request_line_is_exact),
		cmocka_unit_test(request_refuses_other_versions),
		cmocka_unit_test(request_refuses_methods_that_tunnel_or_echo),
		cmocka_unit_test(request_target_has_three_forms),
		cmocka_unit_test(request_refuses_an_authority_that_is_not_its_host),
		cmocka_unit_test(request_names_one_host),
		cmocka_unit_test(request_refuses_ambiguous_framing),
		cmocka_unit_test(request_framing_is_told),
		cmocka_unit_test(request_refuses_bad_lines),
		cmocka_unit_test(request_knows_every_byte),
		cmocka_unit_test(request_connection_is_understood),
		cmocka_unit_test(request_expectation_is_continue_or_refused),
		cmocka_unit_test(request_line_is_capped),
		cmocka_unit_test(request_fields_are_capped),
		cmocka_unit_test(request_count_of_fields_is_capped),
		cmocka_unit_test(response_is_read_whole),
		cmocka_unit_test(response_line_is_exact),
		cmocka_unit_test(response_refuses_ambiguous_framing),
		cmocka_unit_test(response_refuses_bad_lines),
		cmocka_unit_test(response_framing_follows_the_request),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
