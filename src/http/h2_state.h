/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the HTTP/2 server share: h2_server.c (the connection), h2_request.c (what
 * comes), and h2_exchange.c (what goes). */
#pragma once

#include <nghttp2/nghttp2.h>

#include "base/buf.h"
#include "base/list.h"
#include "http/exchange.h"
#include "http/h2_bucket.h"
#include "http/h2_out.h"

#define H2_STREAMS_MAX 100   /* at once, on one connection */
#define H2_STREAM_IN   65535 /* bytes of a body that nobody reads: the stream's window */
/* Declared bytes of a body that is heard out after an early answer, for many clients drop an answer
 * when their sending is cut. */
#define H2_BRIEF        16384
#define H2_CONN_IN      (1024 * 1024)     /* those of all streams: the connection's window */
#define H2_OUT_MAX      (4 * 1024 * 1024) /* bytes queued on one exchange, whatever its user does */
#define H2_OUT_HIGH     (512 * 1024)      /* on all: past it, each is told to pause */
#define H2_SOCKET_HIGH  (64 * 1024)       /* bytes for the socket; past it no frame is made */
#define H2_HEAD_LIMIT   (1024 * 1024) /* decoded bytes of one header block; past it it is a bomb */
#define H2_CONTINUATION 6 /* CONTINUATION frames of one block: more than HTTP_HEAD_MAX */

/* Frames that ask for work and move nothing, and streams that were reset or refused: so many at
 * once, and so many a second. */
#define H2_NOISE_BURST  1000
#define H2_NOISE_RATE   100
#define H2_RESETS_BURST 200
#define H2_RESETS_RATE  20

struct h2_conn {
	struct http_conn base;
	nghttp2_session *session;
	const struct http_server_ops *ops;
	void *user;
	struct http_limits limits;
	struct list streams; /* struct h2_exchange */
	struct list *next;   /* while all are told: whose turn is next, should any end meanwhile */
	struct h2_exchange
		*current;    /* whose user is being told; NULL when it has ended meanwhile */
	size_t queued;       /* bytes in the queues of all exchanges */
	uint64_t head_since; /* when the head that is not whole began; 0: none */
	uint64_t idle_since; /* since when there is no stream; 0: there are */
	struct h2_bucket noise, resets;
	unsigned continuations; /* of the present header block */
	uint32_t error;         /* why it must end, of HTTP/2's codes; 0: it need not */
	unsigned refused_with;  /* the status that tells that error */
	unsigned busy;          /* events being handled */
	bool gathering;         /* conn_settle() will come by */
	bool due;               /* an exchange has something to be told */
	bool draining;          /* it ends with its last stream */
	bool last;              /* it ends now */
	bool dead;              /* for the user */
};

enum h2_stage {
	H2_HEAD, /* its head is coming */
	H2_OPEN, /* the user has it */
	H2_DONE, /* the user has not, what is queued still goes out */
};

struct h2_exchange {
	struct http_exchange base;
	struct list link; /* in the connection's streams */
	int32_t id;       /* 0: its stream is closed */
	enum h2_stage stage;

	/* what comes */
	struct http_fields fields, trailers;
	char *method, *target, *scheme, *authority;
	struct buf cookie; /* its crumbs, joined */
	struct buf in;
	size_t head_bytes;
	unsigned fault; /* the status of its refusal; 0: none */
	bool reading, continued;
	bool ended_in; /* END_STREAM has come */
	bool brief;    /* a body of at most H2_BRIEF bytes is declared */
	bool told_end;

	/* what goes */
	struct h2_out out;
	uint64_t moved_ms;
	bool started;
	bool bare; /* the head ends the stream: nothing follows */
	bool cut;  /* ends by a reset when out is empty */
	bool sent_end;
};

static inline struct h2_conn *h2_conn_of(const struct h2_exchange *x)
{
	return (struct h2_conn *)x->base.conn;
}

uint64_t h2_now(const struct h2_conn *c);

/* -- h2_server.c -- */

/* Has the loop look at the connection, unless that happens anyway. */
void h2_conn_poke(struct h2_conn *c);

/* One more of what a peer may do so often. False: too often, the connection is to end. */
bool h2_charge_noise(struct h2_conn *c);
bool h2_charge_reset(struct h2_conn *c);
void h2_conn_calm(struct h2_conn *c);

/* -- h2_request.c -- */

int h2_on_begin_headers(nghttp2_session *s, const nghttp2_frame *frame, void *user);
int h2_on_header(nghttp2_session *s, const nghttp2_frame *frame, const uint8_t *name, size_t n,
		 const uint8_t *value, size_t len, uint8_t flags, void *user);
int h2_on_invalid_header(nghttp2_session *s, const nghttp2_frame *frame, const uint8_t *name,
			 size_t n, const uint8_t *value, size_t len, uint8_t flags, void *user);

/* The head is whole: hands it to the user, or refuses it. */
void h2_request_complete(struct h2_exchange *x);

/* -- h2_exchange.c -- */

extern const struct http_exchange_kind h2_kind;

struct h2_exchange *h2_exchange_find(struct h2_conn *c, int32_t id);
struct h2_exchange *h2_exchange_new(struct h2_conn *c, int32_t id);

/* Frees it; the user, where there is one, gets gone(). */
void h2_exchange_lose(struct h2_exchange *x);

/* Ends the stream by RST_STREAM; nothing more goes out. The user does not have it. */
void h2_exchange_reset(struct h2_exchange *x, uint32_t code);

/* Tells the user what is there for him. */
void h2_exchange_deliver(struct h2_exchange *x);

void h2_exchange_body(struct h2_exchange *x, const uint8_t *p, size_t n);
void h2_exchange_closed(struct h2_exchange *x);
void h2_exchange_sent_end(struct h2_exchange *x);
