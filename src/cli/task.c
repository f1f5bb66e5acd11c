/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. One connection carries the events; they are taken one at a time, and the
 * next is looked at when the last one's bytes are written, which keeps both streams whole and in
 * order and lets a slow reader slow the task. Input and each signal have connections of their own.
 * The states go one way:
 *
 *   CONNECTING ─ start event ─> RUNNING ─ end of the stream ─> OVER
 *        └────────┴─ break (signal, EPIPE) ─> BREAKING ─ sandbox or process gone ─> OVER
 */
#include "cli/task.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/events.h"
#include "cli/input.h"
#include "cli/launch.h"
#include "cli/sink.h"

static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
#define FORWARDED (sizeof(forwarded) / sizeof(forwarded[0]))

#define SIGNAL_MS 10000 /* for the agent to take a signal */
#define BREAK_MS  60000 /* for spaced to end a sandbox */

enum task_state { TASK_CONNECTING, TASK_RUNNING, TASK_BREAKING, TASK_OVER };

struct task {
	struct cli *cli;
	const struct task_spec *spec;
	enum task_state state;
	struct events events;
	struct sink out, err;
	struct input input;
	uv_signal_t signals[FORWARDED];
	bool watched[FORWARDED];
	char *sandbox_id;   /* when known */
	char *sandbox_name; /* the same */
	uint64_t pid;       /* 0: not started */
	uint64_t skip_lines;
	unsigned interrupts;
	int last_signal;
	unsigned calls; /* signals and deletions that were not answered yet */
	bool ended;     /* the process's end was told */
	bool cut;       /* exec: its connection was, without a word */
	int code;
};

static void task_over(struct task *t, int code)
{
	if (t->state == TASK_OVER)
		return;
	t->state = TASK_OVER;
	t->code = code;
	uv_stop(&t->cli->loop);
}

static void broken_off(void *user, unsigned status, const char *body, size_t n,
		       const struct err *why)
{
	struct task *t = user;
	(void)status;
	(void)body;
	(void)n;
	(void)why;
	t->calls--;
	task_over(t, t->code);
}

typedef void reply_fn(void *user, unsigned status, const char *body, size_t n,
		      const struct err *why);

static int send_signal(struct task *t, int number, reply_fn *done)
{
	auto_free char *text = str_printf(
		"{\"process\":{\"pid\":%" PRIu64 "},\"signal\":%d,\"group\":true}", t->pid, number);
	if (!text)
		return -ENOMEM;
	int r = api_call_async(t->cli, "POST", "/process.Process/SendSignal", t->sandbox_id, text,
			       SIGNAL_MS, done, t, NULL);
	if (r == 0)
		t->calls++;
	return r;
}

/* Ends what we started, then ourselves with this code. A sandbox that we only wait for goes with
 * our connection. */
static void task_break(struct task *t, int code)
{
	if (t->state >= TASK_BREAKING)
		return;
	t->state = TASK_BREAKING;
	t->code = code;
	int r = -ENOENT;
	if (t->spec->owns_sandbox && t->sandbox_id) {
		auto_free char *path = api_sandbox_path(t->sandbox_id, "");
		r = path ? api_call_async(t->cli, "DELETE", path, NULL, NULL, BREAK_MS, broken_off,
					  t, NULL)
			 : -ENOMEM;
		t->calls += r == 0;
	} else if (t->spec->forwards && t->pid) {
		r = send_signal(t, SIGKILL, broken_off);
	}
	if (r < 0)
		task_over(t, code);
}

static void task_fail(struct task *t, const struct err *e)
{
	task_break(t, cli_fail(e));
}

/* A process that is gone already (404) has an end that will be told; an agent that doesn't answer
 * has not; a paused sandbox (409) takes no signal, and who sent it is told what to do. */
static void signal_sent(void *user, unsigned status, const char *body, size_t n,
			const struct err *why)
{
	struct task *t = user;
	t->calls--;
	(void)why;
	if (t->state == TASK_RUNNING && status == 409) {
		struct err e = {0};
		api_error(status, body, n, &e);
		cli_fail(&e);
	}
	if (t->state == TASK_RUNNING && !t->ended && (status == 0 || status >= 500))
		task_break(t, CLI_SIGNAL + t->last_signal);
}

