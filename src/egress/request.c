/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. The destination is computed once (target.c) and policy, limits, record,
 * dial, Host and credential all use it. Then, each step only after the one before: decide, charge,
 * record, wait for the record to be written, connect, send the head anew, let the bodies flow.
 *
 * Nothing of the request leaves before its record is written, and its end is recorded too, with
 * what was moved. A policy that changes meanwhile is asked again (request_recheck).
 */
#include "egress/request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "egress/request_state.h"
#include "egress/target.h"
#include "egress/websocket.h"

const char *request_scheme(const struct request *r)
{
	return r->dest.scheme == POLICY_HTTPS ? "https" : "http";
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
	if (r->secret) {
		record_string(record, "credential", secret_name(r->secret));
		record_number(record, "credential_bytes", secret_bytes(r->secret));
	}
	if (error)
		record_string(record, "error", error);
	int failed = control_send(r->g->control, NULL);
	if (failed < 0 && failed != -EPIPE) /* when spaced is gone, the loop ends anyway */
		gateway_fail(r->g, &(struct err){.code = -failed, .text = "a record was lost"});
}

void request_stop(struct request *r)
{
	control_cancel(&r->wait);
	request_unrelay(r);
	upstream_dial_cancel(&r->dial);
	if (r->upstream)
		upstream_close(take_ptr(r->upstream));
}

struct http_exchange *request_end(struct request *r, unsigned status, const char *error)
{
	struct http_exchange *x = r->x;
	request_stop(r); /* it counts what was relayed */
	request_record_end(r, status, error);
	quota_end(&r->hold);
	list_remove(&r->link);
	buf_done(&r->answer);
	aws_done(&r->aws);
	request_body_done(r);
	delay_cancel(&r->held);
	guard_done(&r->guard);
	request_stop_guessed(r);
	free(r->path);
	if (!x)
		r->owner->ended(r->user);
	free(r);
	return x;
}

void request_fail(struct request *r, unsigned status, const char *text, const char *detail)
{
	bool cut = r->answering;
	struct http_exchange *x = request_end(r, cut ? r->status : status, detail ? detail : text);
	if (cut && x)
		http_exchange_abort(x);
	else if (!cut)
		http_exchange_reply_error(x, status, "%s", text);
}

void request_unrecorded(struct request *r)
{
	request_fail(r, 503, "the audit log does not answer, so nothing was forwarded; try again",
		     "no acknowledgement of the record");
}

/* -- to the server -- */

static void request_dialled(struct upstream_dial *d, struct upstream *u, unsigned status,
			    const struct err *why)
{
	struct request *r = list_entry(d, struct request, dial);
	if (u)
		request_send(r, u);
	else if (status == 403)
		request_refuse(r, status, why->text, NULL, NULL);
	else
		request_fail(r, status, why->text, NULL);
}

void request_forward(struct request *r)
{
	bool fresh = r->retried || r->websocket;
	bool shows = r->secret && secret_kind(r->secret) == SECRET_CERTIFICATE;
	const struct secret *shown = shows ? r->secret : NULL;
	struct upstream *u =
		fresh ? NULL : upstreams_take(r->g->upstreams, &r->dest, shown, r->websocket);
	if (u) {
		request_send(r, u);
		return;
	}
	r->state = REQUEST_DIALLING;
	r->dial.done = request_dialled;
	r->dial.http1 = r->websocket;
	r->dial.shown = shown;
	if (upstream_dial(r->g->upstreams, &r->dest, &r->dial) < 0)
		request_fail(r, 502, "the gateway has no memory", NULL);
}

static void request_recorded(struct control_wait *w, bool written)
{
	struct request *r = list_entry(w, struct request, wait);
	if (written)
		request_proceed(r);
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
	record_string(record, "scheme", request_scheme(r));
	record_string(record, "host", r->dest.host);
	record_number(record, "port", r->dest.port);
	record_string(record, "method", r->dest.method);
	record_string(record, "path", r->dest.path);
	record_string(record, "rule", r->verdict.rule);
	record_string(record, "credential", r->secret ? secret_name(r->secret) : NULL);
	if (r->secret)
		record_number(record, "use", r->use);
	if (r->websocket)
		record_string(record, "upgrade", "websocket");
	if (control_send(r->g->control, &r->wait) < 0)
		request_unrecorded(r);
	else
		r->recorded = true;
}

/* -- judging -- */

