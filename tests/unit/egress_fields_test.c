/* SPDX-License-Identifier: Apache-2.0 */
/* Which fields pass the gateway, and that exactly one credential leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "egress/fields.h"

static struct http_fields parse(const char *text)
{
	struct http_fields f = {0};
	char *copy = strdup(text), *save = NULL;
	for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *colon = strchr(line, ':');
		*colon = '\0';
		assert_int_equal(http_fields_add(&f, line, colon + 1 + (colon[1] == ' ')), 0);
	}
	free(copy);
	return f;
}

static void expect(const struct fields *f, const char *want)
{
	char text[4096] = "";
	for (size_t i = 0; i < f->list.count; i++) {
		size_t n = strlen(text);
		snprintf(text + n, sizeof(text) - n, "%s: %s\n", f->list.list[i].name,
			 f->list.list[i].value);
	}
	assert_string_equal(text, want);
}

static void request(const char *in, const char *credential, const char *want)
{
	struct http_fields list = parse(in);
	struct fields f;
	struct inject_field put = {"Authorization", credential};
	struct fields_credential c = {.list = &put, .count = 1};
	fields_for_upstream(&f, &list, "api.example.com", credential ? &c : NULL, 0);
	expect(&f, want);
	http_fields_done(&list);
}

static void hop_by_hop_fields_end_here(void **state)
{
	(void)state;
	request("Host: x\nConnection: keep-alive, X-Hop ,x-other\nX-Hop: 1\nX-OTHER: 2\nX-Stays: 3\n"
		"Keep-Alive: timeout=5\nTE: trailers\nTrailer: Foo\nTransfer-Encoding: chunked\n"
		"Upgrade: h2c\nHTTP2-Settings: AAAA\nProxy-Connection: close\nProxy-Foo: x\n"
		"Expect: 100-continue\nContent-Length: 3\nContent-Type: a/b\n",
		NULL, "Host: api.example.com\nX-Stays: 3\nContent-Type: a/b\n");
}

static void host_is_the_canonical_one_whatever_connection_lists(void **state)
{
	(void)state;
	request("Host: API.example.com.\nConnection: host\n", NULL, "Host: api.example.com\n");
}

static void own_credentials_stay_without_an_injected_one(void **state)
{
	(void)state;
	request("Authorization: Basic Z3Vlc3Q6\nCookie: a=b\nAccept-Encoding: gzip\n", NULL,
		"Host: api.example.com\nAuthorization: Basic Z3Vlc3Q6\nCookie: a=b\nAccept-Encoding: gzip\n");
}

static void exactly_one_credential_leaves(void **state)
{
	(void)state;
	request("authorization: Bearer guest\nAUTHORIZATION: Basic Z3Vlc3Q6\nCookie: session=1\n"
		"X-Api-Key: guest\nProxy-Authorization: x\nAccept-Encoding: gzip, br\naccept-encoding: zstd\nAccept: */*\n",
		"Bearer real",
		"Host: api.example.com\nAccept: */*\nAccept-Encoding: identity\nAuthorization: Bearer real\n");
}

/* CGI and its heirs give a server X_Api_Key and X-Api-Key under one name. */
static void underscores_hide_no_field(void **state)
{
	(void)state;
	request("X_Api_Key: guest\nX_Auth-Token: guest\nProxy_Authorization: x\nTransfer_Encoding: chunked\n"
		"Content_Length: 3\nHost_: x\nAccept_Encoding: br\nX_Stays: 1\n",
		"Bearer real",
		"Host: api.example.com\nHost_: x\nX_Stays: 1\nAccept-Encoding: identity\nAuthorization: Bearer real\n");
	request("X_Api_Key: guest\nTransfer_Encoding: chunked\nHTTP2_Settings: A\n", NULL,
		"Host: api.example.com\nX_Api_Key: guest\n");
}

static void connection_cannot_drop_the_injected_credential(void **state)
{
	(void)state;
	request("Connection: authorization, close\nAuthorization: guest\n", "Bearer real",
		"Host: api.example.com\nAccept-Encoding: identity\nAuthorization: Bearer real\n");
}

