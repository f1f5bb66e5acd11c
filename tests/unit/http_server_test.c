/* SPDX-License-Identifier: Apache-2.0 */
/* What a server makes of requests: their order, versions and methods, refusals and deadlines. */
#include <errno.h>

#include "http/stream_filter.h"
#include "http_server_fixture.h"

/* -- order -- */

static void connection_serves_one_request_after_the_other(void **state)
{
	(void)state;
	struct site site;
	serve(&site);
	site.act = act_reply;
	peer_say(&site.peer, "GET /one HTTP/1.1\r\nHost: a\r\n\r\n");
	peer_await(&site.peer, &loop, "/one");
	assert_string_equal(peer_heard(&site.peer),
			    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
			    "Content-Length: 4\r\n\r\n/one");
	peer_say(&site.peer, "GET /two HTTP/1.1\r\nHost: a\r\n\r\n");
	peer_await(&site.peer, &loop, "/two");
	assert_int_equal(site.requests, 2);
	assert_false(site.closed || site.peer.over);
	leave_site(&site);
}

static void requests_sent_ahead_wait_for_their_turn(void **state)
{
	(void)state;
	struct site site;
	serve(&site);
	peer_say(&site.peer, "POST /one HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
			     "GET /two HTTP/1.1\r\nHost: a\r\n\r\n"
			     "GET /three HTTP/1.1\r\nHost: a\r\n\r\n");
	wait_for(&loop, &site.body_ended);
	spin(&loop, 10);
	assert_int_equal(site.requests, 1);
	assert_int_equal(site.body, 3);
	site.act = act_reply;
	struct http_exchange *x = site.x;
	site.x = NULL;
	site.in_call = true;
	reply(x, "/one");
	site.in_call = false;
	peer_await(&site.peer, &loop, "/three");
	assert_int_equal(site.requests, 3);
	const char *h = peer_heard(&site.peer);
	assert_true(strstr(h, "/one") < strstr(h, "/two"));
	leave_site(&site);
}

static void heir_data(void *user, const uint8_t *p, size_t n)
{
	(void)user, (void)p, (void)n;
}

static void heir_hook(void *user)
{
	(void)user;
}

static void a_switch_hands_the_stream_over(void **state)
{
	static const struct stream_ops heir = {
		.data = heir_data, .eof = heir_hook, .drained = heir_hook};
	(void)state;
	struct site site;
	struct http_field upgrade = {"Upgrade", "x"};
	struct http_fields fields = {.list = &upgrade, .count = 1};
	struct stream *s = NULL;
	struct buf early;
	serve(&site);
	peer_say(&site.peer, "GET /one HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\n\r\nbehind");
	wait_for(&loop, &site.body_ended);
	spin(&loop, 3);
	assert_int_equal(http_exchange_switch(site.x, &fields, &s, &early), 0);
	stream_set_ops(s, &heir, NULL);
	stream_set_hooks(s, heir_hook, heir_hook);
	peer_await(&site.peer, &loop, "\r\n\r\n");
	assert_string_equal(peer_heard(&site.peer), "HTTP/1.1 101 Switching Protocols\r\n"
						    "Upgrade: x\r\nConnection: Upgrade\r\n\r\n");
	assert_int_equal(early.len, 6);
	assert_memory_equal(early.data, "behind", 6);
	assert_false(site.closed || site.gone);
	buf_done(&early);
	stream_close(s);
	site.conn = NULL;
	leave_site(&site);

	serve(&site);
	site.keep_off = true;
	peer_say(&site.peer, "POST /one HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n");
	wait_for(&loop, &site.asked);
	spin(&loop, 3);
	assert_int_equal(http_exchange_switch(site.x, &fields, &s, &early), -EINVAL);
	leave_site(&site);
}

static void early_bytes_are_read_first(void **state)
{
	(void)state;
	struct site site = {.act = act_reply};
	int fd[2];
	make_pair(fd);
	peer_open(&site.peer, &loop, fd[1]);
	peer_say(&site.peer, "Host: a\r\n\r\n");
	struct stream *s = stream_adopt(&loop, fd[0], NULL, NULL, NULL);
	const char *early = "GET /early HTTP/1.1\r\n";
	site.conn = http_serve(s, (const uint8_t *)early, strlen(early), NULL, &server_ops, &site);
	peer_await(&site.peer, &loop, "/early");
	leave_site(&site);
}

