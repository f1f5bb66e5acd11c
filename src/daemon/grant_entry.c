/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/grant_entry.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "policy/policy.h"

#define EXPIRES_MS_MAX (366ull * 24 * 3600 * 1000) /* a year */
#define SOURCE_FAILS   "its source fails"          /* all that a guest hears of it */
#define INHERITED_MAX  16                          /* generations */
#define STAR_RUN_MAX   64 /* segments put for "**"; a pattern has fewer on its own */

static uint64_t number(const json_t *entry, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(entry, key));
	return v > 0 ? (uint64_t)v : 0;
}

static int set_number(json_t *entry, const char *key, uint64_t value)
{
	return json_object_set_new(entry, key, json_integer((json_int_t)value));
}

static const char *entry_name(const json_t *entry)
{
	const char *name = json_string_value(json_object_get(entry, "name"));
	return name ? name : "?";
}

int grant_entry_accept(json_t *entry, uint64_t now_ms, struct err *e)
{
	uint64_t left_ms = 0;
	int r = doc_opt_uint(entry, "expiresMs", 1, EXPIRES_MS_MAX, &left_ms, e);
	if (r < 0)
		return err_prefix(e, "secret %.64s", entry_name(entry)), -EINVAL;
	if (left_ms && set_number(entry, "expires", now_ms + left_ms) < 0)
		return err_set(e, ENOMEM, "no memory");
	json_object_del(entry, "expiresMs");
	return 0;
}

/* -- narrowing -- */

/* Whether all names that the pattern a matches are matched by b; both canonical. */
static bool host_within(const char *a, const char *b)
{
	const char *rest = strchr(a, '.');
	if (str_eq(a, b) || a[0] != '*')
		return policy_pattern_matches(b, a) || str_eq(a, b);
	/* One label and more at the front: only any depth has room for them. */
	return str_starts(b, "**.") && (str_eq(rest, b + 2) || str_ends(rest, b + 2));
}

/* pattern with count segments "*" for the "**" at its end. NULL: no memory. */
static char *fill_stars(const char *pattern, size_t count)
{
	size_t n = strlen(pattern) - strlen("/**");
	char *s = calloc(1, n + 2 * count + 2);
	if (!s)
		return NULL;
	memcpy(s, pattern, n);
	for (size_t i = 0; i < count; i++)
		memcpy(s + n + 2 * i, "/*", 2);
	if (!*s)
		s[0] = '/';
	return s;
}

/* Whether all paths that the pattern a matches are matched by b; both canonical. Stars of a are
   taken as characters, which only stars of b match. "**" stands for any number of segments: all up
   to more than b has on its own are tried where it is at the end, else only what is equal will do.
 */
static bool path_within(const char *a, const char *b)
{
	const char *stars = strstr(a, "/**");
	if (str_eq(a, b) || str_eq(b, "/**"))
		return true;
	if (!stars)
		return policy_path_pattern_matches(b, a);
	if (stars[3])
		return false;
	for (size_t i = 0; i <= STAR_RUN_MAX; i++) {
		auto_free char *filled = fill_stars(a, i);
		if (!filled || !policy_path_pattern_matches(b, filled))
			return false;
	}
	return true;
}

static bool method_within(const char *a, const char *b)
{
	return str_eq(a, b);
}

/* Canonical forms, heap strings: 0, -EINVAL, -ENOMEM. */
static int canonical_host(const char *s, char **ret, struct err *e)
{
	char name[POLICY_PATTERN_MAX];
	int r = policy_pattern_canonical(s, name, e);
	if (r < 0)
		return r;
	*ret = strdup(name);
	return *ret ? 0 : err_set(e, ENOMEM, "no memory");
}

static int canonical_method(const char *s, char **ret, struct err *e)
{
	*ret = strdup(s);
	return *ret ? 0 : err_set(e, ENOMEM, "no memory");
}

struct narrowed {
	const char *member, *one; /* the list, and an item of it for errors */
	int (*canonical)(const char *s, char **ret, struct err *e);
	bool (*within)(const char *a, const char *b);
};

static const struct narrowed lists[] = {
	{"hosts", "host", canonical_host, host_within},
	{"methods", "method", canonical_method, method_within},
	{"paths", "path", policy_path_pattern_canonical, path_within},
};

