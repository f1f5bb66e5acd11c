/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A dial goes this way, each step only after the one before:
 *
 *	the name's addresses, each checked ─► race ─────────────────┐
 *	the proxy's addresses ─► race ─► the proxy is asked ────────┼─► TLS, for https ─► done
 *
 * Requests to a host that may speak HTTP/2 wait while another's connection to it is being made, so
 * that many at once make one connection; should that take long, come to nothing, or be no HTTP/2,
 * they dial themselves. Who waits holds nothing: policy and addresses are asked when he dials.
 *
 * TLS that fails ends it, for another address of the same name is no remedy for a wrong
 * certificate. A proxy resolves names itself, so that only where it can lead is no longer ours to
 * check; pinned names and literal addresses are inside, and never go by it.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "egress/upstream_state.h"
#include "http/tls.h"

/* Out of the pool's lists. */
static void dial_leave(struct upstream_dial *d)
{
	if (!d->dialling)
		return;
	list_remove(&d->link);
	d->dialling = false;
	if (!d->waiting)
		dials_changed(upstreams_dials(d->all));
}

static void dial_stop(struct upstream_dial *d)
{
	dial_leave(d);
	resolver_cancel(&d->query);
	race_cancel(take_ptr(d->race));
	proxy_cancel(take_ptr(d->proxy));
	if (d->stream)
		stream_close(take_ptr(d->stream));
	buf_done(&d->early);
}

static void dial_failed(struct upstream_dial *d, unsigned status, const struct err *why)
{
	struct err text = *why; /* it may be of what ends now */
	dial_stop(d);
	d->done(d, NULL, status, &text);
}

static unsigned status_of(const struct err *why)
{
	return why->code == ETIMEDOUT ? 504 : 502;
}

/* -- TLS, and the end -- */

static void dial_succeeded(struct upstream_dial *d)
{
	struct err why;
	struct upstream *u = upstream_new(d->all, &d->way, take_ptr(d->stream));
	if (u) {
		dial_stop(d);
		d->done(d, u, 0, NULL);
		return;
	}
	err_set(&why, ENOMEM, "the gateway has no memory");
	dial_failed(d, 502, &why);
}

static void tls_opened(void *user)
{
	dial_succeeded(user);
}

static void tls_closed(void *user, const struct err *why)
{
	struct upstream_dial *d = user;
	struct err text;
	d->stream = NULL; /* dead already */
	err_set(&text, why->code ? why->code : EPROTO, "TLS with %s:%u failed: %s", d->dest.host,
		d->dest.port, why->text);
	dial_failed(d, status_of(why), &text);
}

static void tls_data(void *user, const uint8_t *p, size_t n)
{
	(void)user, (void)p, (void)n; /* reading is off until the client turns it on */
}

static void tls_eof(void *user)
{
	struct upstream_dial *d = user;
	struct err why;
	err_set(&why, ECONNRESET, "%s:%u closed the connection", d->dest.host, d->dest.port);
	dial_failed(d, 502, &why);
}

static const struct stream_ops tls_ops = {
	.opened = tls_opened,
	.data = tls_data,
	.eof = tls_eof,
	.closed = tls_closed,
};

/* One that trusts likewise and shows the certificate of the dial. The caller's. */
static struct tls_context *certified(struct upstream_dial *d, const struct tls_context *trust,
				     struct err *e)
{
	const char *chain = secret_value(d->shown, SECRET_ID, NULL);
	const char *key = secret_value(d->shown, SECRET_VALUE, NULL);
	if (!chain || !key) {
		err_set(e, ENOENT, "the credential %s has no certificate", secret_name(d->shown));
		return NULL;
	}
	d->way.version = secret_version(d->shown);
	struct tls_context *ctx = tls_client_certified(trust, chain, key, e);
	if (!ctx)
		err_prefix(e, "the credential %s", secret_name(d->shown));
	return ctx;
}

