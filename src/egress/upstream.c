/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A dial resolves, then tries each checked address in turn until TCP stands; TLS that fails ends
 * it, for another address of the same name is no remedy for a wrong certificate. Trust is the
 * system's store, or the policy's certificate for a pinned name and then nothing else.
 */
#include "egress/upstream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "http/tls.h"

#define SWEEP_MS 5000

struct upstream {
	struct list link; /* in upstreams.idle while idle */
	struct upstreams *all;
	struct http_client *client;
	enum policy_scheme scheme;
	uint16_t port;
	bool idle, was_idle;
	uint64_t idle_since_ms;
	char host[];
};

/* The trust for one pinned name. */
struct trust {
	struct list link;
	struct tls_context *tls;
	char host[];
};

struct upstreams {
	struct gateway *g;
	struct list idle; /* longest idle first */
	size_t idle_count;
	struct list pinned; /* struct trust */
	struct tls_context *system;
	uv_timer_t sweep;
};

static void upstream_forget(struct upstream *u)
{
	if (u->idle) {
		list_remove(&u->link);
		u->all->idle_count--;
		u->idle = false;
	}
}

void upstream_drop(struct upstream *u)
{
	upstream_forget(u);
	free(u);
}

void upstream_close(struct upstream *u)
{
	http_client_close(u->client);
	upstream_drop(u);
}

/* The idle connection has ended by itself. */
static void upstream_closed(void *user)
{
	upstream_drop(user);
}

static void upstreams_sweep(uv_timer_t *timer)
{
	struct upstreams *all = timer->data;
	uint64_t now = uv_now(all->g->loop);
	while (!list_empty(&all->idle)) {
		struct upstream *u = list_entry(all->idle.next, struct upstream, link);
		if (now - u->idle_since_ms < UPSTREAM_IDLE_MS) {
			uv_timer_start(timer, upstreams_sweep, SWEEP_MS, 0);
			return;
		}
		upstream_close(u);
	}
}

void upstream_release(struct upstream *u)
{
	struct upstreams *all = u->all;
	if (!http_client_reusable(u->client)) {
		upstream_close(u);
		return;
	}
	if (all->idle_count == UPSTREAM_IDLE_MAX)
		upstream_close(list_entry(all->idle.next, struct upstream, link));
	u->idle = true;
	u->idle_since_ms = uv_now(all->g->loop);
	list_append(&all->idle, &u->link);
	all->idle_count++;
	if (!uv_is_active((uv_handle_t *)&all->sweep))
		uv_timer_start(&all->sweep, upstreams_sweep, SWEEP_MS, 0);
}

struct upstream *upstreams_take(struct upstreams *all, const struct policy_dest *dest)
{
	for (struct list *it = all->idle.prev; it != &all->idle; it = it->prev) {
		struct upstream *u = list_entry(it, struct upstream, link);
		if (u->port != dest->port || u->scheme != dest->scheme ||
		    !str_eq(u->host, dest->host) || !http_client_reusable(u->client))
			continue;
		upstream_forget(u);
		u->was_idle = true;
		return u;
	}
	return NULL;
}

struct http_client *upstream_client(struct upstream *u)
{
	return u->client;
}

bool upstream_was_idle(const struct upstream *u)
{
	return u->was_idle;
}

struct upstreams *upstreams_new(struct gateway *g)
{
	struct upstreams *all = calloc(1, sizeof(*all));
	if (!all)
		return NULL;
	all->g = g;
	list_init(&all->idle);
	list_init(&all->pinned);
	uv_timer_init(g->loop, &all->sweep);
	all->sweep.data = all;
	return all;
}

static void sweep_closed(uv_handle_t *h)
{
	free(h->data);
}

void upstreams_free(struct upstreams *all)
{
	if (!all)
		return;
	list_for_each (it, &all->pinned) {
		struct trust *t = list_entry(it, struct trust, link);
		tls_context_free(t->tls);
		free(t);
	}
	tls_context_free(all->system);
	while (!list_empty(&all->idle))
		upstream_close(list_entry(all->idle.next, struct upstream, link));
	uv_close((uv_handle_t *)&all->sweep, sweep_closed);
}