static void head_may_come_byte_by_byte(void **state)
{
	(void)state;
	struct site site;
	serve(&site);
	site.act = act_reply;
	for (const char *p = "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n"; *p; p++) {
		assert_int_equal(site.requests, 0);
		char one[2] = {*p};
		peer_say(&site.peer, one);
		spin(&loop, 3);
	}
	peer_await(&site.peer, &loop, "/slow");
	leave_site(&site);
}

static void request_flood_is_not_read_beyond_a_bound(void **state)
{
	(void)state;
	struct site site;
	serve(&site);
	peer_say(&site.peer, "GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
	wait_for(&loop, &site.asked);
	for (int i = 0; i < 100000; i++)
		peer_say(&site.peer, "GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
	spin(&loop, 200);
	assert_int_equal(site.requests, 1);
	/* What the server has read: its bound and one receive. */
	assert_true(stream_bytes_in(http_conn_stream(site.conn)) <= 192 * 1024);
	leave_site(&site);
}

/* -- versions and methods -- */

static void http_1_0_gets_a_body_to_the_close(void **state)
{
	(void)state;
	struct site site;
	serve(&site);
	peer_say(&site.peer, "GET / HTTP/1.0\r\n\r\n");
	wait_for(&loop, &site.body_ended);
	assert_int_equal(http_exchange_start(site.x, 200, NULL, HTTP_CHUNKED, 0), 0);
	assert_true(http_exchange_write(site.x, "plain", 5) > 0);
	http_exchange_end(site.x);
	site.x = NULL;
	wait_for(&loop, &site.peer.eof);
	assert_string_equal(peer_heard(&site.peer),
			    "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nplain");
	assert_true(site.closed);
	leave_site(&site);
}

static void http_1_0_may_ask_to_stay(void **state)
{
	(void)state;
	struct site site;
	serve(&site);
	site.act = act_reply;
	peer_say(&site.peer, "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
	peer_await(&site.peer, &loop, "\r\n\r\n/a");
	assert_non_null(strstr(peer_heard(&site.peer), "Connection: keep-alive"));
	peer_say(&site.peer, "GET /b HTTP/1.0\r\n\r\n");
	wait_for(&loop, &site.peer.eof);
	assert_int_equal(site.requests, 2);
	leave_site(&site);
}

static void act_chunked(struct site *site, struct http_exchange *x)
{
	site->x = NULL;
	http_exchange_start(x, 200, NULL, HTTP_CHUNKED, 0);
	http_exchange_write(x, "abc", 3);
	http_exchange_write(x, "", 0);
	http_exchange_write(x, "0123456789", 10);
	http_exchange_end(x);
}

static void chunks_are_framed_and_the_end_is_said(void **state)
{
	(void)state;
	struct site site;
	serve(&site);
	site.act = act_chunked;
	peer_say(&site.peer, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
	peer_await(&site.peer, &loop, "0\r\n\r\n");
	assert_string_equal(peer_heard(&site.peer),
			    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
			    "3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n");
	leave_site(&site);
}

static void head_and_bare_statuses_send_no_body(void **state)
{
	(void)state;
	struct site site;
	serve(&site);
	site.act = act_chunked;
	peer_say(&site.peer, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
	peer_await(&site.peer, &loop, "\r\n\r\n");
	spin(&loop, 5);
	assert_string_equal(peer_heard(&site.peer),
			    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
	site.act = NULL;
	for (int i = 0; i < 2; i++) {
		peer_forget(&site.peer);
		site.body_ended = false;
		peer_say(&site.peer, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
		wait_for(&loop, &site.body_ended);
		struct http_exchange *x = site.x;
		site.x = NULL;
		assert_int_equal(http_exchange_start(x, i ? 304 : 204, NULL, HTTP_CHUNKED, 0), 0);
		assert_true(http_exchange_write(x, "never", 5) >= 0);
		http_exchange_end(x);
		peer_await(&site.peer, &loop, "\r\n\r\n");
		spin(&loop, 5);
		assert_null(strstr(peer_heard(&site.peer), "never"));
		assert_null(strstr(peer_heard(&site.peer), "chunked"));
	}
	assert_false(site.closed);
	leave_site(&site);
}

static void response_without_body_says_so(void **state)
{
	(void)state;
	struct site site;
	serve(&site);
	peer_say(&site.peer, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
	wait_for(&loop, &site.body_ended);
	assert_int_equal(http_exchange_start(site.x, 200, NULL, HTTP_NO_BODY, 0), 0);
	http_exchange_end(site.x);
	site.x = NULL;
	peer_await(&site.peer, &loop, "Content-Length: 0\r\n\r\n");
	leave_site(&site);
}

static void continue_is_said_when_the_body_is_wanted(void **state)
{
	(void)state;
	struct site site;
	serve(&site);
	site.keep_off = true;
	site.act = act_reply;
	peer_say(&site.peer,
		 "PUT /c HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
	wait_for(&loop, &site.asked);
	spin(&loop, 10);
	assert_string_equal(peer_heard(&site.peer), "");
	http_exchange_read(site.x, true);
	http_exchange_read(site.x, false);
	http_exchange_read(site.x, true);
	peer_await(&site.peer, &loop, "HTTP/1.1 100 Continue\r\n\r\n");
	peer_say(&site.peer, "body");
	peer_await(&site.peer, &loop, "/c");
	assert_int_equal(site.body, 4);
	leave_site(&site);
}

/* -- refusals -- */

struct refusal {
	const char *request;
	unsigned status;
};

static void malformed_requests_are_answered_and_cut(void **state)
{
	(void)state;
	static const struct refusal cases[] = {
		{"GET / HTTP/1.1\r\n\r\n", 400},
		{"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"\x16\x03\x01\x02", 400},
		{"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 405},
		{"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
		{"PUT / HTTP/1.1\r\nHost: a\r\nExpect: x\r\nContent-Length: 1\r\n\r\nx", 417},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct site site;
		serve(&site);
		peer_say(&site.peer, cases[i].request);
		wait_for(&loop, &site.peer.over);
		assert_true(site.peer.eof);
		assert_int_equal(site.refused, cases[i].status);
		assert_int_equal(site.requests, 0);
		assert_true(site.closed);
		char want[32];
		snprintf(want, sizeof(want), "HTTP/1.1 %u ", cases[i].status);
		assert_memory_equal(peer_heard(&site.peer), want, strlen(want));
		snprintf(want, sizeof(want), "{\"code\":%u,\"message\":\"", cases[i].status);
		assert_non_null(strstr(peer_heard(&site.peer), want));
		assert_non_null(strstr(peer_heard(&site.peer), "Connection: close\r\n"));
		leave_site(&site);
	}
}

static void nothing_after_a_malformed_request_is_served(void **state)
{
	(void)state;
	struct site site;
	serve(&site);
	site.act = act_reply;
	peer_say(&site.peer, "GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
			     "GET /b HTTP/1.1\r\nHost : a\r\n\r\n"
			     "GET /c HTTP/1.1\r\nHost: a\r\n\r\n");
	wait_for(&loop, &site.peer.over);
	assert_int_equal(site.requests, 1);
	assert_int_equal(site.refused, 400);
	leave_site(&site);
}

static void malformed_body_ends_the_exchange_and_is_answered(void **state)
{
	(void)state;
	struct site site;
	serve(&site);
	peer_say(&site.peer,
		 "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcXX");
	wait_for(&loop, &site.peer.over);
	assert_true(site.gone);
	assert_int_equal(site.body, 3);
	assert_non_null(strstr(peer_heard(&site.peer), "HTTP/1.1 400 "));
	leave_site(&site);
}

static void slow_head_times_out(void **state)
{
	(void)state;
	struct site site;
	serve_limited(&site,
		      &(struct http_limits){.head_timeout_ms = 80, .idle_timeout_ms = 60000});
	peer_say(&site.peer, "GET / HTTP/1.1\r\nHo");
	wait_for(&loop, &site.peer.over);
	assert_int_equal(site.refused, 408);
	assert_non_null(strstr(peer_heard(&site.peer), "HTTP/1.1 408 "));
	leave_site(&site);
}

struct dribble {
	uv_timer_t timer;
	struct site *site;
	unsigned said;
};

static void dribble(uv_timer_t *t)
{
	struct dribble *d = t->data;
	d->said++;
	if (d->site->peer.s && !d->site->peer.over)
		peer_say(&d->site->peer, "a");
}

static void dribbling_does_not_stretch_the_head_timeout(void **state)
{
	(void)state;
	struct site site;
	serve_limited(&site, &(struct http_limits){.head_timeout_ms = 120, .idle_timeout_ms = 60});
	peer_say(&site.peer, "GET / HTTP/1.1\r\nHost: ");
	struct dribble d = {.site = &site};
	uv_timer_init(&loop, &d.timer);
	d.timer.data = &d;
	uv_timer_start(&d.timer, dribble, 5, 5);
	wait_for(&loop, &site.closed);
	assert_int_equal(site.refused, 408);
	assert_true(d.said > 4);
	uv_close((uv_handle_t *)&d.timer, NULL);
	leave_site(&site);
}

static void idle_connection_is_closed_also_after_requests(void **state)
{
	(void)state;
	for (int requests = 0; requests < 2; requests++) {
		struct site site;
		serve_limited(&site, &(struct http_limits){.idle_timeout_ms = 60});
		site.act = act_reply;
		if (requests)
			peer_say(&site.peer, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
		wait_for(&loop, &site.closed);
		assert_int_equal(site.requests, requests);
		assert_int_equal(site.refused, 0);
		wait_for(&loop, &site.peer.eof);
		leave_site(&site);
	}
}

static void open_exchange_is_not_idle(void **state)
{
	(void)state;
	struct site site, other;
	serve_limited(&site, &(struct http_limits){.head_timeout_ms = 40, .idle_timeout_ms = 40});
	peer_say(&site.peer, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
	wait_for(&loop, &site.asked);
	serve_limited(&other, &(struct http_limits){.idle_timeout_ms = 120});
	wait_for(&loop, &other.closed); /* three times as long */
	assert_false(site.closed || site.gone);
	leave_site(&site);
	leave_site(&other);
}

static void error_text_is_escaped(void **state)
{
	(void)state;
	struct site site;
	serve(&site);
	peer_say(&site.peer, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
	wait_for(&loop, &site.body_ended);
	http_exchange_reply_error(site.x, 404, "no \"%s\"\n\xff", "a\\b");
	site.x = NULL;
	peer_await(&site.peer, &loop, "{\"code\":404,\"message\":\"no \\\"a\\\\b\\\"\\u000a?\"}");
	leave_site(&site);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(connection_serves_one_request_after_the_other),
		TEST(requests_sent_ahead_wait_for_their_turn),
		TEST(a_switch_hands_the_stream_over),
		TEST(early_bytes_are_read_first),
		TEST(head_may_come_byte_by_byte),
		TEST(request_flood_is_not_read_beyond_a_bound),
		TEST(http_1_0_gets_a_body_to_the_close),
		TEST(http_1_0_may_ask_to_stay),
		TEST(chunks_are_framed_and_the_end_is_said),
		TEST(head_and_bare_statuses_send_no_body),
		TEST(response_without_body_says_so),
		TEST(continue_is_said_when_the_body_is_wanted),
		TEST(malformed_requests_are_answered_and_cut),
		TEST(nothing_after_a_malformed_request_is_served),
		TEST(malformed_body_ends_the_exchange_and_is_answered),
		TEST(slow_head_times_out),
		TEST(dribbling_does_not_stretch_the_head_timeout),
		TEST(idle_connection_is_closed_also_after_requests),
		TEST(open_exchange_is_not_idle),
		TEST(error_text_is_escaped),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
