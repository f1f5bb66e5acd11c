/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection was redirected to us; its original destination must be a synthetic address that we
 * handed out, and so names one host, or one that a rule with a cidr covers. Where the first rule
 * for it says tcp, it is passed on before a byte is read, for there the server may speak first.
 * Else the first byte tells TLS (a handshake record) from plain HTTP, and the first rule for it
 * whether TLS ends here or, when its ClientHello was read and names that host, is passed on.
 *
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
#include "egress/hello.h"
#include "egress/relay.h"
#include "egress/request.h"
#include "egress/tunnel.h"
#include "http/server.h"
#include "http/stream_filter.h"

#define TLS_HANDSHAKE   0x16  /* the first byte of a ClientHello's record (RFC 8446, 5.1) */
#define CROWD_RECORD_MS 10000 /* one record for all refused for want of room in this time */
#define ALERT_MS        1000  /* for the guest to take the last word */

/* Source: RFC 8446, section 6. */
#define ALERT_HANDSHAKE_FAILURE 40
#define ALERT_DECODE_ERROR      50
#define ALERT_UNRECOGNIZED_NAME 112

enum guest_state {
	GUEST_SNIFFING, /* waits for the first byte */
	GUEST_HELLO,    /* reads the ClientHello of what is passed on */
	GUEST_SECURING, /* TLS is being agreed */
	GUEST_SERVING,
	GUEST_SWITCHED, /* to a WebSocket, which is a request's */
	GUEST_TUNNELLING,
	GUEST_DENIED, /* a record is on its way; then it ends */
};

/* A ClientHello that is being read, and the bytes that brought it. */
struct guest_hello {
	struct hello_reader reader;
	struct buf wire;
};

struct guest {
	struct list link;
	struct guests *all;
	enum guest_state state;
	int fd;                    /* GUEST_DENIED before anything was read; else -1 */
	struct stream *stream;     /* until it is served or passed on */
	struct http_conn *conn;    /* while serving */
	struct tunnel *tunnel;     /* while passed on */
	struct guest_hello *hello; /* while it is read */
	unsigned char alert;       /* the last word of GUEST_DENIED; 0: none */
	struct policy_dest origin; /* host "" when not known; an address's text for a literal */
	struct ca_leaf *leaf;      /* while securing */
	struct control_wait wait;
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

static void guest_forget_hello(struct guest *c)
{
	struct guest_hello *h = take_ptr(c->hello);
	if (!h)
		return;
	hello_done(&h->reader);
	buf_done(&h->wire);
	free(h);
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
	guest_forget_hello(c);
	ca_leaf_put(c->leaf);
	free(c);
}

/* Tells the guest's TLS why, where that is all that can be answered. */
static void guest_alert(struct guest *c)
{
	const unsigned char record[] = {0x15, 3, 3, 0, 2, 2 /* fatal */, c->alert};
	struct stream *s = take_ptr(c->stream);
	stream_write(s, record, sizeof(record));
	stream_close_gracefully(s, ALERT_MS);
}

static void denial_recorded(struct control_wait *w, bool written)
{
	struct guest *c = list_entry(w, struct guest, wait);
	if (c->conn)
		return; /* serve_closed() frees it */
	if (written && c->stream && c->alert)
		guest_alert(c);
	guest_free(c);
}

/* Records why this connection ends, then ends it. */
static void guest_deny_by(struct guest *c, const char *rule, const char *reason)
{
	struct denial d = {
		.host = c->origin.host[0] ? c->origin.host : NULL,
		.port = c->origin.port,
		.reason = reason,
		.rule = rule,
	};
	if (c->state == GUEST_SERVING || c->state == GUEST_SECURING)
		d.scheme = c->origin.scheme == POLICY_HTTPS ? "https" : "http";
	else if (c->state == GUEST_HELLO)
		d.scheme = "tls";
	c->state = GUEST_DENIED;
	c->wait.done = denial_recorded;
	if (deny_record(c->all->g->control, &d, &c->wait) < 0)
		guest_free(c);
}

static void guest_deny(struct guest *c, const char *reason)
{
	guest_deny_by(c, NULL, reason);
}

/* -- serving -- */

/* A request has taken the connection over; it counts until that ends. */
static void serve_switched(void *user)
{
	struct guest *c = user;
	c->conn = NULL;
	c->state = GUEST_SWITCHED;
}

static void serve_switch_ended(void *user)
{
	guest_free(user);
}

static void serve_request(void *user, struct http_exchange *x)
{
	struct guest *c = user;
	static const struct request_owner owner = {.switched = serve_switched,
						   .ended = serve_switch_ended};
	request_start(c->all->g, &c->origin, x, &owner, c);
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
	deny_record(c->all->g->control, &d, c->wait.active ? NULL : &c->wait);
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
		.stall_timeout_ms = GUEST_STALL_MS,
	};
	struct stream *s = take_ptr(c->stream);
	bool h2 = stream_tls_protocol(s) == TLS_HTTP2;
	c->state = GUEST_SERVING;
	stream_set_idle_timeout(s, 0);
	c->conn = h2 ? http_serve_h2(s, &limits, &serve_ops, c)
		     : http_serve(s, early, n, &limits, &serve_ops, c);
	if (!c->conn)
		guest_free(c);
}

