/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies through a server, in both directions, and every way to leave. */
#include <errno.h>

#include "http_server_fixture.h"

#define LARGE (50u * 1024 * 1024) /* bytes */

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

int main(void)
{
	const struct CMUnitTest tests[] = {
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
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
