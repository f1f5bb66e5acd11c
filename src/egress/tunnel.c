/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same steps as a request's, each only after the one before: decide, record, wait for the
 * record to be written, connect, pass bytes. What the guest has sent meanwhile waits in its socket,
 * but for the early bytes. The server is resolved, checked and dialled like any other; no
 * credential is ever looked up here.
 */
#include "egress/tunnel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "egress/deny.h"
#include "egress/quota.h"
#include "egress/relay.h"
#include "egress/upstream.h"

enum tunnel_state {
	TUNNEL_RECORDING, /* the record of the decision is on its way */
	TUNNEL_DIALLING,
	TUNNEL_RELAYING,
	TUNNEL_DENYING, /* the record of a denial is on its way */
};

struct tunnel {
	enum tunnel_state state;
	struct gateway *g;
	struct policy_dest dest;
	struct policy_verdict verdict;
	bool ech;
	bool recorded;        /* an egress.request needs its egress.response */
	struct stream *guest; /* until it is the relay's */
	struct buf early;
	struct control_wait wait;
	struct upstream_dial dial;
	struct relay *relay;
	struct quota_hold quota;
	uint64_t id, since_us, bytes_up, bytes_down;
	void (*ended)(void *user);
	void *user;
};

static const char *tunnel_scheme(const struct tunnel *t)
{
	return t->dest.scheme == POLICY_TLS ? "tls" : "tcp";
}

bool tunnel_wanted(const struct policy *p, const struct policy_dest *dest,
		   enum policy_scheme scheme)
{
	unsigned among = scheme == POLICY_TLS ? 1u << POLICY_HTTPS | 1u << POLICY_TLS
					      : (1u << POLICY_SCHEMES) - 1;
	return policy_first_scheme(p, dest, among) == (int)scheme;
}

/* -- the end -- */

/* error: NULL when both sides had finished. */
static void tunnel_record_end(struct tunnel *t, const char *error)
{
	if (!t->recorded)
		return;
	t->recorded = false;
	struct record *record = control_record(t->g->control, "egress.response");
	record_number(record, "id", t->id);
	record_number(record, "bytes_up", t->bytes_up);
	record_number(record, "bytes_down", t->bytes_down);
	record_number(record, "ms", (clock_mono_us() - t->since_us) / 1000);
	if (error)
		record_string(record, "error", error);
	int failed = control_send(t->g->control, NULL);
	if (failed < 0 && failed != -EPIPE) /* when spaced is gone, the loop ends anyway */
		gateway_fail(t->g, &(struct err){.code = -failed, .text = "a record was lost"});
}

static void tunnel_count(struct tunnel *t)
{
	t->bytes_up = relay_bytes(t->relay, RELAY_GUEST);
	t->bytes_down = relay_bytes(t->relay, RELAY_SERVER);
}

void tunnel_close(struct tunnel *t, const char *why)
{
	if (!t)
		return;
	if (t->relay)
		tunnel_count(t);
	if (why)
		tunnel_record_end(t, why);
	control_cancel(&t->wait);
	upstream_dial_cancel(&t->dial);
	relay_close(t->relay);
	if (t->guest)
		relay_reset(t->guest);
	quota_end(&t->quota);
	buf_done(&t->early);
	free(t);
}

static void tunnel_end(struct tunnel *t, const char *error)
{
	void (*ended)(void *user) = t->ended;
	void *user = t->user;
	tunnel_record_end(t, error);
	tunnel_close(t, NULL);
	ended(user);
}

/* -- refusals -- */

static void tunnel_denied(struct control_wait *w, bool written)
{
	struct tunnel *t = list_entry(w, struct tunnel, wait);
	(void)written; /* it ends either way */
	tunnel_end(t, "denied");
}

static int tunnel_record_denial(struct tunnel *t, const char *reason, const char *limit,
				struct control_wait *w)
{
	struct denial d = {
		.scheme = tunnel_scheme(t),
		.host = t->dest.host,
		.port = t->dest.port,
		.reason = reason,
		.rule = t->verdict.rule,
		.limit = limit,
	};
	return deny_record(t->g->control, &d, w);
}

static int tunnel_refuse(struct tunnel *t, const char *reason, const char *limit)
{
	t->state = TUNNEL_DENYING;
	t->wait.done = tunnel_denied;
	return tunnel_record_denial(t, reason, limit, &t->wait);
}

/* -- relaying -- */

static bool tunnel_may_pass(void *user, enum relay_side from, size_t n, struct err *why)
{
	struct tunnel *t = user;
	struct quota_excess e;
	if (quota_charge(&t->quota, from == RELAY_GUEST ? QUOTA_UP : QUOTA_DOWN, n, &e))
		return true;
	err_set(why, EDQUOT, "%s", e.reason);
	tunnel_record_denial(t, e.reason, e.limit, NULL);
	return false;
}

static void tunnel_relayed(void *user, const struct err *why)
{
	struct tunnel *t = user;
	tunnel_count(t);
	t->relay = NULL;
	tunnel_end(t, why ? why->text : NULL);
}

