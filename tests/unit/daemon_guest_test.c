/* SPDX-License-Identifier: Apache-2.0 */
/* Calls to an agent that its guest may have taken over: each has an end, and in time. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/guest.h"
#include "daemon/place.h"
#include "http_peer.h"

#define TIMEOUT_MS 200

struct fixture {
	uv_loop_t loop;
	struct node node;
	struct place place;
	struct peer agent;
	int theirs;
	bool over;
	unsigned status, ends;
	int code;
};

static struct fixture fix;

struct stream *place_connect(struct place *p, uint16_t port, const struct stream_ops *ops,
			     void *user, struct err *e)
{
	int ends[2];
	(void)port;
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
	fix.theirs = ends[1];
	return stream_adopt(p->node->loop, ends[0], ops, user, e);
}

struct stream *sandbox_connect(struct sandbox *sb, uint16_t port, const struct stream_ops *ops,
			       void *user, struct err *e)
{
	(void)sb;
	return place_connect(&fix.place, port, ops, user, e);
}

static int set_up(void **state)
{
	fix = (struct fixture){0};
	uv_loop_init(&fix.loop);
	fix.node.loop = &fix.loop;
	fix.place.node = &fix.node;
	*state = &fix;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	peer_done(&f->agent);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	return uv_loop_close(&f->loop);
}

static void on_done(void *user, unsigned status, const struct err *why)
{
	struct fixture *f = user;
	f->over = true;
	f->ends++;
	f->status = status;
	f->code = why ? why->code : 0;
}

static struct guest_call *call(struct fixture *f)
{
	const struct guest_request q = {.method = "POST", .target = "/hold", .token = "t"};
	struct err e;
	struct guest_call *c = guest_call(&f->place, &q, "{}", 2, TIMEOUT_MS, on_done, f, &e);
	assert_non_null(c);
	peer_open(&f->agent, &f->loop, f->theirs);
	peer_await(&f->agent, &f->loop, "{}");
	return c;
}

static void answer_is_told_with_its_status(void **state)
{
	struct fixture *f = *state;
	call(f);
	peer_say(&f->agent, "HTTP/1.1 204 No Content\r\n\r\n");
	wait_for(&f->loop, &f->over);
	assert_int_equal(f->status, 204);
	assert_int_equal(f->code, 0);
}

static void call_ends_in_time(struct fixture *f, const char *answer)
{
	call(f);
	peer_say(&f->agent, answer);
	wait_for(&f->loop, &f->over);
	assert_int_equal(f->ends, 1);
	assert_int_equal(f->status, 0);
	assert_int_equal(f->code, ETIMEDOUT);
}

static void no_answer_ends_in_time(void **state)
{
	call_ends_in_time(*state, "");
}

static void half_a_head_ends_in_time(void **state)
{
	call_ends_in_time(*state, "HTTP/1.1 204 No Con");
}

static void body_without_an_end_ends_in_time(void **state)
{
	call_ends_in_time(*state, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nx");
}

static void stream_without_an_end_ends_in_time(void **state)
{
	call_ends_in_time(*state, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
}

static void cancelled_one_is_never_told(void **state)
{
	struct fixture *f = *state;
	guest_call_cancel(call(f));
	peer_say(&f->agent, "HTTP/1.1 204 No Content\r\n\r\n");
	uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_int_equal(f->ends, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(answer_is_told_with_its_status, set_up, tear_down),
		cmocka_unit_test_setup_teardown(no_answer_ends_in_time, set_up, tear_down),
		cmocka_unit_test_setup_teardown(half_a_head_ends_in_time, set_up, tear_down),
		cmocka_unit_test_setup_teardown(body_without_an_end_ends_in_time, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(stream_without_an_end_ends_in_time, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(cancelled_one_is_never_told, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
