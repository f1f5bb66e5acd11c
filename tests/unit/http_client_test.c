/* SPDX-License-Identifier: Apache-2.0 */
/* The client's side against a server that is scripted byte by byte, and against our own. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "http/client.h"
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

/* A caller, what it saw, and what it does. */
struct caller {
	struct http_client *c; /* NULL when over */
	struct peer peer;
	unsigned status;
	size_t body;
	bool head, end, drained, failed, closed, in_call, any_body;
	bool pause_at_head, call_at_end;
	int call_result; /* of the call at the end */
	enum { NEVER, AT_HEAD, AT_BODY, AT_END, AT_DRAINED } close_at;
	struct err why;
};

static const struct http_call_ops call_ops;

static int call(struct caller *k, const char *method, enum http_framing framing, uint64_t length,
		uint64_t timeout_ms)
{
	struct http_field host = {"Host", "a"};
	struct http_head head = {
		.method = (char *)(uintptr_t)method,
		.target = (char[]){"/t"},
		.fields = {.list = &host, .count = 1},
		.framing = framing,
		.length = length,
	};
	k->head = k->end = false;
	k->status = 0;
	k->body = 0;
	k->in_call = true;
	int r = http_client_call(k->c, &head, timeout_ms, &call_ops, k);
	k->in_call = false;
	return r;
}

static int get(struct caller *k)
{
	return call(k, "GET", HTTP_NO_BODY, 0, 0);
}

static bool leave(struct caller *k, int at)
{
	assert_false(k->in_call);
	assert_non_null(k->c);
	if ((int)k->close_at != at)
		return false;
	http_client_close(k->c);
	k->c = NULL;
	return true;
}

static void on_head(void *user, const struct http_head *head)
{
	struct caller *k = user;
	k->head = true;
	k->status = head->status;
	if (!leave(k, AT_HEAD) && k->pause_at_head)
		http_client_read(k->c, false);
}

static void on_body(void *user, const uint8_t *p, size_t n)
{
	struct caller *k = user;
	assert_true(p && n && k->head && !k->end);
	k->any_body = true;
	k->body += n;
	leave(k, AT_BODY);
}

static void on_end(void *user)
{
	struct caller *k = user;
	assert_false(k->end);
	k->end = true;
	if (leave(k, AT_END) || !k->call_at_end)
		return;
	k->call_at_end = false;
	k->call_result = get(k);
}

static void on_drained(void *user)
{
	struct caller *k = user;
	k->drained = true;
	leave(k, AT_DRAINED);
}

static void on_failed(void *user, const struct err *why)
{
	struct caller *k = user;
	assert_false(k->in_call);
	assert_true(why->code > 0 && *why->text);
	k->failed = true;
	k->why = *why;
	k->c = NULL;
}

static const struct http_call_ops call_ops = {
	.head = on_head,
	.body = on_body,
	.end = on_end,
	.drained = on_drained,
	.failed = on_failed,
};

static void on_client_closed(void *user)
{
	struct caller *k = user;
	assert_false(k->in_call || k->closed);
	k->closed = true;
	k->c = NULL;
}

static void begin(struct caller *k)
{
	int fd[2];
	make_pair(fd);
	*k = (struct caller){0};
	peer_open(&k->peer, &loop, fd[1]);
	struct stream *s = stream_adopt(&loop, fd[0], NULL, NULL, NULL);
	k->c = http_client_new(s, on_client_closed, k);
	assert_non_null(k->c);
}

static void done(struct caller *k)
{
	if (k->c)
		http_client_close(k->c);
	peer_done(&k->peer);
	spin(&loop, 3);
}

/* -- calls -- */

