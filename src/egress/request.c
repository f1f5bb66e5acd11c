/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. The destination is computed once (request_target.c) and policy, record,
 * dial, Host and credential all use it. Then, each step only after the one before: decide, record,
 * wait for the record to be written, connect, send the head anew, let the bodies flow. A body is
 * never stored: what one side cannot take pauses the other.
 *
 * Nothing of the request leaves before its record is written, and its end is recorded too, with
 * what was moved.
 */
#include "egress/request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "egress/fields.h"
#include "egress/target.h"

#define HOST_FIELD_MAX (POLICY_HOST_MAX + 8) /* with ":port" */

static void request_forward(struct request *r);

static const char *scheme_name(enum policy_scheme scheme)
{
	return scheme == POLICY_HTTPS ? "https" : "http";
}

/* -- the end -- */

/* error: for the record, NULL when all went well. */
static void request_record_end(struct request *r, unsigned status, const char *error)
{
	if (!r->recorded)
		return;
	r->recorded = false;
	struct record *record = control_record(r->g->control, "egress.response");
	record_number(record, "id", r->id);
	record_number(record, "status", status);
	record_number(record, "bytes_up", r->bytes_up);
	record_number(record, "bytes_down", r->bytes_down);
	record_number(record, "ms", (clock_mono_us() - r->since_us) / 1000);
	if (error)
		record_string(record, "error", error);
	int failed = control_send(r->g->control, NULL);
	if (failed < 0 && failed != -EPIPE) /* when spaced is gone, the loop ends anyway */
		gateway_fail(r->g, &(struct err){.code = -failed, .text = "a record was lost"});
}

/* Lets go of everything but the exchange, which has been answered or is gone. */
static void request_clear(struct request *r)
{
	control_cancel(&r->wait);
	upstream_dial_cancel(&r->dial);
	if (r->upstream)
		upstream_close(r->upstream);
	r->upstream = NULL;
	buf_done(&r->answer);
	free(r->path);
	r->path = NULL;
	r->x = NULL;
	r->state = REQUEST_NONE;
}

static struct http_exchange *request_end(struct request *r, unsigned status, const char *error)
{
	struct http_exchange *x = r->x;
	request_record_end(r, status, error);
	request_clear(r);
	return x;
}

/* No upstream to answer with: the gateway says so. detail is for the record alone, it may name
 * addresses. */
static void request_fail(struct request *r, unsigned status, const char *text, const char *detail)
{
	bool cut = r->answering;
	struct http_exchange *x = request_end(r, cut ? r->status : status, detail ? detail : text);
	if (cut)
		http_exchange_abort(x);
	else
		http_exchange_reply_error(x, status, "%s", text);
}

static void request_unrecorded(struct request *r)
{
	request_fail(r, 503, "the audit log does not answer, so nothing was forwarded; try again",
		     "no acknowledgement of the record");
}

/* -- refusals -- */

/* The whole answer, and for those that show a broken or lying peer the end of the connection. */
static void request_answer_refusal(struct request *r)
{
	unsigned status = r->answer_status;
	struct buf body = r->answer;
	r->answer = (struct buf){0};
	struct http_exchange *x = request_end(r, status, "denied");
	if (status == 403) {
		http_exchange_reply(x, status, "application/json", body.data, body.len);
	} else {
		struct http_field type = {.name = "Content-Type", .value = "application/json"};
		struct http_fields fields = {.list = &type, .count = 1};
		if (http_exchange_start(x, status, &fields, HTTP_LENGTH, body.len) == 0)
			http_exchange_write(x, body.data, body.len);
		http_exchange_abort(x);
	}
	buf_done(&body);
}

static void refusal_recorded(struct control_wait *w, bool written)
{
	struct request *r = list_entry(w, struct request, wait);
	if (written)
		request_answer_refusal(r);
	else
		request_unrecorded(r);
}

static void request_refuse(struct request *r, unsigned status, const char *reason,
			   const struct policy_verdict *verdict)
{
	struct denial d = {
		.status = status,
		.scheme = scheme_name(r->dest.scheme),
		.host = r->dest.host,
		.port = r->dest.port,
		.method = r->dest.method,
		.path = r->dest.path,
		.reason = reason,
	};
	if (verdict) {
		d.rule = verdict->rule;
		d.allow_with = verdict->hint[0] ? verdict->hint : NULL;
	}
	r->state = REQUEST_REFUSING;
	r->answer_status = status;
	r->wait.done = refusal_recorded;
	buf_init(&r->answer, DENY_BODY_MAX);
	if (deny_body(&r->answer, &d) < 0 || deny_record(r->g->control, &d, &r->wait) < 0)
		request_unrecorded(r);
}

