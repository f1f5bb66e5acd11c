/* SPDX-License-Identifier: Apache-2.0 */
/* What a gateway does with its records while there is no spaced. The test is both spaceds. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/doc.h"
#include "base/fd.h"
#include "egress/control.h"
#include "http_loop.h"

#define ALONE_MS    60000
#define TEXT_MAX    (256 * 1024)
#define RECORD_SIZE 60000 /* bytes of a long record's member */

static const char config[] = "{\"type\":\"config\",\"sandbox\":\"sb1\"}";

struct fixture {
	uv_loop_t loop;
	struct control *control;
	int spaced; /* our end of the first connection */
	struct sockaddr_un address;
	socklen_t address_len;
	bool configured, ended;
	struct err why;
};

struct waiter {
	struct control_wait wait;
	bool done, written;
};

static void waiter_done(struct control_wait *w, bool written)
{
	struct waiter *x = list_entry(w, struct waiter, wait);
	assert_false(x->done);
	x->done = true;
	x->written = written;
}

static void on_config(void *user, const json_t *message, int fds[CONTROL_FDS])
{
	struct fixture *f = user;
	assert_non_null(json_object_get(message, "sandbox"));
	for (size_t i = 0; i < CONTROL_FDS; i++)
		close(fds[i]);
	f->configured = true;
	assert_int_equal(control_ready(f->control), 0);
}

static void on_ended(void *user, const struct err *why)
{
	struct fixture *f = user;
	assert_false(f->ended);
	f->ended = true;
	f->why = *why;
}

/* Answers at length, and with what was asked. */
static void on_secret(void *user, const json_t *message)
{
	struct fixture *f = user;
	auto_free char *text = malloc(RECORD_SIZE + 1);
	assert_non_null(text);
	memset(text, 'x', RECORD_SIZE);
	text[RECORD_SIZE] = '\0';
	text[0] = json_string_value(json_object_get(message, "revoke"))[0];
	assert_int_equal(control_answer(f->control, "secret", text), 0);
}

/* A listening socket with an address that the kernel picks. */
static int listener(struct fixture *f)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un any = {.sun_family = AF_UNIX};
	assert_int_equal(bind(fd, (struct sockaddr *)&any, sizeof(any.sun_family)), 0);
	assert_int_equal(listen(fd, 4), 0);
	f->address_len = sizeof(f->address);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&f->address, &f->address_len), 0);
	return fd;
}

static void fixture_init(struct fixture *f, uint64_t alone_ms)
{
	static const struct control_ops ops = {
		.config = on_config, .secret = on_secret, .ended = on_ended};
	struct err e = {0};
	int pair[2];
	*f = (struct fixture){0};
	assert_int_equal(uv_loop_init(&f->loop), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
	f->spaced = pair[0];
	f->control = control_new(&f->loop, pair[1], listener(f), alone_ms, &ops, f, &e);
	if (!f->control)
		fail_msg("%s", e.text);
}

static void fixture_done(struct fixture *f)
{
	control_free(f->control);
	if (f->spaced >= 0)
		close(f->spaced);
	loop_done(&f->loop);
}

/* The next message to a spaced, or NULL at the end of the connection. */
static json_t *hear(struct fixture *f, int spaced)
{
	static char text[TEXT_MAX];
	struct err e = {0};
	ssize_t n;
	for (int turns = 0; (n = fd_recv(spaced, text, sizeof(text), NULL, NULL)) == -EAGAIN;
	     turns++) {
		assert_true(turns < 1000);
		uv_run(&f->loop, UV_RUN_NOWAIT);
	}
	if (n <= 0)
		return NULL;
	json_t *m = doc_parse_json(text, (size_t)n, &e);
	assert_non_null(m);
	return m;
}

static void expect(struct fixture *f, int spaced, const char *type, json_int_t seq)
{
	auto_json json_t *m = hear(f, spaced);
	assert_non_null(m);
	assert_string_equal(json_string_value(json_object_get(m, "type")), type);
	assert_int_equal(json_integer_value(json_object_get(m, "seq")), seq);
}

/* A message of the records first to last, no more and no less. */
static void expect_records(struct fixture *f, int spaced, json_int_t first, json_int_t last)
{
	auto_json json_t *m = hear(f, spaced);
	assert_string_equal(json_string_value(json_object_get(m, "type")), "audit");
	assert_int_equal(json_integer_value(json_object_get(m, "seq")), first);
	assert_int_equal(json_array_size(json_object_get(m, "events")), last - first + 1);
}

/* All records from 1 to last, in however many messages; their count. */
static size_t expect_all(struct fixture *f, int spaced, json_int_t last)
{
	size_t messages = 0;
	for (json_int_t seq = 1; seq <= last; messages++) {
		auto_json json_t *m = hear(f, spaced);
		assert_int_equal(json_integer_value(json_object_get(m, "seq")), seq);
		seq += (json_int_t)json_array_size(json_object_get(m, "events"));
		assert_true(seq <= last + 1);
	}
	return messages;
}

static void say(int spaced, const char *text)
{
	assert_int_equal(fd_send(spaced, text, strlen(text), NULL, 0), 0);
}

static void acknowledge(struct fixture *f, int spaced, int seq)
{
	char text[64];
	snprintf(text, sizeof(text), "{\"type\":\"ack\",\"seq\":%d}", seq);
	say(spaced, text);
	spin(&f->loop, 4);
}

static void configure(struct fixture *f)
{
	int fds[CONTROL_FDS];
	for (size_t i = 0; i < CONTROL_FDS; i++)
		fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(fd_send(f->spaced, config, strlen(config), fds, CONTROL_FDS), 0);
	for (size_t i = 0; i < CONTROL_FDS; i++)
		close(fds[i]);
	expect(f, f->spaced, "ready", 0);
	assert_true(f->configured);
}

static void spaced_dies(struct fixture *f)
{
	close(take_fd(f->spaced));
	spin(&f->loop, 4);
}

static int call(struct fixture *f)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&f->address, f->address_len), 0);
	return fd;
}

