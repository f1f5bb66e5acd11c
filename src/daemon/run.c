/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "daemon/event_stream.h"
#include "daemon/exec.h"
#include "daemon/request.h"
#include "daemon/sandbox.h"

struct run {
	struct node *node;
	struct http_exchange *x; /* NULL: nobody listens (any more) */
	struct run_request request;
	struct sandbox *sb;
	struct exec *exec;
	uv_timer_t timer; /* the task's lifetime */
	bool keep_later;  /* the record is to be kept once a client that detaches has been told */
	bool timed_out;
	struct exec_result result; /* how the task ended */
};

static void on_timer_closed(uv_handle_t *h)
{
	struct run *run = h->data;
	run_request_done(&run->request);
	free(run);
}

static void run_free(struct run *run)
{
	uv_close((uv_handle_t *)&run->timer, on_timer_closed);
}

static unsigned status_of(int code)
{
	switch (code) {
	case EINVAL:
		return 400;
	case ENOENT:
		return 404;
	case EEXIST:
		return 409;
	case EAGAIN:
		return 429;
	case ENOSPC:
		return 507;
	default:
		return 500;
	}
}

/* Tells the client how it ended and why, in whichever form he waits for. */
static void answer(struct run *run, const char *code, const char *message)
{
	struct http_exchange *x = take_ptr(run->x);
	if (!x)
		return;
	if (run->request.detach)
		http_exchange_reply_error(x, str_eq(code, "invalid_argument") ? 400 : 502, "%s",
					  message ? message : "the task ended without a start");
	else
		event_stream_end(x, code, message);
}

static void on_gone(void *user, const struct err *why)
{
	struct run *run = user;
	if (run->timed_out)
		answer(run, "deadline_exceeded", "the task's time ran out");
	else if (run->result.ended)
		answer(run, NULL, NULL);
	else if (run->result.code[0] && !why)
		answer(run, run->result.code, run->result.message);
	else
		answer(run, "unavailable", why ? why->text : "the sandbox was removed");
	run_free(run);
}

static void on_started(void *user, uint64_t pid)
{
	struct run *run = user;
	if (!run->request.detach || !run->x)
		return;
	auto_json json_t *j = json_pack("{s:s, s:s, s:I}", "sandboxID", sandbox_id(run->sb), "name",
					sandbox_name(run->sb), "pid", (json_int_t)pid);
	auto_free char *text = j ? doc_to_text(j) : NULL;
	if (!text)
		return;
	http_exchange_reply(take_ptr(run->x), 201, "application/json", text, strlen(text));
	if (run->keep_later)
		sandbox_keep(run->sb);
}

static const struct http_exchange_ops waiting_ops;

static void on_ended(void *user, const struct exec_result *result)
{
	struct run *run = user;
	struct err e;
	run->exec = NULL;
	run->result = *result;
	if (run->x)
		http_exchange_on(run->x, &waiting_ops, run);
	if (run->timed_out)
		sandbox_set_exit_code(run->sb, 124);
	else if (result->ended)
		sandbox_set_exit_code(run->sb, result->exit_code);
	if (!result->ended && !run->timed_out) {
		err_set(&e, EIO, "%s", result->message);
		/* What was wrong with the request is the client's to hear, not the sandbox's
		 * failure. */
		sandbox_stop(run->sb, str_eq(result->code, "unavailable") ? &e : NULL);
	} else {
		sandbox_stop(run->sb, NULL);
	}
}

static void on_client_gone(void *user)
{
	struct run *run = user;
	run->x = NULL;
	sandbox_stop(run->sb, NULL);
}

static const struct exec_ops exec_ops = {
	.started = on_started,
	.ended = on_ended,
	.client_gone = on_client_gone,
};

static void on_timeout(uv_timer_t *t)
{
	struct run *run = t->data;
	run->timed_out = true;
	sandbox_stop(run->sb, NULL);
}

static void on_ready(void *user)
{
	struct run *run = user;
	const struct exec_request q = {
		.start = run->request.start,
		.linux_user = run->request.user,
		.x = run->request.detach ? NULL : run->x,
		.own_stream = true,
		.task = true,
	};
	struct err e;
	run->exec = exec_start(run->sb, &q, &exec_ops, run, &e);
	if (!run->exec)
		sandbox_stop(run->sb, &e);
	else if (run->request.timeout_ms)
		uv_timer_start(&run->timer, on_timeout, run->request.timeout_ms, 0);
}

static const struct sandbox_ops sandbox_ops = {.ready = on_ready, .gone = on_gone};

static void ignore_body(void *user, const uint8_t *p, size_t n)
{
	(void)user;
	(void)p;
	(void)n;
}

static void ignore(void *user)
{
	(void)user;
}

/* Before the task starts and after it has ended; exec has its own. */
static const struct http_exchange_ops waiting_ops = {
	.body = ignore_body,
	.body_end = ignore,
	.drained = ignore,
	.gone = on_client_gone,
};

static int open_stream(struct run *run)
{
	int r = event_stream_open(run->x);
	if (r == 0)
		event_stream_send(run->x,
				  json_pack("{s:{s:{s:s, s:s}}}", "event", "sandbox", "sandboxID",
					    sandbox_id(run->sb), "name", sandbox_name(run->sb)));
	return r;
}

void run_serve(struct node *n, struct http_exchange *x, const char *body, size_t len)
{
	struct run *run = calloc(1, sizeof(*run));
	struct err e;
	if (!run) {
		http_exchange_reply_error(x, 500, "no memory");
		return;
	}
	run->node = n;
	uv_timer_init(n->loop, &run->timer);
	run->timer.data = run;
	int r = run_request_parse(body, len, &run->request, &e);
	if (r == 0 && run->request.detach) {
		run->keep_later = run->request.spec.keep;
		run->request.spec.keep = false;
	}
	if (r == 0)
		r = sandbox_create(n, &run->request.spec, &sandbox_ops, run, &run->sb, &e);
	if (r < 0) {
		http_exchange_reply_error(x, status_of(e.code), "%s", e.text);
		run_free(run);
		return;
	}
	run->x = x;
	http_exchange_on(x, &waiting_ops, run);
	if (!run->request.detach && open_stream(run) < 0)
		sandbox_stop(run->sb, NULL);
}