/* 1: some item of wide has it; 0: none; -EINVAL, -ENOMEM. */
static int item_within(const struct narrowed *k, const json_t *item, const json_t *wide,
		       struct err *e)
{
	const char *s = json_string_value(item);
	auto_free char *mine = NULL;
	if (!s)
		return err_set(e, EINVAL, "%s: must be a list of strings", k->member);
	int r = k->canonical(s, &mine, e);
	for (size_t i = 0; r == 0 && i < json_array_size(wide); i++) {
		auto_free char *theirs = NULL;
		const char *w = json_string_value(json_array_get(wide, i));
		r = w ? k->canonical(w, &theirs, e) : 0;
		if (theirs && k->within(mine, theirs))
			return 1;
	}
	return r;
}

static int narrow_list(const struct narrowed *k, json_t *entry, const json_t *definition,
		       struct err *e)
{
	json_t *mine = json_object_get(entry, k->member), *item;
	json_t *wide = json_object_get(definition, k->member);
	size_t i;
	if (!mine || json_is_null(mine))
		return wide && json_object_set_new(entry, k->member, json_deep_copy(wide)) < 0
			       ? err_set(e, ENOMEM, "no memory")
			       : 0;
	if (!json_array_size(mine))
		return err_set(e, EINVAL, "secret %.64s: %s: must be a list with something in it",
			       entry_name(entry), k->member);
	if (!wide)
		return 0; /* all of them */
	json_array_foreach(mine, i, item)
	{
		int r = item_within(k, item, wide, e);
		if (r < 0)
			return err_prefix(e, "secret %.64s", entry_name(entry)), r;
		if (!r)
			return err_set(
				e, EINVAL,
				"secret %.64s: %s %.256s is not within what %.64s is for: a grant "
				"narrows, it never widens",
				entry_name(entry), k->one, json_string_value(item),
				json_string_value(json_object_get(entry, "stored")));
	}
	return 0;
}

static int narrow_number(const char *member, json_t *entry, const json_t *definition, struct err *e)
{
	uint64_t mine = 0, most = number(definition, member);
	int r = doc_opt_uint(entry, member, 1, INT64_MAX, &mine, e);
	if (r < 0)
		return err_prefix(e, "secret %.64s", entry_name(entry)), r;
	if (most && mine > most)
		return err_set(
			e, EINVAL,
			"secret %.64s: %s: %.64s allows at most %ju: a grant narrows, it never "
			"widens",
			entry_name(entry), member,
			json_string_value(json_object_get(entry, "stored")), (uintmax_t)most);
	if (most && !mine && set_number(entry, member, most) < 0)
		return err_set(e, ENOMEM, "no memory");
	return 0;
}

int grant_entry_narrow(json_t *entry, const json_t *definition, struct err *e)
{
	static const char *const numbers[] = {"expiresMs", "uses", "bytes"};
	static const char *const given[] = {"inject", "canary"};
	int r = 0;
	for (size_t i = 0; r == 0 && i < sizeof(lists) / sizeof(lists[0]); i++)
		r = narrow_list(&lists[i], entry, definition, e);
	for (size_t i = 0; r == 0 && i < sizeof(numbers) / sizeof(numbers[0]); i++)
		r = narrow_number(numbers[i], entry, definition, e);
	for (size_t i = 0; r == 0 && i < sizeof(given) / sizeof(given[0]); i++) {
		json_t *theirs = json_object_get(definition, given[i]);
		json_t *mine = json_object_get(entry, given[i]);
		if (mine && !json_equal(mine, theirs))
			r = err_set(e, EINVAL, "secret %.64s: %s is the store's to say",
				    entry_name(entry), given[i]);
		else if (theirs && json_object_set(entry, given[i], theirs) < 0)
			r = err_set(e, ENOMEM, "no memory");
	}
	return r;
}

/* -- states -- */

static bool used_up(const json_t *entry)
{
	uint64_t uses = number(entry, "uses"), bytes = number(entry, "bytes");
	return (uses && number(entry, "used") >= uses) ||
	       (bytes && number(entry, "usedBytes") >= bytes);
}

