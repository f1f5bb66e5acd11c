/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is looked through on its way between guest and host: bodies of requests for placeholders,
 * answers of hosts with a grant for the values of credentials. The guest's are refused, the host's
 * are hidden by as many '*'.
 */
#pragma once

#include "base/buf.h"
#include "egress/decode.h"
#include "egress/fields.h"
#include "egress/frames.h"
#include "vault/scan.h"

#define GUARD_SLICE       (16UL * 1024) /* bytes of a decoded body that are looked at together */
#define GUARD_PATIENCE_MS 20            /* for more, before a few bytes that are held go on */

/* Of one request. Zero-initialised: nothing is looked through yet. */
struct guard {
	struct scan *up, *down;
	struct frames *frames_up, *frames_down; /* instead, when it has become a WebSocket */
	struct needles *values;
	bool decodes;          /* the answer goes on decoded */
	struct decode *decode; /* NULL: it has no body that must be */
	char **texts;          /* of the fields that are passed on in other words */
	size_t text_count;
};

void guard_done(struct guard *g); /* wipes */

/* -- the request -- */

/* The next bytes of the body; placeholders may be NULL. *ret_clear,
 * the caller's to buf_done, gets those that may go on. 0; -EACCES: there is one, and *ret_index
 * says whose; -ENOMEM. */
int guard_push(struct guard *g, struct needles *placeholders, const uint8_t *p, size_t n,
	       struct buf *ret_clear, unsigned *ret_index);

/* Its end: as above, for what was held. */
int guard_end(struct guard *g, struct buf *ret_clear, unsigned *ret_index);

/* -- the answer -- */

/* What the head of an answer says of its body. */
struct guard_answer {
	unsigned status;
	bool bodiless;    /* whatever the head says */
	bool may_be_part; /* a range was asked for */
};

/* Looks at the head of an answer, of which f are the fields that go on: they are changed, and
 * borrowed from g then. 0; -EBADMSG: the body can't be looked through (why: for the guest),
 * -ENOMEM.
 */
int guard_head(struct guard *g, struct needles *values, const struct guard_answer *a,
	       struct fields *f, struct err *why);

/* Fields behind the body. 0 or -ENOMEM. */
int guard_trailers(struct guard *g, struct fields *f);

/* The next bytes of the body, decoded: what is clear is passed to sink, once guard_head() has
 * succeeded. */
int guard_pass(struct guard *g, const uint8_t *p, size_t n, scan_sink sink, void *user);
int guard_pass_end(struct guard *g, scan_sink sink, void *user);

/* -- a WebSocket -- */

/* The request has become one: its frames are looked through, the guest's for placeholders, the
 * host's for values; either may be NULL. f: the fields of the answer. 0 or -ENOMEM. */
int guard_switch(struct guard *g, struct needles *placeholders, struct needles *values,
		 struct fields *f);

/* -- both -- */

/* What there is to find has changed since; either may be NULL. 0 or -ENOMEM. */
int guard_change(struct guard *g, struct needles *placeholders, struct needles *values);

/* Whether bytes are held that are to go on when no more have come for GUARD_PATIENCE_MS, for who is
 * to answer may wait for them. */
bool guard_is_weak(const struct guard *g);

/* Lets them go. */
void guard_relent_up(struct guard *g, scan_sink sink, void *user);
void guard_relent_down(struct guard *g, scan_sink sink, void *user);
