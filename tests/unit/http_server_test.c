/* SPDX-License-Identifier: Apache-2.0 */
/* The server's side over real sockets: order, limits, flow in both directions, and every way to
 * leave. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "http/server.h"
#include "http_peer.h"

#define LARGE (50u * 1024 * 1024) /* bytes */

static uv_loop_t loop;

static int setup(void **state)
{
	(void)state;
	return uv_loop_init(&loop);
}

static int teardown(void **state)
{
	(void)state;
	loop_done(&loop);
	return 0;
}

/* A served connection, what its user saw, and what the user does. */
struct site {
	struct http_conn *conn; /* NULL when over */
	struct peer peer;
	struct http_exchange *x;
	void (*act)(struct site *site, struct http_exchange *x);
	unsigned requests, refused;
	size_t body;
	bool body_ended, gone, closed, drained, asked;
	bool in_call;
	bool keep_off; /* does not read the body */
	enum { NEVER, AT_REQUEST, AT_BODY, AT_BODY_END, AT_DRAINED } close_at, end_at;
	char target[64];
};

static void reply(struct http_exchange *x, const char *text)
{
	http_exchange_reply(x, 200, "text/plain", text, strlen(text));
}

static bool leave(struct site *site, int at)
{
	assert_false(site->in_call);
	if ((int)site->close_at == at) {
		http_conn_close(site->conn);
		site->conn = NULL;
		return true;
	}
	if ((int)site->end_at == at && site->x) {
		struct http_exchange *x = site->x;
		site->x = NULL;
		reply(x, "early");
		return true;
	}
	return false;
}

static void on_body(void *user, const uint8_t *p, size_t n)
{
	struct site *site = user;
	assert_true(p && n);
	assert_non_null(site->x);
	site->body += n;
	leave(site, AT_BODY);
}

static void on_body_end(void *user)
{
	struct site *site = user;
	assert_non_null(site->x);
	assert_false(site->body_ended);
	site->body_ended = true;
	if (leave(site, AT_BODY_END) || !site->act)
		return;
	struct http_exchange *x = site->x;
	site->act(site, x);
}

static void on_drained(void *user)
{
	struct site *site = user;
	site->drained = true;
	leave(site, AT_DRAINED);
}

static void on_gone(void *user)
{
	struct site *site = user;
	assert_non_null(site->x);
	site->x = NULL;
	site->gone = true;
}

static const struct http_exchange_ops exchange_ops = {on_body, on_body_end, on_drained, on_gone};

static void on_request(void *user, struct http_exchange *x)
{
	struct site *site = user;
	assert_null(site->x); /* one at a time */
	assert_ptr_equal(http_exchange_conn(x), site->conn);
	site->requests++;
	site->asked = true;
	site->x = x;
	site->body_ended = false;
	snprintf(site->target, sizeof(site->target), "%s", http_exchange_head(x)->target);
	http_exchange_on(x, &exchange_ops, site);
	if (!site->keep_off)
		http_exchange_read(x, true);
	leave(site, AT_REQUEST);
}

static void on_refused(void *user, unsigned status)
{
	((struct site *)user)->refused = status;
}

static void on_conn_closed(void *user)
{
	struct site *site = user;
	assert_false(site->in_call);
	assert_null(site->x);
	site->closed = true;
	site->conn = NULL;
}

static const struct http_server_ops server_ops = {on_request, on_refused, on_conn_closed};

static void serve_limited(struct site *site, const struct http_limits *limits)
{
	int fd[2];
	make_pair(fd);
	*site = (struct site){0};
	peer_open(&site->peer, &loop, fd[1]);
	struct stream *s = stream_adopt(&loop, fd[0], NULL, NULL, NULL);
	site->conn = http_serve(s, NULL, 0, limits, &server_ops, site);
	assert_non_null(site->conn);
}

static void serve(struct site *site)
{
	serve_limited(site, NULL);
}

static void leave_site(struct site *site)
{
	if (site->conn)
		http_conn_close(site->conn);
	peer_done(&site->peer);
	spin(&loop, 3);
}

static void act_reply(struct site *site, struct http_exchange *x)
{
	site->x = NULL;
	reply(x, site->target);
}

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

/* -- flow -- */

