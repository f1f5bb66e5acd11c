/* SPDX-License-Identifier: Apache-2.0 */
/* Relays over real sockets: order, backpressure, ends, cuts, and who is asked before bytes pass. */
#include <errno.h>
#include <unistd.h>

#include "egress/gateway.h"
#include "egress/relay.h"
#include "http_peer.h"

#define LARGE ((size_t)20 * 1024 * 1024) /* bytes */

static uv_loop_t loop;

struct fixture {
	struct peer guest, server;
	struct relay *relay;
	bool over, in_call;
	struct err why;
	uint64_t bytes[2], asked[2];
	uint64_t most; /* bytes that may pass */
};

static bool on_allow(void *user, enum relay_side from, size_t n, struct err *why)
{
	struct fixture *f = user;
	assert_false(f->in_call);
	f->asked[from] += n;
	if (f->asked[RELAY_GUEST] + f->asked[RELAY_SERVER] <= f->most)
		return true;
	err_set(why, EDQUOT, "no more");
	return false;
}

static void on_ended(void *user, const struct err *why)
{
	struct fixture *f = user;
	assert_false(f->in_call);
	assert_false(f->over);
	f->over = true;
	f->why = why ? *why : (struct err){0};
	for (int i = 0; i < 2; i++)
		f->bytes[i] = relay_bytes(f->relay, (enum relay_side)i);
	f->relay = NULL;
}

static const struct relay_ops ops = {.allow = on_allow, .ended = on_ended};

static struct stream *adopt(int fd)
{
	struct stream *s = stream_adopt(&loop, fd, NULL, NULL, NULL);
	assert_non_null(s);
	return s;
}

static void start(struct fixture *f, const char *said_guest, const char *said_server,
		  uint64_t idle_ms)
{
	int guest[2], server[2];
	*f = (struct fixture){.most = UINT64_MAX};
	assert_int_equal(uv_loop_init(&loop), 0);
	make_pair(guest);
	make_pair(server);
	peer_open(&f->guest, &loop, guest[0]);
	peer_open(&f->server, &loop, server[0]);
	struct relay_end g = {adopt(guest[1]), said_guest, strlen(said_guest)};
	struct relay_end s = {adopt(server[1]), said_server, strlen(said_server)};
	f->in_call = true;
	f->relay = relay_start(&g, &s, idle_ms, &ops, f);
	f->in_call = false;
	assert_non_null(f->relay);
}

static void stop(struct fixture *f)
{
	relay_close(f->relay);
	peer_done(&f->guest);
	peer_done(&f->server);
	loop_done(&loop);
}

static void bytes_pass_both_ways_behind_early_ones(void **state)
{
	(void)state;
	struct fixture f;
	start(&f, "early ", "banner ", 0);
	peer_say(&f.guest, "question");
	peer_say(&f.server, "answer");
	peer_await(&f.server, &loop, "early question");
	peer_await(&f.guest, &loop, "banner answer");
	assert_int_equal(relay_bytes(f.relay, RELAY_GUEST), 14);
	assert_int_equal(relay_bytes(f.relay, RELAY_SERVER), 13);
	stop(&f);
}

static void one_side_may_go_on_when_the_other_has_finished(void **state)
{
	(void)state;
	struct fixture f;
	start(&f, "", "", 0);
	peer_say(&f.guest, "all");
	stream_shutdown(f.guest.s);
	wait_for(&loop, &f.server.eof);
	assert_string_equal(peer_heard(&f.server), "all");
	assert_false(f.over);
	peer_say(&f.server, "still here");
	peer_await(&f.guest, &loop, "still here");
	stream_shutdown(f.server.s);
	wait_for(&loop, &f.over);
	assert_int_equal(f.why.code, 0);
	assert_int_equal(f.bytes[RELAY_GUEST], 3);
	assert_int_equal(f.bytes[RELAY_SERVER], 10);
	wait_for(&loop, &f.guest.eof);
	stop(&f);
}

