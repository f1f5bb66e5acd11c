/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a gateway: configured over the control socket, ready, serving, and gone when that
 * socket ends. */
#include "egress/gateway.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/doc.h"
#include "egress/dns.h"
#include "egress/guest.h"
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

static int gateway_secrets(struct gateway *g, const json_t *config, struct err *e)
{
	json_t *list = NULL;
	g->secrets = secrets_new();
	if (!g->secrets)
		return err_set(e, ENOMEM, "no memory");
	int r = doc_opt_array(config, "secrets", &list, e);
	for (size_t i = 0; r == 0 && i < json_array_size(list); i++)
		r = secrets_add(g->secrets, json_array_get(list, i), e);
	return r < 0 ? r : secrets_check(g->secrets, g->policy, e);
}

static int gateway_policy(struct gateway *g, const json_t *config, struct err *e)
{
	json_t *policy = NULL;
	int r = doc_opt_object(config, "policy", &policy, e);
	if (r < 0)
		return r;
	g->policy = policy ? policy_from_json(policy, e) : policy_new_empty();
	if (!g->policy && !policy)
		err_set(e, ENOMEM, "no memory");
	return g->policy ? 0 : -EINVAL;
}

static int gateway_authority(struct gateway *g, const json_t *config, struct err *e)
{
	json_t *ca;
	const char *certificates, *key;
	int r = doc_want_object(config, "ca", &ca, e);
	if (r < 0 || (r = doc_want_string(ca, "certificates", &certificates, e)) < 0 ||
	    (r = doc_want_string(ca, "key", &key, e)) < 0)
		return r;
	g->ca = ca_new(certificates, key, e);
	return g->ca ? 0 : err_prefix(e, "ca");
}

static int gateway_configure(struct gateway *g, const json_t *config, struct err *e)
{
	static const char *const known[] = {"type", "sandbox", "policy", "secrets", "ca", NULL};
	int r = doc_only(config, known, e);
	if (r < 0 || (r = gateway_policy(g, config, e)) < 0 ||
	    (r = gateway_secrets(g, config, e)) < 0 || (r = gateway_authority(g, config, e)) < 0)
		return r;
	g->names = names_new();
	g->upstreams = upstreams_new(g);
	if (!g->names || !g->upstreams)
		return err_set(e, ENOMEM, "no memory");
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
	}
}

static void gateway_ended(void *user, const struct err *why)
{
	struct gateway *g = user;
	gateway_fail(g, why->code == ECONNRESET ? &(struct err){0} : why);
}

/* The connections first, for they use the rest. */
static void gateway_done(struct gateway *g)
{
	g->ending = true;
	guests_free(g->guests);
	dns_free(g->dns);
	upstreams_free(g->upstreams);
	resolver_free(g->resolver);
	ca_free(g->ca);
	names_free(g->names);
	secrets_free(g->secrets);
	policy_free(g->policy);
	control_free(g->control);
	for (int i = 0; i < CLOSING_TURNS; i++)
		uv_run(g->loop, UV_RUN_NOWAIT);
	uv_loop_close(
		g->loop); /* connections that still send their last words end with the process */
}

int gateway_run(int control_fd, const char *resolver_server, struct err *e)
{
	static const struct control_ops ops = {.config = gateway_config, .ended = gateway_ended};
	uv_loop_t loop;
	struct gateway g = {.loop = &loop, .resolver_server = resolver_server};
	int r = uv_loop_init(&loop);
	if (r < 0)
		return err_set(e, -r, "event loop: %s", uv_strerror(r));
	g.control = control_new(&loop, control_fd, &ops, &g, e);
	if (!g.control)
		return -e->code;
	uv_run(&loop, UV_RUN_DEFAULT);
	gateway_done(&g);
	if (!g.failure.code)
		return 0;
	*e = g.failure;
	return -e->code;
}
