/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the protocol: events as they are written, requests as they are read. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "agent/event.h"
#include "agent/input_message.h"
#include "agent/selector.h"
#include "agent/settings.h"
#include "agent/signals.h"
#include "agent/start_request.h"
#include "agent/text.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "http/envelope.h"

/* The payload of the only envelope in b, which must have that flag; b is emptied. */
static char *only_payload(struct buf *b, enum envelope_flag flag)
{
	struct envelope env;
	ssize_t r = envelope_read(b->data, b->len, 1 << 20, &env);
	assert_int_equal(r, b->len);
	assert_int_equal(env.flag, flag);
	char *text = strndup((const char *)env.payload, env.len);
	buf_done(b);
	return text;
}

#define EXPECT_EVENT(call, flag, want)                          \
	do {                                                    \
		struct buf out;                                 \
		buf_init(&out, 1 << 20);                        \
		assert_int_equal(call, 0);                      \
		auto_free char *got = only_payload(&out, flag); \
		assert_string_equal(got, want);                 \
	} while (0)

/* As waitpid() encodes them. */
static int exited(int code)
{
	return code << 8;
}

static void event_texts(void **state)
{
	(void)state;
	EXPECT_EVENT(event_start(&out, 3124), ENVELOPE_MESSAGE,
		     "{\"event\":{\"start\":{\"pid\":3124}}}");
	EXPECT_EVENT(event_keepalive(&out), ENVELOPE_MESSAGE, "{\"event\":{\"keepalive\":{}}}");
	EXPECT_EVENT(event_data(&out, "stdout", "hi\n", 3), ENVELOPE_MESSAGE,
		     "{\"event\":{\"data\":{\"stdout\":\"aGkK\"}}}");
	EXPECT_EVENT(
		event_end(&out, exited(0)), ENVELOPE_MESSAGE,
		"{\"event\":{\"end\":{\"exitCode\":0,\"exited\":true,\"status\":\"exit status 0\"}}}");
	EXPECT_EVENT(
		event_end(&out, exited(255)), ENVELOPE_MESSAGE,
		"{\"event\":{\"end\":{\"exitCode\":255,\"exited\":true,\"status\":\"exit status 255\","
		"\"error\":\"exit status 255\"}}}");
	EXPECT_EVENT(
		event_end(&out, SIGKILL), ENVELOPE_MESSAGE,
		"{\"event\":{\"end\":{\"exitCode\":-1,\"exited\":false,\"status\":\"signal: killed\","
		"\"error\":\"signal: killed\",\"signal\":9}}}");
	EXPECT_EVENT(event_end(&out, SIGSEGV | 0x80), ENVELOPE_MESSAGE,
		     "{\"event\":{\"end\":{\"exitCode\":-1,\"exited\":false,"
		     "\"status\":\"signal: segmentation fault (core dumped)\","
		     "\"error\":\"signal: segmentation fault (core dumped)\",\"signal\":11}}}");
	EXPECT_EVENT(
		event_end(&out, 40), ENVELOPE_MESSAGE,
		"{\"event\":{\"end\":{\"exitCode\":-1,\"exited\":false,\"status\":\"signal: signal 40\","
		"\"error\":\"signal: signal 40\",\"signal\":40}}}");
	EXPECT_EVENT(event_stream_end(&out, NULL, NULL), ENVELOPE_END, "{}");
	EXPECT_EVENT(
		event_stream_end(&out, "not_found", "a \"b\"\n\xff"), ENVELOPE_END,
		"{\"error\":{\"code\":\"not_found\",\"message\":\"a \\\"b\\\"\\n\xef\xbf\xbd\"}}");
}