static int record(struct fixture *f, struct waiter *w, const char *text)
{
	record_string(control_record(f->control, "egress.request"), "text", text);
	if (w)
		*w = (struct waiter){.wait.done = waiter_done};
	return control_send(f->control, w ? &w->wait : NULL);
}

static void gateway_that_is_not_ready_ends_with_spaced(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f, ALONE_MS);
	spin(&f.loop, 10);
	assert_false(f.ended);
	spaced_dies(&f);
	assert_true(f.ended);
	assert_int_equal(f.why.code, ECONNRESET);
	assert_int_equal(record(&f, NULL, ""), -EPIPE);
	fixture_done(&f);
}

static void gateway_left_alone_ends_in_time(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f, 1);
	configure(&f);
	spin(&f.loop, 10);
	assert_false(f.ended); /* it isn't alone yet */
	spaced_dies(&f);
	wait_for(&f.loop, &f.ended);
	assert_int_equal(f.why.code, ETIMEDOUT);
	fixture_done(&f);
}

static void next_spaced_stops_the_clock(void **state)
{
	(void)state;
	struct fixture f;
	bool over = false;
	fixture_init(&f, 50);
	configure(&f);
	spaced_dies(&f);
	int next = call(&f);
	expect(&f, next, "state", 0);
	uv_timer_t later = {.data = &over};
	uv_timer_init(&f.loop, &later);
	uv_timer_start(&later, wait_over, 100, 0);
	wait_for(&f.loop, &over);
	assert_false(f.ended);
	uv_close((uv_handle_t *)&later, NULL);
	close(next);
	fixture_done(&f);
}

static void unacknowledged_records_are_repeated_in_order(void **state)
{
	(void)state;
	struct fixture f;
	struct waiter w[4];
	fixture_init(&f, ALONE_MS);
	configure(&f);
	assert_int_equal(record(&f, &w[0], "one"), 0);
	assert_int_equal(record(&f, &w[1], "two"), 0);
	expect_records(&f, f.spaced, 1, 2);
	acknowledge(&f, f.spaced, 1);
	assert_true(w[0].done && w[0].written && !w[1].done);
	spaced_dies(&f);
	assert_int_equal(record(&f, &w[2], "three"), 0);
	assert_int_equal(record(&f, NULL, "four"), 0);
	spin(&f.loop, 10);
	assert_false(w[1].done || w[2].done);

	int next = call(&f);
	expect(&f, next, "state", 1);
	expect_records(&f, next, 2, 4);
	close(next); /* and it dies, too, before it has written any */
	next = call(&f);
	expect(&f, next, "state", 1);
	expect_records(&f, next, 2, 4);
	acknowledge(&f, next, 3);
	assert_true(w[1].done && w[1].written && w[2].done && w[2].written);
	assert_int_equal(record(&f, &w[3], "five"), 0);
	expect_records(&f, next, 5, 5);
	acknowledge(&f, next, 5);
	assert_true(w[3].written);
	close(next);
	fixture_done(&f);
}

