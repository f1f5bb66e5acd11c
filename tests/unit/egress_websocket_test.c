/* SPDX-License-Identifier: Apache-2.0 */
/* Only what both ends agree upon becomes a WebSocket. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "egress/websocket.h"
#include "http/h1.h"

/* The key and its answer of RFC 6455, section 1.3. */
#define KEY    "dGhlIHNhbXBsZSBub25jZQ=="
#define ACCEPT "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
#define ASK    "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"

static struct http_head request(const char *start, const char *fields)
{
	char text[1024];
	struct http_head head;
	enum h1_fault fault;
	int n = snprintf(text, sizeof(text), "%s\r\nHost: h\r\n%s\r\n", start, fields);
	assert_int_equal(h1_read_request((const uint8_t *)text, (size_t)n, &head, &fault), n);
	return head;
}

static struct http_head answer(const char *fields)
{
	char text[1024];
	struct http_head head;
	int n = snprintf(text, sizeof(text), "HTTP/1.1 101 Switching Protocols\r\n%s\r\n", fields);
	assert_int_equal(h1_read_response((const uint8_t *)text, (size_t)n, "GET", &head), n);
	return head;
}

static void wanted_where_both_fields_say_so(void **state)
{
	(void)state;
	static const struct {
		const char *fields;
		bool wanted;
	} cases[] = {
		{ASK, true},
		{"Connection: upgrade\r\nUpgrade: h2c, websocket\r\n", true},
		{"Upgrade: websocket\r\n", false},
		{"Connection: Upgrade\r\n", false},
		{"Connection: Upgrade\r\nUpgrade: websockets\r\n", false},
		{"Connection: Upgrade\r\nUpgrade: h2c\r\nX: websocket\r\n", false},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct http_head head = request("GET / HTTP/1.1", cases[i].fields);
		assert_int_equal(websocket_wanted(&head), cases[i].wanted);
		http_head_done(&head);
	}
}

static void a_request_must_be_whole(void **state)
{
	(void)state;
#define VERSION "Sec-WebSocket-Version: 13\r\n"
#define A_KEY   "Sec-WebSocket-Key: " KEY "\r\n"
	static const struct {
		const char *start, *fields;
		int result;
	} cases[] = {
		{"GET /a HTTP/1.1", VERSION A_KEY, 0},
		{"POST /a HTTP/1.1", VERSION A_KEY, -EBADMSG},
		{"GET /a HTTP/1.0", VERSION A_KEY, -EBADMSG},
		{"GET /a HTTP/1.1", VERSION A_KEY "Content-Length: 1\r\n", -EBADMSG},
		{"GET /a HTTP/1.1", A_KEY, -EBADMSG},
		{"GET /a HTTP/1.1", "Sec-WebSocket-Version: 8\r\n" A_KEY, -EBADMSG},
		{"GET /a HTTP/1.1", VERSION VERSION A_KEY, -EBADMSG},
		{"GET /a HTTP/1.1", VERSION, -EBADMSG},
		{"GET /a HTTP/1.1", VERSION A_KEY A_KEY, -EBADMSG},
		{"GET /a HTTP/1.1", VERSION "Sec-WebSocket-Key: AAAA\r\n", -EBADMSG},
		{"GET /a HTTP/1.1", VERSION "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ\r\n",
		 -EBADMSG},
		{"GET /a HTTP/1.1", VERSION "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZR==\r\n",
		 -EBADMSG},
		{"GET /a HTTP/1.1", VERSION "Sec-WebSocket-Key: !!!!!!!!!!!!!!!!!!!!!!==\r\n",
		 -EBADMSG},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct err e;
		struct http_head head = request(cases[i].start, cases[i].fields);
		assert_int_equal(websocket_check_request(&head, &e), cases[i].result);
		http_head_done(&head);
	}
}

static void an_answer_must_fit_the_request(void **state)
{
	(void)state;
#define SWITCH    "Connection: Upgrade\r\nUpgrade: websocket\r\n"
#define AN_ACCEPT "Sec-WebSocket-Accept: " ACCEPT "\r\n"
	static const struct {
		const char *fields;
		int result;
	} cases[] = {
		{SWITCH AN_ACCEPT, 0},
		{SWITCH AN_ACCEPT "Sec-WebSocket-Protocol: chat\r\n", 0},
		{SWITCH AN_ACCEPT "Sec-WebSocket-Protocol: other\r\n", -EBADMSG},
		{SWITCH AN_ACCEPT "Sec-WebSocket-Protocol: chat, soap\r\n", -EBADMSG},
		{SWITCH, -EBADMSG},
		{SWITCH AN_ACCEPT AN_ACCEPT, -EBADMSG},
		{SWITCH "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOO=\r\n", -EBADMSG},
		{SWITCH "Sec-WebSocket-Accept: " KEY "\r\n", -EBADMSG},
		{"Connection: Upgrade\r\n" AN_ACCEPT, -EBADMSG},
		{"Upgrade: websocket\r\n" AN_ACCEPT, -EBADMSG},
		{"Connection: Upgrade\r\nUpgrade: h2c\r\n" AN_ACCEPT, -EBADMSG},
		{"Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n" AN_ACCEPT, -EBADMSG},
	};
	struct http_head asked =
		request("GET /a HTTP/1.1", VERSION A_KEY "Sec-WebSocket-Protocol: chat, soap\r\n");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct err e;
		struct http_head head = answer(cases[i].fields);
		assert_int_equal(websocket_check_answer(&asked, &head, &e), cases[i].result);
		http_head_done(&head);
	}
	http_head_done(&asked);
}

static void the_accept_is_that_of_the_standard(void **state)
{
	(void)state;
	char out[WEBSOCKET_ACCEPT_SIZE];
	assert_int_equal(websocket_accept(KEY, out), 0);
	assert_string_equal(out, ACCEPT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wanted_where_both_fields_say_so),
		cmocka_unit_test(a_request_must_be_whole),
		cmocka_unit_test(an_answer_must_fit_the_request),
		cmocka_unit_test(the_accept_is_that_of_the_standard),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
