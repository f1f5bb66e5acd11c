/* SPDX-License-Identifier: Apache-2.0 */
/*
 * c-ares on our loop. Search domains and host aliases are off: the name that policy judged is the
 * name that is asked for. Every answer is judged as the address it really leads to (IPv4 inside
 * IPv6 unwrapped); special ranges and this machine's own addresses are dropped. A pin opens exactly
 * the address that the policy names.
 *
 * c-ares may answer from within a call, and cannot forget one query: so results go to a list that a
 * timer of zero delivers, and a cancelled look-up runs on without its query.
 */
#include "egress/resolver.h"

#include <ares.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define TRY_MS 2000 /* first wait for a server; doubles with each of TRIES */
#define TRIES  3

struct lookup {
	struct list link; /* in resolver.finished when it is */
	struct resolver *resolver;
	struct resolver_query *query; /* NULL: cancelled */
	struct address list[RESOLVER_ADDRESSES_MAX];
	size_t count;
	struct err why;
	bool trusted; /* any address will do but a metadata service's */
	char host[POLICY_HOST_MAX];
};

struct resolver {
	uv_loop_t *loop;
	ares_channel channel;
	uv_timer_t timeouts; /* of c-ares */
	uv_timer_t delivery;
	struct list sockets;
	struct list finished;
};

struct resolver_socket {
	struct list link;
	struct resolver *resolver;
	ares_socket_t fd;
	uv_poll_t poll;
};

static void resolver_timeouts(uv_timer_t *timer)
{
	struct resolver *r = timer->data;
	ares_process_fd(r->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	struct timeval tv;
	if (!ares_timeout(r->channel, NULL, &tv))
		return;
	uint64_t ms = (uint64_t)tv.tv_sec * 1000 + (uint64_t)tv.tv_usec / 1000 + 1;
	uv_timer_start(timer, resolver_timeouts, ms, 0);
}

static void socket_event(uv_poll_t *poll, int status, int events)
{
	struct resolver_socket *s = poll->data;
	ares_socket_t fd = s->fd;
	bool in = status < 0 || (events & UV_READABLE);
	bool out = status < 0 || (events & UV_WRITABLE);
	/* s may be gone after this. */
	ares_process_fd(s->resolver->channel, in ? fd : ARES_SOCKET_BAD,
			out ? fd : ARES_SOCKET_BAD);
}

static void socket_closed(uv_handle_t *handle)
{
	free(handle->data);
}

static struct resolver_socket *resolver_socket(struct resolver *r, ares_socket_t fd)
{
	list_for_each (it, &r->sockets) {
		struct resolver_socket *s = list_entry(it, struct resolver_socket, link);
		if (s->fd == fd)
			return s;
	}
	return NULL;
}

/* c-ares tells which sockets it watches; the last word on each is that it watches for nothing. */
static void socket_state(void *user, ares_socket_t fd, int readable, int writable)
{
	struct resolver *r = user;
	struct resolver_socket *s = resolver_socket(r, fd);
	if (!readable && !writable) {
		if (!s)
			return;
		list_remove(&s->link);
		uv_close((uv_handle_t *)&s->poll, socket_closed);
		return;
	}
	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s || uv_poll_init(r->loop, &s->poll, fd) < 0) {
			free(s);
			return; /* the query runs into its timeout */
		}
		s->resolver = r;
		s->fd = fd;
		s->poll.data = s;
		list_append(&r->sockets, &s->link);
	}
	uv_poll_start(&s->poll, (readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0),
		      socket_event);
}

static void resolver_deliver(uv_timer_t *timer)
{
	struct resolver *r = timer->data;
	struct list ready;
	list_init(&ready);
	list_for_each (it, &r->finished) {
		list_remove(it);
		list_append(&ready, it);
	}
	while (!list_empty(&ready)) {
		struct lookup *l = list_entry(ready.next, struct lookup, link);
		list_remove(&l->link);
		struct resolver_query *q = l->query;
		if (q) {
			q->lookup = NULL;
			q->done(q, l->list, l->count, &l->why);
		}
		free(l);
	}
}

