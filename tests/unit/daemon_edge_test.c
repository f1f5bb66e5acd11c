/* SPDX-License-Identifier: Apache-2.0 */
/* Between a client and a sandbox's agent: what passes, what is on record, what happens when either
 * end is slow, lies or leaves. The sandbox is a stand-in: its agent is a peer that the test plays.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <uv.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "daemon/edge.h"
#include "daemon/event_stream.h"
#include "daemon/grants.h"
#include "daemon/sandbox.h"
#include "http/envelope.h"
#include "http_peer.h"

#define BULK       (8u << 20) /* bytes; more than all buffers on the way hold */
#define HEADERS    "Host: s\r\nE2b-Sandbox-Id: i1\r\nE2b-Sandbox-Port: 49983\r\n"
#define START_BODY "{\"process\":{\"cmd\":\"ls\",\"args\":[\"-l\"]}}"

struct sandbox {
	struct node *node;
	enum sandbox_state state;
	struct list links;
	struct peer agent;
	unsigned connections; /* made to the agent */
	bool stopped;
	bool secretive; /* can't be resumed by a call */
	struct list starters;
	unsigned resumes;
};

struct fixture {
	uv_loop_t loop;
	char dir[32];
	struct node node;
	struct sandbox sb;
	struct peer client;
	struct http_conn *conn; /* NULL when over */
};

/* -- the sandbox -- */

static struct sandbox *the_sandbox;

struct sandbox *sandbox_find_id(struct node *n, const char *id)
{
	(void)n;
	return str_eq(id, "i1") ? the_sandbox : NULL;
}

struct node *sandbox_node(const struct sandbox *sb)
{
	return sb->node;
}

const char *sandbox_id(const struct sandbox *sb)
{
	(void)sb;
	return "i1";
}

enum sandbox_state sandbox_state(const struct sandbox *sb)
{
	return sb->state;
}

struct tasklog *sandbox_log(const struct sandbox *sb)
{
	(void)sb;
	return NULL;
}

const char *sandbox_token(const struct sandbox *sb)
{
	(void)sb;
	return "our-token";
}

struct stream *sandbox_connect(struct sandbox *sb, uint16_t port, const struct stream_ops *ops,
			       void *user, struct err *e)
{
	int fd[2];
	(void)port;
	make_pair(fd);
	peer_done(&sb->agent);
	peer_open(&sb->agent, sb->node->loop, fd[1]);
	sb->connections++;
	return stream_adopt(sb->node->loop, fd[0], ops, user, e);
}

void sandbox_attach(struct sandbox *sb, struct sandbox_link *l)
{
	list_append(&sb->links, &l->link);
}

void sandbox_detach(struct sandbox_link *l)
{
	list_remove(&l->link);
}

int grants_set_variables(const struct sandbox *sb, json_t *start, struct err *e)
{
	(void)sb, (void)start, (void)e;
	return 0;
}

void sandbox_touch(struct sandbox *sb)
{
	(void)sb;
}

const char *sandbox_name(const struct sandbox *sb)
{
	(void)sb;
	return "w";
}

bool sandbox_waits(const struct sandbox *sb)
{
	return sb->state == SANDBOX_PAUSED || sb->state == SANDBOX_BOOTING ||
	       sb->state == SANDBOX_PAUSING;
}

int sandbox_resume(struct sandbox *sb, json_t *secrets, bool without_secrets,
		   struct sandbox_starter *s, struct err *e)
{
	assert_null(secrets);
	assert_false(without_secrets);
	assert_int_equal(sb->state, SANDBOX_PAUSED);
	if (sb->secretive)
		return err_set(e, EINVAL, "give its secrets again");
	sb->resumes++;
	sb->state = SANDBOX_BOOTING;
	list_append(&sb->starters, &s->link);
	return 0;
}

void sandbox_await(struct sandbox *sb, struct sandbox_starter *s)
{
	list_append(&sb->starters, &s->link);
}

void sandbox_await_not(struct sandbox_starter *s)
{
	list_remove(&s->link);
}

static void tell(struct sandbox *sb, const struct err *why)
{
	struct list starters;
	list_init(&starters);
	list_move_all(&starters, &sb->starters);
	while (!list_empty(&starters)) {
		struct sandbox_starter *s = list_entry(starters.next, struct sandbox_starter, link);
		list_remove(&s->link);
		s->done(s->user, why);
	}
}

