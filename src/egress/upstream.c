/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool. Trust is the system's store, or the policy's certificate for a pinned name and then
 * nothing else.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "egress/upstream_state.h"
#include "http/h2_client.h"
#include "http/tls.h"

#define SWEEP_MS  5000
#define HTTP1_MAX 64 /* hosts that are remembered for speaking no HTTP/2 */

struct upstream {
	struct list link; /* in upstreams.idle while idle */
	struct upstreams *all;
	struct http_client *client;
	struct upstream_way way;
	bool idle, was_idle;
	uint64_t idle_since_ms;
};

/* A connection of HTTP/2. */
struct shared {
	struct list link; /* in upstreams.shared */
	struct upstreams *all;
	struct h2_session *session;
	struct upstream_way way;
	bool barred;      /* for further requests: the policy has changed */
	uint64_t settled; /* when, counted in upstreams.settled; 0: its server has yet to speak */
	uint64_t used_ms;
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
	struct list shared;                   /* struct shared */
	uint64_t settled;                     /* so many of them ever were */
	struct upstream_way http1[HTTP1_MAX]; /* what spoke HTTP/1.1 last, a ring */
	size_t http1_next;
	struct list pinned; /* struct trust */
	struct dials dials;
	struct tls_context *system;
	uv_timer_t sweep;
};

struct upstream_way upstream_way(const struct policy_dest *dest, const struct secret *shown)
{
	struct upstream_way w = {
		.scheme = dest->scheme,
		.port = dest->port,
		.shown = shown,
		.version = shown ? secret_version(shown) : 0,
	};
	memcpy(w.host, dest->host, strlen(dest->host) + 1);
	return w;
}

bool upstream_same_way(const struct upstream_way *a, const struct upstream_way *b)
{
	return a->port == b->port && a->scheme == b->scheme && a->shown == b->shown &&
	       a->version == b->version && str_eq(a->host, b->host);
}

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

/* -- shared ones -- */

static void shared_drop(struct shared *s)
{
	list_remove(&s->link);
	dials_changed(&s->all->dials);
	free(s);
}

static void shared_settled(void *user)
{
	struct shared *s = user;
	s->settled = ++s->all->settled;
	dials_changed(&s->all->dials);
}

static void shared_closed(void *user)
{
	shared_drop(user);
}

static void shared_close(struct shared *s)
{
	h2_session_close(s->session);
	shared_drop(s);
}

/* Whether any is left. */
static bool shared_sweep(struct upstreams *all, uint64_t now)
{
	list_for_each (it, &all->shared) {
		struct shared *s = list_entry(it, struct shared, link);
		if (!h2_session_idle(s->session))
			s->used_ms = now;
		else if (s->barred || now - s->used_ms >= UPSTREAM_IDLE_MS)
			shared_close(s);
	}
	return !list_empty(&all->shared);
}

static struct upstream *upstream_alloc(struct upstreams *all, const struct upstream_way *way)
{
	struct upstream *u = calloc(1, sizeof(*u));
	if (!u)
		return NULL;
	list_init(&u->link);
	u->all = all;
	u->way = *way;
	return u;
}

/* A place on s, or NULL. */
static struct upstream *shared_place(struct shared *s, const struct upstream_way *way)
{
	struct upstream *u = upstream_alloc(s->all, way);
	if (u)
		u->client = h2_session_client(s->session);
	if (u && u->client)
		return u;
	free(u);
	return NULL;
}

struct upstream *upstreams_share(struct upstreams *all, const struct upstream_way *way,
				 uint64_t since)
{
	list_for_each (it, &all->shared) {
		struct shared *s = list_entry(it, struct shared, link);
		if (!s->barred && s->settled >= since && upstream_same_way(&s->way, way) &&
		    h2_session_usable(s->session))
			return shared_place(s, way);
	}
	return NULL;
}

bool upstreams_settles(const struct upstreams *all, const struct upstream_way *way)
{
	list_for_each (it, &all->shared) {
		const struct shared *s = list_entry(it, struct shared, link);
		if (!s->barred && upstream_same_way(&s->way, way) && h2_session_pending(s->session))
			return true;
	}
	return false;
}

uint64_t upstreams_settled(const struct upstreams *all)
{
	return all->settled;
}

struct dials *upstreams_dials(struct upstreams *all)
{
	return &all->dials;
}

/* -- what can't be shared -- */

static struct upstream_way *http1_find(struct upstreams *all, const struct upstream_way *way)
{
	for (size_t i = 0; i < HTTP1_MAX; i++)
		if (upstream_same_way(&all->http1[i], way))
			return &all->http1[i];
	return NULL;
}

bool upstreams_speaks_http1(struct upstreams *all, const struct upstream_way *way)
{
	return http1_find(all, way);
}

static void http1_note(struct upstreams *all, const struct upstream_way *way, bool speaks)
{
	struct upstream_way *known = http1_find(all, way);
	if (known && !speaks)
		*known = (struct upstream_way){0};
	else if (!known && speaks)
		all->http1[all->http1_next++ % HTTP1_MAX] = *way;
}

/* -- idle ones -- */