const char *grant_entry_state(const json_t *entry, uint64_t now_ms)
{
	uint64_t expires = number(entry, "expires");
	if (str_eq(json_string_value(json_object_get(entry, "state")), "revoked"))
		return "revoked";
	if (expires && expires <= now_ms)
		return "expired";
	if (used_up(entry))
		return "used up";
	return json_object_get(entry, "unavailable") ? "unavailable" : "good";
}

bool grant_entry_lives(const json_t *entry, uint64_t now_ms)
{
	const char *state = grant_entry_state(entry, now_ms);
	return str_eq(state, "good") || str_eq(state, "unavailable");
}

/* -- forms -- */

/* Those members that are there, by reference. NULL: no memory. */
static json_t *only(const json_t *entry, const char *const *members)
{
	json_t *j = json_object();
	for (; j && *members; members++) {
		json_t *value = json_object_get(entry, *members);
		if (value && json_object_set(j, *members, value) < 0) {
			json_decref(j);
			j = NULL;
		}
	}
	return j;
}

/* What is left of a limit, where there is one. */
static void set_left(json_t *wire, const json_t *entry, const char *limit, const char *used)
{
	uint64_t most = number(entry, limit), gone = number(entry, used);
	if (most)
		set_number(wire, limit, most > gone ? most - gone : 0);
}

/* To the gateway a placeholder is as good as another: those of the parents get names, too. */
static int add_inherited(json_t *wire, const json_t *entry)
{
	json_t *list = json_object_get(entry, "inherited"), *old, *value;
	json_t *all = json_array_size(list) ? json_copy(json_object_get(wire, "variables")) : NULL;
	const char *name;
	size_t i;
	int r = 0;
	if (!json_array_size(list))
		return 0;
	json_array_foreach(list, i, old)
	{
		json_object_foreach(old, name, value)
		{
			auto_free char *key = str_printf("PARENT_%zu_%s", i, name);
			if (!key || json_object_set(all, key, value) < 0)
				r = -ENOMEM;
		}
	}
	return json_object_set_new(wire, "variables", all) < 0 ? -ENOMEM : r;
}

json_t *grant_entry_wire(json_t *entry, uint64_t now_ms)
{
	static const char *const members[] = {"name",   "hosts",     "methods", "paths",
					      "inject", "variables", "canary",  NULL};
	uint64_t expires = number(entry, "expires");
	json_t *wire = only(entry, members);
	if (!wire)
		return NULL;
	set_left(wire, entry, "uses", "used");
	set_left(wire, entry, "bytes", "usedBytes");
	set_number(entry, "usedBefore", number(entry, "used"));
	set_number(entry, "bytesBefore", number(entry, "usedBytes"));
	if (expires)
		set_number(wire, "expiresMs", expires > now_ms ? expires - now_ms : 0);
	json_t *value = json_object_get(entry, "value");
	json_t *why = json_object_get(entry, "unavailable");
	bool lives = grant_entry_lives(entry, now_ms);
	int r;
	if (lives && value)
		r = json_object_set(wire, "value", value);
	else if (lives && why)
		r = json_object_set(wire, "unavailable", why);
	else
		r = json_object_set_new(
			wire, "unavailable",
			json_string(lives ? "it has no value" : grant_entry_state(entry, now_ms)));
	if (r == 0 && add_inherited(wire, entry) == 0)
		return wire;
	json_decref(wire);
	return NULL;
}

static void set_time(json_t *j, const char *key, uint64_t wall_ms)
{
	char text[CLOCK_RFC3339_SIZE];
	if (!wall_ms)
		return;
	clock_rfc3339(wall_ms, text);
	json_object_set_new(j, key, json_string(text));
}

static const char *kind_of(const json_t *entry)
{
	const char *kind =
		json_string_value(json_object_get(json_object_get(entry, "inject"), "kind"));
	return kind ? kind : "bearer";
}

json_t *grant_entry_scope(const json_t *entry)
{
	static const char *const members[] = {"name", "hosts", "methods", "paths", "stored",
					      "uses", "bytes", "canary",  NULL};
	json_t *j = only(entry, members);
	if (!j)
		return NULL;
	json_object_set_new(j, "inject", json_string(kind_of(entry)));
	set_time(j, "expiresAt", number(entry, "expires"));
	return j;
}

void grant_entry_fail(json_t *entry, const char *why)
{
	json_object_set_new(entry, "unavailable", json_string(SOURCE_FAILS));
	json_object_set_new(entry, "failure", json_string(why));
}

