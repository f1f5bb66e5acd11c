/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one transport: a byte stream on a libuv loop over TCP or a unix socket, with or without TLS.
 *
 * Ownership: a stream is the caller's until exactly one of these: the caller calls stream_close(),
 * or the stream calls closed(). After either no callback comes and the pointer is dead. Callbacks
 * are never made from inside a call on the same stream by its user. (Failures found inside a call
 * are delivered from the loop.) A user may do all of it, closing included, inside any callback.
 *
 * Sending never raises SIGPIPE. When sending fails, what the peer sent before is still delivered,
 * unless reading is paused, and then closed() comes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

#include "base/err.h"

struct stream;
struct tls_context;

struct stream_ops {
	/* Connected, and TLS agreed where asked for. Only for streams that were connecting or
	 * handshaking. May be NULL. */
	void (*opened)(void *user);
	/* n > 0 bytes have come; valid during the call. */
	void (*data)(void *user, const uint8_t *p, size_t n);
	/* The peer has finished sending (for TLS: close_notify; a bare FIN is an error). Writing is
	 * still possible. */
	void (*eof)(void *user);
	/* All that was queued is handed to the kernel. Follows whenever a write has returned more
	 * than 0. */
	void (*drained)(void *user);
	/* Gone by error or time-out, why says which. Never after stream_close(). */
	void (*closed)(void *user, const struct err *why);
};

#define STREAM_QUEUE_HIGH (256 * 1024) /* bytes; past this, a polite writer waits for drained() */

/* Connects to addr; timeout_ms covers connection and TLS. ops and user may be changed later. NULL
 * with e set on failure. */
struct stream *stream_connect(uv_loop_t *loop, const struct sockaddr *addr, socklen_t len,
			      uint64_t timeout_ms, const struct stream_ops *ops, void *user,
			      struct err *e);

/* Takes over a connected TCP or unix stream socket. ops may be NULL until stream_set_ops(). On
 * failure the fd is closed. */
struct stream *stream_adopt(uv_loop_t *loop, int fd, const struct stream_ops *ops, void *user,
			    struct err *e);

void stream_set_ops(struct stream *s, const struct stream_ops *ops, void *user);

/* Reading starts paused. */
void stream_read(struct stream *s, bool on);

/* Queues a copy of n bytes; small writes of one turn of the loop leave in one system call. Returns
   the bytes now queued (compare with STREAM_QUEUE_HIGH), or -EPIPE after stream_shutdown(),
   -ENOMEM. */
ssize_t stream_write(struct stream *s, const void *p, size_t n);
size_t stream_queued(const struct stream *s);

/* Sends what is queued, then closes our direction (TLS: close_notify). */
void stream_shutdown(struct stream *s);

/* Closes at once, dropping what is queued. */
void stream_close(struct stream *s);

/* Closes when what is queued was sent, or after timeout_ms. The pointer is dead after the call.
   What the peer still sends is read and dropped for up to a second, so that the kernel does not
   throw our last bytes away. */
void stream_close_gracefully(struct stream *s, uint64_t timeout_ms);

/* Closes at once what still sends its last words on this loop, which is about to end. */
void stream_close_detached(const uv_loop_t *loop);

/* closed() with ETIMEDOUT when no byte moves in either direction for ms; 0 turns it off. */
void stream_set_idle_timeout(struct stream *s, uint64_t ms);

int stream_fd(const struct stream *s); /* borrowed */
uv_loop_t *stream_loop(const struct stream *s);

/* Bytes moved since the start, on the wire. */
uint64_t stream_bytes_in(const struct stream *s);
uint64_t stream_bytes_out(const struct stream *s);

/*
 * TLS over an open stream; opened() follows when agreed, closed() when not. Server: early are bytes
 * already read (the ClientHello's beginning). Client: host is the SNI and the name that the
 * certificate must carry; protocols (or-ed) are offered by ALPN, h2 first.
 */
enum tls_protocol { TLS_HTTP1 = 1, TLS_HTTP2 = 2 };
int stream_tls_server(struct stream *s, struct tls_context *ctx, const uint8_t *early, size_t n,
		      uint64_t timeout_ms, struct err *e);
int stream_tls_client(struct stream *s, struct tls_context *ctx, const char *host,
		      unsigned protocols, uint64_t timeout_ms, struct err *e);

/* The SNI that the client sent, NULL when none. Server side, after opened(). */
const char *stream_tls_sni(const struct stream *s);

/* What ALPN agreed on, after opened(); TLS_HTTP1 where it was not used, or without TLS. */
enum tls_protocol stream_tls_protocol(const struct stream *s);

/* A listening socket: accept(user, fd) gets each connection, non-blocking, and owns it. */
struct stream_listener;
struct stream_listener *stream_listen(uv_loop_t *loop, int fd, void (*accepted)(void *user, int fd),
				      void *user,
				      struct err *e); /* takes fd over, also on failure */
void stream_listener_close(struct stream_listener *l);
