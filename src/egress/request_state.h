/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a request share: request.c (its life), request_credential.c (what it may use),
 * request_leak.c (what it must not hold), request_head.c (how it is sent), request_body.c (what
 * follows the head), request_flow.c (what moves), request_refuse.c (what does not), and
 * request_websocket.c. */
#pragma once

#include "base/buf.h"
#include "egress/aws.h"
#include "egress/deny.h"
#include "egress/guard.h"
#include "egress/quota.h"
#include "egress/request.h"
#include "egress/upstream.h"
#include "vault/inject.h"

enum request_state {                    /* in their order */
		     REQUEST_REFUSING,  /* the record of a denial is on its way */
		     REQUEST_RECORDING, /* the record of the decision is */
		     REQUEST_HOLDING,   /* its body comes, and goes with the head */
		     REQUEST_DIALLING,
		     REQUEST_RUNNING,  /* sent; bodies flow */
		     REQUEST_ENDING,   /* the whole answer is here; the guest has yet to take it */
		     REQUEST_RELAYING, /* it has become a WebSocket */
};

struct request {
	struct list link; /* in gateway.requests */
	enum request_state state;
	struct gateway *g;
	const struct request_owner *owner;
	void *user;              /* the owner's */
	struct http_exchange *x; /* NULL while relaying */
	struct policy_dest dest; /* canonical; path points to path */
	char *path;
	const char *query; /* inside the head of x; NULL: none */
	struct policy_verdict verdict;
	struct secret *secret; /* that it has used; NULL: none */
	uint64_t use;          /* the number of that use */
	struct aws aws;
	struct buf whole;     /* of a body that is searched before anything leaves */
	uint64_t whole_taken; /* bytes of the room for such bodies; 0: it passes as it comes */
	struct guard guard;
	struct delayed held; /* while the guard is weak */
	struct control_wait wait;
	struct buf answer; /* while refusing: the body */
	unsigned answer_status;
	struct upstream_dial dial;
	struct upstream *upstream;
	struct quota_hold hold;
	bool recorded;  /* an egress.request needs its egress.response */
	bool websocket; /* it asks to become one */
	bool retried, answering;
	bool paused;                /* the guest has enough of the answer to take */
	bool spent;                 /* the relay ended for want of bytes of the credential */
	const struct secret *stray; /* or for its placeholder, which the guest sent; NULL: none */
	const char *leak, *alarm;   /* of its denial; NULL: none */
	struct relay *relay;
	struct quota_excess excess; /* why the relay ended; limit NULL: not for that */
	uint64_t id, since_us, bytes_up, bytes_down;
	unsigned status;
};

/* -- request.c -- */

/* Decided, recorded, and its record written: connects. */
void request_forward(struct request *r);

/* Records the end of what was recorded; error is NULL when all went well. Frees r, and returns its
 * exchange, which is still to be answered or cut; NULL after relaying, when nothing is. */
struct http_exchange *request_end(struct request *r, unsigned status, const char *error);

/* No upstream to answer with: the gateway says so, or cuts an answer that has begun. detail is for
 * the record alone, it may name addresses; NULL: text. r is gone. */
void request_fail(struct request *r, unsigned status, const char *text, const char *detail);

/* The record was not written: 503. r is gone. */
void request_unrecorded(struct request *r);

/* Lets go of the way to the server, and of what is waited for. */
void request_stop(struct request *r);

/* -- request_refuse.c -- */

/* Records that it is refused, then answers. verdict: the decision that did, or NULL; limit: the
 * limit's name, or NULL. An answer that has begun is cut. r is gone, or will be. */
void request_refuse(struct request *r, unsigned status, const char *reason,
		    const struct policy_verdict *verdict, const char *limit);
void request_refuse_verdict(struct request *r, const struct policy_verdict *verdict);
void request_refuse_excess(struct request *r, const struct quota_excess *excess);

void request_refuse_secret(struct request *r, unsigned status, const char *reason);

/* For the placeholder of s, which is where it does not belong; where: as in "sent in …". */
void request_refuse_leak(struct request *r, const struct secret *s, const char *where);

/* Revokes what is being guessed, if anything: r has seen to it. What else uses it is cut soon. */
void request_stop_guessed(struct request *r);

/* -- request_credential.c -- */

/* Finds the credential that it gets, if any; nothing is counted yet. False: it was refused, for
 * what can't be used is never left out. */
bool request_find_secret(struct request *r);

/* Charges n bytes that are about to pass to the limits, and to what is left of the credential.
 * False: it was refused, or cut. The second: as bytes of its body. */
bool request_pay(struct request *r, enum quota_way way, uint64_t n);
bool request_pay_body(struct request *r, uint64_t n);

/* The second half of the above, which refuses nothing: says why. */
bool request_pay_secret(struct request *r, uint64_t n, struct err *why);

/* Whether it may go on with what it has used; else why not. */
bool request_keeps_secret(const struct request *r, struct err *why);

/* -- request_body.c -- */

/* Lets go of what is held of the body. */
void request_body_done(struct request *r);

/* The record is written: has the body come that is to be held, then connects. */
void request_proceed(struct request *r);

/* The head was sent: what was held follows; chunks that are signed follow chain. False: no memory.
 */
bool request_body_begin(struct request *r, const struct sigv4_chain *chain);

/* Bytes of the body, and their end, as the guest sent them: on to where they belong. False: it was
 * refused. */
bool request_body(struct request *r, const uint8_t *p, size_t n);
void request_body_end(struct request *r);

/* -- request_leak.c -- */

/* Looks for placeholders in the head. False: it was refused for one. */
bool request_check_head(struct request *r, const struct http_head *head);
bool request_check_trailers(struct request *r, const struct http_fields *fields);

/* -- request_head.c -- */

/* Sends the head on u, and lets the bodies flow. */
void request_send(struct request *r, struct upstream *u);

/* What s makes of the request. 0, -EINVAL, -ENOMEM. */
int request_inject(const struct request *r, const struct secret *s, struct injection *ret,
		   struct err *e);

/* -- request_flow.c -- */

extern const struct http_exchange_ops request_exchange_ops;
extern const struct http_call_ops request_call_ops;

/* What there is to find now, before anything is looked through. 0 or -ENOMEM. */
int request_guard_now(struct request *r);

/* After bytes of either side have been looked through: those that wait now go on soon, if nothing
 * follows them. */
void request_held(struct request *r);

uint64_t fields_bytes(const struct http_fields *fields);

/* -- request_websocket.c -- */

/* The server has answered 101. */
void request_switch(struct request *r, const struct http_head *answer);

/* What its guard has held for a moment goes on. */
void request_relay_held(struct delayed *held);

/* Cuts the relay, where there is one. */
void request_unrelay(struct request *r);

const char *request_scheme(const struct request *r);
