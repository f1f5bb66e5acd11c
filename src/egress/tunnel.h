/* SPDX-License-Identifier: Apache-2.0 */
/* A connection of the guest that is passed on unread (schemes tcp and tls): judged and recorded
 * before it is dialled, and recorded when it ends. */
#pragma once

#include "egress/gateway.h"
#include "http/stream.h"

struct tunnel;

/* Whether a connection to this host or address and port is passed on as tcp, before a byte of it is
 * seen; or as tls, when it has begun like TLS: the first rule that fits decides. */
bool tunnel_wanted(const struct policy *p, const struct policy_dest *dest,
		   enum policy_scheme scheme);

/*
 * Takes guest over, also on failure; early is what it has sent already, copied. dest->scheme is tcp
 * or tls. ended(user) follows from the loop, once, when all is over and recorded; the tunnel is
 * gone then. NULL: no memory.
 */
struct tunnel *tunnel_start(struct gateway *g, const struct policy_dest *dest, bool ech,
			    struct stream *guest, const void *early, size_t n,
			    void (*ended)(void *user), void *user);

/* The policy, or what is left of a lifetime, has changed: a tunnel that is no longer allowed is
 * cut, and that is recorded; ended() is called. */
void tunnel_recheck(struct tunnel *t);

/* Cuts it and records that, why NULL when nobody would hear it; ended() is not called. NULL is
 * fine. */
void tunnel_close(struct tunnel *t, const char *why);