/* -- the answer -- */

static void call_head(void *user, const struct http_head *head)
{
	struct request *r = user;
	struct fields f;
	enum http_framing framing = head->framing == HTTP_TO_CLOSE ? HTTP_CHUNKED : head->framing;
	uint64_t length = head->length;
	const char *declared = http_fields_get(&head->fields, "Content-Length");
	if (str_eq(r->dest.method, "HEAD") && declared &&
	    str_to_u64(declared, 0, INT64_MAX, &length) == 0)
		framing = HTTP_LENGTH;
	fields_for_guest(&f, &head->fields);
	r->status = head->status;
	if (http_exchange_start(r->x, head->status, &f.list, framing, length) < 0)
		request_fail(r, 502, "the answer of the server can't be passed on", NULL);
	else
		r->answering = true;
}

static void call_body(void *user, const uint8_t *p, size_t n)
{
	struct request *r = user;
	r->bytes_down += n;
	ssize_t queued = http_exchange_write(r->x, p, n);
	if (queued < 0)
		request_fail(r, 502, "the answer of the server can't be passed on", NULL);
	else if (queued >= GATEWAY_QUEUE_HIGH)
		http_client_read(upstream_client(r->upstream), false);
}

static void call_end(void *user)
{
	struct request *r = user;
	upstream_release(take_ptr(r->upstream));
	http_exchange_end(request_end(r, r->status, NULL));
}

static void call_drained(void *user)
{
	struct request *r = user;
	http_exchange_read(r->x, true);
}

/* Whether the request may be sent again: it can have had no effect that a second one doesn't have,
   and the first connection was an old one that the server may have closed meanwhile. */
static bool request_may_retry(const struct request *r)
{
	static const char *const methods[] = {"GET", "HEAD", "OPTIONS", "PUT", "DELETE"};
	if (r->retried || r->answering || !upstream_was_idle(r->upstream) ||
	    http_exchange_head(r->x)->framing != HTTP_NO_BODY)
		return false;
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
		if (str_eq(r->dest.method, methods[i]))
			return true;
	return false;
}

static void call_failed(void *user, const struct err *why)
{
	struct request *r = user;
	bool again = request_may_retry(r);
	upstream_drop(take_ptr(r->upstream));
	if (again) {
		r->retried = true;
		request_forward(r);
	} else if (why->code == ETIMEDOUT) {
		request_fail(r, 504, "the server did not answer in time", why->text);
	} else {
		request_fail(r, 502, "the server closed the connection or sent no valid HTTP",
			     why->text);
	}
}

static const struct http_call_ops call_ops = {
	.head = call_head,
	.body = call_body,
	.end = call_end,
	.drained = call_drained,
	.failed = call_failed,
};

/* -- the request -- */

static void exchange_body(void *user, const uint8_t *p, size_t n)
{
	struct request *r = user;
	ssize_t queued = http_client_write(upstream_client(r->upstream), p, n);
	r->bytes_up += n;
	if (queued < 0 || queued >= GATEWAY_QUEUE_HIGH)
		http_exchange_read(r->x, false); /* an error is told by call_failed() */
}

static void exchange_body_end(void *user)
{
	struct request *r = user;
	if (r->state == REQUEST_RUNNING && http_exchange_head(r->x)->framing != HTTP_NO_BODY)
		http_client_finish(upstream_client(r->upstream));
}

static void exchange_drained(void *user)
{
	struct request *r = user;
	if (r->state == REQUEST_RUNNING)
		http_client_read(upstream_client(r->upstream), true);
}

static void exchange_gone(void *user)
{
	struct request *r = user;
	request_end(r, r->status, "the guest closed the connection");
}

static const struct http_exchange_ops exchange_ops = {
	.body = exchange_body,
	.body_end = exchange_body_end,
	.drained = exchange_drained,
	.gone = exchange_gone,
};

/* "host" or "host:port", as the Host field of the canonical destination. */
static void write_host(const struct policy_dest *dest, char out[HOST_FIELD_MAX])
{
	bool usual = dest->port == (dest->scheme == POLICY_HTTPS ? 443 : 80);
	if (usual)
		snprintf(out, HOST_FIELD_MAX, "%s", dest->host);
	else
		snprintf(out, HOST_FIELD_MAX, "%s:%u", dest->host, dest->port);
}

