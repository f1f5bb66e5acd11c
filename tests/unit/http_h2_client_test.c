/* SPDX-License-Identifier: Apache-2.0 */
/* A connection of HTTP/2 to a server that is scripted frame by frame: deadlines, and what becomes
 * of requests that it does not take. */
#include <errno.h>

#include "http/h2_client.h"
#include "http_h2_frames.h"

#define PREFACE 24 /* bytes before the client's first frame */

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

struct site {
	struct h2_session *h; /* NULL when over */
	struct peer peer;
	bool closed;
	unsigned settled; /* times that it was told */
};

struct caller {
	struct site *site;
	struct http_client *c; /* NULL when over */
	bool head, end, failed;
	struct err why;
	struct caller *next; /* calls when this one's head comes */
};

static void call(struct caller *k, uint64_t timeout_ms);

static void on_head(void *user, const struct http_head *head)
{
	struct caller *k = user;
	assert_int_equal(head->status, 200);
	k->head = true;
	if (k->next)
		call(k->next, 0);
}

static void on_body(void *user, const uint8_t *p, size_t n)
{
	(void)user, (void)p, (void)n;
}

static void on_end(void *user)
{
	((struct caller *)user)->end = true;
}

static void on_failed(void *user, const struct err *why)
{
	struct caller *k = user;
	k->failed = true;
	k->why = *why;
	k->c = NULL;
}

static const struct http_call_ops call_ops = {
	.head = on_head,
	.body = on_body,
	.end = on_end,
	.failed = on_failed,
};

static void call(struct caller *k, uint64_t timeout_ms)
{
	struct http_field host = {"Host", "a"};
	struct http_head head = {
		.method = (char[]){"GET"},
		.target = (char[]){"/"},
		.fields = {.list = &host, .count = 1},
		.framing = HTTP_NO_BODY,
	};
	k->c = h2_session_client(k->site->h);
	assert_non_null(k->c);
	assert_int_equal(http_client_call(k->c, &head, timeout_ms, &call_ops, k), 0);
}

static void hang_up(struct caller *k)
{
	if (k->c)
		http_client_close(k->c);
	k->c = NULL;
}

static void on_session_closed(void *user)
{
	struct site *site = user;
	site->h = NULL;
	site->closed = true;
}

static void on_settings(void *user)
{
	((struct site *)user)->settled++;
}

static void enter(struct site *site)
{
	int fd[2];
	make_pair(fd);
	*site = (struct site){0};
	peer_open(&site->peer, &loop, fd[1]);
	struct stream *s = stream_adopt(&loop, fd[0], NULL, NULL, NULL);
	site->h = h2_session_new(s, on_session_closed, site);
	assert_non_null(site->h);
	h2_session_on_settings(site->h, on_settings);
}

/* The server says what it takes: as much as anybody may. */
static void settle(struct site *site)
{
	struct buf b;
	buf_init(&b, PEER_MAX);
	settings_append(&b, 0, 0);
	peer_say_buf(&site->peer, &b);
	frame_await(&site->peer, &loop, PREFACE, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0);
}

static void leave(struct site *site)
{
	if (site->h)
		h2_session_close(site->h);
	peer_done(&site->peer);
	spin(&loop, 3);
}

static void head_append(struct buf *to, uint8_t stream, bool end)
{
	const uint8_t ok = 0x88; /* ":status: 200" */
	frame_append(to, NGHTTP2_HEADERS,
		     NGHTTP2_FLAG_END_HEADERS | (end ? NGHTTP2_FLAG_END_STREAM : 0), stream, &ok,
		     1);
}

static void say_head(struct site *site, uint8_t stream, bool end)
{
	struct buf b;
	buf_init(&b, PEER_MAX);
	head_append(&b, stream, end);
	peer_say_buf(&site->peer, &b);
}

static void goaway_append(struct buf *to, uint8_t last)
{
	const uint8_t payload[8] = {0, 0, 0, last};
	frame_append(to, NGHTTP2_GOAWAY, 0, 0, payload, sizeof(payload));
}

static void await_request(struct site *site, uint32_t stream)
{
	frame_await(&site->peer, &loop, PREFACE, NGHTTP2_HEADERS, 0, stream);
}

static bool has_request(struct site *site, uint32_t stream)
{
	struct frame f;
	return frame_find(&site->peer, PREFACE, NGHTTP2_HEADERS, 0, stream, &f);
}

static void await_reset(struct site *site, uint32_t stream, uint32_t code)
{
	struct frame f = frame_await(&site->peer, &loop, PREFACE, NGHTTP2_RST_STREAM, 0, stream);
	assert_int_equal(be32(f.payload), code);
}