static void tunnel_relay(struct tunnel *t, struct stream *server)
{
	static const struct relay_ops ops = {.allow = tunnel_may_pass, .ended = tunnel_relayed};
	struct relay_end from = {take_ptr(t->guest), t->early.data, t->early.len};
	struct relay_end to = {server, t->dial.early.data, t->dial.early.len};
	t->state = TUNNEL_RELAYING;
	t->relay = relay_start(&from, &to, RELAY_IDLE_MS, &ops, t);
	buf_done(&t->early);
	if (!t->relay)
		tunnel_end(t, "the gateway has no memory");
}

static void tunnel_dialled(struct upstream_dial *d, struct upstream *u, unsigned status,
			   const struct err *why)
{
	struct tunnel *t = list_entry(d, struct tunnel, dial);
	(void)u;
	if (!status)
		tunnel_relay(t, take_ptr(d->raw));
	else if (status != 403 || tunnel_refuse(t, why->text, NULL) < 0)
		tunnel_end(t, why->text);
}

/* -- the beginning -- */

static void tunnel_recorded(struct control_wait *w, bool written)
{
	struct tunnel *t = list_entry(w, struct tunnel, wait);
	if (!written) {
		tunnel_end(t, "no acknowledgement of the record");
		return;
	}
	t->state = TUNNEL_DIALLING;
	t->dial.done = tunnel_dialled;
	if (upstream_dial(t->g->upstreams, &t->dest, &t->dial) < 0)
		tunnel_end(t, "the gateway has no memory");
}

static int tunnel_record(struct tunnel *t)
{
	t->id = ++t->g->request_id;
	t->wait.done = tunnel_recorded;
	struct record *record = control_record(t->g->control, "egress.request");
	record_number(record, "id", t->id);
	record_string(record, "scheme", tunnel_scheme(t));
	record_string(record, "host", t->dest.host);
	record_number(record, "port", t->dest.port);
	record_string(record, "rule", t->verdict.rule);
	record_string(record, "credential", NULL);
	if (t->ech)
		record_bool(record, "ech", true);
	int r = control_send(t->g->control, &t->wait);
	t->recorded = r == 0;
	return r;
}

/* 0: a record is on its way, of what follows or of a refusal. */
static int tunnel_judge(struct tunnel *t)
{
	struct quota_excess e;
	policy_decide(t->g->policy, &t->dest, &t->verdict);
	if (!t->verdict.allow)
		return tunnel_refuse(t, "no rule allows this connection", NULL);
	if (!quota_begin(t->g->quotas, t->verdict.index, uv_now(t->g->loop), &t->quota, &e))
		return tunnel_refuse(t, e.reason, e.limit);
	return tunnel_record(t);
}

static void guest_data(void *user, const uint8_t *p, size_t n)
{
	(void)user, (void)p, (void)n; /* reading is off until the relay turns it on */
}

static void guest_closed(void *user, const struct err *why)
{
	struct tunnel *t = user;
	t->guest = NULL;
	tunnel_end(t, why->text);
}

static const struct stream_ops guest_ops = {.data = guest_data, .closed = guest_closed};

struct tunnel *tunnel_start(struct gateway *g, const struct policy_dest *dest, bool ech,
			    struct stream *guest, const void *early, size_t n,
			    void (*ended)(void *user), void *user)
{
	struct tunnel *t = calloc(1, sizeof(*t));
	if (!t) {
		stream_close(guest);
		return NULL;
	}
	t->g = g;
	t->dest = *dest;
	t->ech = ech;
	t->guest = guest;
	t->since_us = clock_mono_us();
	t->ended = ended;
	t->user = user;
	buf_init(&t->early, n);
	stream_read(guest, false);
	stream_set_idle_timeout(guest, 0);
	stream_set_ops(guest, &guest_ops, t);
	if (buf_append(&t->early, early, n) == 0 && tunnel_judge(t) == 0)
		return t;
	tunnel_close(t, NULL);
	return NULL;
}

/* Whether it may go on, under the rule that would allow it now. */
static bool tunnel_may_go_on(struct tunnel *t, struct quota_excess *e)
{
	*e = (struct quota_excess){.reason = "the policy has changed and no longer allows this"};
	policy_decide(t->g->policy, &t->dest, &t->verdict);
	return t->verdict.allow && tunnel_wanted(t->g->policy, &t->dest, t->dest.scheme) &&
	       (t->state == TUNNEL_RECORDING || !gateway_way_changed(t->g, t->dest.host)) &&
	       quota_move(&t->quota, t->verdict.index, e) &&
	       quota_alive(&t->quota, uv_now(t->g->loop), e);
}

void tunnel_recheck(struct tunnel *t)
{
	struct quota_excess e;
	if (t->state == TUNNEL_DENYING || tunnel_may_go_on(t, &e))
		return;
	if (t->relay)
		tunnel_count(t);
	tunnel_record_denial(t, e.reason, e.limit, NULL);
	tunnel_end(t, e.reason);
}
