/* SPDX-License-Identifier: Apache-2.0 */
/* Refusals: the record, and what the guest is told. Both say the same. */
#pragma once

#include "base/buf.h"
#include "egress/control.h"

#define DENY_BODY_MAX (64UL * 1024) /* bytes */

struct denial {
	unsigned status;    /* HTTP, where the guest can be answered */
	const char *scheme; /* NULL, like all below: not known */
	const char *host;
	uint16_t port;
	const char *method;
	const char *path;
	const char *reason; /* never NULL */
	const char *rule;
	const char *allow_with; /* the smallest rule that would allow it */
	const char *limit;      /* of the policy, which it is over */
	/* For the record alone: whose placeholder was where it does not belong, which canary was
	   touched or value guessed, and which credential is not to be used any more for that. */
	const char *leak, *alarm, *stopped;
};

/* Sends egress.deny; as control_send(). */
int deny_record(struct control *c, const struct denial *d, struct control_wait *w);

/* Appends the JSON body of the answer. 0 or -errno. */
int deny_body(struct buf *out, const struct denial *d);