static void dial_encrypt(struct upstream_dial *d, struct stream *s)
{
	struct err why;
	struct tls_context *trust = upstreams_trust(d->all, d->dest.host, &why);
	struct tls_context *own = trust && d->shown ? certified(d, trust, &why) : NULL;
	unsigned protocols = d->http1 ? TLS_HTTP1 : TLS_HTTP1 | TLS_HTTP2;
	bool ready = d->shown ? own != NULL : trust != NULL;
	if (!ready || stream_tls_client(s, own ? own : trust, d->dest.host, protocols,
					UPSTREAM_TLS_MS, &why) < 0)
		dial_failed(d, 502, &why);
	tls_context_free(own); /* the stream has it */
}

/* A way to the server stands, straight or through the proxy. */
static void dial_connected(struct upstream_dial *d, struct stream *s)
{
	struct err why;
	d->stream = s;
	stream_set_ops(s, &tls_ops, d);
	if (d->dest.scheme == POLICY_TLS || d->dest.scheme == POLICY_TCP) {
		d->raw = take_ptr(d->stream);
		dial_leave(d);
		d->done(d, NULL, 0, NULL);
		return;
	}
	if (d->early.len) {
		err_set(&why, EPROTO, "%s:%u spoke before it was asked", d->dest.host,
			d->dest.port);
		dial_failed(d, 502, &why);
		return;
	}
	if (d->dest.scheme == POLICY_HTTP) {
		dial_succeeded(d);
		return;
	}
	dial_encrypt(d, s);
}

/* -- TCP -- */

static void on_proxied(void *user, struct stream *s, const struct buf *early, const struct err *why)
{
	struct upstream_dial *d = user;
	struct err text;
	d->proxy = NULL;
	if (!s) {
		err_set(&text, why->code, "could not connect to %s:%u: %s", d->dest.host,
			d->dest.port, why->text);
		dial_failed(d, status_of(why), &text);
		return;
	}
	buf_init(&d->early, early->len);
	if (buf_append(&d->early, early->data, early->len) == 0) {
		dial_connected(d, s);
		return;
	}
	stream_close(s);
	err_set(&text, ENOMEM, "the gateway has no memory");
	dial_failed(d, 502, &text);
}

static void ask_proxy(struct upstream_dial *d, struct stream *s)
{
	static const struct proxy_ops ops = {.done = on_proxied};
	struct err why;
	d->proxy = proxy_start(s, d->place.kind, d->dest.host, d->dest.port, UPSTREAM_PROXY_MS,
			       &ops, d);
	if (d->proxy)
		return;
	err_set(&why, ENOMEM, "the gateway has no memory");
	dial_failed(d, 502, &why);
}

static void on_raced(void *user, struct stream *s, const struct err *why)
{
	struct upstream_dial *d = user;
	struct err text;
	d->race = NULL;
	if (s && d->by_proxy) {
		ask_proxy(d, s);
		return;
	}
	if (s) {
		dial_connected(d, s);
		return;
	}
	if (d->by_proxy)
		err_set(&text, why->code, "could not connect to the proxy %s:%u: %s", d->place.host,
			d->place.port, strerrordesc_np(why->code));
	else
		err_set(&text, why->code, "could not connect to %s:%u: %s", d->dest.host,
			d->dest.port, strerrordesc_np(why->code));
	dial_failed(d, status_of(why), &text);
}

static void on_resolved(struct resolver_query *q, const struct address *list, size_t count,
			const struct err *why)
{
	static const struct race_ops ops = {.done = on_raced};
	struct upstream_dial *d = list_entry(q, struct upstream_dial, query);
	struct err text;
	if (!count) {
		dial_failed(d, why->code == EACCES ? 403 : status_of(why), why);
		return;
	}
	d->race = race_start(upstreams_gateway(d->all)->loop, list, count,
			     d->by_proxy ? d->place.port : d->dest.port, UPSTREAM_CONNECT_MS, &ops,
			     d);
	if (d->race)
		return;
	err_set(&text, ENOMEM, "the gateway has no memory");
	dial_failed(d, 502, &text);
}

/* -- the start -- */

/* Whether the policy has this leave by its proxy. */
static bool goes_by_proxy(const struct policy *p, const char *host)
{
	const char *pin, *ca;
	struct address literal;
	return policy_proxy(p) && !policy_resolve(p, host, &pin, &ca) &&
	       address_parse(host, &literal) < 0;
}