static void connection_is_used_for_call_after_call(void **state)
{
	(void)state;
	struct caller k;
	begin(&k);
	for (int i = 0; i < 3; i++) {
		peer_forget(&k.peer);
		assert_true(http_client_reusable(k.c));
		assert_int_equal(get(&k), 0);
		assert_int_equal(get(&k), -EBUSY);
		assert_false(http_client_reusable(k.c));
		peer_await(&k.peer, &loop, "\r\n\r\n");
		assert_string_equal(peer_heard(&k.peer), "GET /t HTTP/1.1\r\nHost: a\r\n\r\n");
		peer_say(&k.peer, i ? "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"
				    : "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n"
				      "2\r\nab\r\n1\r\nc\r\n0\r\n\r\n");
		wait_for(&loop, &k.end);
		assert_int_equal(k.status, i ? 200 : 404);
		assert_int_equal(k.body, 3);
	}
	done(&k);
}

static void next_call_may_start_when_one_ends(void **state)
{
	(void)state;
	struct caller k;
	begin(&k);
	k.call_at_end = true;
	assert_int_equal(get(&k), 0);
	peer_say(&k.peer, "HTTP/1.1 204 No Content\r\n\r\n");
	peer_await(&k.peer, &loop, "GET /t HTTP/1.1\r\nHost: a\r\n\r\nGET");
	peer_say(&k.peer, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx");
	wait_for(&loop, &k.end);
	assert_int_equal(k.body, 1);
	done(&k);
}

static void request_body_leaves_with_its_head(void **state)
{
	(void)state;
	struct caller k;
	begin(&k);
	assert_int_equal(call(&k, "POST", HTTP_CHUNKED, 0, 0), 0);
	assert_true(http_client_write(k.c, "hello", 5) > 0);
	assert_int_equal(http_client_finish(k.c), 0);
	peer_await(&k.peer, &loop, "0\r\n\r\n");
	assert_string_equal(peer_heard(&k.peer), "POST /t HTTP/1.1\r\nHost: a\r\n"
						 "Transfer-Encoding: chunked\r\n\r\n"
						 "5\r\nhello\r\n0\r\n\r\n");
	assert_int_equal(http_client_write(k.c, "x", 1), -EPIPE);
	done(&k);

	begin(&k);
	assert_int_equal(call(&k, "PUT", HTTP_LENGTH, 3, 0), 0);
	assert_int_equal(http_client_write(k.c, "four", 4), -EPIPE);
	assert_true(http_client_write(k.c, "ab", 2) > 0);
	assert_int_equal(http_client_finish(k.c), -EPIPE);
	assert_true(http_client_write(k.c, "c", 1) > 0);
	assert_int_equal(http_client_finish(k.c), 0);
	peer_await(&k.peer, &loop, "\r\n\r\nabc");
	done(&k);
}

static void head_response_has_no_body_whatever_it_declares(void **state)
{
	(void)state;
	struct caller k;
	begin(&k);
	assert_int_equal(call(&k, "HEAD", HTTP_NO_BODY, 0, 0), 0);
	peer_say(&k.peer, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
	wait_for(&loop, &k.end);
	assert_int_equal(k.body, 0);
	assert_true(http_client_reusable(k.c));
	done(&k);
}

static void interim_responses_are_swallowed_up_to_a_bound(void **state)
{
	(void)state;
	for (int count = 8; count <= 9; count++) {
		struct caller k;
		begin(&k);
		assert_int_equal(get(&k), 0);
		for (int i = 0; i < count; i++)
			peer_say(&k.peer, i % 2 ? "HTTP/1.1 100 Continue\r\n\r\n"
						: "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n");
		peer_say(&k.peer, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
		wait_for(&loop, count == 8 ? &k.end : &k.failed);
		if (count == 9)
			assert_int_equal(k.why.code, EBADMSG);
		done(&k);
	}
}

static void http_1_0_response_ends_with_the_connection(void **state)
{
	(void)state;
	struct caller k;
	begin(&k);
	assert_int_equal(get(&k), 0);
	peer_say(&k.peer, "HTTP/1.0 200 OK\r\n\r\nall of it");
	wait_for(&loop, &k.any_body);
	assert_false(k.end);
	stream_shutdown(k.peer.s);
	wait_for(&loop, &k.end);
	assert_int_equal(k.body, 9);
	assert_true(k.closed); /* with the connection */
	done(&k);
}

static void connection_close_is_respected(void **state)
{
	(void)state;
	struct caller k;
	begin(&k);
	assert_int_equal(get(&k), 0);
	peer_say(&k.peer, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx");
	wait_for(&loop, &k.end);
	assert_false(http_client_reusable(k.c));
	done(&k);
}

/* -- desynchronisation -- */

static void bytes_beyond_the_response_spoil_the_connection(void **state)
{
	(void)state;
	struct caller k;
	begin(&k);
	assert_int_equal(get(&k), 0);
	peer_say(&k.peer, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"
			  "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged");
	wait_for(&loop, &k.closed);
	assert_true(k.end);
	assert_int_equal(k.body, 1);
	done(&k);
}

static void bytes_beyond_the_response_are_no_answer_to_the_next_call(void **state)
{
	(void)state;
	struct caller k;
	begin(&k);
	assert_int_equal(get(&k), 0);
	peer_say(&k.peer, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n");
	k.call_at_end = true;
	wait_for(&loop, &k.closed);
	assert_int_equal(k.call_result, -EPIPE);
	done(&k);
}

static void unasked_bytes_close_an_idle_connection(void **state)
{
	(void)state;
	struct caller k;
	begin(&k);
	peer_say(&k.peer, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	wait_for(&loop, &k.closed);
	done(&k);
}

/* Who asked to switch, and what was handed over. */
struct switcher {
	struct http_client *c;
	struct stream *s;
	struct buf early;
	bool done, failed;
};

static void on_switched(void *user, const struct http_head *head)
{
	struct switcher *w = user;
	assert_int_equal(head->status, 101);
	assert_int_equal(http_client_detach(w->c, &w->s, &w->early), 0);
	w->done = true;
}

static void on_not_switched(void *user, const struct err *why)
{
	struct switcher *w = user;
	assert_int_equal(why->code, EPROTO);
	w->failed = w->done = true;
}

static void a_switch_that_was_asked_for_hands_the_stream_over(void **state)
{
	(void)state;
	static const struct http_call_ops ops = {.switched = on_switched,
						 .failed = on_not_switched};
	struct http_field fields[] = {{"Host", "a"}, {"Upgrade", "x"}};
	for (int asked = 0; asked < 2; asked++) {
		struct http_head head = {
			.method = (char[]){"GET"},
			.target = (char[]){"/t"},
			.fields = {.list = fields, .count = 2},
			.upgrade = asked,
		};
		struct switcher w = {0};
		struct peer peer;
		int fd[2];
		make_pair(fd);
		peer_open(&peer, &loop, fd[1]);
		w.c = http_client_new(stream_adopt(&loop, fd[0], NULL, NULL, NULL), NULL, NULL);
		assert_int_equal(http_client_call(w.c, &head, 0, &ops, &w), 0);
		peer_await(&peer, &loop, "\r\n\r\n");
		assert_int_equal(peer_has(&peer, "Connection: Upgrade\r\n"), asked);
		peer_say(&peer, "HTTP/1.1 100 Continue\r\n\r\n"
				"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nbehind");
		wait_for(&loop, &w.done);
		assert_int_equal(w.failed, !asked);
		if (asked) {
			assert_int_equal(w.early.len, 6);
			assert_memory_equal(w.early.data, "behind", 6);
			buf_done(&w.early);
			stream_close(w.s);
		}
		peer_done(&peer);
		spin(&loop, 3);
	}
}

static void broken_responses_fail_the_call(void **state)
{
	(void)state;
	static const struct {
		const char *response;
		int code;
		bool head;
	} cases[] = {
		{"", ECONNRESET, false},
		{"HTTP/1.1 200 OK\r\nContent-Le", ECONNRESET, false},
		{"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", ECONNRESET, true},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", ECONNRESET,
		 true},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", EBADMSG, true},
		{"HTTP/1.1 200 OK\nContent-Length: 0\n\n", EBADMSG, false},
		{"SSH-2.0-OpenSSH_9\r\n\r\n", EBADMSG, false},
		{"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
		 EBADMSG, false},
		{"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", EPROTO, false},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct caller k;
		begin(&k);
		assert_int_equal(get(&k), 0);
		peer_say(&k.peer, cases[i].response);
		stream_shutdown(k.peer.s);
		wait_for(&loop, &k.failed);
		assert_int_equal(k.why.code, cases[i].code);
		assert_int_equal(k.head, cases[i].head);
		assert_false(k.end || k.closed);
		done(&k);
	}
}

/* -- time and loss -- */

static void silent_server_times_out(void **state)
{
	(void)state;
	struct caller k;
	begin(&k);
	assert_int_equal(call(&k, "GET", HTTP_NO_BODY, 0, 60), 0);
	wait_for(&loop, &k.failed);
	assert_int_equal(k.why.code, ETIMEDOUT);
	done(&k);
}

static void deadline_ends_with_the_head(void **state)
{
	(void)state;
	struct caller k, other;
	begin(&k);
	assert_int_equal(call(&k, "GET", HTTP_NO_BODY, 0, 60), 0);
	peer_say(&k.peer, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n");
	wait_for(&loop, &k.head);
	begin(&other);
	assert_int_equal(call(&other, "GET", HTTP_NO_BODY, 0, 150), 0);
	wait_for(&loop, &other.failed);
	assert_false(k.failed);
	peer_say(&k.peer, "x");
	wait_for(&loop, &k.end);
	done(&k);
	done(&other);
}

static void idle_connection_that_the_server_closes_is_told(void **state)
{
	(void)state;
	struct caller k;
	begin(&k);
	assert_int_equal(get(&k), 0);
	peer_say(&k.peer, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	wait_for(&loop, &k.end);
	assert_true(http_client_reusable(k.c));
	peer_done(&k.peer);
	wait_for(&loop, &k.closed);
	done(&k);
}

static void call_on_a_connection_just_lost_fails(void **state)
{
	(void)state;
	struct caller k;
	begin(&k);
	peer_done(&k.peer);
	assert_int_equal(call(&k, "POST", HTTP_LENGTH, 40000, 0), 0);
	char large[40000] = {0};
	assert_true(http_client_write(k.c, large, sizeof(large)) >= 0);
	wait_for(&loop, &k.failed);
	done(&k);
}

static void early_answer_is_read_though_the_upload_is_cut(void **state)
{
	(void)state;
	struct caller k;
	begin(&k);
	assert_int_equal(call(&k, "POST", HTTP_LENGTH, 8000000, 0), 0);
	peer_await(&k.peer, &loop, "\r\n\r\n");
	peer_say(&k.peer, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno");
	spin(&loop, 1);
	struct caller *p = &k;
	stream_close(p->peer.s);
	p->peer.s = NULL;
	char large[100000] = {0};
	for (int i = 0; i < 20 && k.c && !k.end; i++)
		http_client_write(k.c, large, sizeof(large));
	wait_for(&loop, &k.end);
	assert_int_equal(k.status, 413);
	assert_int_equal(k.body, 2);
	assert_true(!k.c || !http_client_reusable(k.c));
	done(&k);
}

static void early_answer_ends_the_call_but_not_the_upload(void **state)
{
	(void)state;
	struct caller k;
	begin(&k);
	assert_int_equal(call(&k, "POST", HTTP_LENGTH, 100, 0), 0);
	peer_say(&k.peer, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
	wait_for(&loop, &k.end);
	assert_false(http_client_reusable(k.c));
	assert_int_equal(http_client_write(k.c, "x", 1), -EPIPE);
	assert_int_equal(http_client_finish(k.c), -EPIPE);
	done(&k);
}

static void closing_inside_any_callback_is_the_last_of_it(void **state)
{
	(void)state;
	for (int at = AT_HEAD; at <= AT_DRAINED; at++) {
		struct caller k;
		begin(&k);
		k.close_at = at;
		if (at == AT_DRAINED) {
			call(&k, "POST", HTTP_LENGTH, 5, 0);
		} else {
			get(&k);
			peer_say(&k.peer, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc");
		}
		wait_for(&loop, at == AT_HEAD   ? &k.head
				: at == AT_BODY ? &k.any_body
				: at == AT_END  ? &k.end
						: &k.drained);
		assert_null(k.c);
		spin(&loop, 10);
		assert_false(k.failed || k.closed);
		done(&k);
	}
}

/* -- flow -- */

static void paused_response_stays_in_the_socket(void **state)
{
	(void)state;
	struct caller k;
	begin(&k);
	k.pause_at_head = true;
	assert_int_equal(get(&k), 0);
	char head[100];
	snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %u\r\n\r\n", LARGE);
	peer_say(&k.peer, head);
	char *bytes = calloc(1, LARGE);
	assert_true(stream_write(k.peer.s, bytes, LARGE) > 0);
	free(bytes);
	wait_for(&loop, &k.head);
	spin(&loop, 200);
	assert_int_equal(k.body, 0);
	assert_true(stream_bytes_in(http_client_stream(k.c)) <= 128 * 1024);
	stream_shutdown(k.peer.s); /* the end must not overtake the body */
	k.in_call = true;
	http_client_read(k.c, true);
	k.in_call = false;
	wait_for(&loop, &k.end);
	assert_int_equal(k.body, LARGE);
	done(&k);
}

static void response_held_back_survives_the_end_of_the_connection(void **state)
{
	(void)state;
	struct caller k;
	begin(&k);
	k.pause_at_head = true;
	assert_int_equal(get(&k), 0);
	peer_await(&k.peer, &loop, "\r\n\r\n");
	peer_say(&k.peer, "HTTP/1.1 200 OK\r\n\r\nto the close");
	spin(&loop, 3);
	peer_done(&k.peer);
	wait_for(&loop, &k.head);
	spin(&loop, 20);
	assert_false(k.end || k.failed || k.any_body);
	http_client_read(k.c, true);
	wait_for(&loop, &k.end);
	assert_int_equal(k.body, 12);
	done(&k);
}

/* A relay of LARGE bytes: server echo over our own server and client, both polite. */
struct echo {
	struct http_exchange *x;
	struct http_conn *conn;
	struct http_client *c;
	size_t sent, got;
	size_t most_up, most_down;
	bool end, paused;
};

static void echo_body(void *user, const uint8_t *p, size_t n)
{
	struct echo *e = user;
	ssize_t queued = http_exchange_write(e->x, p, n);
	assert_true(queued >= 0);
	if ((size_t)queued > e->most_down)
		e->most_down = (size_t)queued;
	if (queued > STREAM_QUEUE_HIGH)
		http_exchange_read(e->x, false);
}

static void echo_end(void *user)
{
	struct echo *e = user;
	http_exchange_end(e->x);
}

static void echo_drained(void *user)
{
	struct echo *e = user;
	http_exchange_read(e->x, true);
}

static void echo_gone(void *user)
{
	(void)user;
	fail();
}

static const struct http_exchange_ops echo_ops = {
	.body = echo_body,
	.body_end = echo_end,
	.drained = echo_drained,
	.gone = echo_gone,
};

static void echo_request(void *user, struct http_exchange *x)
{
	struct echo *e = user;
	e->x = x;
	http_exchange_on(x, &echo_ops, e);
	assert_int_equal(http_exchange_start(x, 200, NULL, HTTP_CHUNKED, 0), 0);
	http_exchange_read(x, true);
}

static void echo_closed(void *user)
{
	(void)user;
	fail();
}

static const struct http_server_ops echo_server_ops = {.request = echo_request,
						       .closed = echo_closed};

static void upload_more(void *user)
{
	struct echo *e = user;
	uint8_t chunk[30000];
	while (e->sent < LARGE) {
		size_t n = LARGE - e->sent < sizeof(chunk) ? LARGE - e->sent : sizeof(chunk);
		for (size_t i = 0; i < n; i++)
			chunk[i] = (uint8_t)((e->sent + i) % 251);
		ssize_t queued = http_client_write(e->c, chunk, n);
		assert_true(queued >= 0);
		e->sent += n;
		if ((size_t)queued > e->most_up)
			e->most_up = (size_t)queued;
		if (queued > STREAM_QUEUE_HIGH)
			return;
	}
	assert_int_equal(http_client_finish(e->c), 0);
}

static void echoed_head(void *user, const struct http_head *head)
{
	(void)user;
	assert_int_equal(head->status, 200);
}

static void echoed(void *user, const uint8_t *p, size_t n)
{
	struct echo *e = user;
	for (size_t i = 0; i < n; i++)
		if (p[i] != (uint8_t)((e->got + i) % 251))
			fail_msg("byte %zu is wrong", e->got + i);
	e->got += n;
}

static void echoed_end(void *user)
{
	((struct echo *)user)->end = true;
}

static void echo_failed(void *user, const struct err *why)
{
	(void)user;
	fail_msg("%s", why->text);
}

static const struct http_call_ops echo_call_ops = {
	.head = echoed_head,
	.body = echoed,
	.end = echoed_end,
	.drained = upload_more,
	.failed = echo_failed,
};

static void large_bodies_pass_both_ways_at_once_in_bounded_memory(void **state)
{
	(void)state;
	int fd[2];
	make_pair(fd);
	struct echo e = {0};
	struct stream *a = stream_adopt(&loop, fd[0], NULL, NULL, NULL);
	struct stream *b = stream_adopt(&loop, fd[1], NULL, NULL, NULL);
	e.conn = http_serve(a, NULL, 0, NULL, &echo_server_ops, &e);
	e.c = http_client_new(b, NULL, NULL);
	struct http_field host = {"Host", "a"};
	struct http_head head = {
		.method = (char[]){"POST"},
		.target = (char[]){"/"},
		.fields = {.list = &host, .count = 1},
		.framing = HTTP_CHUNKED,
	};
	assert_int_equal(http_client_call(e.c, &head, 0, &echo_call_ops, &e), 0);
	upload_more(&e);
	wait_for(&loop, &e.end);
	assert_int_equal(e.got, LARGE);
	assert_true(e.most_up < STREAM_QUEUE_HIGH + 64 * 1024);
	assert_true(e.most_down < STREAM_QUEUE_HIGH + 128 * 1024);
	assert_true(http_client_reusable(e.c));
	http_client_close(e.c);
	http_conn_close(e.conn);
}

/* -- whole calls -- */

struct fetched {
	bool done;
	unsigned status;
	char body[64];
	struct err why;
};

static void on_fetched(void *user, unsigned status, const char *body, size_t n,
		       const struct err *why)
{
	struct fetched *f = user;
	assert_false(f->done);
	f->done = true;
	f->status = status;
	assert_int_equal(!why, status != 0);
	if (why)
		f->why = *why;
	else
		assert_int_equal(strlen(body), n);
	snprintf(f->body, sizeof(f->body), "%s", body ? body : "");
}

static void fetch(struct fetched *f, struct peer *p, const char *body)
{
	int fd[2];
	make_pair(fd);
	*f = (struct fetched){0};
	peer_open(p, &loop, fd[1]);
	struct http_client *c =
		http_client_new(stream_adopt(&loop, fd[0], NULL, NULL, NULL), NULL, NULL);
	struct http_field host = {"Host", "a"};
	struct http_head head = {
		.method = body ? (char[]){"POST"} : (char[]){"GET"},
		.target = (char[]){"/f"},
		.fields = {.list = &host, .count = 1},
	};
	assert_int_equal(
		http_client_fetch(c, &head, body, body ? strlen(body) : 0, 10, 5000, on_fetched, f),
		0);
	assert_false(f->done);
}

static void fetch_collects_a_response(void **state)
{
	(void)state;
	struct fetched f;
	struct peer p;
	fetch(&f, &p, "ask");
	peer_await(&p, &loop, "Content-Length: 3\r\n\r\nask");
	peer_say(&p, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789");
	wait_for(&loop, &f.done);
	assert_int_equal(f.status, 200);
	assert_string_equal(f.body, "0123456789");
	wait_for(&loop, &p.over); /* the connection was closed */
	peer_done(&p);
}

static void fetch_fails_once_on_too_much_or_a_lost_connection(void **state)
{
	(void)state;
	static const struct {
		const char *response;
		int code;
	} cases[] = {
		{"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n01234567890", EMSGSIZE},
		{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n0", ECONNRESET},
		{"what?\r\n\r\n", EBADMSG},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct fetched f;
		struct peer p;
		fetch(&f, &p, NULL);
		peer_say(&p, cases[i].response);
		stream_shutdown(p.s);
		wait_for(&loop, &f.done);
		assert_int_equal(f.why.code, cases[i].code);
		assert_int_equal(f.status, 0);
		peer_done(&p);
	}
}

static void fetch_of_nonsense_closes_the_client(void **state)
{
	(void)state;
	int fd[2];
	make_pair(fd);
	struct peer p;
	struct fetched f = {0};
	peer_open(&p, &loop, fd[1]);
	struct http_client *c =
		http_client_new(stream_adopt(&loop, fd[0], NULL, NULL, NULL), NULL, NULL);
	struct http_head head = {.method = (char[]){"GET"}, .target = (char[]){"/ x"}};
	assert_int_equal(http_client_fetch(c, &head, NULL, 0, 10, 0, on_fetched, &f), -EINVAL);
	wait_for(&loop, &p.over);
	assert_false(f.done);
	peer_done(&p);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(connection_is_used_for_call_after_call),
		TEST(next_call_may_start_when_one_ends),
		TEST(request_body_leaves_with_its_head),
		TEST(head_response_has_no_body_whatever_it_declares),
		TEST(interim_responses_are_swallowed_up_to_a_bound),
		TEST(http_1_0_response_ends_with_the_connection),
		TEST(connection_close_is_respected),
		TEST(bytes_beyond_the_response_spoil_the_connection),
		TEST(bytes_beyond_the_response_are_no_answer_to_the_next_call),
		TEST(unasked_bytes_close_an_idle_connection),
		TEST(a_switch_that_was_asked_for_hands_the_stream_over),
		TEST(broken_responses_fail_the_call),
		TEST(silent_server_times_out),
		TEST(deadline_ends_with_the_head),
		TEST(idle_connection_that_the_server_closes_is_told),
		TEST(call_on_a_connection_just_lost_fails),
		TEST(early_answer_is_read_though_the_upload_is_cut),
		TEST(early_answer_ends_the_call_but_not_the_upload),
		TEST(closing_inside_any_callback_is_the_last_of_it),
		TEST(paused_response_stays_in_the_socket),
		TEST(response_held_back_survives_the_end_of_the_connection),
		TEST(large_bodies_pass_both_ways_at_once_in_bounded_memory),
		TEST(fetch_collects_a_response),
		TEST(fetch_fails_once_on_too_much_or_a_lost_connection),
		TEST(fetch_of_nonsense_closes_the_client),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