/* The end of a start or a resume. */
static void resumed(struct sandbox *sb, const struct err *why)
{
	sb->state = why ? SANDBOX_PAUSED : SANDBOX_RUNNING;
	tell(sb, why);
}

int sandbox_record(struct sandbox *sb, const char *kind, json_t *members)
{
	int r = audit_write(sb->node->audit, "i1", kind, members, NULL);
	if (r < 0)
		sb->stopped = true;
	return r;
}

static void stop(struct sandbox *sb)
{
	sb->state = SANDBOX_STOPPING;
	while (!list_empty(&sb->links)) {
		struct sandbox_link *l = list_entry(sb->links.next, struct sandbox_link, link);
		list_remove(&l->link);
		l->cut(l->user);
	}
}

/* -- the rest of spaced -- */

static void on_request(void *user, struct http_exchange *x)
{
	struct fixture *f = user;
	assert_true(edge_wants(http_exchange_head(x)));
	edge_serve(&f->node, x);
}

static void on_over(void *user)
{
	struct fixture *f = user;
	f->conn = NULL;
}

static const struct http_server_ops server_ops = {.request = on_request, .closed = on_over};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct err e;
	int fd[2];
	uv_loop_init(&f->loop);
	strcpy(f->dir, "/tmp/space-edge-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	f->node.loop = &f->loop;
	f->node.audit = audit_open(f->dir, &e);
	assert_non_null(f->node.audit);
	f->sb.node = &f->node;
	f->sb.state = SANDBOX_RUNNING;
	list_init(&f->sb.links);
	list_init(&f->sb.starters);
	the_sandbox = &f->sb;
	make_pair(fd);
	f->conn = http_serve(stream_adopt(&f->loop, fd[0], NULL, NULL, NULL), NULL, 0, NULL,
			     &server_ops, f);
	assert_non_null(f->conn);
	peer_open(&f->client, &f->loop, fd[1]);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	if (f->conn)
		http_conn_close(f->conn);
	assert_true(list_empty(&f->sb.links)); /* nothing hangs on a sandbox whose clients left */
	assert_true(list_empty(&f->sb.starters));
	peer_done(&f->client);
	peer_done(&f->sb.agent);
	loop_done(&f->loop);
	audit_close(f->node.audit);
	dir_remove_all(f->dir);
	free(f);
	return 0;
}

/* -- what the ends say -- */

/* An envelope in a chunk, as both ends send them. */
static void say_envelope(struct peer *p, enum envelope_flag flag, const char *text)
{
	struct buf b;
	char size[16];
	buf_init(&b, EVENT_MAX * 2);
	assert_int_equal(envelope_write(&b, flag, text, strlen(text)), 0);
	snprintf(size, sizeof(size), "%zx\r\n", b.len);
	peer_say(p, size);
	assert_true(stream_write(p->s, b.data, b.len) >= 0);
	peer_say(p, "\r\n");
	buf_done(&b);
}

static void say_start(struct fixture *f, const char *target)
{
	peer_say(&f->client, "POST ");
	peer_say(&f->client, target);
	peer_say(&f->client, " HTTP/1.1\r\n" HEADERS "Transfer-Encoding: chunked\r\n\r\n");
	say_envelope(&f->client, ENVELOPE_MESSAGE, START_BODY);
	peer_say(&f->client, "0\r\n\r\n");
}

static bool has_agent(const struct fixture *f)
{
	return f->sb.connections > 0;
}

/* Turns the loop until the agent has been called and has heard text. */
static void await_agent(struct fixture *f, const char *text)
{
	for (int i = 0; i < 100 && !has_agent(f); i++)
		uv_run(&f->loop, UV_RUN_ONCE);
	assert_true(has_agent(f));
	peer_await(&f->sb.agent, &f->loop, text);
}

static void agent_answers(struct fixture *f)
{
	peer_say(
		&f->sb.agent,
		"HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\n"
		"Set-Cookie: c=1\r\nLocation: http://elsewhere/\r\nTransfer-Encoding: chunked\r\n\r\n");
}

