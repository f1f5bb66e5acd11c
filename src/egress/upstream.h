/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections to the outside: dialled at addresses that were checked, or through the policy's
 * proxy, verified, and kept for the next request to the same scheme, host and port of the same
 * sandbox. One of HTTP/2 has many requests at once.
 */
#pragma once

#include "egress/gateway.h"
#include "egress/proxy.h"
#include "egress/race.h"
#include "http/client.h"

#define UPSTREAM_IDLE_MAX   64    /* idle connections kept */
#define UPSTREAM_IDLE_MS    30000 /* for so long */
#define UPSTREAM_CONNECT_MS 10000 /* for each address */
#define UPSTREAM_PROXY_MS   10000 /* for its answer */
#define UPSTREAM_TLS_MS     10000
#define UPSTREAM_WAIT_MS    1000   /* for a connection that another request is making */
#define UPSTREAM_SILENT_MS  600000 /* without a byte in either direction */

struct upstream; /* one connection */

/* Where a connection goes, and whose client certificate it shows (NULL: nobody's). No request but
 * one that gets that credential is sent on it. */
struct upstream_way {
	enum policy_scheme scheme;
	uint16_t port;
	const struct secret *shown;
	unsigned version; /* of its values */
	char host[POLICY_HOST_MAX];
};

struct upstreams *upstreams_new(struct gateway *g); /* NULL: no memory */
void upstreams_free(struct upstreams *all);         /* NULL is fine; closes the idle ones */

/* The policy has changed: what is idle, and whom to trust for pinned names, is forgotten. */
void upstreams_recheck(struct upstreams *all);

/* An idle connection to dest, or a place on a shared one unless http1, or NULL. The caller's until
 * released, closed or dropped. */
struct upstream *upstreams_take(struct upstreams *all, const struct policy_dest *dest,
				const struct secret *shown, bool http1);

struct http_client *upstream_client(struct upstream *u);
bool upstream_was_idle(const struct upstream *u); /* it came from upstreams_take() */

void upstream_release(struct upstream *u); /* for the next request where it can be, else closed */
void upstream_close(struct upstream *u);   /* at once */
void upstream_drop(struct upstream *u);    /* its client is dead already */

/* One connection being made; zero-initialised is idle. */
struct upstream_dial {
	/* u, or NULL with the status to answer (403, 502, 504) and why. For schemes that are passed
	   on unread (tls, tcp) success is u NULL and status 0, with the open connection in raw, the
	   callee's, and what came on it already in early, whose bytes the callee may take. From the
	   loop, once. */
	void (*done)(struct upstream_dial *d, struct upstream *u, unsigned status,
		     const struct err *why);
	struct stream *raw;
	bool http1;                 /* offer HTTP/1.1 alone; before upstream_dial() */
	const struct secret *shown; /* a certificate for servers that ask, or NULL; likewise */
	struct buf early;
	struct upstreams *all; /* private, like all below */
	struct list link;
	bool dialling; /* link is in one of the pool's lists */
	bool waiting;  /* in that of those that wait for another's connection */
	uint64_t since_ms;
	uint64_t settled; /* as the pool's was then */
	struct resolver_query query;
	struct race *race;     /* while TCP is being agreed */
	struct proxy *proxy;   /* while a proxy is asked */
	struct stream *stream; /* while TLS is being agreed */
	bool by_proxy;
	struct proxy_place place; /* by_proxy */
	struct policy_dest dest;
	struct upstream_way way;
};

/* Starts; d->done is set. 0, -ENOMEM, -EINVAL for a proxy that is none (done is not called). */
int upstream_dial(struct upstreams *all, const struct policy_dest *dest, struct upstream_dial *d);
void upstream_dial_cancel(struct upstream_dial *d); /* harmless when idle */
