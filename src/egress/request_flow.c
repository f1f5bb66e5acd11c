/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What moves of a request that was sent: the answer's head, written anew, and the bodies both ways.
 * A body is never stored: what one side cannot take pauses the other. Each byte is charged to the
 * limits before it passes.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "egress/fields.h"
#include "egress/request_state.h"

#define HELD_MAX 256 /* bytes that are let go together, and more */

/* -- what is held for a moment -- */

static void held_due(struct delayed *w);

void request_held(struct request *r)
{
	request_stop_guessed(r);
	r->held.due = r->state == REQUEST_RELAYING ? request_relay_held : held_due;
	if (guard_is_weak(&r->guard))
		delay_start(&r->g->held, &r->held);
	else
		delay_cancel(&r->held);
}

int request_guard_now(struct request *r)
{
	struct secrets *set = r->g->secrets;
	return guard_change(&r->guard, secrets_placeholders(set), secrets_values(set));
}

/* -- the answer -- */

uint64_t fields_bytes(const struct http_fields *fields)
{
	uint64_t n = 0;
	for (size_t i = 0; i < fields->count; i++)
		n += strlen(fields->list[i].name) + strlen(fields->list[i].value);
	return n;
}

static bool is_bodiless(const struct request *r, unsigned status)
{
	return str_eq(r->dest.method, "HEAD") || status == 204 || status == 304;
}

/* Has the answer looked through, where it may hold a credential. False: it can't be. */
static bool guard_answer(struct request *r, const struct http_head *head, struct fields *f)
{
	struct err why;
	struct needles *values = secrets_values(r->g->secrets);
	if (!values || !secrets_concern(r->g->secrets, r->dest.host))
		return true;
	struct guard_answer a = {
		.status = head->status,
		.bodiless = is_bodiless(r, head->status),
		.may_be_part = r->secret && secret_kind(r->secret) == SECRET_SIGV4,
	};
	if (guard_head(&r->guard, values, &a, f, &why) == 0)
		return true;
	request_fail(r, 502, why.text, NULL);
	return false;
}

static void call_head(void *user, const struct http_head *head)
{
	struct request *r = user;
	struct fields f;
	enum http_framing framing = head->framing == HTTP_TO_CLOSE ? HTTP_CHUNKED : head->framing;
	uint64_t length = head->length;
	const char *declared = http_fields_get(&head->fields, "Content-Length");
	fields_for_guest(&f, &head->fields, 0);
	if (!guard_answer(r, head, &f))
		return;
	if (str_eq(r->dest.method, "HEAD") && declared &&
	    str_to_u64(declared, 0, INT64_MAX, &length) == 0)
		framing = HTTP_LENGTH;
	else if (framing == HTTP_LENGTH && !length)
		framing = HTTP_NO_BODY; /* so that HTTP/2's head is its end: gRPC's errors are so */
	if (r->guard.decodes && framing != HTTP_NO_BODY)
		framing = HTTP_CHUNKED;
	if (!request_pay(r, QUOTA_DOWN, fields_bytes(&f.list)))
		return;
	r->status = head->status;
	if (http_exchange_start(r->x, head->status, &f.list, framing, length) < 0)
		request_fail(r, 502, "the answer of the server can't be passed on", NULL);
	else
		r->answering = true;
}

/* What becomes of bytes that the guest's side is given. */
struct written {
	struct http_exchange *x;
	ssize_t queued;
};

static void write_answer(void *user, const uint8_t *p, size_t n)
{
	struct written *w = user;
	if (w->queued >= 0)
		w->queued = http_exchange_write(w->x, p, n);
}

/* What was passed to the guest. False: that failed, r is gone. */
static bool answer_written(struct request *r, int failed, const struct written *w)
{
	if (failed < 0 || w->queued < 0) {
		request_fail(r, 502, "the answer of the server can't be passed on", NULL);
		return false;
	}
	if (w->queued >= GATEWAY_QUEUE_HIGH) {
		r->paused = true;
		if (r->upstream)
			http_client_read(upstream_client(r->upstream), false);
	}
	return true;
}

/* Passes bytes of the body on as the guest gets them. False: r is gone. */
static bool answer_pass(struct request *r, const uint8_t *p, size_t n)
{
	struct written w = {.x = r->x};
	if (!request_pay(r, QUOTA_DOWN, n))
		return false;
	r->bytes_down += n;
	int failed = request_guard_now(r);
	if (!failed)
		failed = guard_pass(&r->guard, p, n, write_answer, &w);
	if (!answer_written(r, failed, &w))
		return false;
	request_held(r);
	return true;
}

static void answer_end(struct request *r)
{
	struct written w = {.x = r->x};
	if (r->guard.decode && !decode_whole(r->guard.decode)) {
		request_fail(r, 502, "the encoded answer of the server was cut short", NULL);
		return;
	}
	int failed = guard_pass_end(&r->guard, write_answer, &w);
	if (answer_written(r, failed, &w))
		http_exchange_end(request_end(r, r->status, NULL));
}

/* Decodes what has come, as long as the guest takes it. False: r is gone. */
static bool answer_decode(struct request *r)
{
	uint8_t slice[GUARD_SLICE];
	ssize_t n = 1;
	while (!r->paused && n > 0) {
		n = decode_pull(r->guard.decode, slice, sizeof(slice));
		if (n > 0 && !answer_pass(r, slice, (size_t)n))
			return false;
	}
	if (n < 0) {
		request_fail(r, 502, "the answer of the server is not encoded as it says", NULL);
		return false;
	}
	if (n > 0 || r->state != REQUEST_ENDING)
		return true;
	answer_end(r);
	return false;
}

