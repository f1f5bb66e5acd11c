/* SPDX-License-Identifier: Apache-2.0 */
/* From a name to addresses that may be dialled: looked up outside, each answer judged, none taken
 * on trust. */
#pragma once

#include <uv.h>

#include "base/err.h"
#include "base/list.h"
#include "net/address.h"
#include "policy/policy.h"

#define RESOLVER_ADDRESSES_MAX 16 /* of one name; more are ignored */

struct resolver;

/* server: "ADDRESS:PORT" to ask instead of the system's servers, or NULL. NULL with e set on
 * failure. */
struct resolver *resolver_new(uv_loop_t *loop, const char *server, struct err *e);
void resolver_free(struct resolver *r); /* NULL is fine; done is not called any more */

/* One look-up; zero-initialised is idle. */
struct resolver_query {
	/* count > 0 addresses, fit to be dialled; or 0 and why: -EACCES when there were some, but
	   none that a sandbox may reach; -ENOENT when the name has none; -ETIMEDOUT; -EIO. From the
	   loop, once. */
	void (*done)(struct resolver_query *q, const struct address *list, size_t count,
		     const struct err *why);
	struct lookup *lookup; /* private */
};

/* Looks host up, or takes the policy's pin for it, or the address that it is the text of. 0,
 * -ENOMEM (done is not called). */
int resolver_start(struct resolver *r, const struct policy *p, const char *host,
		   struct resolver_query *q);

/* As above for the policy's proxy, which its author has named and which may have any address but a
 * metadata service's. */
int resolver_start_proxy(struct resolver *r, const struct policy *p, const char *host,
			 struct resolver_query *q);
void resolver_cancel(struct resolver_query *q); /* harmless when idle */