/* Sends the head on r->upstream. 0 or -errno. */
static int request_send_head(struct request *r)
{
	const struct http_head *in = http_exchange_head(r->x);
	char host[HOST_FIELD_MAX];
	struct fields f;
	auto_free char *target = r->query ? str_printf("%s?%s", r->path, r->query) : NULL;
	char *credential = r->secret ? secret_authorization(r->secret) : NULL;
	if ((r->query && !target) || (r->secret && !credential)) {
		secret_text_free(credential);
		return -ENOMEM;
	}
	write_host(&r->dest, host);
	fields_for_upstream(&f, &in->fields, host, credential);
	struct http_head out = {
		.method = in->method,
		.target = target ? target : r->path,
		.minor = 1,
		.fields = f.list,
		.framing = in->framing,
		.length = in->length,
		.keep_alive = true,
	};
	int failed = http_client_call(upstream_client(r->upstream), &out, 0, &call_ops, r);
	secret_text_free(credential);
	return failed;
}

static void request_send(struct request *r, struct upstream *u)
{
	r->upstream = u;
	r->state = REQUEST_RUNNING;
	if (request_send_head(r) < 0) {
		request_fail(r, 502, "the request can't be passed on", NULL);
		return;
	}
	http_exchange_read(r->x, true);
}

static void request_dialled(struct upstream_dial *d, struct upstream *u, unsigned status,
			    const struct err *why)
{
	struct request *r = list_entry(d, struct request, dial);
	if (u)
		request_send(r, u);
	else if (status == 403)
		request_refuse(r, status, why->text, NULL);
	else
		request_fail(r, status, why->text, NULL);
}

static void request_forward(struct request *r)
{
	struct upstream *u = r->retried ? NULL : upstreams_take(r->g->upstreams, &r->dest);
	if (u) {
		request_send(r, u);
		return;
	}
	r->state = REQUEST_DIALLING;
	r->dial.done = request_dialled;
	if (upstream_dial(r->g->upstreams, &r->dest, &r->dial) < 0)
		request_fail(r, 502, "the gateway has no memory", NULL);
}

static void request_recorded(struct control_wait *w, bool written)
{
	struct request *r = list_entry(w, struct request, wait);
	if (written)
		request_forward(r);
	else
		request_unrecorded(r);
}

static void request_record(struct request *r)
{
	r->id = ++r->g->request_id;
	r->state = REQUEST_RECORDING;
	r->wait.done = request_recorded;
	struct record *record = control_record(r->g->control, "egress.request");
	record_number(record, "id", r->id);
	record_string(record, "scheme", scheme_name(r->dest.scheme));
	record_string(record, "host", r->dest.host);
	record_number(record, "port", r->dest.port);
	record_string(record, "method", r->dest.method);
	record_string(record, "path", r->dest.path);
	record_string(record, "rule", r->verdict.rule);
	record_string(record, "credential", r->secret ? secret_name(r->secret) : NULL);
	if (control_send(r->g->control, &r->wait) < 0)
		request_unrecorded(r);
	else
		r->recorded = true;
}

void request_start(struct request *r, struct gateway *g, const struct policy_dest *origin,
		   struct http_exchange *x)
{
	*r = (struct request){.g = g, .x = x, .dest = *origin, .since_us = clock_mono_us()};
	http_exchange_on(x, &exchange_ops, r);
	const struct http_head *head = http_exchange_head(x);
	r->dest.method = head->method;

	struct err why;
	unsigned status = target_judge(head, origin, &r->path, &r->query, &why);
	r->dest.path = r->path;
	if (status) {
		request_refuse(r, status, why.text, NULL);
		return;
	}
	policy_decide(g->policy, &r->dest, &r->verdict);
	if (!r->verdict.allow) {
		char text[ERR_TEXT_MAX];
		snprintf(text, sizeof(text), "no rule allows %s://%s:%u",
			 scheme_name(r->dest.scheme), r->dest.host, r->dest.port);
		request_refuse(r, 403, text, &r->verdict);
		return;
	}
	if (fields_ask_websocket(&head->fields)) {
		request_refuse(r, 501, "WebSocket does not pass this gateway yet", NULL);
		return;
	}
	r->secret = secrets_for(g->secrets, &r->dest);
	request_record(r);
}