static void last_acknowledgement_of_a_dead_spaced_counts(void **state)
{
	(void)state;
	struct fixture f;
	struct waiter w[2];
	fixture_init(&f, ALONE_MS);
	configure(&f);
	assert_int_equal(record(&f, &w[0], "one"), 0);
	assert_int_equal(record(&f, &w[1], "two"), 0);
	spin(&f.loop, 4); /* it dies without having read these */
	say(f.spaced, "{\"type\":\"ack\",\"seq\":1}");
	close(take_fd(f.spaced));
	int next = call(&f); /* before the gateway has noticed */
	expect(&f, next, "state", 1);
	assert_true(w[0].written && !w[1].done);
	expect_records(&f, next, 2, 2);
	close(next);
	fixture_done(&f);
}

static void second_spaced_is_turned_away(void **state)
{
	(void)state;
	struct fixture f;
	struct waiter w;
	fixture_init(&f, ALONE_MS);
	configure(&f);
	int second = call(&f);
	assert_null(hear(&f, second));
	close(second);
	assert_int_equal(record(&f, &w, "one"), 0);
	expect_records(&f, f.spaced, 1, 1);
	acknowledge(&f, f.spaced, 1);
	assert_true(w.written);
	fixture_done(&f);
}

static void acknowledgement_of_what_was_not_sent_ends_it(void **state)
{
	(void)state;
	struct fixture f;
	struct waiter w[2];
	fixture_init(&f, ALONE_MS);
	configure(&f);
	assert_int_equal(record(&f, &w[0], "one"), 0);
	expect_records(&f, f.spaced, 1, 1);
	acknowledge(&f, f.spaced, 2);
	assert_true(f.ended && !w[0].done);
	assert_int_not_equal(f.why.code, ECONNRESET);
	assert_int_equal(record(&f, &w[1], "two"), -EPIPE);
	fixture_done(&f);
}

static void waiting_records_are_limited_in_number(void **state)
{
	(void)state;
	struct fixture f;
	static struct waiter w[CONTROL_UNACKED_MAX + 1];
	fixture_init(&f, ALONE_MS);
	configure(&f);
	spaced_dies(&f);
	for (size_t i = 0; i < CONTROL_UNACKED_MAX; i++)
		assert_int_equal(record(&f, &w[i], ""), 0);
	assert_int_equal(record(&f, &w[CONTROL_UNACKED_MAX], ""), -ENOBUFS);
	assert_int_equal(record(&f, NULL, "the end of what was recorded"), 0);
	int next = call(&f);
	expect(&f, next, "state", 0);
	assert_true(expect_all(&f, next, CONTROL_UNACKED_MAX + 1) < CONTROL_UNACKED_MAX / 100);
	acknowledge(&f, next, CONTROL_UNACKED_MAX + 1);
	for (size_t i = 0; i < CONTROL_UNACKED_MAX; i++)
		assert_true(w[i].written);
	assert_int_equal(record(&f, &w[CONTROL_UNACKED_MAX], ""), 0);
	close(next);
	fixture_done(&f);
}

static void waiting_records_are_limited_in_bytes(void **state)
{
	(void)state;
	struct fixture f;
	static struct waiter w[2 * CONTROL_UNACKED_BYTES / RECORD_SIZE];
	static char text[RECORD_SIZE + 1];
	size_t n = 0;
	fixture_init(&f, ALONE_MS);
	configure(&f);
	spaced_dies(&f);
	memset(text, 'x', RECORD_SIZE);
	while (record(&f, &w[n], text) == 0)
		assert_true(++n < sizeof(w) / sizeof(w[0]));
	assert_int_equal(n, CONTROL_UNACKED_BYTES / RECORD_SIZE + 1);
	/* They don't fit into a socket's buffer at once, and come all the same. */
	int next = call(&f);
	expect(&f, next, "state", 0);
	assert_int_equal(expect_all(&f, next, (json_int_t)n), n); /* long ones stand alone */
	close(next);
	fixture_done(&f);
}

