/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that are refused: first the record, then the answer, and both say the same. */
#include <stdio.h>
#include <string.h>

#include "egress/request_state.h"

/* Whether the peer has shown nothing worse than a wish: it may go on on this connection. */
static bool may_go_on(unsigned status)
{
	return status == 403 || status == 429 || status == 503;
}

/* The whole answer, and for those that show a broken or lying peer the end of the connection. */
static void request_answer_refusal(struct request *r)
{
	unsigned status = r->answer_status;
	struct buf body = r->answer;
	r->answer = (struct buf){0};
	struct http_exchange *x = request_end(r, status, "denied");
	if (may_go_on(status)) {
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

/* What has begun can only end. */
static void request_cut(struct request *r, const struct denial *d)
{
	deny_record(r->g->control, d, NULL); /* its end, which follows, says it too */
	request_fail(r, r->status, d->reason, NULL);
}

void request_refuse(struct request *r, unsigned status, const char *reason,
		    const struct policy_verdict *verdict, const char *limit)
{
	struct denial d = {
		.status = status,
		.scheme = request_scheme(r),
		.host = r->dest.host,
		.port = r->dest.port,
		.method = r->dest.method,
		.path = r->dest.path,
		.reason = reason,
		.limit = limit,
		.leak = r->leak,
		.alarm = r->alarm,
	};
	if (verdict) {
		d.rule = verdict->rule;
		d.allow_with = verdict->hint[0] ? verdict->hint : NULL;
	}
	request_stop(r);
	if (r->answering) {
		request_cut(r, &d);
		return;
	}
	http_exchange_read(r->x, false);
	r->state = REQUEST_REFUSING;
	r->answer_status = status;
	r->wait.done = refusal_recorded;
	buf_init(&r->answer, DENY_BODY_MAX);
	if (deny_body(&r->answer, &d) < 0 || deny_record(r->g->control, &d, &r->wait) < 0)
		request_unrecorded(r);
}

void request_refuse_verdict(struct request *r, const struct policy_verdict *verdict)
{
	char text[ERR_TEXT_MAX];
	const struct policy_dest *d = &r->dest;
	struct policy_dest secure = *d;
	secure.scheme = POLICY_HTTPS;
	const char *why = "no rule allows";
	if (verdict->index != POLICY_NO_RULE)
		why = "a rule denies";
	else if (strstr(d->path, "%2F"))
		why = "no rule allows, with an encoded slash in the path,";
	else if (d->scheme == POLICY_HTTP && secrets_for(r->g->secrets, &secure))
		why = "the host's credential goes by https alone, and no rule allows";
	snprintf(text, sizeof(text), "%s %.32s %s://%s:%u%.96s", why, d->method, request_scheme(r),
		 d->host, d->port, d->path);
	request_refuse(r, 403, text, verdict, NULL);
}

void request_refuse_excess(struct request *r, const struct quota_excess *excess)
{
	struct quota_excess why = *excess;
	struct policy_verdict by = r->verdict;
	by.hint[0] = '\0';
	request_refuse(r, why.status, why.reason, &by, why.limit);
}

void request_refuse_secret(struct request *r, unsigned status, const char *reason)
{
	struct policy_verdict by = r->verdict;
	by.hint[0] = '\0';
	request_refuse(r, status, reason, &by, NULL);
}

void request_refuse_leak(struct request *r, const struct secret *s, const char *where)
{
	char text[ERR_TEXT_MAX];
	const struct policy_dest *d = &r->dest;
	const char *name = secret_name(s);
	const struct secret *granted = secrets_for(r->g->secrets, d);
	if (d->address.family || !secret_has_host(s, d->host))
		snprintf(text, sizeof(text),
			 "the placeholder of %s was sent to %s: it is worth nothing there", name,
			 d->host);
	else if (d->scheme != POLICY_HTTPS)
		snprintf(text, sizeof(text),
			 "the placeholder of %s was sent over plain http: the credential goes by "
			 "https alone",
			 name);
	else if (!granted)
		snprintf(text, sizeof(text), "%s is not granted for %.32s %.200s", name, d->method,
			 d->path);
	else
		snprintf(text, sizeof(text),
			 "the placeholder of %s was sent in %s, where nothing is put in its place",
			 name, where);
	r->leak = name;
	r->alarm = secret_is_canary(s) ? name : NULL;
	request_refuse(r, 403, text, NULL, NULL);
}

void request_stop_guessed(struct request *r)
{
	struct secret *s;
	while ((s = secrets_stop_guessed(r->g->secrets))) {
		struct err why = {0};
		secret_stopped(s, uv_now(r->g->loop), &why);
		struct denial d = {
			.scheme = request_scheme(r),
			.host = r->dest.host,
			.port = r->dest.port,
			.method = r->dest.method,
			.path = r->dest.path,
			.reason = why.text,
			.alarm = secret_name(s),
			.stopped = secret_name(s),
		};
		int failed = deny_record(r->g->control, &d, NULL);
		if (failed < 0 && failed != -EPIPE)
			gateway_fail(r->g,
				     &(struct err){.code = -failed, .text = "a record was lost"});
		gateway_recheck_soon(r->g);
	}
}
