/* SPDX-License-Identifier: Apache-2.0 */
/* The API's calls about a sandbox's grants: one more, one less, a list of them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "daemon/grant_entry.h"
#include "daemon/grants.h"
#include "daemon/grants_state.h"
#include "daemon/sandbox_state.h"
#include "daemon/waiting.h"

/* Somebody who adds a grant: the broker's first word, then the gateway's answer. */
struct addition {
	struct node *node;
	char id[SANDBOX_ID_SIZE];
	char *name;
	struct http_exchange *x; /* NULL: left */
};

/* -- taking back -- */

/* Who waits until the gateway obeys. */
struct revocation {
	struct http_exchange *x; /* NULL: left */
};

static void on_revoker_gone(void *user)
{
	struct revocation *r = user;
	r->x = NULL;
}

static const struct http_exchange_ops revocation_ops = WAITING_OPS(on_revoker_gone);

/* One that refuses does not have it, as one that is gone. */
static void on_revoked(void *user, const struct err *why)
{
	struct revocation *r = user;
	(void)why;
	if (r->x)
		http_exchange_reply(r->x, 204, NULL, NULL, 0);
	free(r);
}

void grants_revoke(struct sandbox *sb, struct http_exchange *x, const char *name)
{
	struct err e;
	json_t *entry = grant_find(sb->spec.secrets, name);
	struct revocation *r = calloc(1, sizeof(*r));
	if (!entry || !r || sb->state >= SANDBOX_STOPPING || grant_is_state(entry, "adding")) {
		free(r);
		http_exchange_reply_error(
			x, !entry ? 404 : 409,
			!entry ? "%s has no grant %.64s"
			       : "%s: the grant %.64s can't be revoked: it is being added, or the sandbox has ended",
			sandbox_name(sb), name);
		return;
	}
	r->x = x;
	http_exchange_on(x, &revocation_ops, r);
	if (!grant_is_state(entry, "revoked"))
		grant_mark_revoked(sb, entry, NULL);
	if (!grants_gateway(sb) ||
	    gateway_secret(grants_gateway(sb), "revoke", json_string(name), on_revoked, r, &e) < 0)
		on_revoked(r, NULL);
}

/* -- adding -- */

static void reply_json(struct http_exchange *x, unsigned status, json_t *j)
{
	auto_json json_t *owned = j;
	auto_free char *text = owned ? doc_to_text(owned) : NULL;
	if (text)
		http_exchange_reply(x, status, "application/json", text, strlen(text));
	else
		http_exchange_reply_error(x, 500, "no memory");
}

static void drop_entry(struct sandbox *sb, const char *name)
{
	struct grant *g = grant_running(sb, name);
	size_t i;
	json_t *entry;
	if (g)
		grant_free(g);
	json_array_foreach(sb->spec.secrets, i, entry)
	{
		if (!str_eq(grant_name(entry), name))
			continue;
		json_array_remove(sb->spec.secrets, i);
		return;
	}
}

static void on_adder_gone(void *user)
{
	struct addition *a = user;
	a->x = NULL;
}

static const struct http_exchange_ops addition_ops = WAITING_OPS(on_adder_gone);

static void addition_free(struct addition *a)
{
	free(a->name);
	free(a);
}

/* sb may be NULL: it is gone. */
void grant_addition_fails(struct addition *a, struct sandbox *sb, unsigned status, const char *why)
{
	if (sb) {
		drop_entry(sb, a->name);
		sandbox_record(sb, "grant.refused",
			       json_pack("{s:s, s:s}", "name", a->name, "message", why));
		grants_store(sb);
	}
	if (a->x)
		http_exchange_reply_error(a->x, status, "%s", why);
	addition_free(a);
}

static void on_added(void *user, const struct err *why)
{
	struct addition *a = user;
	struct sandbox *sb = sandbox_find_id(a->node, a->id);
	json_t *entry = sb ? grant_find(sb->spec.secrets, a->name) : NULL;
	struct http_exchange *x = a->x;
	if (why || !entry) {
		grant_addition_fails(a, sb, why && why->code == EINVAL ? 400 : 502,
				     why ? why->text : "the sandbox is gone");
		return;
	}
	addition_free(a);
	json_object_del(entry, "state");
	grants_store(sb);
	if (x)
		reply_json(x, 201, grant_entry_shown(entry, clock_wall_ms()));
}

/* With its value, or why there is none. */
static void addition_send(struct sandbox *sb, struct addition *a, json_t *entry)
{
	struct err e;
	json_t *wire = grant_entry_wire(entry, clock_wall_ms());
	json_object_del(entry, "value");
	if (!grants_gateway(sb) ||
	    gateway_secret(grants_gateway(sb), "put", wire, on_added, a, &e) < 0)
		grant_addition_fails(a, sb, 502, "the gateway is gone");
}

void grant_addition_goes_on(struct grant *g, json_t *entry)
{
	struct addition *a = take_ptr(g->addition);
	if (g->value)
		json_object_set_new(entry, "value", take_ptr(g->value));
	addition_send(g->sb, a, entry);
}