static void lookup_finish(struct lookup *l)
{
	list_append(&l->resolver->finished, &l->link);
	uv_timer_start(&l->resolver->delivery, resolver_deliver, 0, 0);
}

static int resolver_configure(struct resolver *r, const char *server, struct err *e)
{
	struct ares_options options = {
		.flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES,
		.timeout = TRY_MS,
		.tries = TRIES,
		.ndomains = 0,
		.sock_state_cb = socket_state,
		.sock_state_cb_data = r,
	};
	int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_DOMAINS |
		   ARES_OPT_SOCK_STATE_CB;
	int failed = ares_init_options(&r->channel, &options, mask);
	if (failed) {
		r->channel = NULL;
		return err_set(e, EIO, "resolver: %s", ares_strerror(failed));
	}
	failed = server ? ares_set_servers_ports_csv(r->channel, server) : ARES_SUCCESS;
	if (failed)
		return err_set(e, EINVAL, "--resolver '%s': must be ADDRESS:PORT", server);
	return 0;
}

struct resolver *resolver_new(uv_loop_t *loop, const char *server, struct err *e)
{
	int failed = ares_library_init(ARES_LIB_INIT_ALL);
	struct resolver *r = failed ? NULL : calloc(1, sizeof(*r));
	if (!r) {
		err_set(e, ENOMEM, "resolver: %s", failed ? ares_strerror(failed) : "no memory");
		return NULL;
	}
	r->loop = loop;
	list_init(&r->sockets);
	list_init(&r->finished);
	uv_timer_init(loop, &r->timeouts);
	uv_timer_init(loop, &r->delivery);
	r->timeouts.data = r->delivery.data = r;
	if (resolver_configure(r, server, e) < 0) {
		resolver_free(r);
		return NULL;
	}
	return r;
}

static void delivery_closed(uv_handle_t *h)
{
	free(h->data);
}

static void timeouts_closed(uv_handle_t *h)
{
	struct resolver *r = h->data;
	uv_close((uv_handle_t *)&r->delivery, delivery_closed);
}

void resolver_free(struct resolver *r)
{
	if (!r)
		return;
	if (r->channel)
		ares_destroy(r->channel);
	list_for_each (it, &r->finished)
		free(list_entry(it, struct lookup, link));
	ares_library_cleanup();
	uv_close((uv_handle_t *)&r->timeouts, timeouts_closed);
}

static bool is_own_address(const struct ifaddrs *interfaces, const struct address *a)
{
	for (const struct ifaddrs *i = interfaces; i; i = i->ifa_next) {
		struct address own;
		uint16_t port;
		if (!i->ifa_addr || address_from_sockaddr(i->ifa_addr, &own, &port) < 0)
			continue;
		address_unwrap(&own);
		if (own.family == a->family &&
		    !memcmp(own.bytes, a->bytes, a->family == AF_INET ? 4 : 16))
			return true;
	}
	return false;
}

/* Keeps what a sandbox may reach. Fails closed: what can't be compared with our own addresses is
 * dropped. */
static void lookup_judge(struct lookup *l, const struct ares_addrinfo *answer)
{
	struct ifaddrs *interfaces = NULL;
	const char *refused = NULL;
	if (getifaddrs(&interfaces) < 0) {
		err_sys(&l->why, errno, "listing this machine's addresses");
		return;
	}
	for (const struct ares_addrinfo_node *n = answer->nodes; n; n = n->ai_next) {
		struct address a, inner;
		uint16_t port;
		if (l->count == RESOLVER_ADDRESSES_MAX)
			break;
		if (address_from_sockaddr(n->ai_addr, &a, &port) < 0)
			continue;
		inner = a;
		address_unwrap(&inner);
		const char *special = address_special(&inner);
		if (!special && is_own_address(interfaces, &inner))
			special = "this machine's own";
		if (special && (!l->trusted || address_is_metadata(&inner)))
			refused = special;
		else
			l->list[l->count++] = a;
	}
	freeifaddrs(interfaces);
	if (!l->count && refused)
		err_set(&l->why, EACCES,
			"the name %s leads to an address that is no public one (%s); a 'resolve' entry "
			"in the policy would open it",
			l->host, refused);
	else if (!l->count)
		err_set(&l->why, ENOENT, "the name %s has no address", l->host);
}