/* -- passing on -- */

static void guest_tunnel_ended(void *user)
{
	struct guest *c = user;
	c->tunnel = NULL;
	guest_free(c);
}

static void guest_tunnel(struct guest *c, enum policy_scheme scheme, bool ech, const void *early,
			 size_t n)
{
	c->state = GUEST_TUNNELLING;
	c->origin.scheme = scheme;
	c->tunnel = tunnel_start(c->all->g, &c->origin, ech, take_ptr(c->stream), early, n,
				 guest_tunnel_ended, c);
	guest_forget_hello(c);
	if (!c->tunnel)
		guest_free(c);
}

/* Ends a connection whose ClientHello can't be passed on. */
static void guest_hello_deny(struct guest *c, unsigned char alert, const char *reason)
{
	stream_read(c->stream, false);
	stream_alarm(c->stream, 0);
	guest_forget_hello(c);
	c->alert = alert;
	guest_deny(c, reason);
}

/* The name must be the one that the address stands for. None will do, for the address names one;
 * for a literal one none can be right. */
static void guest_hello_judge(struct guest *c, const struct hello *h)
{
	char reason[POLICY_HOST_MAX + 64];
	if (h->named && strcmp(h->sni, c->origin.host) != 0) {
		snprintf(reason, sizeof(reason), "SNI '%s' is not the name of this address",
			 h->sni);
		guest_hello_deny(c, ALERT_UNRECOGNIZED_NAME, reason);
		return;
	}
	stream_alarm(c->stream, 0);
	guest_tunnel(c, POLICY_TLS, h->ech, c->hello->wire.data, c->hello->wire.len);
}

static void guest_hello_data(struct guest *c, const uint8_t *p, size_t n)
{
	struct hello h;
	struct err why;
	int r = hello_feed(&c->hello->reader, p, n, &h, &why);
	if ((r == 0 || r == -EAGAIN) && buf_append(&c->hello->wire, p, n) < 0)
		r = err_set(&why, ENOMEM, "the gateway has no memory");
	if (r == 0)
		guest_hello_judge(c, &h);
	else if (r != -EAGAIN)
		guest_hello_deny(c, r == -EBADMSG ? ALERT_DECODE_ERROR : ALERT_HANDSHAKE_FAILURE,
				 why.text);
}

static void guest_hello_late(void *user)
{
	struct guest *c = user;
	char reason[64];
	if (c->state != GUEST_HELLO)
		return;
	snprintf(reason, sizeof(reason), "no whole ClientHello within %d s", GUEST_TLS_MS / 1000);
	guest_hello_deny(c, ALERT_HANDSHAKE_FAILURE, reason);
}

static void guest_no_wake(void *user)
{
	(void)user; /* none is asked for */
}