static void event_data_is_cut_into_pieces(void **state)
{
	(void)state;
	struct buf out;
	buf_init(&out, 1 << 20);
	size_t n = 2 * EVENT_DATA_MAX + 5;
	auto_free char *data = calloc(1, n);
	assert_int_equal(event_data(&out, "stderr", data, n), 0);
	size_t at = 0, events = 0;
	while (at < out.len) {
		struct envelope env;
		ssize_t r = envelope_read(out.data + at, out.len - at, 1 << 20, &env);
		assert_true(r > 0);
		at += (size_t)r;
		events++;
	}
	assert_int_equal(events, 3);
	buf_done(&out);
}

static void event_that_does_not_fit_leaves_the_buffer(void **state)
{
	(void)state;
	struct buf out;
	buf_init(&out, 50000);
	auto_free char *data = calloc(1, 2 * EVENT_DATA_MAX);
	assert_int_equal(event_data(&out, "stdout", data, 2 * EVENT_DATA_MAX), -EMSGSIZE);
	assert_int_equal(out.len, 0);
	buf_done(&out);
}

static int signal_of(const char *json)
{
	auto_json json_t *value = json_loads(json, JSON_DECODE_ANY, NULL);
	return signal_from_json(value);
}

static void signal_names_and_numbers(void **state)
{
	(void)state;
	assert_int_equal(signal_of("\"SIGNAL_SIGTERM\""), SIGTERM);
	assert_int_equal(signal_of("\"SIGKILL\""), SIGKILL);
	assert_int_equal(signal_of("\"CONT\""), SIGCONT);
	assert_int_equal(signal_of("9"), 9);
	assert_int_equal(signal_of("64"), 64);
	static const char *const bad[] = {"0",
					  "65",
					  "-9",
					  "\"\"",
					  "\"SIGNAL_\"",
					  "\"SIG\"",
					  "\"sigterm\"",
					  "\"9\"",
					  "true",
					  "null",
					  "9.0",
					  "[9]",
					  "\"SIGNAL_UNSPECIFIED\""};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(signal_of(bad[i]), -EINVAL);
	assert_int_equal(signal_from_json(NULL), -EINVAL);
}

/* input_message_read() on a body with that many bytes of white space in front, so that both ways
 * are taken. */
static int read_input(const char *body, size_t pad, struct input_message *ret)
{
	size_t n = strlen(body);
	auto_free char *text = malloc(pad + n);
	memset(text, ' ', pad);
	memcpy(text + pad, body, n);
	return input_message_read(text, pad + n, ret, NULL);
}

