/* SPDX-License-Identifier: Apache-2.0 */
/* What the pool (upstream.c) and the dial (dial.c) share. */
#pragma once

#include "egress/upstream.h"

struct tls_context;

struct gateway *upstreams_gateway(const struct upstreams *all);

/* Whom to trust for host. Borrowed. NULL with e set. */
struct tls_context *upstreams_trust(struct upstreams *all, const char *host, struct err *e);

/* What is dialled (dial.c). */
struct dials {
	struct list under_way, waiting; /* struct upstream_dial, by link */
	uv_timer_t timer;               /* when to look at those that wait */
};

struct dials *upstreams_dials(struct upstreams *all);
void dials_init(struct dials *t, uv_loop_t *loop);
/* Something has changed for those that wait: they are looked at from the loop. */
void dials_changed(struct dials *t);

struct upstream_way upstream_way(const struct policy_dest *dest, const struct secret *shown);
bool upstream_same_way(const struct upstream_way *a, const struct upstream_way *b);

/* How many shared connections were settled so far: their servers have said how much they take. */
uint64_t upstreams_settled(const struct upstreams *all);

/* A place on a shared connection that goes this way and was settled as since or later, counted as
   above, or NULL. */
struct upstream *upstreams_share(struct upstreams *all, const struct upstream_way *way,
				 uint64_t since);

/* Whether one will be settled. */
bool upstreams_settles(const struct upstreams *all, const struct upstream_way *way);

/* Whether the server is known to speak what is not shared. */
bool upstreams_speaks_http1(struct upstreams *all, const struct upstream_way *way);

/* A connection that stands; takes s over. NULL: no memory. */
struct upstream *upstream_new(struct upstreams *all, const struct upstream_way *way,
			      struct stream *s);
