/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/event_stream.h"
#include "daemon/exec.h"
#include "daemon/lifecycle.h"
#include "daemon/request.h"
#include "daemon/sandbox.h"
#include "daemon/waiting.h"

#define BUSY_MS 100 /* between attempts to pause one that is being copied */

struct run {
	struct node *node;
	struct http_exchange *x; /* NULL: nobody listens (any more) */
	struct run_request request;
	struct sandbox *sb;
	struct exec *exec;
	uv_timer_t timer; /* the task's lifetime */
	uv_timer_t idle_timer;
	unsigned handles; /* still closing */
	uint64_t left_ms; /* of the lifetime, for after a pause; 0: all of it */
	bool paused_by_time;
	bool keep_later; /* the record is to be kept once a client that detaches is told */
	bool timed_out;
	struct exec_result result; /* how the task ended */
};

static void on_timer_closed(uv_handle_t *h)
{
	struct run *run = h->data;
	if (--run->handles)
		return;
	run_request_done(&run->request);
	free(run);
}

static void run_free(struct run *run)
{
	run->handles = 2;
	uv_close((uv_handle_t *)&run->timer, on_timer_closed);
	uv_close((uv_handle_t *)&run->idle_timer, on_timer_closed);
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
	if (sandbox_task(run->sb)) {
		sandbox_release_hold(run->sb); /* an attachment stands: nothing is lost now */
		return;
	}
	sandbox_set_task(run->sb, pid, run->request.user);
	if (!run->request.detach || !run->x)
		return;
	auto_json json_t *j = json_pack("{s:s, s:s, s:I}", "sandboxID", sandbox_id(run->sb), "name",
					sandbox_name(run->sb), "pid", (json_int_t)pid);
	auto_free char *text = j ? doc_to_text(j) : NULL;
	if (!text)
		return;
	if (run->keep_later)
		sandbox_keep(run->sb);
	http_exchange_reply(take_ptr(run->x), 201, "application/json", text, strlen(text));
}

static const struct http_exchange_ops waiting_ops;

static void on_ended(void *user, const struct exec_result *result)
{
	struct run *run = user;
	struct err e;
	run->exec = NULL;
	if (sandbox_state(run->sb) == SANDBOX_PAUSED) {
		if (run->x)
			http_exchange_on(run->x, &waiting_ops, run);
		return;
	}
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
		bool ours = str_eq(result->code, "unavailable") || sandbox_task(run->sb);
		sandbox_stop(run->sb, ours ? &e : NULL);
	} else {
		sandbox_stop(run->sb, NULL);
	}
}

static void on_client_gone(void *user)
{
	struct run *run = user;
	enum sandbox_state state = sandbox_state(run->sb);
	run->x = NULL;
	if (state == SANDBOX_PAUSING || state == SANDBOX_PAUSED)
		sandbox_detach_task(run->sb); /* who paused it wants it to stay */
	else
		sandbox_stop(run->sb, NULL);
}

static const struct exec_ops exec_ops = {
	.started = on_started,
	.ended = on_ended,
	.client_gone = on_client_gone,
};

static void end_by_time(struct run *run)
{
	run->timed_out = true;
	sandbox_stop(run->sb, NULL);
}

static void cannot_pause(struct run *run, const struct err *why)
{
	log_warn("%s can't be paused, and ends: %s", sandbox_id(run->sb), why->text);
	end_by_time(run);
}

/* Comes before run's own end, which waits for it. */
static void on_paused_by_time(void *user, const struct sandbox_frozen *report,
			      const struct err *why)
{
	struct run *run = user;
	(void)report;
	if (!why)
		return;
	run->paused_by_time = false;
	if (sandbox_state(run->sb) == SANDBOX_RUNNING)
		cannot_pause(run, why);
}

static void on_timeout(uv_timer_t *t);

/* Its time is over, one way or the other. */
static void time_is_over(struct run *run)
{
	struct err e;
	uv_timer_stop(&run->timer);
	uv_timer_stop(&run->idle_timer);
	run->left_ms = 0;
	if (!sandbox_spec(run->sb)->pause_on_timeout) {
		end_by_time(run);
		return;
	}
	run->paused_by_time = true;
	int r = sandbox_pause(run->sb, on_paused_by_time, run, &e);
	if (r == -EBUSY) /* somebody pauses or copies it just now */
		uv_timer_start(&run->timer, on_timeout, BUSY_MS, 0);
	else if (r < 0)
		cannot_pause(run, &e);
}

