/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the HTTP/2 client share: h2_client.c (the calls), h2_response.c (heads that
 * come), h2_session.c (the connection). */
#pragma once

#include <nghttp2/nghttp2.h>

#include "base/buf.h"
#include "base/list.h"
#include "http/client_kind.h"
#include "http/h2_bucket.h"
#include "http/h2_client.h"
#include "http/h2_out.h"

#define H2C_STREAM_IN    (256 * 1024)      /* bytes: a call's window */
#define H2C_SESSION_IN   (4 * 1024 * 1024) /* the connection's */
#define H2C_OUT_MAX      (4 * 1024 * 1024) /* queued on one call, whatever its user does */
#define H2C_SOCKET_HIGH  (64 * 1024)       /* for the socket; past it no frame is made */
#define H2C_HEAD_LIMIT   (1024 * 1024)     /* decoded bytes of one header block */
#define H2C_CONTINUATION 6                 /* CONTINUATION frames of one block */
#define H2C_INTERIM_MAX  8                 /* responses 1xx before the final one */
#define H2C_NOISE_BURST  1000              /* frames that move nothing: so many at once, */
#define H2C_NOISE_RATE   100               /* and so many a second */
#define H2C_CLIENTS_MAX  100               /* at once, whatever the server allows */

struct h2_session {
	struct stream *s; /* NULL when it is gone */
	nghttp2_session *ng;
	void (*closed)(void *user);
	void (*on_settings)(void *user); /* may be NULL */
	void *user;
	struct list clients; /* struct h2_client */
	size_t count;
	unsigned continuations; /* of the present header block */
	struct h2_bucket noise;
	struct err why; /* it must end; code 0: it need not */
	unsigned busy;  /* events being handled */
	bool gathering; /* the present event will be settled */
	bool due;       /* a client has something to be told */
	bool settled;   /* SETTINGS have come */
	bool going;     /* GOAWAY has come */
	bool dead;      /* for the user */
};

struct h2_client {
	struct http_client base;
	struct list link;     /* in the session's clients */
	struct h2_session *h; /* NULL when that is gone */
	int32_t id;           /* 0: no stream */
	unsigned busy;        /* being told something */
	bool dead;            /* for the user */
	bool spent;           /* a call was started */
	bool active;          /* and is not over */

	const struct http_call_ops *ops;
	void *user;
	uint64_t deadline_ms; /* of the head; 0: none */
	bool is_head;         /* the method */
	bool reading;

	/* what comes */
	struct http_fields fields; /* of the head, then of the trailers */
	size_t head_bytes;
	unsigned status, interim;
	bool head_seen; /* the final one, told */
	bool ended_in;
	struct err why; /* the stream has failed; code 0: it has not */
	struct buf in;

	struct h2_out out;
};

/* -- h2_session.c -- */

/* Has the loop look at the session, unless that happens anyway. */
void h2_session_poke(struct h2_session *h);
void h2_session_fail(struct h2_session *h, int code, const char *text);
bool h2_session_noise(struct h2_session *h); /* false: too much, the session is to end */
uint64_t h2_session_now(const struct h2_session *h);

/* -- h2_response.c -- */

int h2_response_begin(nghttp2_session *s, const nghttp2_frame *frame, void *user);
int h2_response_field(nghttp2_session *s, const nghttp2_frame *frame, const uint8_t *name, size_t n,
		      const uint8_t *value, size_t len, uint8_t flags, void *user);
int h2_response_invalid(nghttp2_session *s, const nghttp2_frame *frame, const uint8_t *name,
			size_t n, const uint8_t *value, size_t len, uint8_t flags, void *user);

/* A header block of c is whole. */
void h2_response_block(struct h2_client *c);

/* -- h2_client.c -- */

struct h2_client *h2_client_new(struct h2_session *h);
struct h2_client *h2_client_find(struct h2_session *h, int32_t id);
void h2_client_body(struct h2_client *c, const uint8_t *p, size_t n);
void h2_client_fail(struct h2_client *c, int code, const char *text); /* told by deliver */
void h2_client_reset(struct h2_client *c, uint32_t code, const char *text);
void h2_client_deliver(struct h2_client *c);                     /* may free it */
void h2_client_lost(struct h2_client *c, const struct err *why); /* the session is gone */
void h2_client_enter(struct h2_client *c);
void h2_client_leave(struct h2_client *c); /* may free it */
