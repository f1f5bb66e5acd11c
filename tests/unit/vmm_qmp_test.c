/* SPDX-License-Identifier: Apache-2.0 */
/* QMP as QEMU speaks it, and as a QEMU that a guest has taken over might. The client is tested over
 * a socketpair. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/doc.h"
#include "base/fd.h"
#include "base/str.h"
#include "vmm/qmp.h"

#define DEADLINE_MS 5000

#define GREETING                                                                           \
	"{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 2, \"minor\": 0, \"major\": 10}, " \
	"\"package\": \"\"}, \"capabilities\": [\"oob\"]}}\r\n"

/* Feeds text whole, and takes out one message. */
static int next_of(const char *text, size_t len, struct qmp_msg *m)
{
	struct qmp_decoder d;
	struct err e = {0};
	int rc;

	qmp_decoder_init(&d);
	rc = qmp_feed(&d, text, len);
	if (rc == 0)
		rc = qmp_next(&d, m, &e);
	qmp_decoder_done(&d);
	return rc;
}

static int next_of_str(const char *text, struct qmp_msg *m)
{
	return next_of(text, strlen(text), m);
}

static void messages_are_told_apart(void **state)
{
	struct qmp_msg m;

	(void)state;
	assert_int_equal(next_of_str(GREETING, &m), 0);
	assert_int_equal(m.kind, QMP_GREETING);
	qmp_msg_done(&m);

	assert_int_equal(next_of_str("{\"return\": {\"status\": \"running\"}, \"id\": 7}\r\n", &m),
			 0);
	assert_int_equal(m.kind, QMP_RETURN);
	assert_int_equal(m.id, 7);
	assert_string_equal(json_string_value(json_object_get(m.data, "status")), "running");
	qmp_msg_done(&m);

	assert_int_equal(next_of_str("{\"id\":8,\"error\":{\"class\":\"GenericError\","
				     "\"desc\":\"no \\u00e4 \\n good\"}}\n",
				     &m),
			 0);
	assert_int_equal(m.kind, QMP_ERROR);
	assert_int_equal(m.id, 8);
	assert_string_equal(m.name, "GenericError");
	assert_string_equal(m.text, "no ?? ? good");
	qmp_msg_done(&m);

	assert_int_equal(next_of_str("{\"timestamp\":{\"seconds\":1,\"microseconds\":2},"
				     "\"event\":\"SHUTDOWN\",\"data\":{\"guest\":true}}\n",
				     &m),
			 0);
	assert_int_equal(m.kind, QMP_EVENT);
	assert_string_equal(m.name, "SHUTDOWN");
	assert_true(json_is_true(json_object_get(m.data, "guest")));
	qmp_msg_done(&m);
}

static void message_may_come_byte_by_byte(void **state)
{
	static const char text[] = GREETING "{\"return\":{},\"id\":1}\r\n";
	struct qmp_decoder d;
	struct qmp_msg m;
	struct err e;
	int seen = 0;

	(void)state;
	qmp_decoder_init(&d);
	for (size_t i = 0; i + 1 < sizeof(text); i++) {
		assert_int_equal(qmp_feed(&d, text + i, 1), 0);
		int rc = qmp_next(&d, &m, &e);
		if (rc == -EAGAIN)
			continue;
		assert_int_equal(rc, 0);
		assert_int_equal(text[i], '\n');
		assert_int_equal(m.kind, seen++ == 0 ? QMP_GREETING : QMP_RETURN);
		qmp_msg_done(&m);
	}
	assert_int_equal(seen, 2);
	qmp_decoder_done(&d);
}

static void many_messages_may_come_at_once(void **state)
{
	struct qmp_decoder d;
	struct qmp_msg m;
	struct err e;

	(void)state;
	qmp_decoder_init(&d);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(qmp_feed(&d, "{\"event\":\"STOP\"}\n", 17), 0);
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(qmp_next(&d, &m, &e), 0);
		qmp_msg_done(&m);
	}
	assert_int_equal(qmp_next(&d, &m, &e), -EAGAIN);
	qmp_decoder_done(&d);
}

static void hostile_lines_are_refused(void **state)
{
	static const char *const bad[] = {
		"\n",
		"\r\n",
		"[]\n",
		"null\n",
		"{}\n",
		"{\"return\":{}\n",
		"{\"return\":{}}}\n",
		"{\"QMP\":1}\n",
		"{\"event\":\"\"}\n",
		"{\"event\":7}\n",
		"{\"event\":\"X\\u0000Y\"}\n",
		"{\"event\":\"X\\nY\"}\n",
		"{\"event\":\"an event whose name is longer than any that QEMU has\"}\n",
		"{\"event\":\"X\",\"data\":[]}\n",
		"{\"error\":\"no\"}\n",
		"{\"error\":{\"desc\":\"no class\"}}\n",
		"{\"return\":{},\"id\":-1}\n",
		"{\"return\":{},\"id\":\"1\"}\n",
		"{\"return\":{},\"id\":1,\"id\":2}\n",
		"{\"return\":\"\xff\"}\n",
		"{\"return\":99999999999999999999999}\n",
	};
	struct qmp_msg m;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (next_of_str(bad[i], &m) != -EBADMSG)
			fail_msg("accepted: %s", bad[i]);
	assert_int_equal(next_of("{\"return\":\0{}}\n", 15, &m), -EBADMSG);
}

