/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serving HTTP on a stream. HTTP/1.1: requests one after the other (pipelined ones wait), bodies
 * streamed with backpressure in both directions. Malformed requests are answered and the connection
 * closed without asking the user.
 *
 * The peer's end of sending cancels: an exchange that is open gets gone(), what it had not yet sent
 * is dropped. Callbacks are never made from inside a call, but gone() from http_conn_close() and
 * from a http_exchange_collect() without memory. A peer that leaves while more than 64 KiB of its
 * bytes are unread is noticed only when they are read or a write fails.
 */
#pragma once

#include "base/buf.h"
#include "http/msg.h"
#include "http/stream.h"

struct http_conn;     /* a served connection */
struct http_exchange; /* one request and its response */

struct http_server_ops {
	/* A head has come. The user keeps x until it ends (http_exchange_end, _reply, _abort) or
	   gone() is called. http_exchange_on() must be called before returning, unless x was
	   answered. */
	void (*request)(void *user, struct http_exchange *x);
	/* A request was refused by the codec with this status before request(); for records. May be
	 * NULL. */
	void (*refused)(void *user, unsigned status);
	/* The connection is over; the pointer from http_serve() is dead. Every exchange was told
	 * before. */
	void (*closed)(void *user);
};

struct http_exchange_ops {
	void (*body)(void *user, const uint8_t *p, size_t n);
	void (*body_end)(void *user); /* also for requests without a body, once reading is on */
	void (*drained)(void *user);
	/* The peer vanished or broke the protocol before the end; x is dead. */
	void (*gone)(void *user);
	/* The trailers of the request body, before body_end(); HTTP/2 alone. */
	void (*trailers)(void *user, const struct http_fields *fields);
	/* Any may be NULL. */
};

struct http_limits {
	uint64_t head_timeout_ms;  /* from first byte to complete head; 0: none */
	uint64_t idle_timeout_ms;  /* between requests; 0: none */
	uint64_t stall_timeout_ms; /* HTTP/2: while an answer waits and the peer takes none; 0: none
				    */
};

/* Takes the stream over (also on failure) and starts reading; early are bytes already read. NULL:
 * no memory. */
struct http_conn *http_serve(struct stream *s, const uint8_t *early, size_t n,
			     const struct http_limits *limits, const struct http_server_ops *ops,
			     void *user);

/*
 * HTTP/2 on a stream that agreed to it: as http_serve, but many exchanges at once (100 at most),
 * each with its own flow: what http_exchange_write() returns is what is queued on that exchange, or
 * more where all of them together have too much. A malformed request is an error of its stream and
 * is told by refused(), as are those that HTTP/1.1 would not serve, which get the same answers. A
 * peer that floods (resets, settings, pings, empty frames, endless or inflated heads) or takes
 * nothing of what waits for it loses the connection by GOAWAY, ENHANCE_YOUR_CALM.
 * http_exchange_abort() resets the stream; behind a whole answer it ends the connection once its
 * other exchanges have ended. http_exchange_switch() is -ENOTSUP. Source: RFC 9113.
 */
struct http_conn *http_serve_h2(struct stream *s, const struct http_limits *limits,
				const struct http_server_ops *ops, void *user);

/* Closes at once; open exchanges get gone(); closed() is not called. */
void http_conn_close(struct http_conn *c);
struct stream *http_conn_stream(struct http_conn *c);

const struct http_head *http_exchange_head(const struct http_exchange *x);
struct http_conn *http_exchange_conn(const struct http_exchange *x);
unsigned http_exchange_version(const struct http_exchange *x); /* 1 or 2 */
void http_exchange_on(struct http_exchange *x, const struct http_exchange_ops *ops, void *user);

/* Turns the flow of the request body on or off; it starts off. The first "on" answers Expect:
 * 100-continue. */
void http_exchange_read(struct http_exchange *x, bool on);

/*
 * Starts the response: status, fields (borrowed), framing. HTTP_TO_CLOSE is not for the caller:
 * HTTP_CHUNKED becomes it for an HTTP/1.0 peer. HEAD and 204/304 drop bodies. 0, -EINVAL, -ENOMEM.
 */
int http_exchange_start(struct http_exchange *x, unsigned status, const struct http_fields *fields,
			enum http_framing framing, uint64_t length);

/* Queues body bytes. Returns the bytes now queued on the connection, or -errno (-EPIPE past the
 * length). */
ssize_t http_exchange_write(struct http_exchange *x, const void *p, size_t n);

/* Fields to be sent behind the body (copied), once it has been started. HTTP/1.1 drops them. 0,
 * -ENOMEM. */
int http_exchange_trailers(struct http_exchange *x, const struct http_fields *fields);

/* Ends the response; x is dead. A request body that was not read to its end costs the connection
   (after what is queued). A response shorter than its length cuts it. */
void http_exchange_end(struct http_exchange *x);

/* Cuts the connection without ending the response, after what is queued; x is dead. (Where the end
   of the connection would be the end of the body, at once and by a reset.) */
void http_exchange_abort(struct http_exchange *x);

/*
 * Answers 101 with fields (borrowed; Upgrade among them) and hands the stream over, which is still
 * the old users' until stream_set_ops() and stream_set_hooks(), and what the peer has sent behind
 * its head (the caller's to buf_done). x and its connection are dead; closed() is not called. For a
 * request of HTTP/1.1 without a body, not from within its callbacks. On failure all is as it was:
 * -EINVAL, -ENOMEM, -ENOTSUP where the connection is not x's alone.
 */
int http_exchange_switch(struct http_exchange *x, const struct http_fields *fields,
			 struct stream **ret, struct buf *ret_early);

/* A whole response in one call: start, write, end. x is dead, also on failure. */
void http_exchange_reply(struct http_exchange *x, unsigned status, const char *content_type,
			 const void *body, size_t n);

/* {"code": status, "message": text} */
void http_exchange_reply_error(struct http_exchange *x, unsigned status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Collects the whole request body, at most max bytes (413 past it; the exchange is then answered
   and done is not called). done gets x alive, the body valid during the call and followed by a NUL.
   gone, which may be NULL, when the peer vanished before x ended, also after done unless the user
   has called http_exchange_on; and when a body too large was answered. Calls http_exchange_on
   itself. */
void http_exchange_collect(struct http_exchange *x, size_t max,
			   void (*done)(void *user, struct http_exchange *x, const char *body,
					size_t n),
			   void (*gone)(void *user), void *user);