/* -- deadlines -- */

static void no_response_in_time_fails_its_call_alone(void **state)
{
	(void)state;
	struct site site;
	enter(&site);
	settle(&site);
	struct caller late = {.site = &site}, other = {.site = &site};
	call(&late, 60);
	await_request(&site, 1);
	call(&other, 0);
	wait_for(&loop, &late.failed);
	assert_int_equal(late.why.code, ETIMEDOUT);
	await_reset(&site, 1, NGHTTP2_CANCEL);
	assert_false(other.failed || site.closed);
	say_head(&site, 3, true);
	wait_for(&loop, &other.end);
	hang_up(&other);
	leave(&site);
}

static void a_response_head_calls_its_deadline_off(void **state)
{
	(void)state;
	struct site site;
	enter(&site);
	settle(&site);
	struct caller slow = {.site = &site}, late = {.site = &site};
	call(&slow, 60);
	await_request(&site, 1);
	say_head(&site, 1, false);
	wait_for(&loop, &slow.head);
	call(&late, 120);
	wait_for(&loop, &late.failed); /* twice as long */
	assert_false(slow.failed || slow.end);
	hang_up(&slow);
	leave(&site);
}

/* -- what is not taken -- */

static void a_request_that_waits_for_its_turn_is_unseen_when_the_server_leaves(void **state)
{
	(void)state;
	struct site site;
	struct buf b;
	enter(&site);
	settle(&site);
	struct caller waiting = {.site = &site}, first = {.site = &site, .next = &waiting};
	call(&first, 0);
	await_request(&site, 1);
	buf_init(&b, PEER_MAX);
	head_append(&b, 1, false);
	settings_append(&b, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 1);
	peer_say_buf(&site.peer, &b);
	wait_for(&loop, &first.head);
	spin(&loop, 10);
	assert_false(has_request(&site, 3) || waiting.failed);
	buf_init(&b, PEER_MAX);
	goaway_append(&b, 1);
	peer_say_buf(&site.peer, &b);
	wait_for(&loop, &waiting.failed);
	assert_int_equal(waiting.why.code, EAGAIN);
	assert_false(first.failed || site.closed || has_request(&site, 3));
	buf_init(&b, PEER_MAX);
	frame_append(&b, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 1, "x", 1);
	peer_say_buf(&site.peer, &b);
	wait_for(&loop, &first.end);
	hang_up(&first);
	wait_for(&loop, &site.closed);
	leave(&site);
}

static void requests_behind_the_servers_last_are_unseen(void **state)
{
	(void)state;
	struct site site;
	struct buf b;
	enter(&site);
	settle(&site);
	struct caller seen = {.site = &site}, unseen = {.site = &site};
	call(&seen, 0);
	await_request(&site, 1);
	call(&unseen, 0);
	await_request(&site, 3);
	buf_init(&b, PEER_MAX);
	goaway_append(&b, 1);
	peer_say_buf(&site.peer, &b);
	wait_for(&loop, &unseen.failed);
	assert_int_equal(unseen.why.code, EAGAIN);
	peer_done(&site.peer);
	wait_for(&loop, &seen.failed);
	assert_int_equal(seen.why.code, ECONNRESET);
	leave(&site);
}

static void there_is_room_for_one_until_the_server_says_how_much_it_takes(void **state)
{
	(void)state;
	struct site site;
	struct buf b;
	enter(&site);
	assert_true(h2_session_usable(site.h) && h2_session_pending(site.h));
	struct caller first = {.site = &site}, second = {.site = &site};
	call(&first, 0);
	await_request(&site, 1);
	assert_true(!h2_session_usable(site.h) && !h2_session_client(site.h));
	buf_init(&b, PEER_MAX);
	settings_append(&b, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 2);
	settings_append(&b, 0, 0);
	peer_say_buf(&site.peer, &b);
	frame_await(&site.peer, &loop, PREFACE, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0);
	assert_int_equal(site.settled, 1);
	assert_true(h2_session_usable(site.h) && !h2_session_pending(site.h));
	call(&second, 0);
	await_request(&site, 3);
	assert_false(h2_session_usable(site.h));
	hang_up(&first);
	hang_up(&second);
	leave(&site);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(no_response_in_time_fails_its_call_alone),
		TEST(a_response_head_calls_its_deadline_off),
		TEST(a_request_that_waits_for_its_turn_is_unseen_when_the_server_leaves),
		TEST(requests_behind_the_servers_last_are_unseen),
		TEST(there_is_room_for_one_until_the_server_says_how_much_it_takes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