static void input_is_the_same_by_both_ways(void **state)
{
	struct input_example {
		const char *body;
		int result; /* -EINVAL, or enum input_kind */
		const char *data;
	} list[] = {
		{"{\"input\":{\"stdin\":\"aGkK\"}}", INPUT_STDIN, "hi\n"},
		{"{\"input\":{\"stdin\" \t:\n \"aGkK\"},\"process\":{}}", INPUT_STDIN, "hi\n"},
		{"{\"input\":{\"stdin\":\"\"}}", INPUT_STDIN, ""},
		{"{\"input\":{\"stdin\":\"aGk\\u004b\"}}", INPUT_STDIN, "hi\n"},
		{"{\"input\":{\"st\\u0064in\":\"aGkK\"}}", INPUT_STDIN, "hi\n"},
		{"{\"x\":{\"stdin\":\"AAAA\"},\"input\":{\"stdin\":\"aGkK\"}}", INPUT_STDIN,
		 "hi\n"},
		{"{\"stdin\":\"AAAA\",\"input\":{\"stdin\":\"aGkK\"}}", INPUT_STDIN, "hi\n"},
		{"{\"process\":{\"tag\":\"\\\"stdin\\\":\\\"AAAA\"},\"input\":{\"stdin\":\"aGkK\"}}",
		 INPUT_STDIN, "hi\n"},
		{"{\"x\":{\"stdin\":\"AAAA\"},\"input\":{\"stdin\":\"*\"}}", -EINVAL, NULL},
		{"{\"x\":{\"stdin\":\"AAAA\"},\"input\":{\"stdin\":\"\\u002a\"}}", -EINVAL, NULL},
		{"{\"input\":{\"stdin\":\"*\"}}", -EINVAL, NULL},
		{"{\"input\":{\"stdin\":\"a\"}}", -EINVAL, NULL},
		{"{\"input\":{\"stdin\":\"aGkK", -EINVAL, NULL},
		{"{\"input\":{\"stdin\":\"aGkK\"", -EINVAL, NULL},
		{"{\"input\":{\"stdin\":\"aGkK\"}}}", -EINVAL, NULL},
		{"{\"input\":{\"stdin\":\"aGkK\",\"stdin\":\"aGkK\"}}", -EINVAL, NULL},
		{"{\"input\":{\"stdin\":5}}", -EINVAL, NULL},
		{"{\"input\":\"stdin\"}", -EINVAL, NULL},
		{"{\"input\":{\"stdin\":\"aGkK\",\"pty\":\"\"}}", INPUT_PTY, NULL},
		{"{\"input\":{\"pty\":\"aGkK\"}}", INPUT_PTY, NULL},
		{"{\"input\":{}}", INPUT_UNKNOWN, NULL},
		{"{\"input\":{\"stdin\":null}}", INPUT_UNKNOWN, NULL},
		{"{}", -EINVAL, NULL},
		{"[]", -EINVAL, NULL},
		{"\"stdin\":\"AAAA\"", -EINVAL, NULL},
		{"\"stdin\"", -EINVAL, NULL},
		{"{\"stdin\":\"", -EINVAL, NULL},
		{"{\"input\":{\"stdin\":", -EINVAL, NULL},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		for (size_t pad = 0; pad <= 4096; pad += 4096) {
			struct input_message m = {0};
			int r = read_input(list[i].body, pad, &m);
			assert_int_equal(r < 0 ? r : (int)m.kind, list[i].result);
			if (list[i].data)
				assert_memory_equal(m.data, list[i].data, strlen(list[i].data));
			if (list[i].data)
				assert_int_equal(m.len, strlen(list[i].data));
			if (r == 0)
				input_message_done(&m);
		}
	}
}