static void lookup_answer(void *user, int status, int timeouts, struct ares_addrinfo *answer)
{
	struct lookup *l = user;
	(void)timeouts;
	if (status == ARES_EDESTRUCTION) {
		free(l);
		return;
	}
	if (status == ARES_SUCCESS)
		lookup_judge(l, answer);
	else if (status == ARES_ENOTFOUND || status == ARES_ENODATA)
		err_set(&l->why, ENOENT, "the name %s does not exist", l->host);
	else
		err_set(&l->why, status == ARES_ETIMEOUT ? ETIMEDOUT : EIO,
			"looking up the name %s: %s", l->host, ares_strerror(status));
	ares_freeaddrinfo(answer);
	lookup_finish(l);
}

/* A literal address that the policy allows. This machine's own is not meant by a rule for a whole
 * network, and metadata services by none. */
static int literal_judge(const struct policy *p, const struct address *a, bool trusted,
			 struct err *e)
{
	struct ifaddrs *interfaces = NULL;
	char text[INET6_ADDRSTRLEN];
	address_format(a, text);
	if (address_is_metadata(a))
		return err_set(e, EACCES, "%s is a cloud metadata service", text);
	if (getifaddrs(&interfaces) < 0)
		return err_sys(e, errno, "listing this machine's addresses");
	bool own = is_own_address(interfaces, a);
	freeifaddrs(interfaces);
	if (own && !trusted && !policy_names_address(p, a))
		return err_set(e, EACCES,
			       "%s is this machine's own address, which only a rule with the cidr "
			       "%s/%d opens",
			       text, text, a->family == AF_INET ? 32 : 128);
	return 0;
}

static void lookup_literal(struct lookup *l, const struct policy *p, const struct address *a)
{
	struct address inner = *a;
	address_unwrap(&inner);
	if (literal_judge(p, &inner, l->trusted, &l->why) == 0)
		l->list[l->count++] = *a;
	lookup_finish(l);
}

static void lookup_pin(struct lookup *l, const char *address)
{
	struct address a, inner;
	if (address_parse(address, &a) < 0) {
		err_set(&l->why, EACCES, "the policy's address for %s is none", l->host);
	} else {
		inner = a;
		address_unwrap(&inner);
		if (address_is_metadata(&inner))
			err_set(&l->why, EACCES,
				"the policy's address for %s is a cloud metadata service", l->host);
		else
			l->list[l->count++] = a;
	}
	lookup_finish(l);
}

static int lookup_start(struct resolver *r, const struct policy *p, const char *host, bool trusted,
			struct resolver_query *q)
{
	const char *pin, *authority;
	struct lookup *l = calloc(1, sizeof(*l));
	if (!l || strlen(host) >= sizeof(l->host)) {
		free(l);
		return -ENOMEM;
	}
	list_init(&l->link);
	l->resolver = r;
	l->query = q;
	l->trusted = trusted;
	memcpy(l->host, host, strlen(host) + 1);
	q->lookup = l;
	if (policy_resolve(p, host, &pin, &authority)) {
		lookup_pin(l, pin);
		return 0;
	}
	struct address literal;
	if (address_parse(host, &literal) == 0) {
		lookup_literal(l, p, &literal);
		return 0;
	}
	struct ares_addrinfo_hints hints = {
		.ai_flags = ARES_AI_NOSORT,
		.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
	};
	ares_getaddrinfo(r->channel, host, NULL, &hints, lookup_answer, l);
	resolver_timeouts(&r->timeouts);
	return 0;
}

int resolver_start(struct resolver *r, const struct policy *p, const char *host,
		   struct resolver_query *q)
{
	return lookup_start(r, p, host, false, q);
}

int resolver_start_proxy(struct resolver *r, const struct policy *p, const char *host,
			 struct resolver_query *q)
{
	return lookup_start(r, p, host, true, q);
}

void resolver_cancel(struct resolver_query *q)
{
	if (!q->lookup)
		return;
	q->lookup->query = NULL;
	q->lookup = NULL;
}
