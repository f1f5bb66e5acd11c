/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection was redirected to us; its original destination must be a synthetic address that we
 * handed out, and so names one host. The first byte tells TLS (a handshake record) from plain HTTP.
 * A connection that is turned away counts against the cap until its record is written, so that a
 * guest cannot make records faster than they are stored.
 */
#include "egress/guest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/netfilter_ipv4.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "egress/deny.h"
#include "egress/request.h"
#include "http/server.h"

#define TLS_HANDSHAKE   0x16  /* the first byte of a ClientHello's record (RFC 8446, 5.1) */
#define CROWD_RECORD_MS 10000 /* one record for all refused for want of room in this time */

enum guest_state {
	GUEST_SNIFFING, /* waits for the first byte */
	GUEST_SECURING, /* TLS is being agreed */
	GUEST_SERVING,
	GUEST_DENIED, /* a record is on its way; then it ends */
};

struct guest {
	struct list link;
	struct guests *all;
	enum guest_state state;
	int fd;                    /* GUEST_DENIED before anything was read; else -1 */
	struct stream *stream;     /* while sniffing and securing */
	struct http_conn *conn;    /* while serving */
	struct policy_dest origin; /* host "" when not known */
	struct ca_leaf *leaf;      /* while securing */
	struct control_wait wait;
	struct request request;
};

struct guests {
	struct gateway *g;
	struct stream_listener *listener;
	struct list list;
	size_t count;
	uint64_t crowded;         /* refused for want of room, not yet recorded */
	uint64_t crowd_record_ms; /* when the last record of them was made */
};

/* Closes so that the peer gets a reset. */
static void reset(int fd)
{
	struct linger now = {.l_onoff = 1, .l_linger = 0};
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}

static void guest_free(struct guest *c)
{
	control_cancel(&c->wait);
	list_remove(&c->link);
	c->all->count--;
	if (c->fd >= 0)
		reset(c->fd);
	if (c->stream)
		stream_close(c->stream);
	ca_leaf_put(c->leaf);
	free(c);
}

static void denial_recorded(struct control_wait *w, bool written)
{
	struct guest *c = list_entry(w, struct guest, wait);
	(void)written; /* it ends either way */
	if (!c->conn)
		guest_free(c); /* else serve_closed() does */
}

/* Records why this connection ends, then ends it. */
static void guest_deny(struct guest *c, const char *reason)
{
	struct denial d = {
		.host = c->origin.host[0] ? c->origin.host : NULL,
		.port = c->origin.port,
		.reason = reason,
	};
	if (c->state == GUEST_SERVING || c->state == GUEST_SECURING)
		d.scheme = c->origin.scheme == POLICY_HTTPS ? "https" : "http";
	c->state = GUEST_DENIED;
	c->wait.done = denial_recorded;
	if (deny_record(c->all->g->control, &d, &c->wait) < 0)
		guest_free(c);
}

/* -- serving -- */

static void serve_request(void *user, struct http_exchange *x)
{
	struct guest *c = user;
	request_start(&c->request, c->all->g, &c->origin, x);
}

static void serve_refused(void *user, unsigned status)
{
	struct guest *c = user;
	struct denial d = {
		.scheme = c->origin.scheme == POLICY_HTTPS ? "https" : "http",
		.host = c->origin.host,
		.port = c->origin.port,
	};
	char reason[64];
	snprintf(reason, sizeof(reason), "no valid HTTP request (answered %u)", status);
	d.reason = reason;
	c->wait.done = denial_recorded;
	if (!c->wait.active)
		deny_record(c->all->g->control, &d, &c->wait);
}

static void serve_closed(void *user)
{
	struct guest *c = user;
	c->conn = NULL;
	if (c->wait.active)
		c->state = GUEST_DENIED; /* serve_refused() was here: denial_recorded() frees it */
	else
		guest_free(c);
}

static const struct http_server_ops serve_ops = {
	.request = serve_request,
	.refused = serve_refused,
	.closed = serve_closed,
};

static void guest_serve(struct guest *c, const uint8_t *early, size_t n)
{
	static const struct http_limits limits = {
		.head_timeout_ms = GUEST_HEAD_MS,
		.idle_timeout_ms = GUEST_IDLE_MS,
	};
	struct stream *s = take_ptr(c->stream);
	c->state = GUEST_SERVING;
	stream_set_idle_timeout(s, 0);
	c->conn = http_serve(s, early, n, &limits, &serve_ops, c);
	if (!c->conn)
		guest_free(c);
}

/* -- the beginning -- */

static void guest_opened(void *user)
{
	struct guest *c = user;
	ca_leaf_put(take_ptr(c->leaf));
	guest_serve(c, NULL, 0);
}

static void guest_secure(struct guest *c, const uint8_t *early, size_t n)
{
	struct err why;
	c->state = GUEST_SECURING;
	c->origin.scheme = POLICY_HTTPS;
	stream_set_idle_timeout(c->stream, 0);
	c->leaf = ca_leaf_get(c->all->g->ca, c->origin.host, &why);
	if (c->leaf &&
	    stream_tls_server(c->stream, ca_leaf_tls(c->leaf), early, n, GUEST_TLS_MS, &why) == 0)
		return;
	log_error("%s: %s", c->origin.host, why.text);
	stream_close(take_ptr(c->stream));
	guest_deny(c, "the gateway could not start TLS");
}

