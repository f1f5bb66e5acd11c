/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process.Process/Start: runs a process and streams what it writes. All failures are told inside
 * the stream (HTTP 200), where clients find the message. The client may go away at any time: the
 * process stays.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/agent.h"
#include "agent/event.h"
#include "agent/rpc.h"
#include "agent/start_request.h"
#include "agent/text.h"
#include "base/cleanup.h"
#include "http/envelope.h"

#define START_MESSAGE_MAX   (4 * 1024 * 1024) /* bytes of JSON */
#define TIMEOUT_MAX_MS      9999999999        /* ten digits, as the protocol has it */
#define KEEPALIVE_DEFAULT_S 90
#define KEEPALIVE_MAX_S     3600

struct start {
	struct agent *agent;
	struct http_exchange *x;
	struct process *process;
	uv_timer_t keepalive;
	uint64_t keepalive_ms;
	uint64_t sent_at; /* loop time of the last event */
};

static void on_timer_closed(uv_handle_t *h)
{
	free(h->data);
}

static void start_free(struct start *s)
{
	uv_close((uv_handle_t *)&s->keepalive, on_timer_closed);
}

/* Sends what was put together in the agent's buffer. Returns what is queued now, or -errno. */
static ssize_t send_out(struct start *s)
{
	struct buf *out = &s->agent->out;
	ssize_t r = http_exchange_write(s->x, out->data, out->len);
	buf_consume(out, out->len);
	s->sent_at = uv_now(s->agent->loop);
	return r;
}

/* The stream can't go on: the client sees it broken, the process stays. */
static void give_up(struct start *s)
{
	struct http_exchange *x = s->x;
	buf_consume(&s->agent->out, s->agent->out.len);
	if (s->process)
		process_watch(s->process, NULL, NULL);
	start_free(s);
	http_exchange_abort(x);
}

/* Sends the end of the stream after what is in the buffer. code NULL: success. */
static void finish(struct start *s, const char *code, const char *message)
{
	struct http_exchange *x = s->x;
	s->process = NULL;
	if (event_stream_end(&s->agent->out, code, message) < 0 || send_out(s) < 0) {
		give_up(s);
		return;
	}
	start_free(s);
	http_exchange_end(x);
}

