/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An exchange and its connection as objects: what every version of HTTP has in common, and a table
 * of what each does in its own way. exchange.c turns the calls of server.h into those of the table;
 * a version is linked only where it is served.
 */
#pragma once

#include "http/server.h"

struct http_exchange_kind {
	unsigned version;
	void (*read)(struct http_exchange *x, bool on);
	int (*start)(struct http_exchange *x, unsigned status, const struct http_fields *fields,
		     enum http_framing framing, uint64_t length);
	ssize_t (*write)(struct http_exchange *x, const void *p, size_t n);
	int (*trailers)(struct http_exchange *x, const struct http_fields *fields);
	void (*end)(struct http_exchange *x);
	void (*abort)(struct http_exchange *x);
	int (*switch_over)(struct http_exchange *x, const struct http_fields *fields,
			   struct stream **ret, struct buf *ret_early);
};

/* The first member of a connection. */
struct http_conn {
	struct stream *s; /* NULL when it is gone */
	void (*close)(struct http_conn *c);
};

/* The first member of an exchange. */
struct http_exchange {
	const struct http_exchange_kind *kind;
	struct http_conn *conn;
	struct http_head head;
	const struct http_exchange_ops *ops;
	void *user;
	void *owned; /* released with the exchange */
	void (*release)(void *owned);
	bool whole; /* it ends where it starts: what is unread then stays so */
};

/* Of an exchange that was allocated zeroed: head is taken over. Its ops are http_exchange_untaken
 * until http_exchange_on(). */
void http_exchange_init(struct http_exchange *x, const struct http_exchange_kind *kind,
			struct http_conn *conn, struct http_head *head);
extern const struct http_exchange_ops http_exchange_untaken;

/* Lets go of what the user has of x, and of its head. */
void http_exchange_done(struct http_exchange *x);

/* As above, with gone() told in between. free_it: x itself is freed before that. */
void http_exchange_lose(struct http_exchange *x, bool free_it);

/* The response that is started next will be ended at once. */
void http_exchange_whole(struct http_exchange *x);

/* Has owned released when x ends, in whichever way; at most one. */
void http_exchange_own(struct http_exchange *x, void *owned, void (*release)(void *owned));

/* The message of a refusal by the codec. */
const char *http_refusal_text(unsigned status);