static json_t *reason_of(const json_t *entry)
{
	json_t *why = json_object_get(entry, "unavailable");
	json_t *failure = json_object_get(entry, "failure");
	return failure && str_eq(json_string_value(why), SOURCE_FAILS) ? failure : why;
}

json_t *grant_entry_shown(const json_t *entry, uint64_t now_ms)
{
	const char *state = grant_entry_state(entry, now_ms);
	json_t *variables = json_object_get(entry, "variables");
	json_t *j = grant_entry_scope(entry);
	if (!j)
		return NULL;
	json_object_del(j, "inject");
	json_object_set_new(j, "kind", json_string(kind_of(entry)));
	json_object_set_new(j, "state", json_string(state));
	if (str_eq(state, "unavailable"))
		json_object_set(j, "reason", reason_of(entry));
	set_number(j, "used", number(entry, "used"));
	set_number(j, "usedBytes", number(entry, "usedBytes"));
	set_time(j, "firstUse", number(entry, "firstUse"));
	set_time(j, "lastUse", number(entry, "lastUse"));
	set_time(j, "alarmed", number(entry, "alarmed"));
	json_object_set_new(j, "variables", variables ? json_incref(variables) : json_object());
	return j;
}

json_t *grant_entry_stored(const json_t *entry)
{
	json_t *copy = json_copy((json_t *)(uintptr_t)entry);
	json_object_del(copy, "value");
	json_object_del(copy, "unavailable");
	json_object_del(copy, "failure");
	return copy;
}

void grant_entry_update(json_t *entry)
{
	json_t *placeholder = json_object_get(entry, "placeholder");
	if (!placeholder)
		return;
	json_object_set_new(entry, "variables", json_pack("{s:O}", entry_name(entry), placeholder));
	json_object_del(entry, "placeholder");
}

json_t *grant_entry_inherit(const json_t *entry)
{
	static const char *const counted[] = {"used",     "usedBytes", "usedBefore", "bytesBefore",
					      "firstUse", "lastUse",   "alarmed",    NULL};
	json_t *copy = json_deep_copy(entry), *variables = json_object_get(copy, "variables");
	json_t *inherited = json_object_get(copy, "inherited");
	if (copy && !inherited)
		json_object_set_new(copy, "inherited", inherited = json_array());
	if (json_object_size(variables))
		json_array_append(inherited, variables);
	if (json_array_size(inherited) > INHERITED_MAX)
		json_array_remove(inherited, 0);
	if (!copy || used_up(entry))
		return copy; /* as dead as its parent's */
	set_left(copy, entry, "uses", "used");
	set_left(copy, entry, "bytes", "usedBytes");
	for (const char *const *k = counted; *k; k++)
		json_object_del(copy, *k);
	return copy;
}

json_t *grant_entry_stray(const json_t *entry)
{
	static const char *const members[] = {"name", "variables", "canary", NULL};
	json_t *stray = only(entry, members);
	if (stray && json_object_set_new(stray, "stray", json_true()) == 0 &&
	    add_inherited(stray, entry) == 0)
		return stray;
	json_decref(stray);
	return NULL;
}

/* -- counting -- */

static bool names(const json_t *event, const char *member, const json_t *entry)
{
	return str_eq(json_string_value(json_object_get(event, member)), entry_name(entry));
}

bool grant_entry_count(json_t *entry, const json_t *event, uint64_t now_ms)
{
	bool alarm = names(event, "alarm", entry);
	if (alarm)
		set_number(entry, "alarmed", now_ms);
	if (!names(event, "credential", entry))
		return alarm;
	uint64_t use = number(event, "use"), bytes = number(event, "credential_bytes");
	if (use) {
		/* One that another spaced was told of may come again. */
		uint64_t used = number(entry, "usedBefore") + use;
		if (used > number(entry, "used"))
			set_number(entry, "used", used);
		if (!number(entry, "firstUse"))
			set_number(entry, "firstUse", now_ms);
		set_number(entry, "lastUse", now_ms);
	}
	bytes += bytes ? number(entry, "bytesBefore") : 0;
	if (bytes > number(entry, "usedBytes"))
		set_number(entry, "usedBytes", bytes);
	return alarm;
}