static void request_body_waits_for_the_reader(void **state)
{
	(void)state;
	struct site site;
	serve(&site);
	site.keep_off = true;
	peer_say(&site.peer, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n");
	char *bytes = calloc(1, 8000000);
	assert_true(stream_write(site.peer.s, bytes, 8000000) > 0);
	free(bytes);
	wait_for(&loop, &site.asked);
	spin(&loop, 200);
	assert_int_equal(site.body, 0);
	assert_true(stream_bytes_in(http_conn_stream(site.conn)) <= 192 * 1024);
	site.in_call = true;
	http_exchange_read(site.x, true);
	site.in_call = false;
	wait_for(&loop, &site.body_ended);
	assert_int_equal(site.body, 8000000);
	leave_site(&site);
}

/* Writes LARGE bytes in chunks, politely. */
struct download {
	struct http_exchange *x;
	size_t sent;
	size_t most_queued;
};

static void download_more(void *user)
{
	struct download *d = user;
	char chunk[40000];
	memset(chunk, 'x', sizeof(chunk));
	while (d->sent < LARGE) {
		size_t n = LARGE - d->sent < sizeof(chunk) ? LARGE - d->sent : sizeof(chunk);
		ssize_t queued = http_exchange_write(d->x, chunk, n);
		assert_true(queued >= 0);
		d->sent += n;
		if ((size_t)queued > d->most_queued)
			d->most_queued = (size_t)queued;
		if (queued > STREAM_QUEUE_HIGH)
			return;
	}
	http_exchange_end(d->x);
}

static void download_gone(void *user)
{
	(void)user;
	fail();
}

static const struct http_exchange_ops download_ops = {.drained = download_more,
						      .gone = download_gone};

static void large_response_to_a_slow_reader_is_bounded(void **state)
{
	(void)state;
	struct site site;
	serve(&site);
	peer_say(&site.peer, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
	wait_for(&loop, &site.asked);
	struct download d = {.x = site.x};
	site.x = NULL;
	http_exchange_on(d.x, &download_ops, &d);
	assert_int_equal(http_exchange_start(d.x, 200, NULL, HTTP_LENGTH, LARGE), 0);
	assert_int_equal(http_exchange_write(d.x, NULL, 0) >= 0, 1);
	stream_read(site.peer.s, false);
	download_more(&d);
	spin(&loop, 100);
	assert_true(d.sent < LARGE / 10);
	stream_read(site.peer.s, true);
	wait_for(&loop, &site.peer.eof);
	assert_int_equal(d.sent, LARGE);
	assert_true(d.most_queued <= STREAM_QUEUE_HIGH + 40000);
	const char *body = strstr(peer_heard(&site.peer), "\r\n\r\n") + 4;
	assert_int_equal(site.peer.heard.len - (size_t)(body - (char *)site.peer.heard.data),
			 LARGE);
	leave_site(&site);
}

static void writing_past_the_length_is_refused(void **state)
{
	(void)state;
	struct site site;
	serve(&site);
	peer_say(&site.peer, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
	wait_for(&loop, &site.body_ended);
	assert_int_equal(http_exchange_write(site.x, "x", 1), -EINVAL); /* not started */
	assert_int_equal(http_exchange_start(site.x, 200, NULL, HTTP_LENGTH, 3), 0);
	assert_int_equal(http_exchange_start(site.x, 200, NULL, HTTP_LENGTH, 3), -EINVAL);
	assert_int_equal(http_exchange_write(site.x, "four", 4), -EPIPE);
	assert_true(http_exchange_write(site.x, "abc", 3) > 0);
	http_exchange_end(site.x);
	site.x = NULL;
	peer_await(&site.peer, &loop, "abc");
	assert_null(strstr(peer_heard(&site.peer), "four"));
	leave_site(&site);
}

static void response_with_forged_fields_is_not_sent(void **state)
{
	(void)state;
	struct site site;
	serve(&site);
	peer_say(&site.peer, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
	wait_for(&loop, &site.body_ended);
	struct http_field f = {"X", "a\r\nSet-Cookie: b"};
	struct http_fields fields = {&f, 1};
	assert_int_equal(http_exchange_start(site.x, 200, &fields, HTTP_LENGTH, 0), -EINVAL);
	assert_int_equal(http_exchange_start(site.x, 100, NULL, HTTP_NO_BODY, 0), -EINVAL);
	reply(site.x, "ok");
	site.x = NULL;
	peer_await(&site.peer, &loop, "ok");
	assert_null(strstr(peer_heard(&site.peer), "Cookie"));
	leave_site(&site);
}

/* -- leaving -- */

static void short_response_cuts_the_connection(void **state)
{
	(void)state;
	struct site site;
	serve(&site);
	peer_say(&site.peer, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
	wait_for(&loop, &site.body_ended);
	http_exchange_start(site.x, 200, NULL, HTTP_LENGTH, 10);
	http_exchange_write(site.x, "abc", 3);
	http_exchange_end(site.x);
	site.x = NULL;
	wait_for(&loop, &site.peer.eof);
	assert_non_null(strstr(peer_heard(&site.peer), "abc"));
	assert_true(site.closed);
	leave_site(&site);
}

static void aborted_body_to_the_close_is_a_reset(void **state)
{
	(void)state;
	struct site site;
	serve(&site);
	peer_say(&site.peer, "GET / HTTP/1.0\r\n\r\n");
	wait_for(&loop, &site.body_ended);
	http_exchange_start(site.x, 200, NULL, HTTP_CHUNKED, 0);
	http_exchange_write(site.x, "abc", 3);
	site.in_call = true;
	http_exchange_abort(site.x);
	site.in_call = false;
	site.x = NULL;
	assert_false(site.closed);
	wait_for(&loop, &site.closed);
	leave_site(&site);
}

static void answer_before_the_body_ends_costs_the_connection(void **state)
{
	(void)state;
	struct site site;
	serve(&site);
	site.keep_off = true;
	site.end_at = AT_REQUEST;
	peer_say(&site.peer, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n");
	char *bytes = calloc(1, 1000000);
	stream_write(site.peer.s, bytes, 1000000);
	free(bytes);
	wait_for(&loop, &site.peer.over);
	assert_true(site.peer.eof); /* and no reset, so that the answer arrives */
	assert_non_null(strstr(peer_heard(&site.peer), "Connection: close\r\n"));
	assert_non_null(strstr(peer_heard(&site.peer), "early"));
	assert_true(site.closed);
	assert_int_equal(site.requests, 1);
	leave_site(&site);
}

static void peer_that_leaves_cancels_its_exchange(void **state)
{
	(void)state;
	for (int reading = 0; reading < 2; reading++) {
		struct site site;
		serve(&site);
		site.keep_off = !reading;
		peer_say(&site.peer, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab");
		wait_for(&loop, &site.asked);
		peer_done(&site.peer);
		wait_for(&loop, &site.closed);
		assert_true(site.gone);
		assert_false(site.body_ended);
		leave_site(&site);
	}
}

static void peer_that_leaves_during_a_response_cancels_it(void **state)
{
	(void)state;
	struct site site;
	serve(&site);
	peer_say(&site.peer, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
	wait_for(&loop, &site.body_ended);
	http_exchange_start(site.x, 200, NULL, HTTP_CHUNKED, 0);
	char large[100000] = {0};
	while (http_exchange_write(site.x, large, sizeof(large)) < STREAM_QUEUE_HIGH)
		;
	stream_read(site.peer.s, false);
	spin(&loop, 5);
	peer_done(&site.peer);
	wait_for(&loop, &site.closed);
	assert_true(site.gone);
	leave_site(&site);
}

static void closing_or_ending_inside_any_callback_is_safe(void **state)
{
	(void)state;
	for (int at = AT_REQUEST; at <= AT_DRAINED; at++) {
		for (int end = 0; end < 2; end++) {
			struct site site;
			serve(&site);
			if (end)
				site.end_at = at;
			else
				site.close_at = at;
			peer_say(&site.peer,
				 "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
				 "GET /two HTTP/1.1\r\nHost: a\r\n\r\n");
			wait_for(&loop, &site.asked);
			if (at == AT_DRAINED && site.x) {
				spin(&loop, 5);
				site.end_at = NEVER;
				site.close_at = end ? NEVER : AT_DRAINED;
				http_exchange_start(site.x, 200, NULL, HTTP_CHUNKED, 0);
				http_exchange_write(site.x, "x", 1);
				wait_for(&loop, &site.drained);
			}
			spin(&loop, 20);
			if (!end) {
				assert_null(site.conn);
				assert_true(site.gone);
				assert_false(site.closed);
				assert_int_equal(site.requests, 1);
			}
			leave_site(&site);
		}
	}
}

static void on_request_ignored(void *user, struct http_exchange *x)
{
	(void)x;
	((struct site *)user)->asked = true;
}

static void exchange_that_nobody_takes_is_cut(void **state)
{
	(void)state;
	static const struct http_server_ops ops = {on_request_ignored, NULL, on_conn_closed};
	struct site site = {0};
	int fd[2];
	make_pair(fd);
	peer_open(&site.peer, &loop, fd[1]);
	struct stream *s = stream_adopt(&loop, fd[0], NULL, NULL, NULL);
	site.conn = http_serve(s, NULL, 0, NULL, &ops, &site);
	peer_say(&site.peer, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
	wait_for(&loop, &site.peer.over);
	assert_true(site.closed);
	leave_site(&site);
}

/* -- whole bodies -- */

struct collected {
	struct site *site;
	bool done, gone, hold;
	size_t n;
	struct http_exchange *x;
};

static void on_collected(void *user, struct http_exchange *x, const char *body, size_t n)
{
	struct collected *c = user;
	c->done = true;
	c->n = n;
	assert_int_equal(strlen(body), n);
	if (c->hold)
		c->x = x;
	else
		http_exchange_reply(x, 201, NULL, body, n);
}

static void on_collect_gone(void *user)
{
	((struct collected *)user)->gone = true;
}

static void on_request_collect(void *user, struct http_exchange *x)
{
	struct collected *c = user;
	http_exchange_collect(x, 100, on_collected, on_collect_gone, c);
	assert_false(c->done || c->gone); /* not inside the call */
}

static void on_collect_conn_closed(void *user)
{
	((struct collected *)user)->site->closed = true;
}

static const struct http_server_ops collect_ops = {on_request_collect, NULL,
						   on_collect_conn_closed};

static struct http_conn *serve_collecting(struct collected *c, struct site *site)
{
	int fd[2];
	make_pair(fd);
	*c = (struct collected){.site = site};
	*site = (struct site){0};
	peer_open(&site->peer, &loop, fd[1]);
	struct stream *s = stream_adopt(&loop, fd[0], NULL, NULL, NULL);
	return http_serve(s, NULL, 0, NULL, &collect_ops, c);
}

static void body_is_collected_up_to_its_limit(void **state)
{
	(void)state;
	struct site site;
	struct collected c;
	struct http_conn *conn = serve_collecting(&c, &site);
	peer_say(&site.peer, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
			     "3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n");
	peer_await(&site.peer, &loop, "abcdefg");
	assert_int_equal(c.n, 7);
	assert_false(c.gone);
	http_conn_close(conn);
	peer_done(&site.peer);
}

static void body_past_the_limit_is_answered_413(void **state)
{
	(void)state;
	static const char *const requests[] = {
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000000\r\n\r\nx",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n70\r\n"
		"0123456789012345678901234567890123456789012345678901234567890123456789"
		"0123456789012345678901234567890123456789012345678901234567890123456789",
	};
	for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
		struct site site;
		struct collected c;
		serve_collecting(&c, &site);
		peer_say(&site.peer, requests[i]);
		wait_for(&loop, &site.peer.over);
		assert_non_null(strstr(peer_heard(&site.peer), "HTTP/1.1 413 "));
		assert_true(c.gone && site.closed);
		assert_false(c.done);
		peer_done(&site.peer);
	}
}

static void collecting_ends_with_the_peer_before_and_after_done(void **state)
{
	(void)state;
	for (int whole = 0; whole < 2; whole++) {
		struct site site;
		struct collected c;
		serve_collecting(&c, &site);
		c.hold = true;
		peer_say(&site.peer, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab");
		if (whole) {
			peer_say(&site.peer, "c");
			wait_for(&loop, &c.done);
		} else {
			spin(&loop, 10);
		}
		peer_done(&site.peer);
		wait_for(&loop, &site.closed);
		assert_true(c.gone);
		assert_int_equal(c.done, whole);
	}
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

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(connection_serves_one_request_after_the_other),
		TEST(requests_sent_ahead_wait_for_their_turn),
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
		TEST(request_body_waits_for_the_reader),
		TEST(large_response_to_a_slow_reader_is_bounded),
		TEST(writing_past_the_length_is_refused),
		TEST(response_with_forged_fields_is_not_sent),
		TEST(short_response_cuts_the_connection),
		TEST(aborted_body_to_the_close_is_a_reset),
		TEST(answer_before_the_body_ends_costs_the_connection),
		TEST(peer_that_leaves_cancels_its_exchange),
		TEST(peer_that_leaves_during_a_response_cancels_it),
		TEST(closing_or_ending_inside_any_callback_is_safe),
		TEST(exchange_that_nobody_takes_is_cut),
		TEST(body_is_collected_up_to_its_limit),
		TEST(body_past_the_limit_is_answered_413),
		TEST(collecting_ends_with_the_peer_before_and_after_done),
		TEST(error_text_is_escaped),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
