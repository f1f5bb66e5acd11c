/* SPDX-License-Identifier: Apache-2.0 */
/* TCP to the first of several addresses that answers. Source: RFC 8305 (Happy Eyeballs). */
#pragma once

#include <uv.h>

#include "egress/resolver.h"
#include "http/stream.h"

#define RACE_STAGGER_MS 250 /* before the next address is tried beside the ones under way */

struct race;

struct race_ops {
	/* The connection, the callee's, of which nothing was read yet; or NULL and why. From the
	   loop, once; the race is over. */
	void (*done)(void *user, struct stream *s, const struct err *why);
};

/* list is copied, count at most RESOLVER_ADDRESSES_MAX. connect_ms: for each address. NULL: no
 * memory. */
struct race *race_start(uv_loop_t *loop, const struct address *list, size_t count, uint16_t port,
			uint64_t connect_ms, const struct race_ops *ops, void *user);
void race_cancel(struct race *r); /* NULL is fine; done is not called */
