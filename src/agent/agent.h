/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent: one listening socket, the calls of envd's protocol on it, and the processes that they
 * started. Everything runs on one loop.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "agent/group.h"
#include "agent/process.h"
#include "agent/settings.h"
#include "agent/user.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/list.h"
#include "http/server.h"

#define AGENT_CONNECTIONS_MAX 1024
#define AGENT_ENVD_VERSION    "0.6.13" /* of the protocol that we speak */

struct agent {
	uv_loop_t *loop;
	bool machine; /* we are PID 1 of a VM: its clock, entropy and names are ours to set */
	struct settings settings;
	struct processes processes;
	struct group group;    /* of the processes; none but in a machine */
	uv_timer_t hold_timer; /* runs while all is held: the host may have died */
	struct list deferred;  /* clients who wait for the release */
	size_t deferred_count;
	struct buf out; /* where messages are put together */
	struct stream_listener *listener;
	struct list connections;
	size_t connection_count;
};

/* One served connection. */
struct connection {
	struct list link;
	struct agent *agent;
	struct http_conn *http;
};

/* Takes over the listening socket, also on failure. 0 or -errno with e set. */
int agent_init(struct agent *a, uv_loop_t *loop, int listen_fd, bool machine, struct err *e);

/* Closes everything and kills the processes; run the loop until it is empty afterwards. */
void agent_done(struct agent *a);

/* The calls, one function each. x is theirs to answer. */
void agent_init_call(struct agent *a, struct http_exchange *x);  /* POST /init */
void agent_files_get(struct agent *a, struct http_exchange *x);  /* GET /files */
void agent_files_post(struct agent *a, struct http_exchange *x); /* POST /files */
void agent_hold(struct agent *a, struct http_exchange *x);       /* POST /hold */
void agent_release(struct agent *a, struct http_exchange *x);    /* POST /release */
void agent_start(struct agent *a, struct http_exchange *x);      /* process.Process/Start */
void agent_connect(struct agent *a, struct http_exchange *x);
void agent_list(struct agent *a, struct http_exchange *x);
void agent_send_input(struct agent *a, struct http_exchange *x);
void agent_close_stdin(struct agent *a, struct http_exchange *x);
void agent_send_signal(struct agent *a, struct http_exchange *x);

/* While all is held: whoever is to release has its time anew. Else nothing. */
void agent_hold_longer(struct agent *a);

/* Closes every connection but that of x, at once. */
void agent_drop_others(struct agent *a, const struct http_exchange *x);

/* The user of a request: name, or the default one when NULL. 0, -ENOENT or other -errno. */
int agent_user(const struct agent *a, const char *name, struct user *ret);