/* A process that runs: started by the client, on record. */
static void start_process(struct fixture *f)
{
	say_start(f, "/process.Process/Start");
	await_agent(f, START_BODY);
	agent_answers(f);
	say_envelope(&f->sb.agent, ENVELOPE_MESSAGE, "{\"event\":{\"start\":{\"pid\":7}}}");
	peer_await(&f->client, &f->loop, "\"pid\":7");
}

static bool on_record(const struct fixture *f, const char *text)
{
	char path[64], *log;
	size_t n;
	snprintf(path, sizeof(path), "%s/audit.jsonl", f->dir);
	assert_int_equal(file_read(path, 1 << 20, &log, &n), 0);
	bool found = strstr(log, text) != NULL;
	free(log);
	return found;
}

/* -- tests -- */

static void other_names_of_a_path_reach_no_agent(void **state)
{
	struct fixture *f = *state;
	static const char *const targets[] = {"http://s/process.Process/Start",
					      "http://s/init",
					      "http://s/files?path=/x",
					      "/init",
					      "/init?x",
					      "/hold",
					      "/release",
					      "*"};
	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
		char text[256];
		snprintf(text, sizeof(text), "%s %s HTTP/1.1\r\n" HEADERS "\r\n",
			 *targets[i] == '*' ? "OPTIONS" : "POST", targets[i]);
		peer_forget(&f->client);
		peer_say(&f->client, text);
		peer_await(&f->client, &f->loop, "}");
		assert_true(str_starts(peer_heard(&f->client), "HTTP/1.1 40"));
		assert_false(has_agent(f));
	}
}

static void start_is_on_record_however_it_is_asked_for(void **state)
{
	struct fixture *f = *state;
	say_start(f, "/process.Process/Start?x=1");
	await_agent(f, START_BODY);
	assert_true(on_record(f, "\"kind\":\"exec.start\",\"argv\":[\"ls\",\"-l\"]"));
}

static void process_is_told_and_recorded_from_start_to_end(void **state)
{
	struct fixture *f = *state;
	start_process(f);
	say_envelope(&f->sb.agent, ENVELOPE_MESSAGE,
		     "{\"event\":{\"data\":{\"stdout\":\"YQ==\"}}}");
	say_envelope(&f->sb.agent, ENVELOPE_MESSAGE, "{\"event\":{\"end\":{\"exitCode\":3}}}");
	say_envelope(&f->sb.agent, ENVELOPE_END, "{}");
	peer_await(&f->client, &f->loop, "0\r\n\r\n");
	assert_true(on_record(f, "\"kind\":\"exec.running\",\"pid\":7"));
	assert_true(on_record(f, "\"kind\":\"exec.end\",\"pid\":7,\"exit_code\":3,\"error\":\"\""));
	assert_true(list_empty(&f->sb.links));
}

static void file_transfers_are_on_record(void **state)
{
	struct fixture *f = *state;
	peer_say(&f->client, "GET /files?path=%2Fetc%2Fx HTTP/1.1\r\n" HEADERS "\r\n");
	await_agent(f, "GET /files?path=%2Fetc%2Fx HTTP/1.1");
	assert_true(on_record(f, "\"kind\":\"file.get\",\"path\":\"/etc/x\""));
}

static void agent_hears_our_token_and_client_only_fields_that_he_may(void **state)
{
	struct fixture *f = *state;
	peer_say(&f->client, "GET /files?path=/x HTTP/1.1\r\n" HEADERS
			     "X-Access-Token: theirs\r\nCookie: c\r\nRange: bytes=0-1\r\n\r\n");
	await_agent(f, "\r\n\r\n");
	assert_true(peer_has(&f->sb.agent, "X-Access-Token: our-token\r\n"));
	assert_true(peer_has(&f->sb.agent, "Range: bytes=0-1\r\n"));
	assert_false(peer_has(&f->sb.agent, "theirs"));
	assert_false(peer_has(&f->sb.agent, "Cookie"));
	agent_answers(f);
	peer_say(&f->sb.agent, "0\r\n\r\n");
	peer_await(&f->client, &f->loop, "0\r\n\r\n");
	assert_true(peer_has(&f->client, "Content-Type: application/connect+json"));
	assert_false(peer_has(&f->client, "Set-Cookie"));
	assert_false(peer_has(&f->client, "Location"));
}

