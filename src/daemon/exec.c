/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/exec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/doc.h"
#include "base/str.h"
#include "daemon/event_stream.h"
#include "daemon/guest.h"
#include "http/envelope.h"

#define EVENT_LOOK_MAX   4096 /* bytes; start and end events are shorter, data mostly longer */
#define START_TIMEOUT_MS (60u * 1000)

struct exec {
	struct sandbox *sb;
	struct sandbox_link link;
	struct http_client *agent;
	struct http_exchange *x;
	bool own_stream, task, attached, stream_started, started, paused;
	bool hurry;   /* no more backpressure */
	bool passing; /* the first event is through */
	struct buf in; /* part of an envelope */
	uint64_t pid;
	struct exec_result result;
	const struct exec_ops *ops;
	void *user;
};

static void exec_free(struct exec *ex)
{
	sandbox_detach(&ex->link);
	if (ex->agent)
		http_client_close(ex->agent);
	buf_done(&ex->in);
	free(ex);
}

/* Ends it from our side with what is known. */
static void finish(struct exec *ex)
{
	const struct exec_ops *ops = ex->ops;
	void *user = ex->user;
	const struct exec_result result = ex->result;
	if (result.ended || (result.code[0] && !str_eq(result.code, "paused")))
		sandbox_record(ex->sb, "exec.end",
			       json_pack("{s:I, s:i, s:s}", "pid", (json_int_t)ex->pid, "exit_code",
					 result.ended ? result.exit_code : -1, "error",
					 result.code));
	if (ex->x && !ex->own_stream) {
		struct http_exchange *x = take_ptr(ex->x);
		if (ex->stream_started)
			event_stream_end(x, result.code[0] ? result.code : NULL, result.message);
		else
			http_exchange_reply_error(x, 502, "%s", result.message);
	}
	exec_free(ex);
	ops->ended(user, &result);
}

/* Both may be the guest's, and as long as it likes; records and answers take whole characters only.
 */
static void set_error(struct exec *ex, const char *code, const char *message)
{
	struct exec_result *r = &ex->result;
	snprintf(r->code, sizeof(r->code), "%s", *code ? code : "unknown");
	snprintf(r->message, sizeof(r->message), "%s", message);
	str_drop_partial(r->code);
	str_drop_partial(r->message);
}

static void fail(struct exec *ex, const char *code, const char *message)
{
	if (!ex->result.code[0])
		set_error(ex, code, message);
	finish(ex);
}

static void look_at_end(struct exec *ex, const json_t *end)
{
	json_t *code = json_object_get(end, "exitCode"), *signal = json_object_get(end, "signal");
	json_int_t exit_code = json_is_integer(code) ? json_integer_value(code) : 0;
	json_int_t number = json_is_integer(signal) ? json_integer_value(signal) : 0;
	ex->result.ended = true;
	if (number > 0 && number < 128)
		ex->result.exit_code = 128 + (int)number;
	else
		ex->result.exit_code = exit_code >= 0 && exit_code <= 255 ? (int)exit_code : 255;
}

/* Notices start and end; everything else is only passed on. */
static void look(struct exec *ex, const struct envelope *env)
{
	if (env->len > EVENT_LOOK_MAX)
		return;
	auto_json json_t *j = doc_parse_json((const char *)env->payload, env->len, NULL);
	const json_t *event = json_object_get(j, "event");
	const json_t *start = json_object_get(event, "start");
	const json_t *end = json_object_get(event, "end");
	uint64_t pid = 0;
	if (start && !ex->started && doc_want_uint(start, "pid", 1, UINT32_MAX, &pid, NULL) == 0) {
		ex->started = true;
		ex->pid = pid;
		sandbox_record(ex->sb, ex->attached ? "exec.attached" : "exec.running",
			       json_pack("{s:I}", "pid", (json_int_t)pid));
		ex->ops->started(ex->user, pid);
	} else if (end && !ex->result.ended) {
		look_at_end(ex, end);
	}
}

