/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event streams about a process. Messages are put together in the agent's buffer and leave it
 * within the same call, so that one buffer serves all clients.
 */
#include "agent/client.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "agent/event.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "http/envelope.h"

#define SEND_BUFFER         (128 * 1024) /* bytes; the host is next door */
#define TIMEOUT_MAX_MS      9999999999   /* ten digits, as the protocol has it */
#define KEEPALIVE_DEFAULT_S 90
#define KEEPALIVE_MAX_S     3600

static void on_timer_closed(uv_handle_t *h)
{
	free(h->data);
}

static void leave_deferred(struct client *c)
{
	if (!c->text)
		return;
	list_remove(&c->deferred);
	c->agent->deferred_count--;
	free(take_ptr(c->text));
}

static void client_free(struct client *c)
{
	process_unwatch(&c->watcher);
	leave_deferred(c);
	uv_close((uv_handle_t *)&c->timer, on_timer_closed);
}

/* Sends what was put together in the agent's buffer. Returns what is queued now, or -errno. */
static ssize_t send_out(struct client *c)
{
	struct buf *out = &c->agent->out;
	ssize_t r = http_exchange_write(c->x, out->data, out->len);
	buf_consume(out, out->len);
	c->sent_at = uv_now(c->agent->loop);
	return r;
}

/* The stream can't go on: the client sees it broken, the process stays. */
static void give_up(struct client *c)
{
	struct http_exchange *x = c->x;
	buf_consume(&c->agent->out, c->agent->out.len);
	client_free(c);
	http_exchange_abort(x);
}

/* Sends the end of the stream after what is in the buffer. code NULL: success. */
static void finish(struct client *c, const char *code, const char *message)
{
	struct http_exchange *x = c->x;
	if (event_stream_end(&c->agent->out, code, message) < 0 || send_out(c) < 0) {
		give_up(c);
		return;
	}
	client_free(c);
	http_exchange_end(x);
}

void client_fail(struct client *c, enum rpc_code code, const char *fmt, ...)
{
	char message[ERR_TEXT_MAX];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	finish(c, rpc_code_name(code), message);
}

void client_defer(struct client *c, const char *text, size_t n)
{
	struct agent *a = c->agent;
	if (a->deferred_count >= CLIENTS_DEFERRED_MAX) {
		client_fail(c, RPC_UNAVAILABLE, "the machine is being copied: try again");
		return;
	}
	c->text = malloc(n + 1); /* also for nothing */
	if (!c->text) {
		client_fail(c, RPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	memcpy(c->text, text, n);
	c->text_len = n;
	list_append(&a->deferred, &c->deferred);
	a->deferred_count++;
}

void clients_go_on(struct agent *a)
{
	while (!list_empty(&a->deferred)) {
		struct client *c = list_entry(a->deferred.next, struct client, deferred);
		auto_free char *text = take_ptr(c->text);
		list_remove(&c->deferred);
		a->deferred_count--;
		c->message(c, text, c->text_len);
	}
}

static bool on_output(void *user, enum process_output which, const uint8_t *p, size_t n)
{
	struct client *c = user;
	const char *kind = which == PROCESS_STDOUT ? "stdout" : "stderr";
	ssize_t queued = event_data(&c->agent->out, kind, p, n);
	if (queued == 0)
		queued = send_out(c);
	if (queued < 0) {
		give_up(c);
		return true;
	}
	return queued <= STREAM_QUEUE_HIGH;
}

static void on_ended(void *user, int status)
{
	struct client *c = user;
	if (event_end(&c->agent->out, status) < 0)
		give_up(c);
	else
		finish(c, NULL, NULL);
}

static void on_expired(void *user)
{
	client_fail(user, RPC_DEADLINE_EXCEEDED,
		    "the process ran into its time limit and was killed");
}

static const struct process_ops watch_ops = {on_output, on_ended, on_expired};

static void on_timer(uv_timer_t *timer);

static void arm(struct client *c)
{
	uint64_t now = uv_now(c->agent->loop), due = c->sent_at + c->keepalive_ms;
	if (c->ends_at && c->ends_at < due)
		due = c->ends_at;
	uv_timer_start(&c->timer, on_timer, due > now ? due - now : 0, 0);
}

static void on_timer(uv_timer_t *timer)
{
	struct client *c = timer->data;
	uint64_t now = uv_now(c->agent->loop);
	if (c->ends_at && now >= c->ends_at) {
		client_fail(c, RPC_DEADLINE_EXCEEDED, "the time limit of this call has passed");
		return;
	}
	bool quiet = now >= c->sent_at + c->keepalive_ms;
	if (quiet && (event_keepalive(&c->agent->out) < 0 || send_out(c) < 0))
		give_up(c);
	else
		arm(c);
}

static void on_drained(void *user)
{
	struct client *c = user;
	process_resume(&c->watcher);
}

static void on_gone(void *user)
{
	client_free(user);
}

static const struct http_exchange_ops exchange_ops = {.drained = on_drained, .gone = on_gone};

uint64_t client_timeout_ms(const struct client *c)
{
	return rpc_number(c->x, "connect-timeout-ms", TIMEOUT_MAX_MS, 0);
}

void client_attach(struct client *c, struct process *p, uint64_t timeout_ms)
{
	if (event_start(&c->agent->out, process_pid(p)) < 0 || send_out(c) < 0) {
		give_up(c);
		return;
	}
	process_watch(p, &c->watcher, &watch_ops, c);
	if (timeout_ms)
		c->ends_at = uv_now(c->agent->loop) + timeout_ms;
	arm(c);
}

/* Exactly one envelope is the body of a server-streaming call. */
static int read_envelope(const char *body, size_t n, size_t max, struct envelope *ret)
{
	ssize_t r = envelope_read((const uint8_t *)body, n, max, ret);
	return r < 0 || (size_t)r != n || ret->flag != ENVELOPE_MESSAGE ? -EINVAL : 0;
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
	struct client *c = user;
	struct envelope env;
	http_exchange_on(x, &exchange_ops, c);
	if (start_answer(x) < 0)
		give_up(c);
	else if (read_envelope(body, n, c->message_max, &env) < 0)
		client_fail(c, RPC_INVALID_ARGUMENT,
			    "the body is not exactly one message envelope");
	else
		c->message(c, (const char *)env.payload, env.len);
}

/* What is in the kernel's queue must be gone before the machine can be frozen, and the kernel makes
   it megabytes for a reader who is slow. */
static void keep_queue_short(struct http_exchange *x)
{
	int bytes = SEND_BUFFER;
	int fd = stream_fd(http_conn_stream(http_exchange_conn(x)));
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) < 0)
		log_debug("can't limit a send buffer");
}

void client_open(struct agent *a, struct http_exchange *x, size_t max, client_message_fn *message)
{
	if (!rpc_has_type(x, "application/connect+json")) {
		http_exchange_reply_error(x, 415, "this call takes application/connect+json");
		return;
	}
	struct client *c = calloc(1, sizeof(*c));
	if (!c) {
		rpc_fail(x, RPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	keep_queue_short(x);
	c->agent = a;
	c->x = x;
	c->message = message;
	c->message_max = max;
	c->keepalive_ms = 1000 * rpc_number(x, "keepalive-ping-interval", KEEPALIVE_MAX_S,
					    KEEPALIVE_DEFAULT_S);
	uv_timer_init(a->loop, &c->timer);
	c->timer.data = c;
	http_exchange_collect(x, max + ENVELOPE_HEAD, on_body, on_gone, c);
}
