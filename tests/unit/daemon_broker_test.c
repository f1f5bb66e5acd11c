/* SPDX-License-Identifier: Apache-2.0 */
/* Who holds which value: one look for all who want it, ahead of its expiry; what is told when a
 * source fails, or its credential goes. Sources are programs that count how often they were asked,
 * and an authorization server that rotates. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/doc.h"
#include "base/fd.h"
#include "base/str.h"
#include "daemon/broker.h"
#include "daemon/secrets.h"

#define DEADLINE_MS 30000
#define TICK_MS     20

struct fixture {
	char dir[32];
	uv_loop_t loop;
	struct node node;
	uv_timer_t tick;
	const char *what; /* is waited for, until */
	uint64_t end_ms;
};

static void open_node(struct fixture *f)
{
	struct err e = {0};
	f->node.store = store_open(f->node.paths.db, &e);
	f->node.audit = audit_open(f->node.paths.audit, &e);
	f->node.credentials = f->node.store ? credentials_open(&f->node, &e) : NULL;
	f->node.broker = broker_new(&f->node, &e);
	if (!f->node.audit || !f->node.credentials || !f->node.broker)
		fail_msg("%s", e.text);
}

static void close_node(struct fixture *f)
{
	broker_free(f->node.broker);
	credentials_close(f->node.credentials);
	store_close(f->node.store);
	audit_close(f->node.audit);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	strcpy(f->dir, "/tmp/broker-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	uv_loop_init(&f->loop);
	uv_timer_init(&f->loop, &f->tick);
	f->node.loop = &f->loop;
	f->node.paths.state = f->dir;
	f->node.paths.db = str_printf("%s/space.db", f->dir);
	f->node.paths.audit = str_printf("%s/audit", f->dir);
	assert_int_equal(mkdir(f->node.paths.audit, 0700), 0);
	open_node(f);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	close_node(f);
	uv_close((uv_handle_t *)&f->tick, NULL);
	assert_int_equal(uv_run(&f->loop, UV_RUN_DEFAULT), 0);
	assert_int_equal(uv_loop_close(&f->loop), 0);
	dir_remove_all(f->dir);
	free(f->node.paths.db);
	free(f->node.paths.audit);
	free(f);
	return 0;
}

static void on_tick(uv_timer_t *t)
{
	struct fixture *f = t->data;
	if (clock_mono_ms() > f->end_ms)
		fail_msg("within %d ms it was not so that %s", DEADLINE_MS, f->what);
}

/* The tick is for what becomes true outside of the loop. */
#define run_until(f, condition)                                  \
	do {                                                     \
		(f)->what = #condition;                          \
		(f)->end_ms = clock_mono_ms() + DEADLINE_MS;     \
		(f)->tick.data = (f);                            \
		uv_timer_start(&(f)->tick, on_tick, 0, TICK_MS); \
		while (!(condition))                             \
			uv_run(&(f)->loop, UV_RUN_ONCE);         \
		uv_timer_stop(&(f)->tick);                       \
	} while (0)

/* Lets the loop run for a while in which nothing may happen. */
static void on_enough(uv_timer_t *t)
{
	*(bool *)t->data = true;
}

static void run_for(struct fixture *f, uint64_t ms)
{
	uv_timer_t t;
	bool enough = false;
	uv_timer_init(&f->loop, &t);
	t.data = &enough;
	uv_timer_start(&t, on_enough, ms, 0);
	while (!enough)
		uv_run(&f->loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&t, NULL);
	uv_run(&f->loop, UV_RUN_NOWAIT);
}

static void set(struct fixture *f, const char *name, const char *source, const char *values,
		const char *host)
{
	struct err e = {0};
	bool there;
	auto_free char *body = str_printf("{\"definition\":{\"hosts\":[\"%s\"],\"source\":%s},"
					  "\"values\":%s}",
					  host, source, values);
	if (credentials_set(&f->node, name, body, strlen(body), &there, &e) < 0)
		fail_msg("%s", e.text);
}

/* A program that writes a dot for each call, and runs this. */
static void set_program(struct fixture *f, const char *name, const char *script)
{
	auto_free char *source =
		str_printf("{\"command\":[\"sh\",\"-c\",\"cd %s; printf . >>asked; "
			   "%s\"]}",
			   f->dir, script);
	set(f, name, source, "{}", "a.example");
}

static unsigned asked(struct fixture *f)
{
	auto_free char *path = str_printf("%s/asked", f->dir), *text = NULL;
	return file_read(path, 10000, &text, NULL) < 0 ? 0 : (unsigned)strlen(text);
}

#define PRINT(value, more) "echo '{\\\"value\\\":\\\"" value "\\\"" more "}'"

/* One who wants something. */
struct wanter {
	struct fixture *f;
	struct broker_want *want;
	unsigned told, values;
	char value[64]; /* "": none */
	uint64_t expires_ms;
	struct err why;
	bool leaves; /* when it is told */
	void (*then)(struct wanter *w);
};

static void on_told(void *user, const json_t *value, uint64_t expires_ms, const struct err *why)
{
	struct wanter *w = user;
	assert_true(!value == !!why);
	w->told++;
	w->values += !!value;
	w->expires_ms = expires_ms;
	snprintf(w->value, sizeof(w->value), "%s", value ? json_string_value(value) : "");
	w->why = why ? *why : (struct err){0};
	if (w->then)
		w->then(w);
	if (w->leaves)
		broker_unwant(take_ptr(w->want));
}

static void want(struct fixture *f, const char *name, struct wanter *w)
{
	struct err e = {0};
	w->f = f;
	w->want = broker_want(&f->node, name, on_told, w, &e);
	if (!w->want)
		fail_msg("%s", e.text);
	assert_int_equal(w->told, 0); /* never from within */
}

static void one_look_for_all(void **state)
{
	struct fixture *f = *state;
	static struct wanter w[100];
	memset(w, 0, sizeof(w));
	set_program(f, "API", PRINT("v1", ""));
	for (size_t i = 0; i < 60; i++)
		want(f, "API", &w[i]);
	run_until(f, w[59].told);
	for (size_t i = 60; i < 100; i++)
		want(f, "API", &w[i]);
	run_until(f, w[99].told);
	for (size_t i = 0; i < 100; i++) {
		assert_int_equal(w[i].told, 1);
		assert_string_equal(w[i].value, "v1");
		assert_int_equal(w[i].expires_ms, 0);
	}
	assert_int_equal(asked(f), 1);
	for (size_t i = 0; i < 100; i++)
		broker_unwant(w[i].want);

	/* With the last one it was forgotten. */
	struct wanter again = {0};
	want(f, "API", &again);
	run_until(f, again.told);
	assert_int_equal(asked(f), 2);
	broker_unwant(again.want);
}

static void value_is_renewed_ahead_of_its_end(void **state)
{
	struct fixture *f = *state;
	struct wanter w = {0};
	set_program(f, "API",
		    "n=$(wc -c <asked); " PRINT("v$n", ",\\\"expires_in\\\":2")); /* $n stays */
	want(f, "API", &w);
	run_until(f, w.told);
	uint64_t first = w.expires_ms, now = clock_wall_ms();
	assert_in_range(first, now + 500, now + 2000);
	run_until(f, w.told == 3);
	assert_int_equal(w.values, 3); /* never without one in between */
	assert_true(w.expires_ms > first);
	assert_int_equal(asked(f), 3);
	broker_unwant(w.want);
}

static void failing_source_lets_the_old_value_live_out(void **state)
{
	struct fixture *f = *state;
	struct wanter w = {0};
	set_program(f, "API", "test -e broken && exit 7; " PRINT("v1", ",\\\"expires_in\\\":3"));
	auto_free char *broken = str_printf("%s/broken", f->dir);
	want(f, "API", &w);
	run_until(f, w.told);
	assert_int_equal(file_write_atomic(broken, "", 0, 0600), 0);
	uint64_t expires_ms = w.expires_ms;
	run_until(f, asked(f) >= 2);
	assert_int_equal(w.told, 1);
	run_until(f, w.told == 2);
	assert_true(clock_wall_ms() + 50 >= expires_ms);
	assert_int_equal(w.why.code, EAGAIN);
	assert_non_null(strstr(w.why.text, "API"));
	assert_non_null(strstr(w.why.text, "status 7"));
	const char *problem;
	uint64_t shown;
	broker_show(&f->node, "API", &shown, &problem);
	assert_string_equal(problem, w.why.text);
	assert_int_equal(shown, 0);

	/* Whoever comes now hears the same, and all of them when it is well again. */
	struct wanter late = {0};
	want(f, "API", &late);
	run_until(f, late.told);
	assert_string_equal(late.why.text, w.why.text);
	unlink(broken);
	run_until(f, w.value[0] && late.value[0]);
	broker_show(&f->node, "API", &shown, &problem);
	assert_null(problem);
	assert_int_equal(shown, w.expires_ms);
	broker_unwant(w.want);
	broker_unwant(late.want);
}

static void source_that_never_worked_is_unavailable_at_once(void **state)
{
	struct fixture *f = *state;
	struct wanter w = {0};
	set_program(f, "API", "exit 1");
	want(f, "API", &w);
	run_until(f, w.told);
	assert_int_equal(w.why.code, EAGAIN);
	run_until(f, asked(f) >= 2); /* it is asked again, and nothing is told anew */
	assert_int_equal(w.told, 1);
	broker_unwant(w.want);
}

static void value_that_no_request_can_carry_is_none(void **state)
{
	struct fixture *f = *state;
	struct wanter w = {0};
	set_program(f, "API", "printf %s '{\\\"value\\\":\\\"hunter2\\\\r\\\\nX: y\\\"}'");
	want(f, "API", &w);
	run_until(f, w.told);
	assert_int_equal(w.why.code, EAGAIN);
	assert_non_null(strstr(w.why.text, "line break"));
	assert_null(strstr(w.why.text, "hunter2"));
	broker_unwant(w.want);
}

static void setting_it_anew_tells_the_new_value(void **state)
{
	struct fixture *f = *state;
	struct wanter w = {0};
	set(f, "API", "{\"value\":true}", "{\"value\":\"v1\"}", "a.example");
	want(f, "API", &w);
	run_until(f, w.told);
	set(f, "API", "{\"value\":true}", "{\"value\":\"v2\"}", "a.example");
	run_until(f, w.told == 2);
	assert_string_equal(w.value, "v2");
	/* The old value is not that of another source. */
	set(f, "API", "{\"file\":\"/no/such/file\"}", "{}", "a.example");
	run_until(f, w.told == 3);
	assert_int_equal(w.why.code, EAGAIN);
	broker_unwant(w.want);
}

static void look_of_before_is_not_for_what_was_set_since(void **state)
{
	struct fixture *f = *state;
	struct wanter w = {0};
	set_program(f, "API", "sleep 1; " PRINT("old", ""));
	want(f, "API", &w);
	run_until(f, asked(f));
	set_program(f, "API", PRINT("new", ""));
	run_until(f, w.told);
	assert_string_equal(w.value, "new");
	run_for(f, 1200);
	assert_int_equal(w.told, 1);
	broker_unwant(w.want);
}

static void removed_or_rescoped_is_told_once(void **state)
{
	struct fixture *f = *state;
	struct wanter a = {0}, b = {0};
	struct err e;
	set(f, "API", "{\"value\":true}", "{\"value\":\"v1\"}", "a.example");
	want(f, "API", &a);
	run_until(f, a.told);
	set(f, "API", "{\"value\":true}", "{\"value\":\"v2\"}", "b.example");
	want(f, "API", &b);
	run_until(f, a.told == 2 && b.told);
	assert_int_equal(a.why.code, ENOENT);
	assert_string_equal(b.value, "v2");
	assert_int_equal(credentials_remove(&f->node, "API", &e), 0);
	run_until(f, b.told == 2);
	assert_int_equal(b.why.code, ENOENT);
	assert_int_equal(a.told, 2);
	assert_null(broker_want(&f->node, "API", on_told, &a, &e));
	assert_int_equal(e.code, ENOENT);
	broker_unwant(a.want);
	broker_unwant(b.want);
}

static struct wanter others[3];

static void takes_others_along(struct wanter *w)
{
	for (size_t i = 0; i < 3; i++)
		if (&others[i] != w && others[i].want)
			broker_unwant(take_ptr(others[i].want));
}

static void who_is_told_may_go_and_take_others_along(void **state)
{
	struct fixture *f = *state;
	memset(others, 0, sizeof(others));
	set(f, "API", "{\"value\":true}", "{\"value\":\"v1\"}", "a.example");
	for (size_t i = 0; i < 3; i++) {
		others[i].leaves = true;
		others[i].then = takes_others_along;
		want(f, "API", &others[i]);
	}
	run_until(f, others[0].told);
	run_for(f, 50);
	assert_int_equal(others[0].told + others[1].told + others[2].told, 1);
}

static void policys_program_is_shared_by_what_it_is(void **state)
{
	struct fixture *f = *state;
	struct err e = {0};
	struct wanter w[3] = {0};
	struct definition d[3];
	static const char *const more[] = {"", "", "echo >&2;"};
	for (size_t i = 0; i < 3; i++) {
		auto_free char *script = str_printf(
			"cd %s; printf . >>asked; %s echo '{\"value\":\"v\"}'", f->dir, more[i]);
		auto_json json_t *j =
			json_pack("{s:[s], s:{s:[s,s,s]}}", "hosts", i ? "b.example" : "a.example",
				  "source", "command", "sh", "-c", script);
		assert_int_equal(definition_read("API", j, DEFINITION_IN_POLICY, &d[i], &e), 0);
		w[i].want = broker_want_defined(&f->node, &d[i], on_told, &w[i], &e);
		assert_non_null(w[i].want);
		definition_done(&d[i]);
	}
	run_until(f, w[0].told && w[1].told && w[2].told);
	assert_int_equal(asked(f), 2);
	for (size_t i = 0; i < 3; i++)
		broker_unwant(w[i].want);

	auto_json json_t *j = json_pack("{s:[s]}", "hosts", "a.example");
	assert_int_equal(definition_read("API", j, DEFINITION_IN_POLICY, &d[0], &e), 0);
	assert_null(broker_want_defined(&f->node, &d[0], on_told, &w[0], &e));
	assert_int_equal(e.code, EINVAL);
	definition_done(&d[0]);
}

/* -- a server that rotates: each refresh token is good once, and is "r" and a number -- */

struct server {
	int fd;
	pthread_t thread;
	_Atomic unsigned good;    /* the number of the token that is taken */
	_Atomic unsigned refused; /* requests with another */
};

static void *serve(void *arg)
{
	struct server *s = arg;
	for (int c; (c = accept(s->fd, NULL, NULL)) >= 0; close(c)) {
		char text[4096] = "", body[200], token[40];
		size_t n = 0;
		snprintf(token, sizeof(token), "refresh_token=r%u", s->good);
		while (n < sizeof(text) - 1 && !strstr(text, "refresh_token=")) {
			ssize_t got = read(c, text + n, sizeof(text) - 1 - n);
			if (got <= 0)
				break;
			n += (size_t)got;
			text[n] = '\0';
		}
		const char *at = strstr(text, "refresh_token=");
		bool fine = at && strncmp(at, token, strlen(token)) == 0;
		if (fine)
			s->good++;
		else
			s->refused++;
		snprintf(body, sizeof(body),
			 fine ? "{\"access_token\":\"a%u\",\"expires_in\":1,"
				"\"refresh_token\":\"r%u\"}"
			      : "{\"error\":\"invalid_grant\"}",
			 s->good, s->good);
		dprintf(c, "HTTP/1.1 %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s",
			fine ? "200 OK" : "400 Bad Request", strlen(body), body);
	}
	return NULL;
}

static void server_start(struct server *s, char *source, size_t size)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t n = sizeof(at);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(s->fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(s->fd, 16), 0);
	getsockname(s->fd, (struct sockaddr *)&at, &n);
	snprintf(source, size,
		 "{\"oauth2\":{\"grant\":\"refresh_token\",\"clientID\":\"c\","
		 "\"tokenURL\":\"http://127.0.0.1:%u/t\"}}",
		 ntohs(at.sin_port));
	assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void server_stop(struct server *s)
{
	shutdown(s->fd, SHUT_RDWR);
	pthread_join(s->thread, NULL);
	close(s->fd);
}

/* What another spaced would read of the store at this moment. */
static void stored_token(struct fixture *f, char out[64])
{
	struct fixture other = {.loop = f->loop, .node = {.paths = f->node.paths}};
	struct err e = {0};
	other.node.store = store_open(f->node.paths.db, &e);
	other.node.credentials = credentials_open(&other.node, &e);
	auto_json json_t *values = credentials_values(&other.node, "API", &e);
	assert_non_null(values);
	snprintf(out, 64, "%s", json_string_value(json_object_get(values, "refreshToken")));
	credentials_close(other.node.credentials);
	store_close(other.node.store);
}

static void is_on_disk_already(struct wanter *w)
{
	char stored[64];
	if (!w->value[0])
		return;
	stored_token(w->f, stored);
	assert_int_equal(stored[0], 'r');
	assert_string_equal(stored + 1, w->value + 1); /* a7 came with r7 */
}

static void rotated_token_is_on_disk_before_what_came_with_it_is_told(void **state)
{
	struct fixture *f = *state;
	struct server s = {0};
	char source[200];
	struct wanter w = {.then = is_on_disk_already};
	server_start(&s, source, sizeof(source));
	set(f, "API", source, "{\"refreshToken\":\"r0\"}", "a.example");
	want(f, "API", &w);
	run_until(f, w.values >= 3);
	broker_unwant(w.want);
	run_for(f, 50);

	/* Nobody waits for the answer any more, and the token is not lost all the same. */
	char stored[64], now[64];
	struct wanter brief = {0};
	want(f, "API", &brief);
	broker_unwant(brief.want);
	unsigned good = s.good;
	run_until(f, s.good > good);
	uint64_t end_ms = clock_mono_ms() + DEADLINE_MS;
	snprintf(now, sizeof(now), "r%u", s.good);
	do {
		uv_run(&f->loop, UV_RUN_NOWAIT);
		stored_token(f, stored);
	} while (strcmp(stored, now) != 0 && clock_mono_ms() < end_ms);
	assert_string_equal(stored, now);
	assert_int_equal(s.refused, 0);
	server_stop(&s);
}

static void rotated_token_is_not_put_over_one_that_was_set_since(void **state)
{
	struct fixture *f = *state;
	struct server s = {0};
	char source[200], stored[64];
	struct wanter w = {0};
	server_start(&s, source, sizeof(source));
	set(f, "API", source, "{\"refreshToken\":\"r0\"}", "a.example");
	want(f, "API", &w);
	uv_run(&f->loop, UV_RUN_NOWAIT);
	uint64_t end_ms = clock_mono_ms() + DEADLINE_MS;
	while (!s.good && clock_mono_ms() < end_ms)
		usleep(1000); /* without the loop: the answer is not heard yet */
	assert_int_equal(s.good, 1);
	s.good = 9;
	set(f, "API", source, "{\"refreshToken\":\"r9\"}", "a.example");
	run_until(f, w.told);
	assert_string_equal(w.value, "a10");
	stored_token(f, stored);
	assert_string_equal(stored, "r10");
	assert_int_equal(s.refused, 0);
	broker_unwant(w.want);
	run_for(f, 50);
	server_stop(&s);
}

static void refused_refresh_token_is_not_tried_again(void **state)
{
	struct fixture *f = *state;
	struct server s = {.good = 5};
	char source[200];
	struct wanter w = {0};
	server_start(&s, source, sizeof(source));
	set(f, "API", source, "{\"refreshToken\":\"r0\"}", "a.example");
	want(f, "API", &w);
	run_until(f, w.told);
	assert_non_null(strstr(w.why.text, "invalid_grant"));
	run_for(f, 2500); /* a failure that may pass is tried again after 1 s */
	assert_int_equal(s.refused, 1);
	set(f, "API", source, "{\"refreshToken\":\"r5\"}", "a.example");
	run_until(f, w.values);
	broker_unwant(w.want);
	run_for(f, 50);
	server_stop(&s);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(one_look_for_all),
		TEST(value_is_renewed_ahead_of_its_end),
		TEST(failing_source_lets_the_old_value_live_out),
		TEST(source_that_never_worked_is_unavailable_at_once),
		TEST(value_that_no_request_can_carry_is_none),
		TEST(setting_it_anew_tells_the_new_value),
		TEST(look_of_before_is_not_for_what_was_set_since),
		TEST(removed_or_rescoped_is_told_once),
		TEST(who_is_told_may_go_and_take_others_along),
		TEST(policys_program_is_shared_by_what_it_is),
		TEST(rotated_token_is_on_disk_before_what_came_with_it_is_told),
		TEST(rotated_token_is_not_put_over_one_that_was_set_since),
		TEST(refused_refresh_token_is_not_tried_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