static int dial_start(struct upstream_dial *d)
{
	struct gateway *g = upstreams_gateway(d->all);
	d->query.done = on_resolved;
	d->by_proxy = goes_by_proxy(g->policy, d->dest.host);
	if (d->by_proxy && proxy_place(policy_proxy(g->policy), &d->place) < 0)
		return -EINVAL; /* never straight instead */
	d->waiting = false;
	d->dialling = true;
	list_append(&upstreams_dials(d->all)->under_way, &d->link);
	int r = d->by_proxy ? resolver_start_proxy(g->resolver, g->policy, d->place.host, &d->query)
			    : resolver_start(g->resolver, g->policy, d->dest.host, &d->query);
	if (r < 0)
		dial_stop(d);
	return r;
}

/* -- waiting for another's connection -- */

static bool is_under_way(struct upstreams *all, const struct upstream_way *way)
{
	list_for_each (it, &upstreams_dials(all)->under_way) {
		const struct upstream_dial *d = list_entry(it, struct upstream_dial, link);
		if (!d->http1 && upstream_same_way(&d->way, way))
			return true;
	}
	return upstreams_settles(all, way);
}

static uint64_t dial_waited(const struct upstream_dial *d)
{
	return uv_now(upstreams_gateway(d->all)->loop) - d->since_ms;
}

static bool dial_waits(const struct upstream_dial *d)
{
	return d->dest.scheme == POLICY_HTTPS && !d->http1 && dial_waited(d) < UPSTREAM_WAIT_MS &&
	       !upstreams_speaks_http1(d->all, &d->way) && is_under_way(d->all, &d->way);
}

static void dial_look(struct upstream_dial *d)
{
	struct err why;
	struct upstream *u = upstreams_share(d->all, &d->way, d->settled + 1);
	if (u) {
		dial_stop(d);
		d->done(d, u, 0, NULL);
		return;
	}
	if (dial_waits(d))
		return;
	dial_leave(d);
	if (dial_start(d) == 0)
		return;
	err_set(&why, ENOMEM, "the gateway has no memory");
	dial_failed(d, 502, &why);
}

/* Each once, whatever the others' users do meanwhile. */
static void dials_look(uv_timer_t *timer)
{
	struct dials *t = timer->data;
	struct list todo;
	list_init(&todo);
	list_move_all(&todo, &t->waiting);
	while (!list_empty(&todo)) {
		struct upstream_dial *d = list_entry(todo.next, struct upstream_dial, link);
		list_remove(&d->link);
		list_append(&t->waiting, &d->link);
		dial_look(d);
	}
	if (list_empty(&t->waiting) || uv_is_active((uv_handle_t *)timer))
		return;
	struct upstream_dial *first = list_entry(t->waiting.next, struct upstream_dial, link);
	uv_timer_start(timer, dials_look, UPSTREAM_WAIT_MS - dial_waited(first), 0);
}

void dials_changed(struct dials *t)
{
	if (!list_empty(&t->waiting))
		uv_timer_start(&t->timer, dials_look, 0, 0);
}

void dials_init(struct dials *t, uv_loop_t *loop)
{
	list_init(&t->under_way);
	list_init(&t->waiting);
	uv_timer_init(loop, &t->timer);
	t->timer.data = t;
}

/* -- the beginning -- */

int upstream_dial(struct upstreams *all, const struct policy_dest *dest, struct upstream_dial *d)
{
	struct dials *t = upstreams_dials(all);
	d->all = all;
	d->dest = *dest;
	d->way = upstream_way(dest, d->shown);
	d->since_ms = uv_now(upstreams_gateway(all)->loop);
	d->settled = upstreams_settled(all);
	if (!dial_waits(d))
		return dial_start(d);
	d->waiting = d->dialling = true;
	list_append(&t->waiting, &d->link);
	if (!uv_is_active((uv_handle_t *)&t->timer))
		uv_timer_start(&t->timer, dials_look, UPSTREAM_WAIT_MS, 0);
	return 0;
}

void upstream_dial_cancel(struct upstream_dial *d)
{
	dial_stop(d);
}
