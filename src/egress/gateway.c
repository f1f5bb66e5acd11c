/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a gateway: waiting, configured over the control socket, ready, serving, and gone with
 * spaced, unless another takes its place in time. A policy that comes later takes the place of the
 * first, whole or not at all; then whatever is open is judged again.
 */
#include "egress/gateway.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/doc.h"
#include "base/str.h"
#include "egress/dns.h"
#include "egress/guard.h"
#include "egress/guest.h"
#include "egress/request.h"
#include "egress/upstream.h"

#define CLOSING_TURNS 4 /* of the loop, after which all handles are closed */

void gateway_fail(struct gateway *g, const struct err *why)
{
	if (g->ending)
		return;
	g->ending = true;
	g->failure = *why;
	uv_stop(g->loop);
}

/* -- credentials -- */

static int put_all(struct secrets *s, const json_t *entries, uint64_t now_ms, struct err *e)
{
	int r = 0;
	for (size_t i = 0; r == 0 && i < json_array_size(entries); i++)
		r = secrets_put(s, json_array_get(entries, i), now_ms, e);
	return r;
}

/* Whether entries make a set, and p opens their hosts: tried on a set of their own. */
static int try_all(const json_t *entries, const struct policy *p, uint64_t now_ms, struct err *e)
{
	struct secrets *alone = secrets_new();
	if (!alone)
		return err_set(e, ENOMEM, "no memory");
	int r = put_all(alone, entries, now_ms, e);
	if (r == 0)
		r = secrets_check(alone, p, e);
	secrets_free(alone);
	return r;
}

/* Makes entries, which were tried, all that there are. Each keeps its place, so what is open goes
 * on with it. Hosts that one hands to another are in the way until both are taken back. */
static int take_all(struct gateway *g, const json_t *entries, uint64_t now_ms, struct err *e)
{
	secrets_keep_only(g->secrets, entries);
	if (put_all(g->secrets, entries, now_ms, e) == 0)
		return 0;
	for (size_t i = 0; i < json_array_size(entries); i++) {
		const json_t *name = json_object_get(json_array_get(entries, i), "name");
		secrets_revoke(g->secrets, json_string_value(name));
	}
	return put_all(g->secrets, entries, now_ms, e);
}

/* Without one, all is denied. NULL with e set. */
static struct policy *read_policy(const json_t *message, struct err *e)
{
	json_t *document = NULL;
	if (doc_opt_object(message, "policy", &document, e) < 0)
		return NULL;
	if (document)
		return policy_from_json(document, e);
	struct policy *empty = policy_new_empty();
	if (!empty)
		err_set(e, ENOMEM, "no memory");
	return empty;
}

static int gateway_authority(struct gateway *g, const json_t *config, struct err *e)
{
	json_t *ca;
	const char *certificates, *key;
	int r = doc_want_object(config, "ca", &ca, e);
	if (r < 0 || (r = doc_want_string(ca, "certificates", &certificates, e)) < 0 ||
	    (r = doc_want_string(ca, "key", &key, e)) < 0)
		return r;
	r = ca_load(g->ca, certificates, key, e);
	return r < 0 ? err_prefix(e, "ca") : 0;
}

/* Hosts that the policy names get their addresses in its order: a guest that has gone on from a
   pause or in a fork, and kept what DNS said, meets the same hosts behind another gateway. */
static int gateway_names(struct gateway *g, const struct policy *p, struct err *e)
{
	const char *host;
	struct address a;
	for (size_t i = 0; (host = policy_exact_host(p, i)); i++) {
		int r = *host ? names_address(g->names, host, &a) : 0;
		if (r < 0)
			return err_sys(e, -r, "names");
	}
	return 0;
}

/* -- limits -- */

static void lifetime_over(uv_timer_t *timer);

static void gateway_arm(struct gateway *g)
{
	uint64_t now = uv_now(g->loop);
	uint64_t next = quotas_next_end_ms(g->quotas, now);
	uint64_t end = secrets_next_end_ms(g->secrets, now);
	uint64_t left = end > now ? end - now : 1;
	if (end && (!next || left < next))
		next = left;
	if (next)
		uv_timer_start(&g->lifetime, lifetime_over, next, 0);
	else
		uv_timer_stop(&g->lifetime);
}

/* What is open must be allowed still. */
static void gateway_recheck(struct gateway *g)
{
	requests_recheck(g);
	guests_recheck(g->guests);
	gateway_arm(g);
}

void gateway_recheck_soon(struct gateway *g)
{
	uv_timer_start(&g->lifetime, lifetime_over, 0, 0);
}

static bool same(const char *a, const char *b)
{
	return a == b || str_eq(a, b);
}

bool gateway_way_changed(const struct gateway *g, const char *host)
{
	const char *address[2] = {NULL}, *authority[2] = {NULL};
	if (!g->before)
		return false;
	policy_resolve(g->before, host, &address[0], &authority[0]);
	policy_resolve(g->policy, host, &address[1], &authority[1]);
	return !same(address[0], address[1]) || !same(authority[0], authority[1]) ||
	       !same(policy_proxy(g->before), policy_proxy(g->policy));
}