static void nothing_is_done_that_can_not_be_recorded(void **state)
{
	struct fixture *f = *state;
	struct rlimit old, none;
	getrlimit(RLIMIT_FSIZE, &old);
	none = (struct rlimit){0, old.rlim_max};
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &none);
	say_start(f, "/process.Process/Start");
	peer_await(&f->client, &f->loop, "audit log");
	peer_say(&f->client, "GET /files?path=/x HTTP/1.1\r\n" HEADERS "\r\n");
	peer_await(&f->client, &f->loop, "HTTP/1.1 503 ");
	setrlimit(RLIMIT_FSIZE, &old);
	assert_false(has_agent(f));
	assert_true(f->sb.stopped);
}

static void agents_lies_end_as_unavailable(void **state)
{
	struct fixture *f = *state;
	start_process(f);
	peer_say(&f->sb.agent, "5\r\n\x01\xff\xff\xff\xff\r\n");
	peer_await(&f->client, &f->loop, "\"unavailable\"");
	peer_await(&f->client, &f->loop, "0\r\n\r\n");
	assert_true(on_record(f, "\"exit_code\":-1,\"error\":\"unavailable\""));
}

static void agent_that_leaves_early_ends_as_unavailable(void **state)
{
	struct fixture *f = *state;
	start_process(f);
	peer_done(&f->sb.agent);
	peer_await(&f->client, &f->loop, "\"unavailable\"");
	assert_true(on_record(f, "\"exit_code\":-1,\"error\":\"unavailable\""));
}

static void agents_refusal_is_no_stream(void **state)
{
	struct fixture *f = *state;
	say_start(f, "/process.Process/Start");
	await_agent(f, START_BODY);
	peer_say(&f->sb.agent, "HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n");
	peer_await(&f->client, &f->loop, "status 401");
	assert_true(str_starts(peer_heard(&f->client), "HTTP/1.1 502 "));
}

static void client_that_leaves_takes_his_connection_to_the_agent_along(void **state)
{
	struct fixture *f = *state;
	start_process(f);
	peer_done(&f->client);
	wait_for(&f->loop, &f->sb.agent.over);
	assert_true(list_empty(&f->sb.links));
}

static void client_that_leaves_while_he_asks_leaves_nothing(void **state)
{
	struct fixture *f = *state;
	peer_say(&f->client, "POST /process.Process/Start HTTP/1.1\r\n" HEADERS
			     "Content-Length: 1000\r\n\r\npart");
	spin(&f->loop, 5);
	peer_done(&f->client);
	while (f->conn)
		uv_run(&f->loop, UV_RUN_ONCE);
	assert_false(has_agent(f));
}

static void sandbox_that_stops_breaks_streams_off(void **state)
{
	struct fixture *f = *state;
	start_process(f);
	stop(&f->sb);
	wait_for(&f->loop, &f->client.over);
	assert_false(peer_has(&f->client, "0\r\n\r\n"));
	assert_true(on_record(f, "\"error\":\"unavailable\""));
}

static void sandbox_that_stops_answers_those_who_wait(void **state)
{
	struct fixture *f = *state;
	peer_say(&f->client, "GET /files?path=/x HTTP/1.1\r\n" HEADERS "\r\n");
	await_agent(f, "\r\n\r\n");
	stop(&f->sb);
	peer_await(&f->client, &f->loop, "the sandbox was stopped");
	assert_true(str_starts(peer_heard(&f->client), "HTTP/1.1 502 "));
}

static void sandbox_that_stops_while_a_start_is_asked_for_says_so(void **state)
{
	struct fixture *f = *state;
	peer_say(&f->client,
		 "POST /process.Process/Start HTTP/1.1\r\n" HEADERS "Content-Length: 4\r\n\r\npa");
	spin(&f->loop, 5);
	stop(&f->sb);
	peer_say(&f->client, "rt");
	peer_await(&f->client, &f->loop, "the sandbox was stopped");
	assert_false(has_agent(f));
}

/* Turns the loop until a slow reader has stopped the writer. */
static void settle(struct fixture *f, const struct peer *writer)
{
	size_t before;
	do {
		before = stream_queued(writer->s);
		spin(&f->loop, 50);
	} while (stream_queued(writer->s) != before);
}