static void on_signal(uv_signal_t *handle, int number)
{
	struct task *t = handle->data;
	if (t->state == TASK_BREAKING)
		_exit(CLI_SIGNAL + number); /* asked to hurry; spaced finishes without us */
	bool again = number == SIGINT && t->interrupts++ > 0;
	t->last_signal = number;
	if (t->state != TASK_RUNNING || !t->spec->forwards || again ||
	    send_signal(t, number, signal_sent) < 0)
		task_break(t, CLI_SIGNAL + number);
}

/* A signal that our caller had ignored (nohup) stays ignored. */
static int watch_signals(struct task *t)
{
	for (size_t i = 0; i < FORWARDED; i++) {
		struct sigaction now;
		if (sigaction(forwarded[i], NULL, &now) < 0)
			return -errno;
		if (now.sa_handler == SIG_IGN)
			continue;
		int r = uv_signal_init(&t->cli->loop, &t->signals[i]);
		if (r < 0)
			return r;
		t->watched[i] = true;
		t->signals[i].data = t;
		r = uv_signal_start(&t->signals[i], on_signal, forwarded[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

static void output_failed(struct task *t, const char *stream, int r)
{
	if (r == -EPIPE) {
		task_break(t, CLI_SIGNAL + SIGPIPE);
		return;
	}
	struct err e = {0};
	err_sys(&e, -r, "cannot write to standard %s", stream);
	task_fail(t, &e);
}

static void out_drained(void *user, int r)
{
	struct task *t = user;
	if (r < 0)
		output_failed(t, "output", r);
	else
		events_resume(&t->events);
}

static void err_drained(void *user, int r)
{
	struct task *t = user;
	if (r < 0)
		output_failed(t, "error", r);
	else
		events_resume(&t->events);
}

/* Takes the block over. True when it is written and the next event may come. */
static bool put(struct task *t, bool to_err, uint8_t *data, size_t n)
{
	int r = sink_put(to_err ? &t->err : &t->out, data, n);
	if (r < 0)
		output_failed(t, to_err ? "error" : "output", r);
	return r == 0;
}

/* The bytes behind the lines that are to be skipped. */
static size_t skip(struct task *t, const uint8_t *p, size_t n)
{
	size_t i = 0;
	while (t->skip_lines && i < n)
		if (p[i++] == '\n')
			t->skip_lines--;
	return i;
}

static bool on_data(struct task *t, json_t *data)
{
	json_t *text = json_object_get(data, "stdout");
	bool to_err = !text;
	if (to_err)
		text = json_object_get(data, "stderr");
	size_t n = json_string_length(text);
	if (!n)
		return true;
	auto_free uint8_t *bytes = malloc(n / 4 * 3 + 3);
	ssize_t len = bytes ? base64_decode(json_string_value(text), n, bytes) : -ENOMEM;
	if (len < 0) {
		struct err e = {0};
		err_sys(&e, (int)-len, "output cannot be read");
		task_fail(t, &e);
		return false;
	}
	size_t skipped = skip(t, bytes, (size_t)len);
	if (skipped == (size_t)len)
		return true;
	memmove(bytes, bytes + skipped, (size_t)len - skipped);
	return put(t, to_err, take_ptr(bytes), (size_t)len - skipped);
}

static bool put_json(struct task *t, json_t *event)
{
	size_t flags = JSON_COMPACT | (isatty(STDOUT_FILENO) ? JSON_ENSURE_ASCII : 0u);
	auto_free char *text = json_dumps(event, flags);
	char *line = text ? str_printf("%s\n", text) : NULL;
	return !line || put(t, false, (uint8_t *)line, strlen(line));
}

static void input_failed(void *user, const struct err *why)
{
	struct task *t = user;
	if (t->ended || t->state != TASK_RUNNING)
		return;
	struct err e = *why;
	err_prefix(&e, "standard input");
	task_fail(t, &e);
}

static void on_start(struct task *t, json_t *start)
{
	uint64_t pid = 0;
	struct err e = {0};
	if (doc_want_uint(start, "pid", 1, UINT32_MAX, &pid, &e) < 0) {
		task_fail(t, &e);
		return;
	}
	t->pid = pid;
	if (t->state == TASK_CONNECTING)
		t->state = TASK_RUNNING;
	if (!t->spec->input || !t->sandbox_id || t->input.cli)
		return;
	int r = input_start(&t->input, t->cli, t->sandbox_id, pid, input_failed, t);
	if (r < 0) {
		err_sys(&e, -r, "cannot read standard input");
		task_fail(t, &e);
	}
}

static void on_process_end(struct task *t, json_t *end)
{
	if (t->ended) /* the first counts, as it does for the record */
		return;
	t->ended = true;
	if (!t->spec->forwards)
		return;
	uint64_t number = 0;
	if (doc_opt_uint(end, "signal", 1, 127, &number, NULL) == 0 && number) {
		t->code = CLI_SIGNAL + (int)number;
		return;
	}
	uint64_t code = 0;
	bool exited = true;
	doc_opt_bool(end, "exited", &exited, NULL);
	int r = doc_opt_uint(end, "exitCode", 0, 255, &code, NULL);
	t->code = r == 0 && exited ? (int)code : CLI_SIGNAL + SIGKILL;
}

static bool on_event(void *user, json_t *event)
{
	struct task *t = user;
	if (t->state >= TASK_BREAKING)
		return false;
	json_t *sandbox = json_object_get(event, "sandbox");
	const char *id = json_string_value(json_object_get(sandbox, "sandboxID"));
	const char *name = json_string_value(json_object_get(sandbox, "name"));
	if (id && !t->sandbox_id)
		t->sandbox_id = strdup(id);
	if (name && !t->sandbox_name)
		t->sandbox_name = strdup(name);
	json_t *start = json_object_get(event, "start");
	if (start)
		on_start(t, start);
	json_t *end = json_object_get(event, "end");
	if (end)
		on_process_end(t, end);
	if (t->state >= TASK_BREAKING)
		return false;
	if (t->spec->json)
		return json_object_get(event, "keepalive") || put_json(t, event);
	json_t *data = json_object_get(event, "data");
	return !data || on_data(t, data);
}

/* The agent has one code for all that is wrong with a command; its text tells what a shell tells by
 * 126 and 127. */
static int spawn_error_code(const char *text)
{
	static const int unusable[] = {EACCES, ENOEXEC, EISDIR, E2BIG, EPERM, ELOOP};
	if (str_starts(text, "cwd '"))
		return CLI_FAILED;
	if (str_ends(text, ": not found") || str_ends(text, ": its interpreter does not exist"))
		return CLI_NOT_FOUND;
	for (size_t i = 0; i < sizeof(unusable) / sizeof(unusable[0]); i++)
		if (str_ends(text, strerror(unusable[i])))
			return CLI_NOT_EXECUTABLE;
	return CLI_FAILED;
}

/* What an error of the stream means for the exit code. */
static int error_code(const struct task *t, const char *code, const struct err *why)
{
	if (!t->spec->forwards) /* logs: how the task ended is part of what they tell */
		return code && !str_eq(code, "refused") ? CLI_OK : CLI_FAILED;
	if (str_eq(code, "deadline_exceeded") || str_eq(code, "paused"))
		return CLI_TIMEOUT;
	if (t->pid || str_eq(code, "refused"))
		return CLI_FAILED;
	return str_eq(code, "invalid_argument") ? spawn_error_code(why->text) : CLI_FAILED;
}

static void tell_paused(const struct task *t, struct err *e)
{
	const char *name = t->sandbox_name         ? t->sandbox_name
			   : t->spec->sandbox_name ? t->spec->sandbox_name
						   : t->sandbox_id;
	if (name)
		err_set(e, EAGAIN, "%s is paused; 'space resume %s' goes on", name, name);
}

static void on_over(void *user, const char *code, const struct err *why)
{
	struct task *t = user;
	if (t->state >= TASK_BREAKING)
		return; /* the connection went with what we are ending */
	if (!why && !t->ended && t->spec->forwards) {
		struct err e = {0};
		err_set(&e, EIO, "the sandbox ended without telling how the task ended");
		task_over(t, cli_fail(&e));
		return;
	}
	if (!why) {
		task_over(t, t->code);
		return;
	}
	if (!code && t->spec->sandbox_id && t->pid) {
		t->cut = true;
		task_over(t, CLI_FAILED);
		return;
	}
	int exit_code = error_code(t, code, why);
	struct err e = *why;
	if (str_eq(code, "paused"))
		tell_paused(t, &e);
	if (exit_code != CLI_TIMEOUT || !t->spec->quiet)
		cli_fail(&e);
	task_over(t, exit_code);
}

/* An exec was cut off: with its sandbox, by a pause, or because spaced is gone. Tells which. */
static int explain_cut(struct task *t)
{
	struct err e = {0}, none = {0};
	auto_json json_t *sandbox = NULL;
	auto_free char *path = api_sandbox_path(t->sandbox_id, "");
	int fd;
	if (!path || launch_connect_running(t->cli, &fd, &e) < 0) {
		err_set(&e, EIO, "lost the connection to spaced; the command may still run");
		return cli_fail(&e);
	}
	close(fd);
	const char *state = "exited";
	if (api_call(t->cli, "GET", path, NULL, &sandbox, &none) == 0)
		doc_opt_string(sandbox, "state", &state, NULL);
	if (str_eq(state, "paused") || str_eq(state, "pausing")) {
		tell_paused(t, &e);
		if (!t->spec->quiet)
			cli_fail(&e);
		return CLI_TIMEOUT;
	}
	if (str_eq(state, "running"))
		err_set(&e, EIO, "lost the connection to the command, which may still run");
	else
		err_set(&e, EIO, "the sandbox ended before the command did");
	return cli_fail(&e);
}

static const struct events_ops events_ops = {.event = on_event, .over = on_over};

static int add_exec_fields(const struct task_spec *spec, struct http_head *head)
{
	int r = api_to_agent(head, spec->sandbox_id);
	if (r == 0 && spec->timeout_ms)
		r = http_fields_addf(&head->fields, "Connect-Timeout-Ms", "%" PRIu64,
				     spec->timeout_ms);
	if (r < 0 || !spec->user)
		return r;
	auto_free char *pair = str_printf("%s:", spec->user);
	auto_free char *text = pair ? malloc(base64_encoded_len(strlen(pair)) + 1) : NULL;
	if (!text)
		return -ENOMEM;
	base64_encode(pair, strlen(pair), text);
	return http_fields_addf(&head->fields, "Authorization", "Basic %s", text);
}

static int begin(struct task *t, struct err *e)
{
	const struct task_spec *spec = t->spec;
	int r = sink_init(&t->out, &t->cli->loop, STDOUT_FILENO, out_drained, t);
	if (r < 0)
		return err_sys(e, -r, "standard output");
	r = sink_init(&t->err, &t->cli->loop, STDERR_FILENO, err_drained, t);
	if (r < 0)
		return err_sys(e, -r, "standard error");
	struct http_client *client;
	r = api_open(t->cli, &client, e);
	if (r < 0)
		return r;
	struct http_head head;
	r = api_request(&head, spec->method, spec->target, spec->content_type, spec->body_len);
	if (r == 0 && spec->sandbox_id)
		r = add_exec_fields(spec, &head);
	if (r < 0) {
		http_head_done(&head);
		http_client_close(client);
		return err_sys(e, -r, "cannot make the request");
	}
	r = events_start(&t->events, client, &head, spec->body, spec->body_len, &events_ops, t, e);
	http_head_done(&head);
	if (r < 0)
		return r;
	r = watch_signals(t);
	return r < 0 ? err_sys(e, -r, "cannot watch signals") : 0;
}

static void task_done(struct task *t)
{
	events_close(&t->events);
	input_done(&t->input);
	sink_done(&t->out);
	sink_done(&t->err);
	for (size_t i = 0; i < FORWARDED; i++)
		if (t->watched[i])
			uv_close((uv_handle_t *)&t->signals[i], NULL);
	uv_run(&t->cli->loop, UV_RUN_NOWAIT); /* handles inside *t are closed by this */
	if (t->spec->ret_sandbox_id)
		*t->spec->ret_sandbox_id = take_ptr(t->sandbox_id);
	free(t->sandbox_id);
	free(t->sandbox_name);
	/* An answer may still come to it until our process ends, which is soon. */
	if (!t->calls)
		free(t);
}

int task_attach(struct cli *cli, const struct task_spec *spec)
{
	struct err e = {0};
	struct task *t = calloc(1, sizeof(*t));
	char *sandbox_id = spec->sandbox_id ? strdup(spec->sandbox_id) : NULL;
	if (!t || (spec->sandbox_id && !sandbox_id)) {
		free(t);
		err_set(&e, ENOMEM, "out of memory");
		return cli_fail(&e);
	}
	*t = (struct task){
		.cli = cli, .spec = spec, .sandbox_id = sandbox_id, .skip_lines = spec->skip_lines};
	t->out.watch.epoll_fd = t->err.watch.epoll_fd = -1;
	int code;
	if (begin(t, &e) == 0) {
		while (t->state != TASK_OVER)
			uv_run(&cli->loop, UV_RUN_DEFAULT); /* signal handles keep it waiting */
		code = t->cut ? explain_cut(t) : t->code;
	} else {
		code = cli_fail(&e);
	}
	task_done(t);
	return code;
}
