/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way through a proxy: what is said to it on a connection that stands, until the bytes of the
 * destination's server follow. HTTP CONNECT (RFC 9110, 9.3.6) and SOCKS5 (RFC 1928), without
 * authentication. The proxy resolves the name: in the networks that have one, no DNS has the
 * outside's names.
 */
#pragma once

#include "base/buf.h"
#include "http/stream.h"
#include "policy/policy.h"

enum proxy_kind { PROXY_HTTP, PROXY_SOCKS5 };

struct proxy_place {
	enum proxy_kind kind;
	char host[POLICY_HOST_MAX]; /* a name, or an address as text */
	uint16_t port;
};

/* Reads what policy_proxy() gives. 0, -EINVAL. */
int proxy_place(const char *url, struct proxy_place *ret);

struct proxy;

struct proxy_ops {
	/* The stream, the callee's, reading paused; early: what the server has sent already, valid
	   during the call. NULL: refused, why says how. From the loop, once; the proxy is over. */
	void (*done)(void *user, struct stream *s, const struct buf *early, const struct err *why);
};

/* Takes s over in any case. host: a name, or an address as text. NULL: no memory. */
struct proxy *proxy_start(struct stream *s, enum proxy_kind kind, const char *host, uint16_t port,
			  uint64_t timeout_ms, const struct proxy_ops *ops, void *user);
void proxy_cancel(struct proxy *p); /* NULL is fine; closes the stream, done is not called */
