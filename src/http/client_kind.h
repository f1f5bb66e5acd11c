/* SPDX-License-Identifier: Apache-2.0 */
/* What a version of HTTP does for the calls of client.h. call.c turns them into those of the table;
 * a version is linked only where a connection of it is made. */
#pragma once

#include "http/client.h"

struct http_client_kind {
	unsigned version;
	int (*call)(struct http_client *c, const struct http_head *request, uint64_t timeout_ms,
		    const struct http_call_ops *ops, void *user);
	ssize_t (*write)(struct http_client *c, const void *p, size_t n);
	int (*trailers)(struct http_client *c, const struct http_fields *fields);
	int (*finish)(struct http_client *c);
	void (*read)(struct http_client *c, bool on);
	void (*set_ops)(struct http_client *c, const struct http_call_ops *ops, void *user);
	bool (*reusable)(const struct http_client *c);
	void (*close)(struct http_client *c);
	int (*detach)(struct http_client *c, struct stream **ret, struct buf *ret_early);
	struct stream *(*stream)(struct http_client *c);
};

/* The first member of a client. */
struct http_client {
	const struct http_client_kind *kind;
};