/* What one side does not read stays with the other, and nothing of it is lost. */
static void a_side_that_does_not_read_pauses_the_other(void **state)
{
	(void)state;
	struct fixture f;
	uint8_t *block = calloc(1, LARGE);
	assert_non_null(block);
	for (size_t i = 0; i < LARGE; i++)
		block[i] = (uint8_t)(i * 31 >> 4);
	start(&f, "", "", 0);
	stream_read(f.guest.s, false);
	assert_true(stream_write(f.server.s, block, LARGE) > 0);
	spin(&loop, 500);
	assert_true(relay_bytes(f.relay, RELAY_SERVER) < 1024 * 1024);
	stream_read(f.guest.s, true);
	stream_shutdown(f.server.s);
	wait_for(&loop, &f.guest.eof);
	assert_int_equal(f.guest.heard.len, LARGE);
	assert_memory_equal(f.guest.heard.data, block, LARGE);
	free(block);
	stop(&f);
}

static void what_is_not_allowed_does_not_pass(void **state)
{
	(void)state;
	struct fixture f;
	start(&f, "1234", "", 0);
	f.most = 8;
	peer_await(&f.server, &loop, "1234");
	peer_say(&f.server, "5678");
	peer_await(&f.guest, &loop, "5678");
	peer_say(&f.guest, "9");
	wait_for(&loop, &f.over);
	assert_int_equal(f.why.code, EDQUOT);
	assert_int_equal(f.bytes[RELAY_GUEST], 4);
	wait_for(&loop, &f.server.over);
	assert_string_equal(peer_heard(&f.server), "1234");
	stop(&f);
}

static void a_refusal_of_early_bytes_comes_from_the_loop(void **state)
{
	(void)state;
	struct fixture f;
	start(&f, "1234", "5678", 0);
	f.most = 0;
	wait_for(&loop, &f.over);
	assert_int_equal(f.bytes[RELAY_GUEST] + f.bytes[RELAY_SERVER], 0);
	wait_for(&loop, &f.server.over);
	assert_int_equal(f.server.heard.len, 0);
	stop(&f);
}

static void a_side_that_is_cut_cuts_the_other(void **state)
{
	(void)state;
	for (int side = 0; side < 2; side++) {
		struct fixture f;
		start(&f, "", "", 0);
		struct peer *leaves = side ? &f.server : &f.guest,
			    *stays = side ? &f.guest : &f.server;
		peer_say(&f.guest, "x");
		peer_await(&f.server, &loop, "x");
		/* A unix socket resets when it is closed with something unread. */
		stream_read(leaves->s, false);
		peer_say(stays, "unread");
		uint64_t before = relay_bytes(f.relay, side ? RELAY_GUEST : RELAY_SERVER);
		while (relay_bytes(f.relay, side ? RELAY_GUEST : RELAY_SERVER) == before)
			uv_run(&loop, UV_RUN_ONCE);
		spin(&loop, 10);
		stream_close(leaves->s);
		leaves->s = NULL;
		wait_for(&loop, &f.over);
		assert_int_equal(f.why.code, ECONNRESET);
		wait_for(&loop, &stays->over);
		stop(&f);
	}
}

static void silence_ends_it(void **state)
{
	(void)state;
	struct fixture f;
	start(&f, "hello", "", 30);
	wait_for(&loop, &f.over);
	assert_int_equal(f.why.code, ETIMEDOUT);
	assert_int_equal(f.bytes[RELAY_GUEST], 5);
	wait_for(&loop, &f.guest.over);
	wait_for(&loop, &f.server.over);
	stop(&f);
}

static void closing_it_is_silent_at_any_time(void **state)
{
	(void)state;
	struct fixture f;
	start(&f, "never sent", "", 0);
	relay_close(f.relay);
	f.relay = NULL;
	wait_for(&loop, &f.server.over);
	assert_int_equal(f.server.heard.len, 0);
	stop(&f);
	relay_close(NULL);
	assert_false(f.over);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_pass_both_ways_behind_early_ones),
		cmocka_unit_test(one_side_may_go_on_when_the_other_has_finished),
		cmocka_unit_test(a_side_that_does_not_read_pauses_the_other),
		cmocka_unit_test(what_is_not_allowed_does_not_pass),
		cmocka_unit_test(a_refusal_of_early_bytes_comes_from_the_loop),
		cmocka_unit_test(a_side_that_is_cut_cuts_the_other),
		cmocka_unit_test(silence_ends_it),
		cmocka_unit_test(closing_it_is_silent_at_any_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
