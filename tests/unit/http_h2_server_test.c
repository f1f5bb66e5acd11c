/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlines of a server of HTTP/2. */
#include "http_h2_frames.h"
#include "http_server_fixture.h"

/* ":method: GET", ":scheme: https", ":path: /", ":authority: a" */
static const uint8_t request[] = {0x82, 0x87, 0x84, 0x41, 1, 'a'};

static void serve_h2(struct site *site, const struct http_limits *limits, uint8_t setting,
		     uint8_t value)
{
	int fd[2];
	struct buf first;
	make_pair(fd);
	*site = (struct site){0};
	peer_open(&site->peer, &loop, fd[1]);
	struct stream *s = stream_adopt(&loop, fd[0], NULL, NULL, NULL);
	site->conn = http_serve_h2(s, limits, &server_ops, site);
	assert_non_null(site->conn);
	buf_init(&first, PEER_MAX);
	assert_int_equal(buf_append_str(&first, NGHTTP2_CLIENT_MAGIC), 0);
	settings_append(&first, setting, value);
	peer_say_buf(&site->peer, &first);
}

static void say(struct site *site, uint8_t type, uint8_t flags, uint8_t stream, const void *p,
		size_t n)
{
	struct buf b;
	buf_init(&b, PEER_MAX);
	frame_append(&b, type, flags, stream, p, n);
	peer_say_buf(&site->peer, &b);
}

static void ask(struct site *site, uint8_t stream)
{
	say(site, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, stream,
	    request, sizeof(request));
}

/* The connection ends, by this code in its GOAWAY. */
static void await_end(struct site *site, uint32_t code)
{
	struct frame f = frame_await(&site->peer, &loop, 0, NGHTTP2_GOAWAY, 0, 0);
	assert_int_equal(be32(f.payload + 4), code);
	wait_for(&loop, &site->closed);
	wait_for(&loop, &site->peer.over);
}

struct dribble {
	uv_timer_t timer;
	struct site *site;
	unsigned said;
};

static void dribble(uv_timer_t *t)
{
	struct dribble *d = t->data;
	if (++d->said < sizeof(request) && d->site->peer.s)
		say(d->site, NGHTTP2_CONTINUATION, 0, 1, request + d->said, 1);
}

static void head_that_is_never_whole_times_out(void **state)
{
	(void)state;
	struct site site;
	const struct http_limits limits = {.head_timeout_ms = 120, .idle_timeout_ms = 60000};
	serve_h2(&site, &limits, 0, 0);
	say(&site, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_STREAM, 1, request, 1);
	struct dribble d = {.site = &site};
	uv_timer_init(&loop, &d.timer);
	d.timer.data = &d;
	uv_timer_start(&d.timer, dribble, 50, 50); /* which does not stretch it */
	await_end(&site, NGHTTP2_ENHANCE_YOUR_CALM);
	assert_int_equal(site.refused, 408);
	assert_int_equal(site.requests, 0);
	assert_true(d.said >= 1);
	uv_close((uv_handle_t *)&d.timer, NULL);
	leave_site(&site);
}

static void idle_connection_ends_also_after_requests(void **state)
{
	(void)state;
	for (unsigned requests = 0; requests < 2; requests++) {
		struct site site;
		serve_h2(&site, &(struct http_limits){.idle_timeout_ms = 60}, 0, 0);
		site.act = act_reply;
		if (requests)
			ask(&site, 1);
		await_end(&site, NGHTTP2_NO_ERROR);
		assert_int_equal(site.requests, requests);
		assert_int_equal(site.refused, 0);
		leave_site(&site);
	}
}

static void open_exchange_is_not_idle(void **state)
{
	(void)state;
	struct site site, other;
	serve_h2(&site, &(struct http_limits){.head_timeout_ms = 40, .idle_timeout_ms = 40}, 0, 0);
	ask(&site, 1);
	wait_for(&loop, &site.asked);
	serve_h2(&other, &(struct http_limits){.idle_timeout_ms = 120}, 0, 0);
	await_end(&other, NGHTTP2_NO_ERROR); /* three times as long */
	assert_false(site.closed || site.gone);
	leave_site(&site);
	leave_site(&other);
}

static void answer_that_nobody_takes_ends_the_connection(void **state)
{
	(void)state;
	struct site site;
	const struct http_limits limits = {.stall_timeout_ms = 60, .idle_timeout_ms = 60000};
	serve_h2(&site, &limits, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0);
	site.act = act_reply;
	ask(&site, 1);
	await_end(&site, NGHTTP2_ENHANCE_YOUR_CALM);
	assert_int_equal(site.requests, 1);
	assert_int_equal(site.refused, 429);
	leave_site(&site);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(head_that_is_never_whole_times_out),
		TEST(idle_connection_ends_also_after_requests),
		TEST(open_exchange_is_not_idle),
		TEST(answer_that_nobody_takes_ends_the_connection),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