static void slow_client_stops_the_process_and_gets_all(void **state)
{
	struct fixture *f = *state;
	auto_free char *event =
		str_printf("{\"event\":{\"data\":{\"stdout\":\"%0*d\"}}}", EVENT_MAX / 4, 0);
	start_process(f);
	stream_read(f->client.s, false);
	for (unsigned i = 0; i < BULK / (EVENT_MAX / 4); i++)
		say_envelope(&f->sb.agent, ENVELOPE_MESSAGE, event);
	settle(f, &f->sb.agent);
	assert_true(stream_queued(f->sb.agent.s) > BULK / 2);
	stream_read(f->client.s, true);
	say_envelope(&f->sb.agent, ENVELOPE_MESSAGE, "{\"event\":{\"end\":{\"exitCode\":0}}}");
	say_envelope(&f->sb.agent, ENVELOPE_END, "{}");
	peer_await(&f->client, &f->loop, "0\r\n\r\n");
	assert_true(f->client.heard.len > BULK);
}

static void slow_agent_stops_the_upload_and_gets_all(void **state)
{
	struct fixture *f = *state;
	char *data = malloc(BULK);
	memset(data, 'A', BULK);
	memcpy(data + BULK - 4, "last", 4);
	char head[256];
	snprintf(head, sizeof(head),
		 "POST /files?path=/x HTTP/1.1\r\n" HEADERS "Content-Length: %u\r\n\r\n", BULK);
	peer_say(&f->client, head);
	await_agent(f, "\r\n\r\n");
	stream_read(f->sb.agent.s, false);
	assert_true(stream_write(f->client.s, data, BULK) >= 0);
	settle(f, &f->client);
	assert_true(stream_queued(f->client.s) > BULK / 2);
	stream_read(f->sb.agent.s, true);
	peer_await(&f->sb.agent, &f->loop, "last");
	peer_say(&f->sb.agent, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	peer_await(&f->client, &f->loop, "HTTP/1.1 200 ");
	free(data);
}

/* -- a sandbox that is paused -- */

static void await_resume(struct fixture *f)
{
	for (int i = 0; i < 100 && !f->sb.resumes; i++)
		uv_run(&f->loop, UV_RUN_ONCE);
	assert_int_equal(f->sb.resumes, 1);
	assert_false(has_agent(f));
}

static void start_wakes_a_paused_sandbox_and_is_served_then(void **state)
{
	struct fixture *f = *state;
	f->sb.state = SANDBOX_PAUSED;
	say_start(f, "/process.Process/Start");
	await_resume(f);
	resumed(&f->sb, NULL);
	await_agent(f, START_BODY);
}

static void call_wakes_a_paused_sandbox_and_is_served_then(void **state)
{
	struct fixture *f = *state;
	f->sb.state = SANDBOX_PAUSED;
	peer_say(&f->client, "GET /files?path=/x HTTP/1.1\r\n" HEADERS "\r\n");
	await_resume(f);
	assert_false(on_record(f, "file.get"));
	resumed(&f->sb, NULL);
	await_agent(f, "GET /files?path=/x HTTP/1.1");
	assert_true(on_record(f, "\"kind\":\"file.get\",\"path\":\"/x\""));
}

static void call_and_wait(struct fixture *f, enum sandbox_state while_it_is)
{
	f->sb.state = while_it_is;
	peer_say(&f->client, "GET /files?path=/x HTTP/1.1\r\n" HEADERS "\r\n");
	for (int i = 0; i < 100 && list_empty(&f->sb.starters); i++)
		uv_run(&f->loop, UV_RUN_ONCE);
	assert_int_equal(f->sb.resumes, 0);
	assert_false(has_agent(f));
}

static void call_waits_for_a_start_that_is_under_way(void **state)
{
	struct fixture *f = *state;
	call_and_wait(f, SANDBOX_BOOTING);
	resumed(&f->sb, NULL);
	await_agent(f, "GET /files?path=/x HTTP/1.1");
}

static void call_while_it_is_being_paused_wakes_it_afterwards(void **state)
{
	struct fixture *f = *state;
	call_and_wait(f, SANDBOX_PAUSING);
	f->sb.state = SANDBOX_PAUSED;
	tell(&f->sb, NULL);
	await_resume(f);
	resumed(&f->sb, NULL);
	await_agent(f, "GET /files?path=/x HTTP/1.1");
}

static void call_while_it_is_being_paused_is_served_when_that_fails(void **state)
{
	struct fixture *f = *state;
	call_and_wait(f, SANDBOX_PAUSING);
	resumed(&f->sb, NULL);
	await_agent(f, "GET /files?path=/x HTTP/1.1");
	assert_int_equal(f->sb.resumes, 0);
}

static void paused_sandbox_with_secrets_says_how_to_resume_it(void **state)
{
	struct fixture *f = *state;
	f->sb.state = SANDBOX_PAUSED;
	f->sb.secretive = true;
	peer_say(&f->client, "GET /files?path=/x HTTP/1.1\r\n" HEADERS "\r\n");
	peer_await(&f->client, &f->loop, "}");
	assert_true(str_starts(peer_heard(&f->client), "HTTP/1.1 409 "));
	assert_true(peer_has(&f->client, "space resume w"));
	assert_false(has_agent(f));
}

static void resume_that_fails_is_told(void **state)
{
	struct fixture *f = *state;
	struct err e;
	f->sb.state = SANDBOX_PAUSED;
	say_start(f, "/process.Process/Start");
	await_resume(f);
	err_set(&e, EBADMSG, "memory is damaged");
	resumed(&f->sb, &e);
	peer_await(&f->client, &f->loop, "memory is damaged");
	assert_true(str_starts(peer_heard(&f->client), "HTTP/1.1 502 "));
	assert_false(has_agent(f));
}

static void client_that_leaves_while_it_wakes_leaves_nothing(void **state)
{
	struct fixture *f = *state;
	f->sb.state = SANDBOX_PAUSED;
	say_start(f, "/process.Process/Start");
	await_resume(f);
	peer_done(&f->client);
	for (int i = 0; i < 100 && f->conn; i++)
		uv_run(&f->loop, UV_RUN_ONCE);
	assert_null(f->conn);
	assert_true(list_empty(&f->sb.starters));
}

static void paused_sandbox_does_not_wake_for_what_is_refused(void **state)
{
	struct fixture *f = *state;
	f->sb.state = SANDBOX_PAUSED;
	peer_say(&f->client, "POST /hold HTTP/1.1\r\n" HEADERS "\r\n");
	peer_await(&f->client, &f->loop, "}");
	assert_true(str_starts(peer_heard(&f->client), "HTTP/1.1 404 "));
	assert_int_equal(f->sb.resumes, 0);
}

#define IN_SANDBOX(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_SANDBOX(other_names_of_a_path_reach_no_agent),
		IN_SANDBOX(start_is_on_record_however_it_is_asked_for),
		IN_SANDBOX(process_is_told_and_recorded_from_start_to_end),
		IN_SANDBOX(file_transfers_are_on_record),
		IN_SANDBOX(agent_hears_our_token_and_client_only_fields_that_he_may),
		IN_SANDBOX(nothing_is_done_that_can_not_be_recorded),
		IN_SANDBOX(agents_lies_end_as_unavailable),
		IN_SANDBOX(agent_that_leaves_early_ends_as_unavailable),
		IN_SANDBOX(agents_refusal_is_no_stream),
		IN_SANDBOX(client_that_leaves_takes_his_connection_to_the_agent_along),
		IN_SANDBOX(client_that_leaves_while_he_asks_leaves_nothing),
		IN_SANDBOX(sandbox_that_stops_breaks_streams_off),
		IN_SANDBOX(sandbox_that_stops_answers_those_who_wait),
		IN_SANDBOX(sandbox_that_stops_while_a_start_is_asked_for_says_so),
		IN_SANDBOX(slow_client_stops_the_process_and_gets_all),
		IN_SANDBOX(slow_agent_stops_the_upload_and_gets_all),
		IN_SANDBOX(start_wakes_a_paused_sandbox_and_is_served_then),
		IN_SANDBOX(call_wakes_a_paused_sandbox_and_is_served_then),
		IN_SANDBOX(call_waits_for_a_start_that_is_under_way),
		IN_SANDBOX(call_while_it_is_being_paused_wakes_it_afterwards),
		IN_SANDBOX(call_while_it_is_being_paused_is_served_when_that_fails),
		IN_SANDBOX(paused_sandbox_with_secrets_says_how_to_resume_it),
		IN_SANDBOX(resume_that_fails_is_told),
		IN_SANDBOX(client_that_leaves_while_it_wakes_leaves_nothing),
		IN_SANDBOX(paused_sandbox_does_not_wake_for_what_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