static void records_of_one_turn_are_one_message(void **state)
{
	(void)state;
	struct fixture f;
	struct waiter w[2];
	char early;
	fixture_init(&f, ALONE_MS);
	configure(&f);
	assert_int_equal(record(&f, &w[0], "one"), 0);
	assert_int_equal(record(&f, NULL, "two"), 0);
	assert_int_equal(record(&f, &w[1], "three"), 0);
	assert_int_equal(fd_recv(f.spaced, &early, 1, NULL, NULL), -EAGAIN);
	expect_records(&f, f.spaced, 1, 3);
	acknowledge(&f, f.spaced, 3);
	assert_true(w[0].written && w[1].written);
	assert_int_equal(record(&f, &w[0], "four"), 0);
	expect_records(&f, f.spaced, 4, 4);
	fixture_done(&f);
}

/* In a message of its own, and it fits. */
static void record_as_long_as_one_may_be_is_sent(void **state)
{
	(void)state;
	struct fixture f;
	static char text[CONTROL_RECORD_MAX];
	size_t around = strlen("{\"kind\":\"egress.request\",\"text\":\"\"}");
	fixture_init(&f, ALONE_MS);
	configure(&f);
	memset(text, 'x', CONTROL_RECORD_MAX - around);
	assert_int_equal(record(&f, NULL, "one"), 0);
	assert_int_equal(record(&f, NULL, text), 0);
	assert_int_equal(record(&f, NULL, "three"), 0);
	for (int seq = 1; seq <= 3; seq++)
		expect_records(&f, f.spaced, seq, seq);
	text[CONTROL_RECORD_MAX - around] = 'x';
	assert_int_equal(record(&f, NULL, text), -EMSGSIZE);
	fixture_done(&f);
}

static void what_was_recorded_last_is_sent_before_the_end(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f, ALONE_MS);
	configure(&f);
	assert_int_equal(record(&f, NULL, "the gateway ended"), 0);
	control_free(f.control);
	expect_records(&f, f.spaced, 1, 1);
	close(f.spaced);
	loop_done(&f.loop);
}

static void ask(struct fixture *f, char word)
{
	char text[64];
	snprintf(text, sizeof(text), "{\"type\":\"secret\",\"revoke\":\"%c\"}", word);
	say(f->spaced, text);
	spin(&f->loop, 2);
}

/* More than the socket holds. */
static void answers_wait_in_order_and_records_behind_them(void **state)
{
	(void)state;
	static const char words[] = "abcdefghijklmnop";
	struct fixture f;
	fixture_init(&f, ALONE_MS);
	configure(&f);
	for (const char *w = words; *w; w++)
		ask(&f, *w);
	assert_int_equal(record(&f, NULL, "later"), 0);
	for (const char *w = words; *w; w++) {
		auto_json json_t *m = hear(&f, f.spaced);
		assert_non_null(m);
		assert_string_equal(json_string_value(json_object_get(m, "type")), "secret");
		assert_int_equal(json_string_value(json_object_get(m, "message"))[0], *w);
	}
	expect(&f, f.spaced, "audit", 1);
	fixture_done(&f);
}

static void spaced_that_reads_no_answer_is_cut_off(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f, ALONE_MS);
	configure(&f);
	int asked = 0;
	while (!f.ended && asked < 300) {
		ask(&f, 'x');
		asked++;
	}
	assert_true(f.ended && asked > 200);
	assert_int_equal(f.why.code, EPROTO);
	fixture_done(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gateway_that_is_not_ready_ends_with_spaced),
		cmocka_unit_test(gateway_left_alone_ends_in_time),
		cmocka_unit_test(next_spaced_stops_the_clock),
		cmocka_unit_test(unacknowledged_records_are_repeated_in_order),
		cmocka_unit_test(last_acknowledgement_of_a_dead_spaced_counts),
		cmocka_unit_test(second_spaced_is_turned_away),
		cmocka_unit_test(acknowledgement_of_what_was_not_sent_ends_it),
		cmocka_unit_test(waiting_records_are_limited_in_number),
		cmocka_unit_test(waiting_records_are_limited_in_bytes),
		cmocka_unit_test(records_of_one_turn_are_one_message),
		cmocka_unit_test(record_as_long_as_one_may_be_is_sent),
		cmocka_unit_test(what_was_recorded_last_is_sent_before_the_end),
		cmocka_unit_test(answers_wait_in_order_and_records_behind_them),
		cmocka_unit_test(spaced_that_reads_no_answer_is_cut_off),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