static void on_timeout(uv_timer_t *t)
{
	time_is_over(t->data);
}

static void on_idle_timeout(uv_timer_t *t)
{
	struct run *run = t->data;
	uint64_t idle = clock_mono_ms() - sandbox_touched_ms(run->sb);
	uint64_t limit = sandbox_spec(run->sb)->idle_ms;
	if (idle >= limit)
		time_is_over(run);
	else
		uv_timer_start(&run->idle_timer, on_idle_timeout, limit - idle, 0);
}

static void start_clocks(struct run *run)
{
	const struct sandbox_spec *spec = sandbox_spec(run->sb);
	if (spec->timeout_ms)
		uv_timer_start(&run->timer, on_timeout,
			       run->left_ms ? run->left_ms : spec->timeout_ms, 0);
	if (spec->idle_ms)
		uv_timer_start(&run->idle_timer, on_idle_timeout, spec->idle_ms, 0);
}

static void on_paused(void *user)
{
	struct run *run = user;
	if (uv_is_active((uv_handle_t *)&run->timer) && !run->paused_by_time)
		run->left_ms = uv_timer_get_due_in(&run->timer) + 1;
	uv_timer_stop(&run->timer);
	uv_timer_stop(&run->idle_timer);
	if (!run->paused_by_time)
		return;
	run->paused_by_time = false;
	if (run->x && !run->request.detach)
		event_stream_end(take_ptr(run->x), "paused", "its time is over: it was paused");
	sandbox_detach_task(run->sb);
}

static void on_ready(void *user)
{
	struct run *run = user;
	const struct exec_request q = {
		.start = sandbox_task(run->sb) ? NULL : run->request.start,
		.attach_pid = sandbox_task(run->sb),
		.linux_user = run->request.user,
		.x = run->request.detach ? NULL : run->x,
		.own_stream = true,
		.task = true,
	};
	struct err e;
	run->exec = exec_start(run->sb, &q, &exec_ops, run, &e);
	if (!run->exec)
		sandbox_stop(run->sb, &e);
	else
		start_clocks(run);
}

static const struct sandbox_ops sandbox_ops = {
	.ready = on_ready, .paused = on_paused, .gone = on_gone};

/* Before the task starts and after it has ended; exec has its own. */
static const struct http_exchange_ops waiting_ops = WAITING_OPS(on_client_gone);

static int open_stream(struct run *run)
{
	int r = event_stream_open(run->x);
	if (r == 0)
		event_stream_send(run->x,
				  json_pack("{s:{s:{s:s, s:s}}}", "event", "sandbox", "sandboxID",
					    sandbox_id(run->sb), "name", sandbox_name(run->sb)));
	return r;
}

static struct run *run_new(struct node *n)
{
	struct run *run = calloc(1, sizeof(*run));
	if (!run)
		return NULL;
	run->node = n;
	uv_timer_init(n->loop, &run->timer);
	uv_timer_init(n->loop, &run->idle_timer);
	run->timer.data = run->idle_timer.data = run;
	return run;
}

void run_adopt(struct sandbox *sb)
{
	struct run *run = sandbox_task(sb) ? run_new(sandbox_node(sb)) : NULL;
	if (!run)
		return;
	run->sb = sb;
	run->request.detach = true;
	sandbox_set_ops(sb, &sandbox_ops, run);
}

void run_serve(struct node *n, struct http_exchange *x, const char *body, size_t len)
{
	struct run *run = run_new(n);
	struct err e;
	if (!run) {
		http_exchange_reply_error(x, 500, "no memory");
		return;
	}
	int r = run_request_parse(n, body, len, &run->request, &e);
	if (r == 0 && run->request.detach) {
		run->keep_later = run->request.spec.keep;
		run->request.spec.keep = false;
	}
	if (r == 0)
		r = sandbox_create(n, &run->request.spec, &sandbox_ops, run, &run->sb, &e);
	if (r < 0) {
		http_exchange_reply_error(x, api_status(e.code), "%s", e.text);
		run_free(run);
		return;
	}
	run->x = x;
	http_exchange_on(x, &waiting_ops, run);
	if (!run->request.detach && open_stream(run) < 0)
		sandbox_stop(run->sb, NULL);
}