static void look_at_stream_end(struct exec *ex, const struct envelope *env)
{
	auto_json json_t *j = doc_parse_json((const char *)env->payload, env->len, NULL);
	const json_t *error = json_object_get(j, "error");
	const char *code = NULL, *message = "";
	if (error && doc_want_string(error, "code", &code, NULL) == 0) {
		doc_opt_string(error, "message", &message, NULL);
		set_error(ex, code, message);
	} else if (!ex->result.ended) {
		set_error(ex, "unavailable", "the agent gave no result for the process");
	}
}

static void pass_on(struct exec *ex, const uint8_t *envelope, size_t n, const struct envelope *env)
{
	bool first = !ex->passing;
	ex->passing = true;
	sandbox_touch(ex->sb);
	/* A task that goes on after a pause has told its start before. */
	if (ex->attached && first && !tasklog_is_empty(sandbox_log(ex->sb)))
		return;
	if (ex->task)
		tasklog_append(sandbox_log(ex->sb), env->payload, env->len);
	if (!ex->x)
		return;
	if (http_exchange_write(ex->x, envelope, n) > STREAM_QUEUE_HIGH && !ex->paused &&
	    !ex->hurry) {
		ex->paused = true;
		http_client_read(ex->agent, false);
	}
}

static void on_agent_body(void *user, const uint8_t *p, size_t n)
{
	struct exec *ex = user;
	if (buf_append(&ex->in, p, n) < 0) {
		fail(ex, "unavailable", "the agent's stream can't be read");
		return;
	}
	for (;;) {
		struct envelope env;
		ssize_t used = envelope_read(ex->in.data, ex->in.len, EVENT_MAX, &env);
		if (used == -EAGAIN)
			return;
		if (used < 0) {
			fail(ex, "unavailable", "the agent's stream can't be read");
			return;
		}
		if (env.flag == ENVELOPE_END) {
			look_at_stream_end(ex, &env);
			finish(ex);
			return;
		}
		look(ex, &env);
		pass_on(ex, ex->in.data, (size_t)used, &env);
		buf_consume(&ex->in, (size_t)used);
	}
}

static void on_agent_head(void *user, const struct http_head *head)
{
	struct exec *ex = user;
	if (head->status != 200) {
		char text[64];
		snprintf(text, sizeof(text), "the agent answered with status %u", head->status);
		fail(ex, "unavailable", text);
		return;
	}
	if (!ex->x || ex->own_stream)
		return;
	ex->stream_started = event_stream_open(ex->x) == 0;
	if (!ex->stream_started)
		fail(ex, "internal", "no memory");
}

static void on_agent_end(void *user)
{
	fail(user, "unavailable", "the agent's stream ended early");
}

static void on_agent_drained(void *user)
{
	(void)user;
}

static void on_agent_failed(void *user, const struct err *why)
{
	struct exec *ex = user;
	ex->agent = NULL;
	fail(ex, "unavailable", why->text);
}

static const struct http_call_ops agent_ops = {
	.head = on_agent_head,
	.body = on_agent_body,
	.end = on_agent_end,
	.drained = on_agent_drained,
	.failed = on_agent_failed,
};

static void on_client_body(void *user, const uint8_t *p, size_t n)
{
	(void)user;
	(void)p;
	(void)n;
}

static void on_client_body_end(void *user)
{
	(void)user;
}

static void on_client_drained(void *user)
{
	struct exec *ex = user;
	if (!ex->paused)
		return;
	ex->paused = false;
	http_client_read(ex->agent, true);
}

static void on_client_gone(void *user)
{
	struct exec *ex = user;
	ex->x = NULL;
	if (ex->paused)
		http_client_read(ex->agent, true);
	ex->paused = false;
	ex->ops->client_gone(ex->user);
}

static const struct http_exchange_ops client_ops = {
	.body = on_client_body,
	.body_end = on_client_body_end,
	.drained = on_client_drained,
	.gone = on_client_gone,
};

void exec_cancel(struct exec *ex)
{
	exec_free(ex);
}