static void lifetime_over(uv_timer_t *timer)
{
	gateway_recheck(timer->data);
}

/* -- the policy -- */

/* Puts a policy in place of the one before, which is the caller's then. 0, and p is the gateway's;
 * or -errno, and nothing has changed. */
static int gateway_take_policy(struct gateway *g, struct policy *p, struct err *e)
{
	int r = gateway_names(g, p, e);
	if (r < 0)
		return r;
	uv_update_time(g->loop); /* lifetimes begin now */
	r = quotas_set(g->quotas, p, uv_now(g->loop));
	if (r < 0)
		return err_sys(e, -r, "limits");
	g->policy = p;
	return 0;
}

static int gateway_change(struct gateway *g, const json_t *message, struct err *e)
{
	static const char *const known[] = {"type", "policy", "secrets", NULL};
	json_t *document;
	int r = doc_only(message, known, e);
	if (r < 0 || (r = doc_want_object(message, "policy", &document, e)) < 0)
		return r;
	json_t *entries = NULL;
	if ((r = doc_opt_array(message, "secrets", &entries, e)) < 0)
		return r;
	struct policy *before = g->policy, *p = read_policy(message, e);
	if (!p)
		return -EINVAL;
	/* Secrets whose hosts a new policy no longer allows stay unused. */
	uv_update_time(g->loop);
	if ((entries && (r = try_all(entries, p, uv_now(g->loop), e)) < 0) ||
	    (r = gateway_take_policy(g, p, e)) < 0) {
		policy_free(p);
		return r;
	}
	if (entries && (r = take_all(g, entries, uv_now(g->loop), e)) < 0)
		gateway_fail(g, e); /* it is not known any more what holds */
	g->before = before;
	upstreams_recheck(g->upstreams);
	gateway_recheck(g);
	g->before = NULL;
	policy_free(before);
	return r;
}

static void gateway_answer(struct gateway *g, const char *type, const char *message)
{
	int r = control_answer(g->control, type, message);
	if (r < 0)
		gateway_fail(g, &(struct err){.code = -r, .text = "answering spaced"});
}

static void gateway_new_policy(void *user, const json_t *message)
{
	struct gateway *g = user;
	struct err e = {0};
	int r = gateway_change(g, message, &e);
	gateway_answer(g, "policy", r < 0 ? e.text : NULL);
}

/* -- one credential -- */

static int gateway_put(struct gateway *g, json_t *entry, struct err *e)
{
	auto_json json_t *entries = json_array();
	if (!entries || json_array_append(entries, entry) < 0)
		return err_set(e, ENOMEM, "no memory");
	uv_update_time(g->loop); /* its time begins now */
	int r = try_all(entries, g->policy, uv_now(g->loop), e);
	return r < 0 ? r : secrets_put(g->secrets, entry, uv_now(g->loop), e);
}

static int gateway_revoke(struct gateway *g, const char *name, struct err *e)
{
	int r = secrets_revoke(g->secrets, name);
	return r < 0 ? err_set(e, -r, "there is no credential %.64s", name) : 0;
}

static int gateway_change_secret(struct gateway *g, const json_t *message, struct err *e)
{
	static const char *const known[] = {"type", "put", "revoke", "renew", NULL};
	json_t *put = NULL, *renew = NULL;
	const char *revoke = NULL;
	int r = doc_only(message, known, e);
	if (r < 0 || (r = doc_opt_object(message, "put", &put, e)) < 0 ||
	    (r = doc_opt_object(message, "renew", &renew, e)) < 0 ||
	    (r = doc_opt_string(message, "revoke", &revoke, e)) < 0)
		return r;
	if (!!put + !!renew + !!revoke != 1)
		return err_set(e, EINVAL,
			       "a message about a secret needs one of put, revoke, renew");
	if (put)
		return gateway_put(g, put, e);
	if (renew)
		return secrets_renew(g->secrets, renew, e);
	return gateway_revoke(g, revoke, e);
}

static void gateway_new_secret(void *user, const json_t *message)
{
	struct gateway *g = user;
	struct err e = {0};
	int r = gateway_change_secret(g, message, &e);
	if (r == 0)
		gateway_recheck(g);
	gateway_answer(g, "secret", r < 0 ? e.text : NULL);
}

/* -- the configuration -- */