/* Where the host has a grant and this request does not get it. */
static void no_credential_of_the_guest_reaches_the_host_of_a_grant(void **state)
{
	(void)state;
	struct http_fields list =
		parse("Cookie: a=b\nX-Api-Key: guest\nAccept-Encoding: br\n"
		      "Sec-WebSocket-Extensions: permessage-deflate\nX-Stays: 1\n");
	struct fields f;
	fields_for_upstream(&f, &list, "h", &(struct fields_credential){0}, 0);
	expect(&f, "Host: h\nX-Stays: 1\nAccept-Encoding: identity\n");
	http_fields_done(&list);
}

/* A host of a grant must answer in what can be searched. */
static void guest_does_not_choose_how_an_answer_is_written(void **state)
{
	(void)state;
	static const char kept[] = "Host: h\nAccept-Encoding: identity\n";
	static const char *const dropped[] = {"Accept-Charset: utf-16",
					      "accept_charset: x",
					      "A-IM: gzip",
					      "TE: gzip, deflate",
					      "Accept: text/html;charset=utf-7",
					      "Accept: a/b, c/d; q=1; CharSet = \"IBM037\"",
					      "Accept: a/b;charset=utf-8, a/b;charset=utf-7",
					      "Accept: a/b;charset*=utf-8''x",
					      "Accept: a/b;charset=",
					      "Accept: a/b;charset=utf-8x",
					      "Accept: a/b;charset"};
	static const char *const stay[] = {
		"Accept: */*", "Accept: application/json; charset=utf-8",
		"Accept: a/b;charset=\"UTF-8\", c/d;charset=ISO-8859-1;q=0.1",
		"Accept-Language: de"};
	struct fields f;
	for (size_t i = 0; i < sizeof(dropped) / sizeof(dropped[0]); i++) {
		struct http_fields list = parse(dropped[i]);
		fields_for_upstream(&f, &list, "h", &(struct fields_credential){0}, 0);
		expect(&f, kept);
		http_fields_done(&list);
	}
	for (size_t i = 0; i < sizeof(stay) / sizeof(stay[0]); i++) {
		struct http_fields list = parse(stay[i]);
		char want[256];
		snprintf(want, sizeof(want), "Host: h\n%s\nAccept-Encoding: identity\n", stay[i]);
		fields_for_upstream(&f, &list, "h", &(struct fields_credential){0}, 0);
		expect(&f, want);
		http_fields_done(&list);
	}
	request("Accept-Charset: utf-16\n", NULL,
		"Host: api.example.com\nAccept-Charset: utf-16\n");
}

static void what_is_put_in_takes_the_place_of_the_guests(void **state)
{
	(void)state;
	struct http_fields list = parse("x_foo: sp_T_1\nX-Foo: more\nX-Food: 1\n");
	struct inject_field put = {"X-Foo", "real"};
	struct fields_credential c = {.list = &put, .count = 1};
	struct fields f;
	fields_for_upstream(&f, &list, "h", &c, 0);
	expect(&f, "Host: h\nX-Food: 1\nAccept-Encoding: identity\nX-Foo: real\n");
	http_fields_done(&list);
}

static void fields_that_override_what_was_judged_end_here(void **state)
{
	(void)state;
	static const char given[] =
		"X-HTTP-Method-Override: PUT\nX_Original-URL: /b\nForwarded: host=b\n";
	struct http_fields list = parse(given);
	struct fields f;
	fields_for_upstream(&f, &list, "h", NULL, 0);
	expect(&f, "Host: h\n");
	fields_for_upstream(&f, &list, "h", &(struct fields_credential){0}, FIELDS_OVERRIDES);
	expect(&f, "Host: h\nAccept-Encoding: identity\n");
	fields_for_upstream(&f, &list, "h", NULL, FIELDS_OVERRIDES);
	char want[sizeof(given) + 16];
	snprintf(want, sizeof(want), "Host: h\n%s", given);
	expect(&f, want);
	fields_for_trailers(&f, &list);
	expect(&f, "");
	http_fields_done(&list);
}

