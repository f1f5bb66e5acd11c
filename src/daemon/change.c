/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The new policy is written to the audit log and into the sandbox's record before its gateway
 * hears of it, with a mark that it is on its way: a spaced that takes the sandbox over sends it
 * again. A gateway that refuses it obeys the one before, which then comes back into the record.
 */
#include "daemon/change.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "daemon/grants.h"
#include "daemon/policies.h"
#include "daemon/sandbox_state.h"
#include "daemon/waiting.h"

struct change {
	struct node *node;
	char id[SANDBOX_ID_SIZE];
	struct http_exchange *x; /* NULL: nobody waits (any more) */
	struct policy *before;   /* NULL: what is sent again has nothing to go back to */
};

static void reply(struct http_exchange *x, json_t *j)
{
	auto_json json_t *owned = j;
	auto_free char *text = owned ? doc_to_text(owned) : NULL;
	if (text)
		http_exchange_reply(x, 200, "application/json", text, strlen(text));
	else
		http_exchange_reply_error(x, 500, "no memory");
}

/* applied: "now", or "resume": from then on. */
static void reply_applied(struct http_exchange *x, const struct sandbox *sb, const char *applied)
{
	reply(x,
	      json_pack("{s:s, s:s, s:s, s:I, s:o}", "sandboxID", sb->id, "name", sandbox_name(sb),
			"applied", applied, "rules", (json_int_t)policy_rule_count(sb->spec.policy),
			"policy", policy_to_json(sb->spec.policy)));
}

void change_show(struct sandbox *sb, struct http_exchange *x)
{
	if (sb->spec.policy)
		reply(x, json_pack("{s:s, s:s, s:b, s:o}", "sandboxID", sb->id, "name",
				   sandbox_name(sb), "network", sb->spec.network, "policy",
				   policy_to_json(sb->spec.policy)));
	else
		http_exchange_reply_error(x, 404, "no policy of %s is known", sandbox_name(sb));
}

static void store_or_warn(struct sandbox *sb)
{
	struct err e;
	if (sandbox_store(sb, &e) < 0)
		log_error("%s: %s", sb->id, e.text);
}

static int read_change(const struct sandbox *sb, const char *body, size_t n, struct policy **ret,
		       struct err *e)
{
	static const char *const known[] = {"policy", "allow", NULL};
	auto_json json_t *j = doc_parse_json(body, n, e);
	int r = j ? doc_only(j, known, e) : -EINVAL;
	if (r == 0)
		r = policies_from_request(sb->node, j, ret, NULL, e);
	return r < 0 ? r : grants_check(sb->spec.secrets, *ret, e);
}

/* A status to refuse with, and why in e; 0: it can be changed. */
static unsigned check_state(const struct sandbox *sb, struct err *e)
{
	const char *name = sandbox_name(sb);
	if (sb->state >= SANDBOX_STOPPING)
		err_set(e, EPIPE, "%s has ended: its policy changes nothing any more", name);
	else if (!sb->spec.network)
		err_set(e, EINVAL, "%s has no network, and gets none: it was made without", name);
	else if (sb->state != SANDBOX_RUNNING && sb->state != SANDBOX_PAUSED)
		err_set(e, EBUSY, "%s is %s: try again when it runs", name,
			sandbox_state_name(sb->state));
	else
		return 0;
	return 409;
}

static void on_waiter_gone(void *user)
{
	struct change *c = user;
	c->x = NULL;
}

static const struct http_exchange_ops waiting_ops = WAITING_OPS(on_waiter_gone);

static void change_free(struct change *c)
{
	policy_free(c->before);
	free(c);
}

static void put_back(struct sandbox *sb, struct change *c)
{
	if (!c->before)
		return;
	policy_free(sb->spec.policy);
	sb->spec.policy = take_ptr(c->before);
	store_or_warn(sb);
}