/* Those that have ended of themselves make room for others of their hosts. */
static void clear_ended(struct sandbox *sb, const char *name)
{
	size_t i = 0;
	while (i < json_array_size(sb->spec.secrets)) {
		json_t *entry = json_array_get(sb->spec.secrets, i);
		struct grant *g = grant_lives(entry) ? NULL : grant_running(sb, grant_name(entry));
		if (g && !g->addition)
			grant_free(g);
		if (!grant_lives(entry) && !grant_is_state(entry, "revoked"))
			grants_tell(sb, "revoke", json_incref(json_object_get(entry, "name")));
		if (str_eq(grant_name(entry), name))
			json_array_remove(sb->spec.secrets, i);
		else
			i++;
	}
}

/* A status to refuse with, and why in e; 0: it fits what is there. */
static unsigned check_fits(struct sandbox *sb, json_t *entry, struct err *e)
{
	auto_json json_t *alone = json_pack("[O]", entry);
	auto_json json_t *all = json_copy(sb->spec.secrets);
	const json_t *same = grant_find(sb->spec.secrets, grant_name(entry));
	if (!alone || !all || json_array_append(all, entry) < 0)
		return err_set(e, ENOMEM, "no memory"), 500;
	if (same && grant_lives(same))
		return err_set(e, EEXIST, "%s has a grant %.64s already: revoke it first",
			       sandbox_name(sb), grant_name(entry)),
		       409;
	if (grants_check(alone, sb->spec.policy, e) < 0)
		return 400;
	return grants_check(all, sb->spec.policy, e) < 0 ? 409 : 0;
}

static unsigned read_addition(struct sandbox *sb, const char *body, size_t n, json_t **ret,
			      struct err *e)
{
	auto_json json_t *asked = doc_parse_json(body, n, e);
	if (!asked)
		return 400;
	if (sb->state != SANDBOX_RUNNING)
		return err_set(e, EBUSY, "%s is %s: credentials are granted to what runs",
			       sandbox_name(sb), sandbox_state_name(sb->state)),
		       409;
	if (!sb->spec.network || !grants_gateway(sb))
		return err_set(e, EINVAL, "%s has no network to use a credential on",
			       sandbox_name(sb)),
		       409;
	if (policy_learns(sb->spec.policy))
		return err_set(e, EINVAL,
			       "%s learns, and may send a credential anywhere: it gets none",
			       sandbox_name(sb)),
		       409;
	int r = grant_make_asked(sb->node, asked, ret, e);
	if (r < 0)
		return r == -ENOENT ? 404 : 400;
	return check_fits(sb, *ret, e);
}

static struct addition *addition_new(struct sandbox *sb, struct http_exchange *x, const char *name)
{
	struct addition *a = calloc(1, sizeof(*a));
	if (!a || !(a->name = strdup(name))) {
		free(a);
		return NULL;
	}
	a->node = sb->node;
	a->x = x;
	snprintf(a->id, sizeof(a->id), "%s", sb->id);
	http_exchange_on(x, &addition_ops, a);
	return a;
}

/* In the log and the record before anybody can use it. */
static int write_down(struct sandbox *sb, json_t *entry, struct err *e)
{
	json_object_set_new(entry, "state", json_string("adding"));
	if (json_array_append(sb->spec.secrets, entry) < 0)
		return err_set(e, ENOMEM, "no memory");
	int r = sandbox_record(sb, "grant.add", grant_entry_scope(entry));
	return r < 0 ? err_sys(e, -r, "the grant can't be recorded") : sandbox_store(sb, e);
}

void grants_add(struct sandbox *sb, struct http_exchange *x, const char *body, size_t n)
{
	struct err e = {0};
	struct grant *g = NULL;
	auto_json json_t *entry = NULL;
	unsigned status = read_addition(sb, body, n, &entry, &e);
	struct addition *a = status ? NULL : addition_new(sb, x, grant_name(entry));
	if (!a) {
		http_exchange_reply_error(x, status ? status : 500, "%s",
					  status ? e.text : "no memory");
		return;
	}
	clear_ended(sb, grant_name(entry));
	if (write_down(sb, entry, &e) < 0)
		grant_addition_fails(a, sb, 503, e.text);
	else if (grant_is_brokered(entry) && !(g = grant_new(sb, entry, &e)))
		grant_addition_fails(a, sb, 502, e.text);
	else if (g)
		g->addition = a; /* it goes on when the broker has told something */
	else
		addition_send(sb, a, entry);
}

/* -- what is shown -- */

void grants_list(struct sandbox *sb, struct http_exchange *x)
{
	uint64_t now_ms = clock_wall_ms();
	json_t *list = json_array(), *entry;
	size_t i;
	json_array_foreach(sb->spec.secrets, i, entry) if (!grant_is_state(entry, "adding"))
		json_array_append_new(list, grant_entry_shown(entry, now_ms));
	reply_json(x, 200, list);
}