static int gateway_configure(struct gateway *g, const json_t *config, struct err *e)
{
	static const char *const known[] = {"type", "sandbox", "policy", "secrets", "ca", NULL};
	int r = doc_only(config, known, e);
	if (r < 0)
		return r;
	struct policy *p = read_policy(config, e);
	if (!p)
		return -EINVAL;
	r = gateway_take_policy(g, p, e);
	if (r < 0) {
		policy_free(p);
		return r;
	}
	json_t *entries = NULL;
	if ((r = doc_opt_array(config, "secrets", &entries, e)) < 0 ||
	    (r = put_all(g->secrets, entries, uv_now(g->loop), e)) < 0 ||
	    (r = secrets_check(g->secrets, g->policy, e)) < 0)
		return r;
	if ((r = gateway_authority(g, config, e)) < 0)
		return r;
	/* Not before, for it reads which servers there are now. */
	g->resolver = resolver_new(g->loop, g->resolver_server, e);
	return g->resolver ? 0 : -e->code;
}

/* Takes the descriptors over in any case. */
static int gateway_listen(struct gateway *g, int fds[CONTROL_FDS], struct err *e)
{
	g->dns = dns_new(g, fds[CONTROL_DNS_UDP], fds[CONTROL_DNS_TCP], e);
	if (!g->dns) {
		close(fds[CONTROL_TCP]);
		return -e->code;
	}
	g->guests = guests_new(g, fds[CONTROL_TCP], e);
	return g->guests ? 0 : -e->code;
}

static void gateway_config(void *user, const json_t *config, int fds[CONTROL_FDS])
{
	struct gateway *g = user;
	struct err e = {0};
	int r = gateway_configure(g, config, &e);
	if (r < 0) {
		for (size_t i = 0; i < CONTROL_FDS; i++)
			close(fds[i]);
	} else {
		r = gateway_listen(g, fds, &e);
	}
	if (r == 0 && (r = control_ready(g->control)) < 0)
		err_sys(&e, -r, "telling spaced");
	if (r < 0) {
		control_failed(g->control, e.text);
		gateway_fail(g, &e);
		return;
	}
	gateway_arm(g);
}

static void gateway_ended(void *user, const struct err *why)
{
	struct gateway *g = user;
	gateway_fail(g, why->code == ECONNRESET ? &(struct err){0} : why);
}

/* The connections first, for they use the rest. How they have ended is the last that spaced hears.
 */
static void gateway_done(struct gateway *g)
{
	static const char why[] = "the sandbox stopped";
	g->ending = true;
	requests_close(g, why);
	guests_free(g->guests, why);
	control_finish(g->control);
	dns_free(g->dns);
	upstreams_free(g->upstreams);
	resolver_free(g->resolver);
	ca_free(g->ca);
	names_free(g->names);
	secrets_free(g->secrets);
	quotas_free(g->quotas);
	policy_free(g->policy);
	control_free(g->control);
	uv_close((uv_handle_t *)&g->term, NULL);
	uv_close((uv_handle_t *)&g->lifetime, NULL);
	delay_close(&g->held);
	stream_close_detached(g->loop);
	for (int i = 0; i < CLOSING_TURNS; i++)
		uv_run(g->loop, UV_RUN_NOWAIT);
	uv_loop_close(g->loop);
}

static void gateway_term(uv_signal_t *signal, int number)
{
	(void)number;
	gateway_fail(signal->data, &(struct err){0});
}

/* What is the same for every sandbox, while none waits. 0 or -errno. */
static int gateway_prepare(struct gateway *g, struct err *e)
{
	g->ca = ca_new(e);
	if (!g->ca)
		return -e->code;
	g->names = names_new();
	g->upstreams = upstreams_new(g);
	g->quotas = quotas_new();
	g->secrets = secrets_new();
	return g->names && g->upstreams && g->quotas && g->secrets
		       ? 0
		       : err_set(e, ENOMEM, "no memory");
}

int gateway_run(int control_fd, int listen_fd, const char *resolver_server, struct err *e)
{
	static const struct control_ops ops = {
		.config = gateway_config,
		.policy = gateway_new_policy,
		.secret = gateway_new_secret,
		.ended = gateway_ended,
	};
	uv_loop_t loop;
	struct gateway g = {.loop = &loop, .resolver_server = resolver_server};
	int r = uv_loop_init(&loop);
	if (r < 0)
		return err_set(e, -r, "event loop: %s", uv_strerror(r));
	g.control = control_new(&loop, control_fd, listen_fd, CONTROL_ALONE_MS, &ops, &g, e);
	if (!g.control)
		return -e->code;
	list_init(&g.requests);
	uv_signal_init(&loop, &g.term);
	uv_timer_init(&loop, &g.lifetime);
	delay_init(&g.held, &loop, GUARD_PATIENCE_MS);
	g.term.data = g.lifetime.data = &g;
	r = uv_signal_start(&g.term, gateway_term, SIGTERM);
	if (r < 0)
		return err_set(e, -r, "SIGTERM: %s", uv_strerror(r));
	r = gateway_prepare(&g, e);
	if (r < 0)
		return r;
	uv_run(&loop, UV_RUN_DEFAULT);
	gateway_done(&g);
	if (!g.failure.code)
		return 0;
	*e = g.failure;
	return -e->code;
}