static void call_body(void *user, const uint8_t *p, size_t n)
{
	struct request *r = user;
	if (!r->guard.decode)
		answer_pass(r, p, n);
	else if (decode_push(r->guard.decode, p, n) < 0)
		request_fail(r, 502, "the answer of the server can't be decoded", NULL);
	else
		answer_decode(r);
}

static void call_trailers(void *user, const struct http_fields *fields)
{
	struct request *r = user;
	struct fields f;
	fields_for_trailers(&f, fields);
	if (!request_pay(r, QUOTA_DOWN, fields_bytes(&f.list)))
		return;
	if (request_guard_now(r) < 0 || guard_trailers(&r->guard, &f) < 0 ||
	    http_exchange_trailers(r->x, &f.list) < 0)
		request_fail(r, 502, "the answer of the server can't be passed on", NULL);
}

static void call_switched(void *user, const struct http_head *head)
{
	request_switch(user, head);
}

static void call_end(void *user)
{
	struct request *r = user;
	upstream_release(take_ptr(r->upstream));
	r->state = REQUEST_ENDING;
	if (r->guard.decode)
		answer_decode(r); /* what is left may wait for the guest */
	else
		answer_end(r);
}

static void call_drained(void *user)
{
	struct request *r = user;
	http_exchange_read(r->x, true);
}

/* Whether the request may be sent again: it can have had no effect that a second one doesn't have,
   and the first connection was an old one that the server may have closed meanwhile; or the server
   says that it has not seen the request. */
static bool request_may_retry(const struct request *r, bool unseen)
{
	static const char *const methods[] = {"GET", "HEAD", "OPTIONS", "PUT", "DELETE"};
	if (r->retried || r->answering || http_exchange_head(r->x)->framing != HTTP_NO_BODY)
		return false;
	if (unseen)
		return true;
	if (!upstream_was_idle(r->upstream))
		return false;
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
		if (str_eq(r->dest.method, methods[i]))
			return true;
	return false;
}

static void call_failed(void *user, const struct err *why)
{
	struct request *r = user;
	bool again = request_may_retry(r, why->code == EAGAIN);
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

const struct http_call_ops request_call_ops = {
	.head = call_head,
	.body = call_body,
	.trailers = call_trailers,
	.switched = call_switched,
	.end = call_end,
	.drained = call_drained,
	.failed = call_failed,
};

/* -- the request -- */

static bool takes_body(const struct request *r)
{
	return r->state == REQUEST_RUNNING || r->state == REQUEST_HOLDING;
}

/* Passes on what guard_push() has found clear. False: nothing more of the request goes on. */
static bool body_guarded(struct request *r, int failed, const struct buf *clear, unsigned index)
{
	if (failed == -EACCES) {
		request_refuse_leak(r, secrets_at(r->g->secrets, index), "the body");
		return false;
	}
	if (failed < 0) {
		request_fail(r, 502, "the gateway has no memory", NULL);
		return false;
	}
	return !clear->len || request_body(r, clear->data, clear->len);
}

static void append_clear(void *user, const uint8_t *p, size_t n)
{
	buf_append(user, p, n); /* a few bytes, for which there is room */
}

static void held_due(struct delayed *w)
{
	struct request *r = list_entry(w, struct request, held);
	struct written written = {.x = r->x};
	auto_buf struct buf clear;
	buf_init(&clear, HELD_MAX);
	int failed = buf_reserve(&clear, HELD_MAX);
	guard_relent_down(&r->guard, write_answer, &written);
	if (!answer_written(r, failed, &written) || !takes_body(r))
		return;
	guard_relent_up(&r->guard, append_clear, &clear);
	body_guarded(r, 0, &clear, 0);
}

static void exchange_body(void *user, const uint8_t *p, size_t n)
{
	struct request *r = user;
	auto_buf struct buf clear;
	unsigned index = 0;
	buf_init(&clear, 0);
	if (!takes_body(r) || !request_pay_body(r, n))
		return;
	int failed = request_guard_now(r);
	if (!failed)
		failed = guard_push(&r->guard, secrets_placeholders(r->g->secrets), p, n, &clear,
				    &index);
	if (body_guarded(r, failed, &clear, index))
		request_held(r);
}

static void exchange_trailers(void *user, const struct http_fields *fields)
{
	struct request *r = user;
	struct fields f;
	if (r->state != REQUEST_RUNNING || !request_check_trailers(r, fields))
		return;
	fields_for_trailers(&f, fields);
	if (request_pay(r, QUOTA_UP, fields_bytes(&f.list)) &&
	    http_client_trailers(upstream_client(r->upstream), &f.list) < 0)
		request_fail(r, 502, "the request can't be passed on", NULL);
}

static void exchange_body_end(void *user)
{
	struct request *r = user;
	auto_buf struct buf clear;
	unsigned index = 0;
	buf_init(&clear, 0);
	if (!takes_body(r))
		return;
	int failed = guard_end(&r->guard, &clear, &index);
	if (body_guarded(r, failed, &clear, index))
		request_body_end(r);
}

static void exchange_drained(void *user)
{
	struct request *r = user;
	if (r->state != REQUEST_RUNNING && r->state != REQUEST_ENDING)
		return;
	r->paused = false;
	if (r->guard.decode && !answer_decode(r))
		return;
	if (r->upstream && !r->paused)
		http_client_read(upstream_client(r->upstream), true);
}

static void exchange_gone(void *user)
{
	struct request *r = user;
	r->dest.method = NULL; /* it was the exchange's */
	request_end(r, r->status, "the guest closed the connection");
}

const struct http_exchange_ops request_exchange_ops = {
	.body = exchange_body,
	.trailers = exchange_trailers,
	.body_end = exchange_body_end,
	.drained = exchange_drained,
	.gone = exchange_gone,
};