static void fail(struct start *s, enum rpc_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void fail(struct start *s, enum rpc_code code, const char *fmt, ...)
{
	char message[ERR_TEXT_MAX];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	finish(s, rpc_code_name(code), message);
}

static bool on_output(void *user, enum process_output which, const uint8_t *p, size_t n)
{
	struct start *s = user;
	const char *kind = which == PROCESS_STDOUT ? "stdout" : "stderr";
	ssize_t queued = event_data(&s->agent->out, kind, p, n);
	if (queued == 0)
		queued = send_out(s);
	if (queued < 0) {
		give_up(s);
		return true;
	}
	return queued <= STREAM_QUEUE_HIGH;
}

static void on_ended(void *user, int status)
{
	struct start *s = user;
	s->process = NULL;
	if (event_end(&s->agent->out, status) < 0)
		give_up(s);
	else
		finish(s, NULL, NULL);
}

static void on_expired(void *user)
{
	fail(user, RPC_DEADLINE_EXCEEDED, "the process ran into its time limit and was killed");
}

static const struct process_ops watch_ops = {on_output, on_ended, on_expired};

static void on_keepalive(uv_timer_t *timer)
{
	struct start *s = timer->data;
	uint64_t quiet = uv_now(s->agent->loop) - s->sent_at;
	if (quiet < s->keepalive_ms) {
		uv_timer_start(timer, on_keepalive, s->keepalive_ms - quiet, 0);
		return;
	}
	if (event_keepalive(&s->agent->out) < 0 || send_out(s) < 0)
		give_up(s);
	else
		uv_timer_start(timer, on_keepalive, s->keepalive_ms, 0);
}

static void on_drained(void *user)
{
	struct start *s = user;
	if (s->process)
		process_resume(s->process);
}

static void on_gone(void *user)
{
	struct start *s = user;
	if (s->process)
		process_watch(s->process, NULL, NULL);
	start_free(s);
}

static const struct http_exchange_ops exchange_ops = {.drained = on_drained, .gone = on_gone};

/* The user that the request names, or the default one. */
static int find_user(struct start *s, struct user *ret, struct err *e)
{
	const char *value = http_fields_get(&http_exchange_head(s->x)->fields, "authorization");
	auto_free char *name = NULL;
	int r = value ? text_basic_user(value, &name) : 0;
	if (r < 0)
		return err_set(e, -r, "invalid Authorization: want Basic with a user name");
	r = agent_user(s->agent, name, ret);
	if (r == -ENOENT)
		return err_set(e, ENOENT, "invalid username: '%s'",
			       name                      ? name
			       : s->agent->settings.user ? s->agent->settings.user
							 : "root");
	return r < 0 ? err_sys(e, -r, "can't read the users") : 0;
}

static int start_process(struct start *s, const struct start_request *req, const struct user *user,
			 struct err *e)
{
	const struct settings *settings = &s->agent->settings;
	auto_env struct env env = {0};
	auto_free char *cwd = NULL;
	int r = start_environment(req, settings, user, &env, e);
	if (r == 0)
		r = start_directory(req, settings, user, &cwd, e);
	if (r < 0)
		return r;
	const char *path = env_get(&env, "PATH");
	struct spawn_plan plan = {
		.argv = (char *const *)req->argv,
		.envp = env.list,
		.path = path ? path : "",
		.cwd = cwd,
		.user = user,
	};
	return process_start(&s->agent->processes, &plan, req->want_stdin, req->tag, req->process,
			     &s->process, e);
}

static void run(struct start *s, const struct start_request *req)
{
	auto_user struct user user = {0};
	struct err e = {0};
	if (req->want_pty) {
		fail(s, RPC_UNIMPLEMENTED, "PTYs are not implemented");
		return;
	}
	if (find_user(s, &user, &e) < 0) {
		fail(s, RPC_UNAUTHENTICATED, "%s", e.text);
		return;
	}
	int r = start_process(s, req, &user, &e);
	if (r < 0) {
		bool full = r == -EAGAIN || r == -ENOMEM || r == -EMFILE;
		fail(s, full ? RPC_RESOURCE_EXHAUSTED : RPC_INVALID_ARGUMENT, "%s", e.text);
		return;
	}
	process_watch(s->process, &watch_ops, s);
	uint64_t timeout = rpc_number(s->x, "connect-timeout-ms", TIMEOUT_MAX_MS, 0);
	if (timeout)
		process_set_deadline(s->process, timeout);
	if (event_start(&s->agent->out, process_pid(s->process)) < 0 || send_out(s) < 0) {
		give_up(s);
		return;
	}
	uv_timer_start(&s->keepalive, on_keepalive, s->keepalive_ms, 0);
}

/* Exactly one envelope is the body of a server-streaming call. */
static int read_message(const char *body, size_t n, struct start_request *ret, struct err *e)
{
	struct envelope env;
	ssize_t r = envelope_read((const uint8_t *)body, n, START_MESSAGE_MAX, &env);
	if (r < 0 || (size_t)r != n || env.flag != ENVELOPE_MESSAGE)
		return err_set(e, EINVAL, "the body is not exactly one message envelope");
	return start_request_read((const char *)env.payload, env.len, ret, e);
}

static int start_answer(struct http_exchange *x)
{
	struct http_fields fields = {0};
	int r = http_fields_add(&fields, "Content-Type", "application/connect+json");
	if (r == 0)
		r = http_exchange_start(x, 200, &fields, HTTP_CHUNKED, 0);
	http_fields_done(&fields);
	return r;
}

static void on_body(void *user, struct http_exchange *x, const char *body, size_t n)
{
	struct start *s = user;
	struct start_request req;
	struct err e = {0};
	http_exchange_on(x, &exchange_ops, s);
	if (start_answer(x) < 0) {
		give_up(s);
		return;
	}
	int r = read_message(body, n, &req, &e);
	if (r < 0) {
		fail(s, r == -ENOMEM ? RPC_RESOURCE_EXHAUSTED : RPC_INVALID_ARGUMENT, "%s", e.text);
		return;
	}
	run(s, &req);
	start_request_done(&req);
}

void agent_start(struct agent *a, struct http_exchange *x)
{
	if (!rpc_has_type(x, "application/connect+json")) {
		http_exchange_reply_error(x, 415, "Start takes application/connect+json");
		return;
	}
	struct start *s = calloc(1, sizeof(*s));
	if (!s) {
		rpc_fail(x, RPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	s->agent = a;
	s->x = x;
	s->keepalive_ms = 1000 * rpc_number(x, "keepalive-ping-interval", KEEPALIVE_MAX_S,
					    KEEPALIVE_DEFAULT_S);
	uv_timer_init(a->loop, &s->keepalive);
	s->keepalive.data = s;
	http_exchange_collect(x, START_MESSAGE_MAX + ENVELOPE_HEAD, on_body, on_gone, s);
}