static void upstreams_sweep(uv_timer_t *timer)
{
	struct upstreams *all = timer->data;
	uint64_t now = uv_now(all->g->loop);
	while (!list_empty(&all->idle)) {
		struct upstream *u = list_entry(all->idle.next, struct upstream, link);
		if (now - u->idle_since_ms < UPSTREAM_IDLE_MS)
			break;
		upstream_close(u);
	}
	bool shared = shared_sweep(all, now);
	if (shared || !list_empty(&all->idle))
		uv_timer_start(timer, upstreams_sweep, SWEEP_MS, 0);
}

static void sweep_later(struct upstreams *all)
{
	if (!uv_is_active((uv_handle_t *)&all->sweep))
		uv_timer_start(&all->sweep, upstreams_sweep, SWEEP_MS, 0);
}

void upstream_release(struct upstream *u)
{
	struct upstreams *all = u->all;
	if (http_client_version(u->client) == 2 || !http_client_reusable(u->client)) {
		upstream_close(u);
		return;
	}
	if (all->idle_count == UPSTREAM_IDLE_MAX)
		upstream_close(list_entry(all->idle.next, struct upstream, link));
	u->idle = true;
	u->idle_since_ms = uv_now(all->g->loop);
	list_append(&all->idle, &u->link);
	all->idle_count++;
	sweep_later(all);
}

struct upstream *upstreams_take(struct upstreams *all, const struct policy_dest *dest,
				const struct secret *shown, bool http1)
{
	struct upstream_way way = upstream_way(dest, shown);
	struct upstream *shared = http1 ? NULL : upstreams_share(all, &way, 0);
	if (shared) {
		shared->was_idle = true;
		return shared;
	}
	for (struct list *it = all->idle.prev; it != &all->idle; it = it->prev) {
		struct upstream *u = list_entry(it, struct upstream, link);
		if (!upstream_same_way(&u->way, &way) || !http_client_reusable(u->client))
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
	list_init(&all->shared);
	list_init(&all->pinned);
	uv_timer_init(g->loop, &all->sweep);
	all->sweep.data = all;
	dials_init(&all->dials, g->loop);
	return all;
}

static void sweep_closed(uv_handle_t *h)
{
	free(h->data);
}

static void dials_closed(uv_handle_t *h)
{
	struct upstreams *all = list_entry(h, struct upstreams, dials.timer);
	uv_close((uv_handle_t *)&all->sweep, sweep_closed);
}

void upstreams_recheck(struct upstreams *all)
{
	list_for_each (it, &all->pinned) {
		struct trust *t = list_entry(it, struct trust, link);
		list_remove(&t->link);
		tls_context_free(t->tls);
		free(t);
	}
	memset(all->http1, 0, sizeof(all->http1));
	while (!list_empty(&all->idle))
		upstream_close(list_entry(all->idle.next, struct upstream, link));
	list_for_each (it, &all->shared) {
		struct shared *s = list_entry(it, struct shared, link);
		s->barred = true;
		if (h2_session_idle(s->session))
			shared_close(s);
	}
}

void upstreams_free(struct upstreams *all)
{
	if (!all)
		return;
	upstreams_recheck(all);
	tls_context_free(all->system);
	uv_close((uv_handle_t *)&all->dials.timer, dials_closed);
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

/* The system's store takes long to load: not before it is needed. */
struct tls_context *upstreams_trust(struct upstreams *all, const char *host, struct err *e)
{
	const char *address, *pem = NULL;
	if (policy_resolve(all->g->policy, host, &address, &pem) && pem)
		return trust_pinned(all, host, pem, e);
	if (!all->system)
		all->system = tls_client_new(NULL, false, e);
	return all->system;
}

struct gateway *upstreams_gateway(const struct upstreams *all)
{
	return all->g;
}

/* Has the connection s, which goes that way, shared. The first place on it, or NULL. */
static struct upstream *upstream_new_shared(struct upstreams *all, const struct upstream_way *way,
					    struct stream *s)
{
	struct shared *shared = calloc(1, sizeof(*shared));
	if (!shared) {
		stream_close(s);
		return NULL;
	}
	shared->all = all;
	shared->way = *way;
	shared->used_ms = uv_now(all->g->loop);
	shared->session = h2_session_new(s, shared_closed, shared);
	if (!shared->session) {
		free(shared);
		return NULL;
	}
	h2_session_on_settings(shared->session, shared_settled);
	list_append(&all->shared, &shared->link);
	sweep_later(all);
	return shared_place(shared, way);
}

struct upstream *upstream_new(struct upstreams *all, const struct upstream_way *way,
			      struct stream *s)
{
	bool shared = stream_tls_protocol(s) == TLS_HTTP2;
	stream_set_idle_timeout(s, UPSTREAM_SILENT_MS);
	if (way->scheme == POLICY_HTTPS)
		http1_note(all, way, !shared);
	if (shared)
		return upstream_new_shared(all, way, s);
	struct upstream *u = upstream_alloc(all, way);
	if (!u) {
		stream_close(s);
		return NULL;
	}
	u->client = http_client_new(s, upstream_closed, u);
	if (!u->client) {
		free(u);
		return NULL;
	}
	return u;
}