static void deep_nesting_is_refused(void **state)
{
	auto_free char *text = malloc(40002);
	struct qmp_msg m;

	(void)state;
	memset(text, '[', 40000);
	memcpy(text + 40000, "\n", 2);
	assert_int_equal(next_of_str(text, &m), -EBADMSG);
}

static void line_without_end_is_refused(void **state)
{
	static const char chunk[4096] = "";
	struct qmp_decoder d;
	struct qmp_msg m;
	struct err e;
	size_t total = 0;
	int rc = 0;

	(void)state;
	qmp_decoder_init(&d);
	while (rc == 0 && total <= 2 * QMP_LINE_MAX) {
		rc = qmp_feed(&d, chunk, sizeof(chunk));
		if (rc == 0)
			assert_int_equal(qmp_next(&d, &m, &e), -EAGAIN);
		total += sizeof(chunk);
	}
	assert_int_equal(rc, -EMSGSIZE);
	assert_int_equal(total, QMP_LINE_MAX + sizeof(chunk));
	qmp_decoder_done(&d);
}

static void command_is_one_line(void **state)
{
	auto_json json_t *args = json_pack("{s:s}", "fdname", "a\n\"b");
	auto_free char *with = qmp_encode(3, "getfd", args);
	auto_free char *without = qmp_encode(1, "query-status", NULL);

	(void)state;
	assert_string_equal(without, "{\"execute\":\"query-status\",\"id\":1}\n");
	assert_string_equal(
		with,
		"{\"execute\":\"getfd\",\"id\":3,\"arguments\":{\"fdname\":\"a\\n\\\"b\"}}\n");
}

/* The client at one end of a socketpair, the test at the other. */
struct bench {
	uv_loop_t loop;
	uv_timer_t deadline;
	struct qmp_client client;
	int peer;
	bool done; /* a wait ends */
	int greetings, events, replies, losses, nulls, closed;
	bool close_on_event;
	struct err why;
	enum qmp_kind last_reply;
};

static void on_greeting(void *user)
{
	struct bench *b = user;

	b->greetings++;
	b->done = true;
}

static void on_event(void *user, const char *name, const json_t *data)
{
	struct bench *b = user;

	(void)name;
	(void)data;
	b->events++;
	b->done = true;
	if (b->close_on_event)
		qmp_client_close(&b->client);
}

static void on_lost(void *user, const struct err *why)
{
	struct bench *b = user;

	b->losses++;
	b->why = *why;
	b->done = true;
}

static void on_closed(void *user)
{
	struct bench *b = user;

	b->closed++;
	b->done = true;
}

static void on_reply(void *user, const struct qmp_msg *msg)
{
	struct bench *b = user;

	if (msg)
		b->last_reply = msg->kind;
	else
		b->nulls++;
	b->replies++;
	b->done = true;
}

static const struct qmp_handlers handlers = {on_greeting, on_event, on_lost, on_closed};

static void on_deadline(uv_timer_t *t)
{
	(void)t;
	fail_msg("nothing happened");
}

static void bench_init(struct bench *b)
{
	int ends[2];

	memset(b, 0, sizeof(*b));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	b->peer = ends[1];
	assert_int_equal(uv_loop_init(&b->loop), 0);
	uv_timer_init(&b->loop, &b->deadline);
	assert_int_equal(qmp_client_open(&b->client, &b->loop, ends[0], &handlers, b), 0);
}

static void bench_wait(struct bench *b)
{
	b->done = false;
	uv_timer_start(&b->deadline, on_deadline, DEADLINE_MS, 0);
	while (!b->done)
		uv_run(&b->loop, UV_RUN_ONCE);
	uv_timer_stop(&b->deadline);
}

static void bench_done(struct bench *b)
{
	if (!b->closed) {
		qmp_client_close(&b->client);
		bench_wait(b);
	}
	assert_int_equal(b->closed, 1);
	uv_close((uv_handle_t *)&b->deadline, NULL);
	uv_run(&b->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&b->loop), 0);
	if (b->peer >= 0)
		close(b->peer);
}

static void bench_say(struct bench *b, const char *text)
{
	assert_int_equal(fd_write_all(b->peer, text, strlen(text)), 0);
}