static void guest_data(void *user, const uint8_t *p, size_t n)
{
	struct guest *c = user;
	if (c->state != GUEST_SNIFFING)
		return;
	stream_read(c->stream, false);
	if (p[0] == TLS_HANDSHAKE) {
		guest_secure(c, p, n);
	} else {
		c->origin.scheme = POLICY_HTTP;
		guest_serve(c, p, n);
	}
}

static void guest_eof(void *user)
{
	guest_free(user);
}

static void guest_closed(void *user, const struct err *why)
{
	struct guest *c = user;
	c->stream = NULL;
	if (c->state == GUEST_SNIFFING && why->code != ETIMEDOUT) {
		guest_free(c); /* it came and went and said nothing */
		return;
	}
	char reason[ERR_TEXT_MAX], sni[CA_NAME_SIZE];
	if (c->leaf && ca_leaf_refused(c->leaf, sni))
		snprintf(reason, sizeof(reason), "SNI '%s' is not the name of this address", sni);
	else if (c->state == GUEST_SNIFFING)
		snprintf(reason, sizeof(reason), "no first byte within %d s",
			 GUEST_FIRST_BYTE_MS / 1000);
	else
		snprintf(reason, sizeof(reason), "TLS was not agreed: %.400s", why->text);
	ca_leaf_put(take_ptr(c->leaf));
	guest_deny(c, reason);
}

static const struct stream_ops guest_ops = {
	.opened = guest_opened,
	.data = guest_data,
	.eof = guest_eof,
	.closed = guest_closed,
};

/* Where the guest wanted to go. 0 with origin filled and *ret_address; -errno. */
static int guest_destination(struct gateway *g, int fd, struct policy_dest *origin,
			     struct address *ret_address)
{
	struct sockaddr_in to = {0};
	socklen_t len = sizeof(to);
	if (getsockopt(fd, IPPROTO_IP, SO_ORIGINAL_DST, &to, &len) < 0)
		return -errno;
	int r = address_from_sockaddr((struct sockaddr *)&to, ret_address, &origin->port);
	if (r < 0)
		return r;
	const char *host = names_host(g->names, ret_address);
	if (!host)
		return -ENOENT;
	memcpy(origin->host, host, strlen(host) + 1);
	return 0;
}

/* Says once in a while how many there were. */
static void guests_crowded(struct guests *all)
{
	uint64_t now = uv_now(all->g->loop);
	all->crowded++;
	if (all->crowd_record_ms && now - all->crowd_record_ms < CROWD_RECORD_MS)
		return;
	char reason[128];
	snprintf(reason, sizeof(reason), "%llu connections over the limit of %d at once",
		 (unsigned long long)all->crowded, GUESTS_MAX);
	if (deny_record(all->g->control, &(struct denial){.reason = reason}, NULL) == 0) {
		all->crowded = 0;
		all->crowd_record_ms = now;
	}
}

static void guest_accepted(void *user, int fd)
{
	struct guests *all = user;
	struct guest *c = all->count < GUESTS_MAX ? calloc(1, sizeof(*c)) : NULL;
	if (!c) {
		reset(fd);
		guests_crowded(all);
		return;
	}
	c->all = all;
	c->fd = -1;
	list_append(&all->list, &c->link);
	all->count++;

	struct address address = {0};
	struct err why;
	if (guest_destination(all->g, fd, &c->origin, &address) < 0) {
		char text[INET6_ADDRSTRLEN] = "an unknown address", reason[128];
		if (address.family)
			address_format(&address, text);
		snprintf(reason, sizeof(reason),
			 "%s is no address of an allowed name: use the name, not an IP address",
			 text);
		c->fd = fd;
		guest_deny(c, reason);
		return;
	}
	c->stream = stream_adopt(all->g->loop, fd, &guest_ops, c, &why);
	if (!c->stream) {
		log_error("a guest's connection: %s", why.text);
		guest_free(c);
		return;
	}
	stream_set_idle_timeout(c->stream, GUEST_FIRST_BYTE_MS);
	stream_read(c->stream, true);
}

struct guests *guests_new(struct gateway *g, int fd, struct err *e)
{
	struct guests *all = calloc(1, sizeof(*all));
	if (!all) {
		close(fd);
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	all->g = g;
	list_init(&all->list);
	all->listener = stream_listen(g->loop, fd, guest_accepted, all, e);
	if (!all->listener) {
		free(all);
		return NULL;
	}
	return all;
}

void guests_free(struct guests *all)
{
	if (!all)
		return;
	stream_listener_close(all->listener);
	list_for_each (it, &all->list) {
		struct guest *c = list_entry(it, struct guest, link);
		if (c->conn)
			http_conn_close(c->conn);
		guest_free(c);
	}
	free(all);
}
