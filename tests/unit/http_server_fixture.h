/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of servers of HTTP/1.1: a connection over a real socket, what its user sees and does.
 */
#pragma once

#include <stdio.h>

#include "http/server.h"
#include "http_peer.h"

static uv_loop_t loop;

static inline int setup(void **state)
{
	(void)state;
	return uv_loop_init(&loop);
}

static inline int teardown(void **state)
{
	(void)state;
	loop_done(&loop);
	return 0;
}

/* A served connection, what its user saw, and what the user does. */
struct site {
	struct http_conn *conn; /* NULL when over */
	struct peer peer;
	struct http_exchange *x;
	void (*act)(struct site *site, struct http_exchange *x);
	unsigned requests, refused;
	size_t body;
	bool body_ended, gone, closed, drained, asked;
	bool in_call;
	bool keep_off; /* does not read the body */
	enum { NEVER, AT_REQUEST, AT_BODY, AT_BODY_END, AT_DRAINED } close_at, end_at;
	char target[64];
};

static inline void reply(struct http_exchange *x, const char *text)
{
	http_exchange_reply(x, 200, "text/plain", text, strlen(text));
}

static inline bool leave(struct site *site, int at)
{
	assert_false(site->in_call);
	if ((int)site->close_at == at) {
		http_conn_close(site->conn);
		site->conn = NULL;
		return true;
	}
	if ((int)site->end_at == at && site->x) {
		struct http_exchange *x = site->x;
		site->x = NULL;
		reply(x, "early");
		return true;
	}
	return false;
}

static inline void on_body(void *user, const uint8_t *p, size_t n)
{
	struct site *site = user;
	assert_true(p && n);
	assert_non_null(site->x);
	site->body += n;
	leave(site, AT_BODY);
}

static inline void on_body_end(void *user)
{
	struct site *site = user;
	assert_non_null(site->x);
	assert_false(site->body_ended);
	site->body_ended = true;
	if (leave(site, AT_BODY_END) || !site->act)
		return;
	struct http_exchange *x = site->x;
	site->act(site, x);
}

static inline void on_drained(void *user)
{
	struct site *site = user;
	site->drained = true;
	leave(site, AT_DRAINED);
}

static inline void on_gone(void *user)
{
	struct site *site = user;
	assert_non_null(site->x);
	site->x = NULL;
	site->gone = true;
}

static const struct http_exchange_ops exchange_ops = {
	.body = on_body,
	.body_end = on_body_end,
	.drained = on_drained,
	.gone = on_gone,
};

static inline void on_request(void *user, struct http_exchange *x)
{
	struct site *site = user;
	assert_null(site->x); /* one at a time */
	assert_ptr_equal(http_exchange_conn(x), site->conn);
	site->requests++;
	site->asked = true;
	site->x = x;
	site->body_ended = false;
	snprintf(site->target, sizeof(site->target), "%s", http_exchange_head(x)->target);
	http_exchange_on(x, &exchange_ops, site);
	if (!site->keep_off)
		http_exchange_read(x, true);
	leave(site, AT_REQUEST);
}

static inline void on_refused(void *user, unsigned status)
{
	((struct site *)user)->refused = status;
}

static inline void on_conn_closed(void *user)
{
	struct site *site = user;
	assert_false(site->in_call);
	assert_null(site->x);
	site->closed = true;
	site->conn = NULL;
}

static const struct http_server_ops server_ops = {on_request, on_refused, on_conn_closed};

static inline void serve_limited(struct site *site, const struct http_limits *limits)
{
	int fd[2];
	make_pair(fd);
	*site = (struct site){0};
	peer_open(&site->peer, &loop, fd[1]);
	struct stream *s = stream_adopt(&loop, fd[0], NULL, NULL, NULL);
	site->conn = http_serve(s, NULL, 0, limits, &server_ops, site);
	assert_non_null(site->conn);
}

static inline void serve(struct site *site)
{
	serve_limited(site, NULL);
}

static inline void leave_site(struct site *site)
{
	if (site->conn)
		http_conn_close(site->conn);
	peer_done(&site->peer);
	spin(&loop, 3);
}

static inline void act_reply(struct site *site, struct http_exchange *x)
{
	site->x = NULL;
	reply(x, site->target);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