static void replies_find_their_calls(void **state)
{
	struct bench b;
	char line[256];

	(void)state;
	bench_init(&b);
	bench_say(&b, GREETING);
	bench_wait(&b);
	assert_int_equal(b.greetings, 1);
	assert_int_equal(qmp_client_call(&b.client, "one", NULL, -1, on_reply, &b), 0);
	assert_int_equal(qmp_client_call(&b.client, "two", NULL, -1, on_reply, &b), 0);
	assert_true(read(b.peer, line, sizeof(line)) > 0);

	bench_say(&b, "{\"return\":{},\"id\":99}\n{\"return\":{}}\n"
		      "{\"error\":{\"class\":\"C\",\"desc\":\"d\"},\"id\":2}\n");
	bench_wait(&b);
	assert_int_equal(b.replies, 1);
	assert_int_equal(b.last_reply, QMP_ERROR);
	bench_say(&b, "{\"return\":{},\"id\":1}\n{\"return\":{},\"id\":1}\n{\"event\":\"X\"}\n");
	bench_wait(&b);
	assert_int_equal(b.replies, 2);
	assert_int_equal(b.last_reply, QMP_RETURN);
	bench_done(&b);
}

static void end_of_file_answers_open_calls(void **state)
{
	struct bench b;

	(void)state;
	bench_init(&b);
	assert_int_equal(qmp_client_call(&b.client, "one", NULL, -1, on_reply, &b), 0);
	close(take_fd(b.peer));
	while (b.losses == 0)
		bench_wait(&b);
	assert_int_equal(b.nulls, 1);
	assert_int_equal(b.losses, 1);
	assert_int_equal(qmp_client_call(&b.client, "two", NULL, -1, on_reply, &b), -EPIPE);
	bench_done(&b);
	assert_int_equal(b.losses, 1);
}

static void malformed_input_ends_control(void **state)
{
	struct bench b;

	(void)state;
	bench_init(&b);
	bench_say(&b, "{\"event\":\"X\"}\nnonsense\n{\"event\":\"Y\"}\n");
	while (b.losses == 0)
		bench_wait(&b);
	assert_int_equal(b.events, 1);
	assert_int_equal(b.why.code, EBADMSG);
	bench_done(&b);
}

static void client_may_be_closed_from_a_handler(void **state)
{
	struct bench b;

	(void)state;
	bench_init(&b);
	b.close_on_event = true;
	bench_say(&b, "{\"event\":\"X\"}\n{\"event\":\"Y\"}\n");
	while (b.closed == 0)
		bench_wait(&b);
	assert_int_equal(b.events, 1);
	bench_done(&b);
}

static void calls_in_flight_are_limited(void **state)
{
	struct bench b;

	(void)state;
	bench_init(&b);
	for (int i = 0; i < QMP_CALLS_MAX; i++)
		assert_int_equal(qmp_client_call(&b.client, "c", NULL, -1, on_reply, &b), 0);
	assert_int_equal(qmp_client_call(&b.client, "c", NULL, -1, on_reply, &b), -EBUSY);
	bench_say(&b, "{\"return\":{},\"id\":3}\n");
	bench_wait(&b);
	assert_int_equal(qmp_client_call(&b.client, "c", NULL, -1, on_reply, &b), 0);
	bench_done(&b);
	assert_int_equal(b.losses, 0);
}

static void descriptor_travels_with_its_command(void **state)
{
	struct bench b;
	char line[256];
	int got[2];
	size_t ngot = 2;
	auto_fd int sent = open("/dev/null", O_RDONLY | O_CLOEXEC);

	(void)state;
	bench_init(&b);
	assert_int_equal(qmp_client_call(&b.client, "getfd", NULL, sent, on_reply, &b), 0);
	assert_true(fd_recv(b.peer, line, sizeof(line), got, &ngot) > 0);
	assert_int_equal(ngot, 1);
	close(got[0]);
	bench_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_are_told_apart),
		cmocka_unit_test(message_may_come_byte_by_byte),
		cmocka_unit_test(many_messages_may_come_at_once),
		cmocka_unit_test(hostile_lines_are_refused),
		cmocka_unit_test(deep_nesting_is_refused),
		cmocka_unit_test(line_without_end_is_refused),
		cmocka_unit_test(command_is_one_line),
		cmocka_unit_test(replies_find_their_calls),
		cmocka_unit_test(end_of_file_answers_open_calls),
		cmocka_unit_test(malformed_input_ends_control),
		cmocka_unit_test(client_may_be_closed_from_a_handler),
		cmocka_unit_test(calls_in_flight_are_limited),
		cmocka_unit_test(descriptor_travels_with_its_command),
	};

	return cmocka_run_group_tests_name("vmm_qmp", tests, NULL, NULL);
}
