/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limits of a policy, and what has been used of them: of the sandbox as a whole and of each
 * rule. What would pass a limit is refused before it happens, and nothing is charged then. No I/O,
 * no clock: the caller says what time it is.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "policy/policy.h"

struct quotas;      /* of one gateway */
struct quota_entry; /* of the sandbox or one rule */

/* Why something is over a limit. */
struct quota_excess {
	unsigned status;   /* to answer: 403 for good, 413 for a body, 429 for later */
	const char *limit; /* its name in a policy document; static */
	char reason[160];
};

/* What one request, tunnel or WebSocket holds, from begin to end. Zero-initialised holds nothing.
 * Private members. */
struct quota_hold {
	struct quotas *all;       /* NULL: holds nothing */
	struct quota_entry *rule; /* NULL: no rule of its own */
	uint64_t body;            /* bytes of its body */
};

enum quota_way { QUOTA_UP, QUOTA_DOWN };

struct quotas *quotas_new(void); /* without limits. NULL: no memory */
void quotas_free(struct quotas *q);

/* Takes over the limits of p, which is not kept. What the sandbox has used stays used; rules and
 * lifetimes begin anew. 0, or -ENOMEM and all is as it was. */
int quotas_set(struct quotas *q, const struct policy *p, uint64_t now_ms);

/* Until the next lifetime ends, at least 1 ms; 0: none will. */
uint64_t quotas_next_end_ms(const struct quotas *q, uint64_t now_ms);

/*
 * The start of a request or tunnel that rule number `rule` allows: one request, and one connection
 * until quota_end(). False with e set: it must not start, and h holds nothing.
 */
bool quota_begin(struct quotas *q, size_t rule, uint64_t now_ms, struct quota_hold *h,
		 struct quota_excess *e);
void quota_end(struct quota_hold *h); /* harmless when it holds nothing */

/* Asks whether a body of n bytes, which is declared, would fit; charges nothing. */
bool quota_fits(const struct quota_hold *h, uint64_t n, struct quota_excess *e);

/* Charges n bytes that are about to pass. False: they must not. */
bool quota_charge(struct quota_hold *h, enum quota_way way, uint64_t n, struct quota_excess *e);

/* As above, for bytes of a request's body, which has a limit of its own. */
bool quota_charge_body(struct quota_hold *h, uint64_t n, struct quota_excess *e);

/* Whether what is open may go on: its lifetime is not over. */
bool quota_alive(const struct quota_hold *h, uint64_t now_ms, struct quota_excess *e);

/* After quotas_set(): h goes on under rule number `rule` of the new policy. False: it can't. */
bool quota_move(struct quota_hold *h, size_t rule, struct quota_excess *e);
