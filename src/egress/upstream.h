/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections to the outside: dialled at addresses that were checked, verified, and kept for the
 * next request to the same scheme, host and port of the same sandbox.
 */
#pragma once

#include "egress/gateway.h"
#include "http/client.h"

#define UPSTREAM_IDLE_MAX   64    /* idle connections kept */
#define UPSTREAM_IDLE_MS    30000 /* for so long */
#define UPSTREAM_CONNECT_MS 10000 /* for each address */
#define UPSTREAM_TLS_MS     10000
#define UPSTREAM_SILENT_MS  600000 /* without a byte in either direction */

struct upstream; /* one connection */

struct upstreams *upstreams_new(struct gateway *g); /* NULL: no memory */
void upstreams_free(struct upstreams *all);         /* NULL is fine; closes the idle ones */

/* An idle connection to dest, or NULL. The caller's until released, closed or dropped. */
struct upstream *upstreams_take(struct upstreams *all, const struct policy_dest *dest);

struct http_client *upstream_client(struct upstream *u);
bool upstream_was_idle(const struct upstream *u); /* it came from upstreams_take() */

void upstream_release(struct upstream *u); /* for the next request where it can be, else closed */
void upstream_close(struct upstream *u);   /* at once */
void upstream_drop(struct upstream *u);    /* its client is dead already */

/* One connection being made; zero-initialised is idle. */
struct upstream_dial {
	/* u, or NULL with the status to answer (403, 502, 504) and why. From the loop, once. */
	void (*done)(struct upstream_dial *d, struct upstream *u, unsigned status,
		     const struct err *why);
	struct upstreams *all; /* private, like all below */
	struct resolver_query query;
	struct address list[RESOLVER_ADDRESSES_MAX];
	size_t count, next;
	struct stream *stream;
	bool securing; /* TCP stands, TLS is being agreed */
	struct policy_dest dest;
};

/* Starts; d->done is set. 0 or -ENOMEM (done is not called). */
int upstream_dial(struct upstreams *all, const struct policy_dest *dest, struct upstream_dial *d);
void upstream_dial_cancel(struct upstream_dial *d); /* harmless when idle */
