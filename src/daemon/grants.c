/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a grant is, is in the sandbox's record before its gateway hears of it; so a spaced that
 * takes the sandbox over knows of all that a gateway may have, and takes back what nobody was told
 * of.
 */
#include "daemon/grants.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/broker.h"
#include "daemon/grant_entry.h"
#include "daemon/grants_state.h"
#include "daemon/sandbox_state.h"
#include "daemon/secrets.h"
#include "vault/secret.h"

/* -- what runs -- */

struct gateway *grants_gateway(const struct sandbox *sb)
{
	return sb->place && sb->gateway_ready ? sb->place->gateway : NULL;
}

void grants_store(struct sandbox *sb)
{
	struct err e;
	if (sandbox_store(sb, &e) < 0)
		log_error("%s: %s", sb->id, e.text);
}

struct grant *grant_running(const struct sandbox *sb, const char *name)
{
	list_for_each (it, &sb->grants) {
		struct grant *g = list_entry(it, struct grant, link);
		if (str_eq(g->name, name))
			return g;
	}
	return NULL;
}

void grant_free(struct grant *g)
{
	list_remove(&g->link);
	broker_unwant(g->want);
	json_decref(g->value);
	free(g->name);
	free(g);
}

static void on_told(void *user, const json_t *value, uint64_t expires_ms, const struct err *why);

static struct broker_want *want(struct node *n, const json_t *entry, struct grant *g, struct err *e)
{
	if (grant_stored(entry))
		return broker_want(n, grant_stored(entry), on_told, g, e);
	struct definition d;
	json_t *inject = json_object_get(entry, "inject");
	auto_json json_t *j =
		json_pack("{s:O, s:O*, s:O}", "hosts", json_object_get(entry, "hosts"), "inject",
			  inject, "source", json_object_get(entry, "source"));
	if (!j || definition_read(grant_name(entry), j, DEFINITION_IN_POLICY, &d, e) < 0)
		return NULL;
	struct broker_want *w = broker_want_defined(n, &d, on_told, g, e);
	definition_done(&d);
	return w;
}