static struct tls_context *trust_pinned(struct upstreams *all, const char *host, const char *pem,
					struct err *e)
{
	list_for_each (it, &all->pinned) {
		struct trust *t = list_entry(it, struct trust, link);
		if (str_eq(t->host, host))
			return t->tls;
	}
	size_t n = strlen(host) + 1;
	struct trust *t = malloc(sizeof(*t) + n);
	if (!t) {
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	memcpy(t->host, host, n);
	t->tls = tls_client_new(pem, true, e);
	if (!t->tls) {
		free(t);
		return NULL;
	}
	list_append(&all->pinned, &t->link);
	return t->tls;
}

/* Whom to trust for host. The system's store takes long to load: not before it is needed. */
static struct tls_context *upstreams_trust(struct upstreams *all, const char *host, struct err *e)
{
	const char *address, *pem = NULL;
	if (policy_resolve(all->g->policy, host, &address, &pem) && pem)
		return trust_pinned(all, host, pem, e);
	if (!all->system)
		all->system = tls_client_new(NULL, false, e);
	return all->system;
}

static void dial_failed(struct upstream_dial *d, unsigned status, const struct err *why)
{
	struct stream *s = d->stream;
	d->stream = NULL;
	if (s)
		stream_close(s);
	d->done(d, NULL, status, why);
}

static void dial_succeeded(struct upstream_dial *d)
{
	size_t n = strlen(d->dest.host) + 1;
	struct stream *s = d->stream;
	struct upstream *u = calloc(1, sizeof(*u) + n);
	struct err why;
	if (!u) {
		err_set(&why, ENOMEM, "the gateway has no memory");
		dial_failed(d, 502, &why);
		return;
	}
	list_init(&u->link);
	u->all = d->all;
	u->scheme = d->dest.scheme;
	u->port = d->dest.port;
	memcpy(u->host, d->dest.host, n);
	d->stream = NULL;
	stream_set_idle_timeout(s, UPSTREAM_SILENT_MS);
	u->client = http_client_new(s, upstream_closed, u);
	if (!u->client) {
		free(u);
		err_set(&why, ENOMEM, "the gateway has no memory");
		d->done(d, NULL, 502, &why);
		return;
	}
	d->done(d, u, 0, NULL);
}

static void dial_opened(void *user)
{
	struct upstream_dial *d = user;
	struct err why;
	if (d->dest.scheme == POLICY_HTTP || d->securing) {
		dial_succeeded(d);
		return;
	}
	d->securing = true;
	struct tls_context *trust = upstreams_trust(d->all, d->dest.host, &why);
	if (!trust || stream_tls_client(d->stream, trust, d->dest.host, UPSTREAM_TLS_MS, &why) < 0)
		dial_failed(d, 502, &why);
}

static void dial_next(struct upstream_dial *d, const struct err *last);

static void dial_closed(void *user, const struct err *why)
{
	struct upstream_dial *d = user;
	struct err text;
	d->stream = NULL; /* dead already */
	if (!d->securing) {
		dial_next(d, why);
		return;
	}
	err_set(&text, why->code ? why->code : EPROTO, "TLS with %s:%u failed: %s", d->dest.host,
		d->dest.port, why->text);
	d->done(d, NULL, why->code == ETIMEDOUT ? 504 : 502, &text);
}

static void dial_data(void *user, const uint8_t *p, size_t n)
{
	(void)user, (void)p, (void)n; /* reading is off until the client turns it on */
}

static void dial_eof(void *user)
{
	struct upstream_dial *d = user;
	struct err why;
	err_set(&why, ECONNRESET, "%s:%u closed the connection", d->dest.host, d->dest.port);
	dial_failed(d, 502, &why);
}

static const struct stream_ops dial_ops = {
	.opened = dial_opened,
	.data = dial_data,
	.eof = dial_eof,
	.closed = dial_closed,
};

/* Tries the next address; last says why the one before was no good. */
static void dial_next(struct upstream_dial *d, const struct err *last)
{
	struct err why = *last;
	while (d->next < d->count) {
		struct sockaddr_storage to;
		socklen_t len;
		address_to_sockaddr(&d->list[d->next++], d->dest.port, &to, &len);
		d->stream = stream_connect(d->all->g->loop, (struct sockaddr *)&to, len,
					   UPSTREAM_CONNECT_MS, &dial_ops, d, &why);
		if (d->stream)
			return;
	}
	struct err text;
	int code = why.code ? why.code : EHOSTUNREACH;
	err_set(&text, code, "could not connect to %s:%u: %s", d->dest.host, d->dest.port,
		strerrordesc_np(code));
	d->done(d, NULL, code == ETIMEDOUT ? 504 : 502, &text);
}

static void dial_resolved(struct resolver_query *q, const struct address *list, size_t count,
			  const struct err *why)
{
	struct upstream_dial *d = list_entry(q, struct upstream_dial, query);
	if (!count) {
		unsigned status = why->code == EACCES ? 403 : why->code == ETIMEDOUT ? 504 : 502;
		d->done(d, NULL, status, why);
		return;
	}
	memcpy(d->list, list, count * sizeof(*list));
	d->count = count;
	dial_next(d, &(struct err){.code = EHOSTUNREACH});
}

int upstream_dial(struct upstreams *all, const struct policy_dest *dest, struct upstream_dial *d)
{
	d->all = all;
	d->dest = *dest;
	d->count = d->next = 0;
	d->stream = NULL;
	d->securing = false;
	d->query.done = dial_resolved;
	return resolver_start(all->g->resolver, all->g->policy, dest->host, &d->query);
}

void upstream_dial_cancel(struct upstream_dial *d)
{
	resolver_cancel(&d->query);
	if (d->stream)
		stream_close(d->stream);
	d->stream = NULL;
}