/* The gateway has answered, or is gone. */
static void on_told(void *user, const struct err *why)
{
	struct change *c = user;
	struct sandbox *sb = sandbox_find_id(c->node, c->id);
	struct http_exchange *x = take_ptr(c->x);
	bool refused = why && why->code == EINVAL;
	/* One that is paused meanwhile starts with it. */
	bool later = why && !refused && sb &&
		     (sb->state == SANDBOX_PAUSING || sb->state == SANDBOX_PAUSED);
	if (sb && (!why || refused || later)) {
		sb->policy_due = false;
		if (refused) {
			sandbox_record(sb, "policy.refused",
				       json_pack("{s:s}", "message", why->text));
			put_back(sb, c);
		} else {
			store_or_warn(sb);
		}
	}
	if (x && sb && (!why || later))
		reply_applied(x, sb, later ? "resume" : "now");
	else if (x)
		http_exchange_reply_error(x, refused ? 400 : 502, "%s",
					  why ? why->text : "the sandbox is gone");
	change_free(c);
}

/* Sends the policy of the sandbox to its gateway; c is taken over on success. */
static int tell_gateway(struct sandbox *sb, struct change *c, struct err *e)
{
	struct place *p = sb->place;
	if (!p || !p->gateway)
		return err_set(e, EPIPE, "the gateway is gone");
	auto_json json_t *document = policy_to_json(sb->spec.policy);
	return gateway_set_policy(p->gateway, document, on_told, c, e);
}

static struct change *change_new(struct sandbox *sb, struct http_exchange *x)
{
	struct change *c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->node = sb->node;
	c->x = x;
	snprintf(c->id, sizeof(c->id), "%s", sb->id);
	return c;
}

/* Into the audit log and the record. */
static int write_down(struct sandbox *sb, struct err *e)
{
	int r = sandbox_record(sb, "policy.set",
			       json_pack("{s:o}", "policy", policy_to_json(sb->spec.policy)));
	return r < 0 ? err_sys(e, -r, "the change can't be recorded") : sandbox_store(sb, e);
}

static int change_running(struct sandbox *sb, struct change *c, struct err *e)
{
	sb->policy_due = true;
	int r = write_down(sb, e);
	if (r == 0)
		r = tell_gateway(sb, c, e);
	if (r == 0)
		return 0;
	sb->policy_due = false;
	sandbox_record(sb, "policy.refused", json_pack("{s:s}", "message", e->text));
	put_back(sb, c);
	return r;
}

static void change_to(struct sandbox *sb, struct policy *p, struct http_exchange *x)
{
	struct err e = {0};
	struct change *c = change_new(sb, x);
	if (!c) {
		policy_free(p);
		http_exchange_reply_error(x, 500, "no memory");
		return;
	}
	c->before = sb->spec.policy;
	sb->spec.policy = p;
	int r;
	if (sb->state == SANDBOX_RUNNING) {
		http_exchange_on(x, &waiting_ops, c);
		r = change_running(sb, c, &e);
		if (r == 0)
			return; /* on_told() follows */
	} else if ((r = write_down(sb, &e)) == 0) {
		reply_applied(x, sb, "resume");
	} else {
		put_back(sb, c);
	}
	if (r < 0) {
		c->x = NULL;
		http_exchange_reply_error(x,
					  r == -EMSGSIZE ? 400
					  : r == -EBUSY  ? 409
							 : 503,
					  "%s", e.text);
	}
	change_free(c);
}

void change_policy(struct sandbox *sb, struct http_exchange *x, const char *body, size_t n)
{
	struct err e = {0};
	struct policy *p = NULL;
	unsigned status = check_state(sb, &e);
	if (!status && sb->state == SANDBOX_RUNNING && sb->policy_due) {
		status = 409;
		err_set(&e, EBUSY, "another policy is being set: try again");
	}
	if (!status && read_change(sb, body, n, &p, &e) < 0)
		status = 400;
	if (!status) {
		change_to(sb, p, x);
		return;
	}
	policy_free(p);
	http_exchange_reply_error(x, status, "%s", e.text);
}

void change_again(struct sandbox *sb)
{
	struct err e = {0};
	if (!sb->policy_due)
		return;
	struct change *c = change_new(sb, NULL);
	if (c && tell_gateway(sb, c, &e) == 0)
		return;
	if (c)
		change_free(c);
	else
		err_set(&e, ENOMEM, "no memory");
	err_prefix(&e, "its policy can't be set");
	sandbox_stop(sb, &e);
}
