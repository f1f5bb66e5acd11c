/* SPDX-License-Identifier: Apache-2.0 */
/* Envelopes out of a response body, events out of envelopes. An answer that is no stream is
 * collected as an error. */
#include "cli/events.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "http/envelope.h"

#define EVENT_MAX  (1u << 20) /* bytes of one event's JSON */
#define BUFFER_MAX (4u << 20) /* bytes that came while the user was busy */

static void finish(struct events *ev, const char *code, const struct err *why)
{
	if (ev->over)
		return;
	ev->over = true;
	if (ev->client)
		http_client_close(take_ptr(ev->client));
	ev->ops->over(ev->user, code, why);
}

static void broken(struct events *ev, const char *what)
{
	struct err e = {0};
	err_set(&e, EBADMSG, "spaced's answer cannot be read: %s", what);
	finish(ev, NULL, &e);
}

/* The last envelope: {} or {"error":{…}}. */
static void deliver_end(struct events *ev, json_t *j)
{
	json_t *error = json_object_get(j, "error");
	if (!error) {
		finish(ev, NULL, NULL);
		return;
	}
	const char *code = json_string_value(json_object_get(error, "code"));
	const char *message = json_string_value(json_object_get(error, "message"));
	struct err e = {0};
	err_set(&e, EIO, "%s", message && *message ? message : code ? code : "failed");
	finish(ev, code ? code : "unknown", &e);
}

static void deliver(struct events *ev, const struct envelope *env)
{
	struct err e = {0};
	auto_json json_t *j = doc_parse_json((const char *)env->payload, env->len, &e);
	if (!j) {
		broken(ev, e.text);
		return;
	}
	if (env->flag == ENVELOPE_END) {
		deliver_end(ev, j);
		return;
	}
	json_t *event = json_object_get(j, "event");
	ev->busy = event && !ev->ops->event(ev->user, event);
}

static void pump(struct events *ev)
{
	if (ev->pumping)
		return;
	ev->pumping = true;
	while (!ev->busy && !ev->over) {
		struct envelope env;
		ssize_t n = envelope_read(ev->in.data, ev->in.len, EVENT_MAX, &env);
		if (n == -EAGAIN)
			break;
		if (n < 0) {
			broken(ev, "not an event stream");
			break;
		}
		deliver(ev, &env);
		if (!ev->over)
			buf_consume(&ev->in, (size_t)n);
	}
	ev->pumping = false;
	if (ev->client)
		http_client_read(ev->client, !ev->busy);
}

static void on_head(void *user, const struct http_head *head)
{
	struct events *ev = user;
	ev->status = head->status;
}

static void on_body(void *user, const uint8_t *p, size_t n)
{
	struct events *ev = user;
	if (buf_append(&ev->in, p, n) < 0)
		broken(ev, "too much at once");
	else if (ev->status == 200)
		pump(ev);
}

static void on_end(void *user)
{
	struct events *ev = user;
	if (ev->status != 200) {
		struct err e = {0};
		api_error(ev->status, (const char *)ev->in.data, ev->in.len, &e);
		finish(ev, "refused", &e);
		return;
	}
	/* What is still buffered is delivered as the user takes it; only then a missing end is an
	 * error. */
	http_client_close(take_ptr(ev->client));
	events_resume(ev);
}

static void on_failed(void *user, const struct err *why)
{
	struct events *ev = user;
	ev->client = NULL;
	struct err e = *why;
	err_prefix(&e, "lost the connection to spaced");
	finish(ev, NULL, &e);
}

static const struct http_call_ops call_ops = {
	.head = on_head,
	.body = on_body,
	.end = on_end,
	.failed = on_failed,
};

int events_start(struct events *ev, struct http_client *c, const struct http_head *head,
		 const void *body, size_t n, const struct events_ops *ops, void *user,
		 struct err *e)
{
	*ev = (struct events){.client = c, .ops = ops, .user = user};
	buf_init(&ev->in, BUFFER_MAX);
	int r = http_client_call(c, head, 0, &call_ops, ev);
	ssize_t queued = 0;
	if (r == 0 && n)
		queued = http_client_write(c, body, n);
	if (r == 0 && queued >= 0 && head->framing != HTTP_NO_BODY)
		r = http_client_finish(c);
	if (queued < 0)
		r = (int)queued;
	if (r < 0) {
		events_close(ev);
		return err_sys(e, -r, "call to spaced");
	}
	return 0;
}

void events_resume(struct events *ev)
{
	ev->busy = false;
	pump(ev);
	if (!ev->client && !ev->over && !ev->busy)
		broken(ev, "the stream ended early");
}

void events_close(struct events *ev)
{
	ev->over = true;
	if (ev->client)
		http_client_close(take_ptr(ev->client));
	buf_done(&ev->in);
}