/* The sandbox stops. Streams of others are broken off, not ended, as E2B's clients expect it. */
static void on_cut(void *user)
{
	struct exec *ex = user;
	if (ex->x && ex->stream_started)
		http_exchange_abort(take_ptr(ex->x));
	if (sandbox_state(ex->sb) == SANDBOX_PAUSED)
		fail(ex, "paused", "the sandbox was paused");
	else
		fail(ex, "unavailable", "the sandbox was stopped");
}

static int call_agent(struct exec *ex, const struct exec_request *q)
{
	auto_json json_t *attach =
		json_pack("{s:{s:I}}", "process", "pid", (json_int_t)q->attach_pid);
	auto_free char *text = doc_to_text(q->start ? q->start : attach);
	struct buf body;
	struct http_head h = {0};
	buf_init(&body, EXEC_REQUEST_MAX + ENVELOPE_HEAD);
	int r = text ? envelope_write(&body, ENVELOPE_MESSAGE, text, strlen(text)) : -ENOMEM;
	const struct guest_request head = {
		.method = "POST",
		.target = q->start ? "/process.Process/Start" : "/process.Process/Connect",
		.content_type = "application/connect+json",
		.token = sandbox_token(ex->sb),
		.linux_user = q->linux_user,
	};
	if (r == 0)
		r = guest_head(&head, &h);
	if (r == 0 && q->timeout_ms)
		r = http_fields_add(&h.fields, "Connect-Timeout-Ms", q->timeout_ms);
	h.framing = HTTP_LENGTH;
	h.length = body.len;
	if (r == 0)
		r = http_client_call(ex->agent, &h, START_TIMEOUT_MS, &agent_ops, ex);
	if (r == 0 && http_client_write(ex->agent, body.data, body.len) < 0)
		r = -ENOMEM;
	if (r == 0)
		r = http_client_finish(ex->agent);
	http_head_done(&h);
	buf_done(&body);
	return r;
}

/* argv as the record shows it: [cmd, args…]; what is no string is left out. */
static json_t *argv_of(const json_t *start)
{
	const json_t *process = json_object_get(start, "process");
	json_t *argv = json_array(), *arg;
	size_t i;
	json_array_append(argv, json_object_get(process, "cmd"));
	json_array_foreach(json_object_get(process, "args"), i, arg) json_array_append(argv, arg);
	return argv;
}

static int record_start(struct sandbox *sb, const struct exec_request *q, struct err *e)
{
	return audit_write(sandbox_node(sb)->audit, sandbox_id(sb), "exec.start",
			   json_pack("{s:o, s:s?, s:b}", "argv", argv_of(q->start), "user",
				     q->linux_user, "task", q->task),
			   e);
}

/* Before a pause: what has come is read to its end, however slow the client is. */
static bool on_pending(void *user)
{
	struct exec *ex = user;
	int waiting = 0;
	ex->hurry = true;
	if (ex->paused) {
		ex->paused = false;
		http_client_read(ex->agent, true);
	}
	return ioctl(stream_fd(http_client_stream(ex->agent)), FIONREAD, &waiting) == 0 &&
	       waiting > 0;
}

struct exec *exec_start(struct sandbox *sb, const struct exec_request *q,
			const struct exec_ops *ops, void *user, struct err *e)
{
	struct exec *ex = calloc(1, sizeof(*ex));
	if (!ex) {
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	*ex = (struct exec){
		.sb = sb,
		.own_stream = q->own_stream,
		.task = q->task,
		.attached = !q->start,
		.ops = ops,
		.user = user,
	};
	buf_init(&ex->in, EVENT_MAX + ENVELOPE_HEAD + (256u << 10));
	list_init(&ex->link.link);
	int r = q->start ? record_start(sb, q, e) : 0;
	if (r == 0)
		ex->agent = guest_connect(sb, e);
	if (r == 0 && ex->agent) {
		r = call_agent(ex, q);
		if (r == 0) {
			ex->link = (struct sandbox_link){
				.cut = on_cut, .pending = on_pending, .user = ex};
			sandbox_attach(sb, &ex->link);
			ex->x = q->x;
			if (ex->x)
				http_exchange_on(ex->x, &client_ops, ex);
			return ex;
		}
		err_sys(e, -r, "can't ask the agent to start a process");
	}
	exec_free(ex);
	return NULL;
}
