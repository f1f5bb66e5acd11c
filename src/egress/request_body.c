/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of a request on its way to the server: as it comes; held until it is whole, where it is
 * short and may hold a placeholder, or where a signature for AWS covers it; or signed anew chunk by
 * chunk.
 */
#include <errno.h>

#include "egress/request_state.h"

#define WHOLE_MAX  (64UL * 1024) /* bytes of a body that is searched before its head leaves */
#define WHOLE_ROOM (64UL * 1024 * 1024) /* bytes of all of them */

static int to_server(void *user, const uint8_t *p, size_t n)
{
	struct request *r = user;
	ssize_t queued = http_client_write(upstream_client(r->upstream), p, n);
	r->bytes_up += n;
	if (queued < 0 || queued >= GATEWAY_QUEUE_HIGH)
		http_exchange_read(r->x, false); /* an error is told by the call's failed() */
	return 0;
}

/* Whether the body is to be searched first. Where there is no room, what is found in it still cuts
 * the request, whose head has left then. */
static bool takes_whole(struct request *r)
{
	const struct http_head *head = http_exchange_head(r->x);
	struct needles *placeholders = secrets_placeholders(r->g->secrets);
	if (!placeholders || needles_empty(placeholders) || r->aws.body != AWS_PASSES ||
	    head->framing != HTTP_LENGTH || !head->length || head->length > WHOLE_MAX ||
	    r->g->whole_held + head->length > WHOLE_ROOM)
		return false;
	buf_init(&r->whole, head->length);
	r->whole_taken = head->length;
	r->g->whole_held += head->length;
	return true;
}

void request_body_done(struct request *r)
{
	r->g->whole_held -= r->whole_taken;
	buf_done(&r->whole);
	r->whole_taken = 0;
}

void request_proceed(struct request *r)
{
	if (r->aws.body != AWS_HELD && !takes_whole(r)) {
		request_forward(r);
		return;
	}
	r->state = REQUEST_HOLDING;
	http_exchange_read(r->x, true);
}

static bool hold(struct request *r, const uint8_t *p, size_t n)
{
	struct err why;
	if (r->whole_taken && buf_append(&r->whole, p, n) < 0) {
		request_fail(r, 503, "the gateway has no memory", NULL);
		return false;
	}
	if (r->whole_taken)
		return true;
	int failed = aws_hold(&r->aws, p, n, &why);
	if (failed)
		request_refuse_secret(r, failed == -EMSGSIZE ? 413 : 503, why.text);
	return !failed;
}

static bool sign_chunks(struct request *r, const uint8_t *p, size_t n)
{
	struct err why;
	int failed = sigv4_stream_push(r->aws.stream, p, n, to_server, r, &why);
	if (failed)
		request_refuse_secret(r, failed == -EBADMSG ? 400 : 503, why.text);
	return !failed;
}

bool request_body(struct request *r, const uint8_t *p, size_t n)
{
	if (r->state == REQUEST_HOLDING)
		return hold(r, p, n);
	if (r->aws.stream)
		return sign_chunks(r, p, n);
	return to_server(r, p, n) == 0;
}

bool request_body_begin(struct request *r, const struct sigv4_chain *chain)
{
	if (r->whole_taken) {
		to_server(r, r->whole.data, r->whole.len);
		request_body_done(r);
		http_client_finish(upstream_client(r->upstream));
		return true;
	}
	if (r->aws.body == AWS_PASSES)
		return true;
	if (r->aws.body != AWS_HELD)
		return aws_follow(&r->aws, chain) == 0;
	if (r->aws.held.len)
		to_server(r, r->aws.held.data, r->aws.held.len);
	buf_done(&r->aws.held);
	http_client_finish(upstream_client(r->upstream));
	return true;
}

static void held_whole(struct request *r)
{
	struct err why;
	if (!r->whole_taken && aws_hash(&r->aws, &why) < 0)
		request_fail(r, 502, why.text, NULL);
	else
		request_forward(r);
}

void request_body_end(struct request *r)
{
	struct err why;
	if (r->state == REQUEST_HOLDING)
		held_whole(r);
	else if (r->aws.stream && sigv4_stream_end(r->aws.stream, &why) < 0)
		request_refuse_secret(r, 400, why.text);
	else if (http_exchange_head(r->x)->framing != HTTP_NO_BODY)
		http_client_finish(upstream_client(r->upstream));
}