/* NULL with e set. */
struct grant *grant_new(struct sandbox *sb, const json_t *entry, struct err *e)
{
	struct grant *g = calloc(1, sizeof(*g));
	if (g)
		list_init(&g->link);
	if (!g || !(g->name = strdup(grant_name(entry)))) {
		free(g);
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	g->sb = sb;
	g->want = want(sb->node, entry, g, e);
	if (!g->want) {
		grant_free(g);
		return NULL;
	}
	list_append(&sb->grants, &g->link);
	return g;
}

static void on_taken_back(void *user, const struct err *why)
{
	struct sandbox *sb = user;
	(void)why; /* one that refuses does not have it */
	if (--sb->grants_waiting == 0)
		sandbox_settled(sb);
}

static void on_answer(void *user, const struct err *why)
{
	struct sandbox *sb = user;
	if (why && why->code == EINVAL && sb->state == SANDBOX_RUNNING)
		log_warn("%s: %s", sb->id, why->text);
	on_taken_back(sb, why);
}

/* Tells the gateway; what is taken over. */
void grants_tell(struct sandbox *sb, const char *verb, json_t *what)
{
	struct err e;
	gateway_done_fn done = str_eq(verb, "revoke") ? on_taken_back : on_answer;
	if (gateway_secret(grants_gateway(sb), verb, what, done, sb, &e) == 0)
		sb->grants_waiting++;
	else
		log_warn("%s: %s", sb->id, e.text);
}

/* What the broker told last, as far as there is a gateway to hear it. */
static void pass_on(struct grant *g)
{
	json_t *entry = grant_find(g->sb->spec.secrets, g->name);
	json_t *why = json_object_get(entry, "unavailable");
	if (!g->due || !grants_gateway(g->sb) || !entry)
		return;
	g->due = false;
	if (!grant_lives(entry))
		return;
	json_t *value = take_ptr(g->value);
	grants_tell(g->sb, "renew",
		    value ? json_pack("{s:s, s:o}", "name", g->name, "value", value)
			  : json_pack("{s:s, s:O*}", "name", g->name, "unavailable", why));
}

static void set_unavailable(struct sandbox *sb, json_t *entry, const char *why)
{
	bool was = json_object_get(entry, "unavailable");
	grant_entry_fail(entry, why);
	if (!was)
		sandbox_record(sb, "grant.unavailable",
			       json_pack("{s:s, s:s}", "name", grant_name(entry), "reason", why));
}

static void take_back(struct sandbox *sb, json_t *entry, const char *reason);

static void on_told(void *user, const json_t *value, uint64_t expires_ms, const struct err *why)
{
	struct grant *g = user;
	struct sandbox *sb = g->sb;
	json_t *entry = grant_find(sb->spec.secrets, g->name);
	(void)expires_ms;
	if (!entry)
		return;
	if (!g->addition && (!grant_lives(entry) || (why && why->code == ENOENT))) {
		if (grant_lives(entry))
			take_back(sb, entry, why->text);
		else
			grant_free(g); /* it ended of itself, and is not renewed */
		if (sb->state == SANDBOX_BOOTING)
			sandbox_settled(sb);
		return;
	}
	json_decref(g->value);
	g->value = json_incref((json_t *)(uintptr_t)value);
	g->told = true;
	g->due = !g->addition;
	if (why)
		set_unavailable(sb, entry, why->text);
	else
		json_object_del(entry, "unavailable");
	if (g->addition)
		grant_addition_goes_on(g, entry);
	else
		pass_on(g);
}

static int begin_one(struct sandbox *sb, json_t *entry, bool resumed, struct err *e)
{
	struct err why;
	int r = resumed ? 0
			: audit_write(sb->node->audit, sb->id, "grant.add",
				      grant_entry_scope(entry), e);
	if (grant_is_brokered(entry))
		json_object_del(entry, "unavailable");
	if (r < 0 || !grant_lives(entry) || !grant_is_brokered(entry) || grant_new(sb, entry, &why))
		return r;
	if (why.code != ENOENT)
		return *e = why, -why.code;
	/* It was removed while the sandbox rested. */
	json_object_set_new(entry, "state", json_string("revoked"));
	return 0;
}

int grants_begin(struct sandbox *sb, bool resumed, struct err *e)
{
	size_t i;
	json_t *entry;
	int r = 0;
	json_array_foreach(sb->spec.secrets, i, entry) if (r == 0) r =
		begin_one(sb, entry, resumed, e);
	return r;
}

void grants_adopt(struct sandbox *sb)
{
	size_t i;
	json_t *entry;
	struct err e;
	json_array_foreach(sb->spec.secrets, i, entry)
	{
		struct grant *g = NULL;
		if (grant_is_state(entry, "adding")) /* whoever asked for it was not told */
			take_back(sb, entry, "the grant was not completed");
		else if (sb->place && grant_lives(entry) && grant_is_brokered(entry) &&
			 !(g = grant_new(sb, entry, &e)))
			take_back(sb, entry, e.text);
		if (g)
			g->told = true;
	}
}

/* -- to the gateway -- */

/* One that has ended is a mark on its hosts and placeholders, where it is in nobody's way. */
static bool mark_fits(struct secrets *living, const json_t *wire, const struct policy *p)
{
	struct err e;
	struct secrets *alone = secrets_new();
	bool fits = alone && secrets_put(alone, wire, clock_mono_ms(), &e) == 0 &&
		    secrets_check(alone, p, &e) == 0 &&
		    secrets_put(living, wire, clock_mono_ms(), &e) == 0;
	secrets_free(alone);
	return fits;
}

static int add_living(struct sandbox *sb, json_t *entry, json_t *list, struct secrets *set)
{
	struct err e;
	struct grant *g = grant_running(sb, grant_name(entry));
	if (!grant_lives(entry))
		return 0;
	if (g && !g->told)
		json_object_set_new(entry, "unavailable", json_string("it is being fetched"));
	else if (g && g->value)
		json_object_set_new(entry, "value", take_ptr(g->value));
	else if (!g && !json_object_get(entry, "value"))
		json_object_set_new(entry, "unavailable",
				    json_string("the sandbox was resumed without its value"));
	auto_json json_t *wire = grant_entry_wire(entry, clock_wall_ms());
	json_object_del(entry, "value");
	if (!wire || json_array_append(list, wire) < 0)
		return -ENOMEM;
	if (g && !g->told)
		json_object_del(entry, "unavailable");
	if (g)
		g->due = false;
	secrets_put(set, wire, clock_mono_ms(), &e);
	return 0;
}

json_t *grants_for_gateway(struct sandbox *sb)
{
	auto_json json_t *list = json_array();
	struct secrets *set = secrets_new();
	size_t i;
	json_t *entry;
	int r = list && set ? 0 : -ENOMEM;
	json_array_foreach(sb->spec.secrets, i, entry) if (r == 0) r =
		add_living(sb, entry, list, set);
	json_array_foreach(sb->spec.secrets, i, entry)
	{
		if (r < 0 || grant_lives(entry))
			continue;
		auto_json json_t *wire = grant_entry_wire(entry, clock_wall_ms());
		if (wire && mark_fits(set, wire, sb->spec.policy))
			r = json_array_append(list, wire);
	}
	json_array_foreach(sb->spec.strays, i,
			   entry) if (r == 0 && json_array_size(list) < SECRETS_MAX) r =
		json_array_append(list, entry);
	secrets_free(set);
	return r < 0 ? NULL : take_ptr(list);
}

void grants_gateway_stands(struct sandbox *sb)
{
	size_t i;
	json_t *entry;
	json_array_foreach(sb->spec.secrets, i, entry) if (grant_is_state(entry, "revoked"))
		grants_tell(sb, "revoke", json_incref(json_object_get(entry, "name")));
	list_for_each (it, &sb->grants)
		pass_on(list_entry(it, struct grant, link));
}

bool grants_settled(const struct sandbox *sb)
{
	list_for_each (it, &sb->grants) {
		const struct grant *g = list_entry(it, struct grant, link);
		if (!g->told || g->due)
			return false;
	}
	return sb->grants_waiting == 0;
}

void grants_recorded(struct sandbox *sb, const json_t *event)
{
	uint64_t now_ms = clock_wall_ms();
	size_t i;
	json_t *entry;
	json_array_foreach(sb->spec.secrets, i, entry)
	{
		const char *reason = json_string_value(json_object_get(event, "reason"));
		const char *stopped = json_string_value(json_object_get(event, "stopped"));
		if (grant_entry_count(entry, event, now_ms))
			log_warn("%s (%s): alarm of %s: %.200s", sandbox_name(sb), sb->id,
				 grant_name(entry), reason);
		if (str_eq(stopped, grant_name(entry)) && grant_lives(entry))
			grant_mark_revoked(sb, entry, reason);
	}
}

/* -- taking back -- */

void grant_mark_revoked(struct sandbox *sb, json_t *entry, const char *reason)
{
	struct grant *g = grant_running(sb, grant_name(entry));
	json_object_set_new(entry, "state", json_string("revoked"));
	json_object_del(entry, "value");
	if (g)
		grant_free(g);
	sandbox_record(sb, "grant.revoke",
		       json_pack("{s:s, s:s*, s:s*}", "name", grant_name(entry), "stored",
				 grant_stored(entry), "reason", reason));
	grants_store(sb);
}

static void take_back(struct sandbox *sb, json_t *entry, const char *reason)
{
	grant_mark_revoked(sb, entry, reason);
	if (grants_gateway(sb))
		grants_tell(sb, "revoke", json_incref(json_object_get(entry, "name")));
}

void grants_end(struct sandbox *sb)
{
	while (!list_empty(&sb->grants)) {
		struct grant *g = list_entry(sb->grants.next, struct grant, link);
		struct addition *a = take_ptr(g->addition);
		if (a)
			grant_addition_fails(a, sb, 502, "the sandbox is gone");
		else
			grant_free(g);
	}
}

int grants_check_variables(const json_t *entries, const json_t *start, struct err *e)
{
	const json_t *envs = json_object_get(json_object_get(start, "process"), "envs");
	const char *name;
	size_t i;
	json_t *entry, *value;
	json_array_foreach((json_t *)(uintptr_t)entries, i, entry)
	{
		if (!grant_lives(entry))
			continue;
		json_object_foreach(json_object_get(entry, "variables"), name, value)
		{
			const json_t *said = json_object_get(envs, name);
			if (said && !json_equal(said, value))
				return err_set(
					e, EINVAL,
					"%s is a credential here, and its value stays outside: "
					"leave out -e %s, or the credential",
					name, name);
		}
	}
	return 0;
}

int grants_set_variables(const struct sandbox *sb, json_t *start, struct err *e)
{
	json_t *process = json_object_get(start, "process"), *entry, *value;
	json_t *envs = json_object_get(process, "envs");
	const char *name;
	size_t i;
	if (!json_is_object(process) || !json_array_size(sb->spec.secrets))
		return 0;
	int r = grants_check_variables(sb->spec.secrets, start, e);
	if (r < 0)
		return r;
	if (!envs && json_object_set_new(process, "envs", envs = json_object()) < 0)
		return err_set(e, ENOMEM, "no memory");
	json_array_foreach(sb->spec.secrets, i, entry)
	{
		if (!grant_lives(entry))
			continue;
		json_object_foreach(json_object_get(entry, "variables"), name,
				    value) if (json_is_object(envs) && !json_object_get(envs, name))
			json_object_set(envs, name, value);
	}
	return 0;
}