static void response_fields_are_chosen(void **state)
{
	(void)state;
	struct http_fields list =
		parse("Content-Type: text/plain\nConnection: close, X-Hop\nX-Hop: 1\n"
		      "Keep-Alive: timeout=5\nTransfer-Encoding: chunked\nAlt-Svc: h3=\":443\"\n"
		      "Set-Cookie: a=1\nSet-Cookie: b=2\nUpgrade: h2\nContent-Length: 4\n"
		      "Proxy-Authenticate: Basic\n");
	struct fields f;
	fields_for_guest(&f, &list, 0);
	expect(&f, "Content-Type: text/plain\nSet-Cookie: a=1\nSet-Cookie: b=2\n");
	http_fields_done(&list);
}

static void full_head_has_room_for_ours(void **state)
{
	(void)state;
	struct http_fields list = {0};
	for (int i = 0; i < HTTP_FIELDS_MAX; i++)
		assert_int_equal(http_fields_addf(&list, "X", "%d", i), 0);
	struct fields f;
	struct inject_field put[INJECTION_FIELDS_MAX];
	for (int i = 0; i < INJECTION_FIELDS_MAX; i++)
		put[i] = (struct inject_field){"Y", "real"};
	struct fields_credential c = {.list = put, .count = INJECTION_FIELDS_MAX};
	fields_for_upstream(&f, &list, "h", &c, FIELDS_TRAILERS);
	assert_int_equal(f.list.count, HTTP_FIELDS_MAX + 2 + INJECTION_FIELDS_MAX);
	assert_string_equal(f.list.list[f.list.count - 1].value, "real");
	http_fields_done(&list);
}

static void what_ends_here_may_be_let_through(void **state)
{
	(void)state;
	struct http_fields list = parse("Connection: Upgrade, TE\nUpgrade: h2c, websocket\n"
					"TE: gzip, Trailers\nSec-WebSocket-Key: k\n");
	struct http_fields bare = parse("Connection: TE\nTE: gzip\n");
	struct fields f;
	fields_for_upstream(&f, &list, "h", NULL, FIELDS_WEBSOCKET | FIELDS_TRAILERS);
	expect(&f, "Host: h\nSec-WebSocket-Key: k\nUpgrade: websocket\nTE: trailers\n");
	fields_for_guest(&f, &list, FIELDS_WEBSOCKET);
	expect(&f, "Sec-WebSocket-Key: k\nUpgrade: websocket\n");
	fields_for_upstream(&f, &bare, "h", NULL, FIELDS_TRAILERS);
	expect(&f, "Host: h\n");
	http_fields_done(&list);
	http_fields_done(&bare);
}

static void trailers_bring_nothing_that_belongs_in_a_head(void **state)
{
	(void)state;
	struct http_fields list =
		parse("grpc-status: 0\nAuthorization: x\nContent-Length: 3\nHost: y\n"
		      "Transfer_Encoding: chunked\nSet-Cookie: a=b\ngrpc-message: ok\n");
	struct fields f;
	fields_for_trailers(&f, &list);
	expect(&f, "grpc-status: 0\ngrpc-message: ok\n");
	http_fields_done(&list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hop_by_hop_fields_end_here),
		cmocka_unit_test(host_is_the_canonical_one_whatever_connection_lists),
		cmocka_unit_test(own_credentials_stay_without_an_injected_one),
		cmocka_unit_test(exactly_one_credential_leaves),
		cmocka_unit_test(underscores_hide_no_field),
		cmocka_unit_test(connection_cannot_drop_the_injected_credential),
		cmocka_unit_test(no_credential_of_the_guest_reaches_the_host_of_a_grant),
		cmocka_unit_test(guest_does_not_choose_how_an_answer_is_written),
		cmocka_unit_test(what_is_put_in_takes_the_place_of_the_guests),
		cmocka_unit_test(fields_that_override_what_was_judged_end_here),
		cmocka_unit_test(response_fields_are_chosen),
		cmocka_unit_test(full_head_has_room_for_ours),
		cmocka_unit_test(what_ends_here_may_be_let_through),
		cmocka_unit_test(trailers_bring_nothing_that_belongs_in_a_head),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
