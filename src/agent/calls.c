/* SPDX-License-Identifier: Apache-2.0 */
/* The unary calls of process.Process: List, SendInput, CloseStdin, SendSignal. */
#include <errno.h>
#include <stdlib.h>

#include "agent/agent.h"
#include "agent/input_message.h"
#include "agent/rpc.h"
#include "agent/selector.h"
#include "agent/signals.h"
#include "base/cleanup.h"

#define CALL_BODY_MAX (8 * 1024 * 1024) /* bytes */

typedef void call_fn(struct agent *a, struct http_exchange *x, json_t *message);

struct call {
	struct agent *agent;
	call_fn *fn;
};

static void on_body(void *user, struct http_exchange *x, const char *body, size_t n)
{
	auto_free struct call *c = user;
	struct err e = {0};
	auto_json json_t *message = n ? doc_parse_json(body, n, &e) : json_object();
	if (!message)
		rpc_fail(x, RPC_INVALID_ARGUMENT, "%s", e.text);
	else if (!json_is_object(message))
		rpc_fail(x, RPC_INVALID_ARGUMENT, "the message is not an object");
	else
		c->fn(c->agent, x, message);
}

static void collect_gone(void *user)
{
	free(user);
}

/* False: x was answered. */
static bool takes_json(struct http_exchange *x)
{
	if (rpc_has_type(x, "application/json"))
		return true;
	http_exchange_reply_error(x, 415, "this call takes application/json");
	return false;
}

static void collect(struct agent *a, struct http_exchange *x, call_fn *fn)
{
	if (!takes_json(x))
		return;
	struct call *c = malloc(sizeof(*c));
	if (!c) {
		rpc_fail(x, RPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	*c = (struct call){a, fn};
	http_exchange_collect(x, CALL_BODY_MAX, on_body, collect_gone, c);
}

/* The running process that the message selects; NULL when x was answered. */
static struct process *select_process(struct agent *a, struct http_exchange *x,
				      const json_t *message)
{
	struct selector which;
	struct err e = {0};
	if (selector_read(message, &which, &e) < 0) {
		rpc_fail(x, RPC_INVALID_ARGUMENT, "%s", e.text);
		return NULL;
	}
	struct process *p = selector_find(&which, &a->processes, false, &e);
	if (!p)
		rpc_fail(x, RPC_NOT_FOUND, "%s", e.text);
	return p;
}

static void list(struct agent *a, struct http_exchange *x, json_t *message)
{
	(void)message;
	json_t *processes = processes_describe(&a->processes);
	rpc_reply(x, processes ? json_pack("{s:o}", "processes", processes) : NULL);
}

void agent_list(struct agent *a, struct http_exchange *x)
{
	collect(a, x, list);
}

static void close_stdin(struct agent *a, struct http_exchange *x, json_t *message)
{
	struct process *p = select_process(a, x, message);
	if (!p)
		return;
	process_close_stdin(p);
	rpc_reply(x, json_object());
}

void agent_close_stdin(struct agent *a, struct http_exchange *x)
{
	collect(a, x, close_stdin);
}

static void send_signal(struct agent *a, struct http_exchange *x, json_t *message)
{
	struct err e = {0};
	bool group = false;
	int number = signal_from_json(json_object_get(message, "signal"));
	if (number < 0) {
		rpc_fail(x, RPC_INVALID_ARGUMENT, "signal is missing or unknown");
		return;
	}
	if (doc_opt_bool(message, "group", &group, &e) < 0) {
		rpc_fail(x, RPC_INVALID_ARGUMENT, "%s", e.text);
		return;
	}
	struct process *p = select_process(a, x, message);
	if (!p)
		return;
	if (process_signal(p, number, group) < 0)
		rpc_fail(x, RPC_NOT_FOUND, "process with pid %d not found", process_pid(p));
	else
		rpc_reply(x, json_object());
}

void agent_send_signal(struct agent *a, struct http_exchange *x)
{
	collect(a, x, send_signal);
}

/* An input that waits in a pipe's queue. Without its client it is written all the same. */
struct pending_input {
	struct http_exchange *x; /* NULL: the client is gone */
};

static void input_reply(struct http_exchange *x, int result)
{
	if (result >= 0)
		rpc_reply(x, json_object());
	else if (result == -ENOBUFS)
		rpc_fail(x, RPC_RESOURCE_EXHAUSTED,
			 "the process has %d bytes of input to read before it can get more",
			 PROCESS_INPUT_MAX);
	else if (result == -ENOMEM)
		rpc_fail(x, RPC_RESOURCE_EXHAUSTED, "out of memory");
	else if (result == -ESRCH)
		rpc_fail(x, RPC_INTERNAL, "the process ended before it read its input");
	else
		rpc_fail(x, RPC_INTERNAL, "the standard input of the process is closed");
}

static void on_written(void *user, int result)
{
	auto_free struct pending_input *pending = user;
	if (pending->x)
		input_reply(pending->x, result);
}

static void input_gone(void *user)
{
	struct pending_input *pending = user;
	pending->x = NULL;
}

static const struct http_exchange_ops pending_ops = {.gone = input_gone};

static void send_input(struct agent *a, struct http_exchange *x, struct input_message *message)
{
	struct process *p = select_process(a, x, message->root);
	if (!p)
		return;
	if (message->kind != INPUT_STDIN) {
		if (message->kind == INPUT_PTY)
			rpc_fail(x, RPC_INTERNAL, "the process has no PTY");
		else
			rpc_fail(x, RPC_UNIMPLEMENTED, "input is neither stdin nor pty");
		return;
	}
	struct pending_input *pending = calloc(1, sizeof(*pending));
	if (!pending) {
		input_reply(x, -ENOMEM);
		return;
	}
	int r = process_write(p, take_ptr(message->data), message->len, on_written, pending);
	if (r == 0) {
		pending->x = x;
		http_exchange_on(x, &pending_ops, pending);
		return;
	}
	free(pending);
	input_reply(x, r);
}

static void on_input_body(void *user, struct http_exchange *x, const char *body, size_t n)
{
	struct input_message message;
	struct err e = {0};
	int r = input_message_read(body, n, &message, &e);
	if (r < 0) {
		rpc_fail(x, r == -ENOMEM ? RPC_RESOURCE_EXHAUSTED : RPC_INVALID_ARGUMENT, "%s",
			 e.text);
		return;
	}
	send_input(user, x, &message);
	input_message_done(&message);
}

static void input_body_gone(void *user)
{
	(void)user;
}

void agent_send_input(struct agent *a, struct http_exchange *x)
{
	if (takes_json(x))
		http_exchange_collect(x, CALL_BODY_MAX, on_input_body, input_body_gone, a);
}
