/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1.1 requests over a stream: one at a time, the connection reusable after each; bodies
 * streamed with backpressure. */
#pragma once

#include "base/buf.h"
#include "http/msg.h"
#include "http/stream.h"

struct http_client; /* one connection to one origin */

struct http_call_ops {
	/* The final status; 1xx are swallowed (at most 8). */
	void (*head)(void *user, const struct http_head *head);
	void (*body)(void *user, const uint8_t *p, size_t n);
	/* 101 came, to a request that had upgrade set: the user calls http_client_detach() or
	   http_client_close() before it returns. May be NULL. */
	void (*switched)(void *user, const struct http_head *head);
	/* The trailers of the response body, before end(); HTTP/2 alone. May be NULL. */
	void (*trailers)(void *user, const struct http_fields *fields);
	/* The response is whole; the call is over (our request body may be cut short by it). */
	void (*end)(void *user);
	void (*drained)(void *user);
	/* Connection lost, protocol broken, deadline: the call is over, and so is the client (the
	 * pointer is dead). */
	void (*failed)(void *user, const struct err *why);
};

/* Takes over a stream that is open or still opening (calls wait for opened()). closed(user) is
   called once if the idle connection ends; the pointer is then dead. closed may be NULL. NULL: no
   memory (the stream is closed). */
struct http_client *http_client_new(struct stream *s, void (*closed)(void *user), void *user);

/* Starts a call. request: method, target, fields, framing, length (keep_alive is ours to set);
   borrowed; upgrade asks for the protocol in its field Upgrade. timeout_ms: until the response
   head, 0: none. 0, -EBUSY while a call is on, -EPIPE when not reusable, -EINVAL, -ENOMEM. */
int http_client_call(struct http_client *c, const struct http_head *request, uint64_t timeout_ms,
		     const struct http_call_ops *ops, void *user);

ssize_t http_client_write(struct http_client *c, const void *p,
			  size_t n); /* request body; as http_exchange_write */
/* Fields to be sent behind the request body (copied), before http_client_finish(). HTTP/1.1 drops
 * them. 0, -ENOMEM. */
int http_client_trailers(struct http_client *c, const struct http_fields *fields);
int http_client_finish(struct http_client *c);         /* the request body is whole; not needed for
							  HTTP_NO_BODY. 0, -EPIPE: too short */
void http_client_read(struct http_client *c, bool on); /* flow of the response body; on at first */
void http_client_set_ops(struct http_client *c, const struct http_call_ops *ops, void *user);

/* Idle, not closed, keep-alive agreed, no byte beyond the response, the last request sent whole. */
bool http_client_reusable(const struct http_client *c);
void http_client_close(struct http_client *c); /* at once, no callback */

/* From within switched() alone: hands the stream over, which is still the old users' until
   stream_set_ops() and stream_set_hooks(), and what the server has sent behind its head (the
   caller's to buf_done). The client is dead. 0, or -ENOMEM, and the stream is closed. */
int http_client_detach(struct http_client *c, struct stream **ret, struct buf *ret_early);
struct stream *http_client_stream(struct http_client *c);
unsigned http_client_version(const struct http_client *c); /* 1 or 2 */

/* A whole small call: the response body is collected (at most max bytes) and followed by a NUL. n >
   0 sets the request's framing. done is called exactly once; on failure status is 0 and why is set.
   The client is closed afterwards. Takes c over. 0; -EINVAL, -ENOMEM: done is not called. */
int http_client_fetch(struct http_client *c, const struct http_head *request, const void *body,
		      size_t n, size_t max, uint64_t timeout_ms,
		      void (*done)(void *user, unsigned status, const char *body, size_t n,
				   const struct err *why),
		      void *user);