static void guest_hello(struct guest *c, const uint8_t *early, size_t n)
{
	c->hello = calloc(1, sizeof(*c->hello));
	if (!c->hello) {
		guest_free(c);
		return;
	}
	c->state = GUEST_HELLO;
	hello_init(&c->hello->reader);
	buf_init(&c->hello->wire, HELLO_WIRE_MAX + GUEST_BEHIND_HELLO);
	stream_set_idle_timeout(c->stream, 0);
	stream_set_hooks(c->stream, guest_no_wake, guest_hello_late);
	stream_alarm(c->stream, GUEST_TLS_MS);
	stream_read(c->stream, true);
	guest_hello_data(c, early, n);
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

static void guest_sniff(struct guest *c, const uint8_t *p, size_t n)
{
	stream_read(c->stream, false);
	if (p[0] != TLS_HANDSHAKE) {
		c->origin.scheme = POLICY_HTTP;
		guest_serve(c, p, n);
	} else if (tunnel_wanted(c->all->g->policy, &c->origin, POLICY_TLS)) {
		guest_hello(c, p, n);
	} else {
		guest_secure(c, p, n);
	}
}

static void guest_data(void *user, const uint8_t *p, size_t n)
{
	struct guest *c = user;
	if (c->state == GUEST_SNIFFING)
		guest_sniff(c, p, n);
	else if (c->state == GUEST_HELLO)
		guest_hello_data(c, p, n);
}

static void guest_eof(void *user)
{
	struct guest *c = user;
	if (c->state == GUEST_HELLO)
		guest_hello_deny(c, ALERT_DECODE_ERROR, "the ClientHello was cut off");
	else if (c->state != GUEST_DENIED)
		guest_free(c);
}

static void guest_closed(void *user, const struct err *why)
{
	struct guest *c = user;
	c->stream = NULL;
	if (c->state == GUEST_DENIED)
		return; /* denial_recorded() frees it */
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

/* Where the guest wanted to go: origin's host, or for a literal its address and that as text. 0 or
 * -errno. */
static int guest_destination(struct gateway *g, int fd, struct policy_dest *origin)
{
	struct sockaddr_in to = {0};
	socklen_t len = sizeof(to);
	struct address address;
	if (getsockopt(fd, IPPROTO_IP, SO_ORIGINAL_DST, &to, &len) < 0)
		return -errno;
	int r = address_from_sockaddr((struct sockaddr *)&to, &address, &origin->port);
	if (r < 0)
		return r;
	const char *host = names_host(g->names, &address);
	if (host) {
		memcpy(origin->host, host, strlen(host) + 1);
	} else {
		origin->address = address;
		address_format(&address, origin->host);
	}
	return 0;
}

/* A name's connections are judged when they have said what they want; a literal must be open at
 * all. */
static bool guest_may_begin(const struct guest *c)
{
	const struct policy_dest *to = &c->origin;
	return !to->address.family ||
	       (!address_is_metadata(&to->address) &&
		policy_first_scheme(c->all->g->policy, to, (1u << POLICY_SCHEMES) - 1) >= 0);
}

static void guest_deny_literal(struct guest *c, int fd)
{
	struct policy_dest dest = c->origin;
	struct policy_verdict verdict;
	char reason[POLICY_HOST_MAX + 96];
	c->fd = fd;
	dest.scheme = dest.port == 80 ? POLICY_HTTP : POLICY_HTTPS;
	policy_decide(c->all->g->policy, &dest, &verdict);
	snprintf(reason, sizeof(reason),
		 "%s is no address of an allowed name, and no rule with a cidr opens it: use the "
		 "name",
		 dest.host);
	guest_deny_by(c, verdict.rule, reason);
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

	struct err why;
	if (guest_destination(all->g, fd, &c->origin) < 0) {
		c->fd = fd;
		guest_deny(c, "the kernel does not say where this connection goes");
		return;
	}
	if (!guest_may_begin(c)) {
		guest_deny_literal(c, fd);
		return;
	}
	c->stream = stream_adopt(all->g->loop, fd, &guest_ops, c, &why);
	if (!c->stream) {
		log_error("a guest's connection: %s", why.text);
		guest_free(c);
		return;
	}
	if (tunnel_wanted(all->g->policy, &c->origin, POLICY_TCP)) {
		guest_tunnel(c, POLICY_TCP, false, NULL, 0);
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

void guests_free(struct guests *all, const char *why)
{
	if (!all)
		return;
	stream_listener_close(all->listener);
	list_for_each (it, &all->list) {
		struct guest *c = list_entry(it, struct guest, link);
		if (c->conn)
			http_conn_close(c->conn);
		tunnel_close(c->tunnel, why);
		guest_free(c);
	}
	free(all);
}

void guests_recheck(struct guests *all)
{
	list_for_each (it, &all->list) {
		struct guest *c = list_entry(it, struct guest, link);
		if (c->tunnel)
			tunnel_recheck(c->tunnel);
	}
}