/* What the head has of the guest's own, as bytes that it sends out. */
static uint64_t head_bytes(const struct http_head *head)
{
	uint64_t n = strlen(head->method) + strlen(head->target);
	for (size_t i = 0; i < head->fields.count; i++)
		n += strlen(head->fields.list[i].name) + strlen(head->fields.list[i].value);
	return n;
}

/* Takes what the request needs of the limits and the credential. False: it was refused. */
static bool request_charge(struct request *r, const struct http_head *head)
{
	struct quota_excess excess;
	uint64_t declared = head->framing == HTTP_LENGTH ? head->length : 0;
	if (!quota_begin(r->g->quotas, r->verdict.index, uv_now(r->g->loop), &r->hold, &excess) ||
	    !quota_fits(&r->hold, declared, &excess)) {
		request_refuse_excess(r, &excess);
		return false;
	}
	if (!request_pay(r, QUOTA_UP, head_bytes(head)))
		return false;
	if (r->secret)
		r->use = secret_use(r->secret);
	return true;
}

static void request_judge(struct request *r, const struct policy_dest *origin)
{
	const struct http_head *head = http_exchange_head(r->x);
	struct err why;
	unsigned status = target_judge(head, origin, &r->path, &r->query, &why);
	r->dest.path = r->path;
	if (status) {
		request_refuse(r, status, why.text, NULL, NULL);
		return;
	}
	if (!request_check_head(r, head))
		return;
	policy_decide(r->g->policy, &r->dest, &r->verdict);
	if (!r->verdict.allow) {
		request_refuse_verdict(r, &r->verdict);
		return;
	}
	r->websocket = websocket_wanted(head);
	if (r->websocket && websocket_check_request(head, &why) < 0) {
		request_refuse(r, 400, why.text, NULL, NULL);
		return;
	}
	if (request_find_secret(r) && request_charge(r, head))
		request_record(r);
}

void request_start(struct gateway *g, const struct policy_dest *origin, struct http_exchange *x,
		   const struct request_owner *owner, void *user)
{
	struct request *r = calloc(1, sizeof(*r));
	if (!r) {
		http_exchange_abort(x); /* nothing was decided, nothing happens */
		return;
	}
	r->g = g;
	r->owner = owner;
	r->user = user;
	r->x = x;
	r->dest = *origin;
	r->since_us = clock_mono_us();
	r->dest.method = http_exchange_head(x)->method;
	list_append(&g->requests, &r->link);
	http_exchange_on(x, &request_exchange_ops, r);
	request_judge(r, origin);
}

/* -- judging again -- */

/* Whether its answer passes unsearched, though the host has got a grant since it began. */
static bool request_is_unguarded(const struct request *r)
{
	return r->answering && !r->guard.values && secrets_concern(r->g->secrets, r->dest.host);
}

void request_recheck(struct request *r)
{
	struct policy_verdict now;
	struct quota_excess excess;
	struct err why;
	if (r->state == REQUEST_REFUSING)
		return;
	policy_decide(r->g->policy, &r->dest, &now);
	if (!now.allow) {
		request_refuse_verdict(r, &now);
		return;
	}
	r->verdict = now;
	if (!quota_move(&r->hold, now.index, &excess) ||
	    !quota_alive(&r->hold, uv_now(r->g->loop), &excess)) {
		request_refuse_excess(r, &excess);
	} else if (r->state >= REQUEST_RUNNING && gateway_way_changed(r->g, r->dest.host)) {
		request_refuse(r, 403, "the way to this host has changed", &now, NULL);
	} else if (request_is_unguarded(r)) {
		request_refuse_secret(
			r, 403,
			"a credential was granted for this host, and this connection began before");
	} else if (!request_keeps_secret(r, &why)) {
		request_refuse_secret(r, 403, why.text);
	} else if (r->state == REQUEST_DIALLING) {
		upstream_dial_cancel(&r->dial); /* names and proxies may lead elsewhere now */
		request_forward(r);
	}
}

void requests_recheck(struct gateway *g)
{
	list_for_each (it, &g->requests)
		request_recheck(list_entry(it, struct request, link));
}

void requests_close(struct gateway *g, const char *why)
{
	while (!list_empty(&g->requests)) { /* one's end may be that of others */
		struct request *r = list_entry(g->requests.next, struct request, link);
		struct http_exchange *x = request_end(r, r->status, why);
		if (x)
			http_exchange_abort(x);
	}
}