static void timestamps(void **state)
{
	int64_t ns;
	(void)state;
	assert_int_equal(clock_from_rfc3339("1970-01-01T00:00:00Z", &ns), 0);
	assert_int_equal(ns, 0);
	assert_int_equal(clock_from_rfc3339("2026-11-30T17:12:06.886Z", &ns), 0);
	assert_int_equal(ns, 1796058726886000000);
	assert_int_equal(clock_from_rfc3339("2026-11-30t19:12:06.886000001+02:00", &ns), 0);
	assert_int_equal(ns, 1796058726886000001);
	assert_int_equal(clock_from_rfc3339("2026-11-30T16:42:06.9-00:30", &ns), 0);
	assert_int_equal(ns, 1796058726900000000);
	static const char *const bad[] = {
		"",
		"2026",
		"2026-11-30",
		"2026-11-30T17:12:06",
		"2026-11-30T17:12:06.Z",
		"2026-11-30T17:12:06.1234567890Z",
		"2026-11-30 17:12:06Z",
		"2026-13-30T17:12:06Z",
		"2026-00-30T17:12:06Z",
		"2026-11-32T17:12:06Z",
		"2026-11-30T24:12:06Z",
		"2026-11-30T17:60:06Z",
		"2026-11-30T17:12:61Z",
		"1969-12-31T23:59:59Z",
		"2026-11-30T17:12:06+25:00",
		"2026-11-30T17:12:06+0200",
		"2026-11-30T17:12:06Zx",
		"-026-11-30T17:12:06Z",
		"1970-01-01T00:00:00+00:01",
		"9999-01-01T00:00:00Z",
		" 2026-11-30T17:12:06Z",
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(clock_from_rfc3339(bad[i], &ns), -EINVAL);
}

static void timestamps_agree_with_the_calendar_of_libc(void **state)
{
	(void)state;
	for (int64_t want = 0; want < 7258118400; want += 86400 * 13 + 4321) { /* to 2200 */
		time_t seconds = (time_t)want;
		char text[32];
		struct tm tm;
		int64_t ns;
		gmtime_r(&seconds, &tm);
		strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
		assert_int_equal(clock_from_rfc3339(text, &ns), 0);
		assert_int_equal(ns, want * 1000000000);
	}
}

static void basic_users(void **state)
{
	(void)state;
	auto_free char *a = NULL, *b = NULL, *none = NULL;
	assert_int_equal(text_basic_user("Basic cm9vdDo=", &a), 0);
	assert_string_equal(a, "root");
	assert_int_equal(text_basic_user("basic   dXNlcjpwYXNzOndvcmQ", &b), 0);
	assert_string_equal(b, "user");
	static const char *const bad[] = {
		"",           "Basic",           "Basic ",         "Basic cm9vdA==",
		"Basic Og==", "Bearer cm9vdDo=", "Basic cm9v*Do=", "Basic AHJvb3Q6"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(text_basic_user(bad[i], &none), -EINVAL);
}

static void secrets_compare(void **state)
{
	(void)state;
	assert_true(text_same_secret("abc", "abc"));
	assert_false(text_same_secret("abc", "abd"));
	assert_false(text_same_secret("abc", "ab"));
	assert_false(text_same_secret("abc", "abcabc"));
	assert_false(text_same_secret("abc", ""));
	assert_false(text_same_secret("", "abc"));
}

static void settings_are_taken_and_kept(void **state)
{
	static const char first[] =
		"{\"envVars\":{\"A\":\"1\"},\"accessToken\":\"t\",\"defaultUser\":\"u\","
		"\"defaultWorkdir\":\"/w\",\"timestamp\":\"2026-11-30T17:12:06Z\",\"x\":{}}";
	static const char older[] =
		"{\"accessToken\":\"o\",\"timestamp\":\"2026-11-30T17:12:05Z\"}";
	static const char clear[] = "{\"envVars\":{},\"accessToken\":\"\",\"defaultUser\":null}";
	struct settings_request req;
	struct settings s = {0};
	(void)state;
	assert_int_equal(settings_read(first, strlen(first), &req, NULL), 0);
	assert_true(settings_take(&s, &req));
	settings_request_done(&req);
	assert_int_equal(settings_read(older, strlen(older), &req, NULL), 0);
	assert_false(settings_take(&s, &req));
	settings_request_done(&req);
	assert_string_equal(s.token, "t");
	assert_string_equal(env_get(&s.env, "A"), "1");
	assert_int_equal(settings_read(clear, strlen(clear), &req, NULL), 0);
	assert_true(settings_take(&s, &req));
	settings_request_done(&req);
	assert_null(s.token);
	assert_string_equal(s.user, "u");
	assert_string_equal(s.workdir, "/w");
	assert_null(env_get(&s.env, "A"));
	settings_done(&s);
}

static void thawed_settings_are_never_old(void **state)
{
	static const char first[] =
		"{\"accessToken\":\"a\",\"timestamp\":\"2026-11-30T17:12:06Z\"}";
	static const char thawed[] =
		"{\"accessToken\":\"b\",\"timestamp\":\"2026-11-30T17:12:05Z\",\"thawed\":true}";
	static const char between[] =
		"{\"accessToken\":\"c\",\"timestamp\":\"2026-11-30T17:12:05.5Z\",\"thawed\":false}";
	struct settings_request req;
	struct settings s = {0};
	(void)state;
	assert_int_equal(settings_read(first, strlen(first), &req, NULL), 0);
	assert_false(req.thawed);
	assert_true(settings_take(&s, &req));
	settings_request_done(&req);
	assert_int_equal(settings_read(thawed, strlen(thawed), &req, NULL), 0);
	assert_true(req.thawed);
	assert_true(settings_take(&s, &req));
	settings_request_done(&req);
	assert_string_equal(s.token, "b");
	assert_int_equal(settings_read(between, strlen(between), &req, NULL), 0);
	assert_true(settings_take(&s, &req)); /* newer than what the new host has said */
	settings_request_done(&req);
	assert_string_equal(s.token, "c");
	settings_done(&s);
}

static int select_from(const char *text, struct selector *ret)
{
	struct err e = {0};
	auto_json json_t *message = json_loads(text, JSON_DECODE_ANY, NULL);
	int r = selector_read(message, ret, &e);
	assert_int_equal(r, -e.code);
	return r;
}

static void selectors(void **state)
{
	struct selector s;
	struct err e = {0};
	(void)state;
	assert_int_equal(select_from("{\"process\":{\"pid\":2147483647}}", &s), 0);
	assert_null(s.tag);
	assert_int_equal(s.pid, 2147483647);
	auto_json json_t *by_tag = json_loads("{\"process\":{\"pid\":5,\"tag\":\"t\"}}", 0, NULL);
	assert_int_equal(selector_read(by_tag, &s, &e), 0);
	assert_string_equal(s.tag, "t");
	static const char *const bad[] = {"{}",
					  "[]",
					  "5",
					  "{\"process\":null}",
					  "{\"process\":[]}",
					  "{\"process\":{}}",
					  "{\"process\":{\"pid\":0}}",
					  "{\"process\":{\"pid\":-1}}",
					  "{\"process\":{\"pid\":2147483648}}",
					  "{\"process\":{\"pid\":1.0}}",
					  "{\"process\":{\"tag\":1}}"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(select_from(bad[i], &s), -EINVAL);
}

static void start_environment_has_the_right_order(void **state)
{
	static const char text[] =
		"{\"process\":{\"cmd\":\"x\",\"envs\":{\"R\":\"r\",\"B\":\"r\",\"USER\":\"r\"}}}";
	struct start_request req;
	struct settings settings = {0};
	struct err e = {0};
	char name[] = "u", home[] = "/h", shell[] = "/s", id[] = "i1";
	struct user user = {.name = name, .home = home, .shell = shell};
	(void)state;
	env_set(&settings.env, "B", "init");
	env_set(&settings.env, "HOME", "init");
	settings.sandbox_id = id;
	assert_int_equal(start_request_read(text, strlen(text), &req, &e), 0);
	auto_env struct env env = {0};
	assert_int_equal(start_environment(&req, &settings, &user, &env, &e), 0);
	assert_string_equal(env_get(&env, "HOME"), "init");
	assert_string_equal(env_get(&env, "B"), "r");
	assert_string_equal(env_get(&env, "USER"), "r");
	assert_string_equal(env_get(&env, "LOGNAME"), "u");
	assert_string_equal(env_get(&env, "SHELL"), "/s");
	assert_string_equal(env_get(&env, "E2B_SANDBOX_ID"), "i1");
	assert_non_null(env_get(&env, "PATH"));
	assert_true(req.want_stdin);
	assert_false(req.want_pty);
	start_request_done(&req);
	env_done(&settings.env);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(event_texts),
		cmocka_unit_test(event_data_is_cut_into_pieces),
		cmocka_unit_test(event_that_does_not_fit_leaves_the_buffer),
		cmocka_unit_test(signal_names_and_numbers),
		cmocka_unit_test(input_is_the_same_by_both_ways),
		cmocka_unit_test(timestamps),
		cmocka_unit_test(timestamps_agree_with_the_calendar_of_libc),
		cmocka_unit_test(basic_users),
		cmocka_unit_test(secrets_compare),
		cmocka_unit_test(settings_are_taken_and_kept),
		cmocka_unit_test(thawed_settings_are_never_old),
		cmocka_unit_test(selectors),
		cmocka_unit_test(start_environment_has_the_right_order),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
