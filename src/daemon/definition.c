/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/definition.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/doc.h"
#include "base/str.h"
#include "daemon/oauth.h"
#include "vault/secret.h"

#define COMMAND_ARGS_MAX      64
#define COMMAND_TIMEOUT_S     10
#define COMMAND_TIMEOUT_MAX_S 60
#define PATH_TEXT_MAX         4095 /* bytes */

static int no_memory(struct err *e)
{
	return err_set(e, ENOMEM, "no memory");
}

/* -- sources: each checks its member of "source", and puts what was left out -- */

static int want_text(const json_t *source, const char *member, size_t max, const char **ret,
		     struct err *e)
{
	int r = doc_want_string(source, member, ret, e);
	if (r == 0 && (!**ret || strlen(*ret) > max))
		r = err_set(e, EINVAL, "%s must have 1 to %zu bytes", member, max);
	return r;
}

static int read_env(json_t *source, enum definition_place place, struct err *e)
{
	(void)place;
	const char *name = NULL;
	int r = doc_want_string(source, "env", &name, e);
	if (r == 0 && !str_is_env_name(name))
		r = err_set(e, EINVAL, "env: '%.64s' is no variable's name", name);
	return r;
}

static int read_file(json_t *source, enum definition_place place, struct err *e)
{
	const char *path = NULL;
	int r = want_text(source, "file", PATH_TEXT_MAX, &path, e);
	if (r == 0 && place == DEFINITION_IN_STORE && *path != '/')
		r = err_set(e, EINVAL, "file: the path must be absolute, for spaced reads it");
	return r;
}

static int read_stored(json_t *source, enum definition_place place, struct err *e)
{
	(void)place;
	const char *name = NULL;
	int r = doc_want_string(source, "stored", &name, e);
	if (r == 0 && !str_is_env_name(name))
		r = err_set(e, EINVAL, "stored: '%.64s' is no name of a credential", name);
	return r;
}

static int read_given(json_t *source, enum definition_place place, struct err *e)
{
	(void)place;
	bool given = false;
	int r = doc_opt_bool(source, "value", &given, e);
	if (r == 0 && !given)
		r = err_set(e, EINVAL, "value: is true where the value is given beside");
	return r;
}

static int read_command(json_t *source, enum definition_place place, struct err *e)
{
	(void)place;
	json_t *argv = NULL;
	uint64_t timeout = COMMAND_TIMEOUT_S;
	int r = doc_want_array(source, "command", &argv, e);
	if (r == 0)
		r = doc_opt_uint(source, "timeoutSeconds", 1, COMMAND_TIMEOUT_MAX_S, &timeout, e);
	if (r < 0)
		return r;
	if (!json_array_size(argv) || json_array_size(argv) > COMMAND_ARGS_MAX)
		return err_set(e, EINVAL, "command: a program and at most %d arguments",
			       COMMAND_ARGS_MAX - 1);
	for (size_t i = 0; i < json_array_size(argv); i++) {
		const char *arg = json_string_value(json_array_get(argv, i));
		if (!arg || strlen(arg) != json_string_length(json_array_get(argv, i)) ||
		    (i == 0 && !*arg))
			return err_set(e, EINVAL, "command: must be a list of strings");
	}
	return json_object_set_new(source, "timeoutSeconds", json_integer((json_int_t)timeout)) < 0
		       ? no_memory(e)
		       : 0;
}

static int read_systemd(json_t *source, enum definition_place place, struct err *e)
{
	(void)place;
	const char *name = NULL;
	int r = want_text(source, "systemd", 255, &name, e);
	if (r == 0 && (strchr(name, '/') || str_eq(name, ".") || str_eq(name, "..")))
		r = err_set(e, EINVAL, "systemd: '%.64s' is no name of a file", name);
	return r;
}

static int read_oauth2(json_t *source, enum definition_place place, struct err *e)
{
	(void)place;
	json_t *settings = NULL;
	int r = doc_want_object(source, "oauth2", &settings, e);
	return r < 0 ? r : oauth_check(settings, e);
}

#define IN_STORE  (1u << DEFINITION_IN_STORE)
#define IN_POLICY (1u << DEFINITION_IN_POLICY)

static const struct source {
	const char *name;
	unsigned places;
	const char *members[3];
	int (*read)(json_t *source, enum definition_place place, struct err *e);
} sources[] = {
	[SOURCE_ENV] = {"env", IN_POLICY, {"env"}, read_env},
	[SOURCE_FILE] = {"file", IN_STORE | IN_POLICY, {"file"}, read_file},
	[SOURCE_STORED] = {"stored", IN_POLICY, {"stored"}, read_stored},
	[SOURCE_VALUE] = {"value", IN_STORE, {"value"}, read_given},
	[SOURCE_COMMAND] = {"command",
			    IN_STORE | IN_POLICY,
			    {"command", "timeoutSeconds"},
			    read_command},
	[SOURCE_SYSTEMD] = {"systemd", IN_STORE | IN_POLICY, {"systemd"}, read_systemd},
	[SOURCE_OAUTH2] = {"oauth2", IN_STORE, {"oauth2"}, read_oauth2},
};
#define SOURCES (sizeof(sources) / sizeof(sources[0]))

static int find_source(const json_t *source, enum definition_place place, size_t *ret,
		       struct err *e)
{
	size_t found = SOURCES;
	for (size_t i = 0; i < SOURCES; i++) {
		if (!json_object_get(source, sources[i].name))
			continue;
		if (found < SOURCES)
			return err_set(e, EINVAL, "%s and %s are two sources: one is needed",
				       sources[found].name, sources[i].name);
		found = i;
	}
	if (found == SOURCES)
		return err_set(e, EINVAL,
			       place == DEFINITION_IN_STORE
				       ? "is one of value, file, command, systemd, oauth2"
				       : "is one of env, file, stored, command, systemd");
	if (!(sources[found].places & 1u << place))
		return err_set(e, EINVAL,
			       place == DEFINITION_IN_STORE
				       ? "%s is not for the node's store, which does not see its "
					 "caller's side"
				       : "%s is for the node's store: 'space secret set', and here "
					 "{stored: NAME}",
			       sources[found].name);
	*ret = found;
	return 0;
}

/* What is meant where nothing is said. */
static json_t *default_source(const char *name, enum definition_place place)
{
	return place == DEFINITION_IN_STORE ? json_pack("{s:b}", "value", 1)
					    : json_pack("{s:s}", "env", name);
}

static int read_source(const char *name, const json_t *j, enum definition_place place,
		       struct definition *d, struct err *e)
{
	json_t *said = NULL;
	size_t at = 0;
	int r = doc_opt_object(j, "source", &said, e);
	if (r < 0)
		return r;
	d->source = said ? json_deep_copy(said) : default_source(name, place);
	if (!d->source)
		return no_memory(e);
	r = find_source(d->source, place, &at, e);
	if (r == 0)
		r = doc_only(d->source, sources[at].members, e);
	if (r == 0)
		r = sources[at].read(d->source, place, e);
	if (r < 0)
		return err_prefix(e, "source");
	d->kind = (enum source_kind)at;
	return 0;
}

/* -- what makes a grant -- */

static int copy_members(const json_t *j, json_t *entry, struct err *e)
{
	static const char *const members[] = {"hosts", "methods", "paths", "canary"};
	for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
		json_t *value = json_object_get(j, members[i]);
		if (!value || json_is_null(value))
			continue;
		if (json_object_set_new(entry, members[i], json_deep_copy(value)) < 0)
			return no_memory(e);
	}
	return 0;
}

static int read_inject(const json_t *j, enum source_kind kind, json_t *entry, struct err *e)
{
	const json_t *inject = json_object_get(j, "inject");
	if (kind == SOURCE_STORED && (!inject || json_is_null(inject)))
		return 0; /* as the store says */
	json_t *recipe = !inject || json_is_null(inject) ? json_pack("{s:s}", "kind", "bearer")
			 : json_is_string(inject)        ? json_pack("{s:O}", "kind", inject)
							 : json_deep_copy(inject);
	return json_object_set_new(entry, "inject", recipe) < 0 ? no_memory(e) : 0;
}

static int set_number(json_t *entry, const char *member, uint64_t value, struct err *e)
{
	return json_object_set_new(entry, member, json_integer((json_int_t)value)) < 0
		       ? no_memory(e)
		       : 0;
}

static int read_uses(const json_t *j, json_t *entry, struct err *e)
{
	uint64_t uses = 0;
	int r = doc_opt_uint(j, "uses", 1, INT64_MAX, &uses, e);
	return r < 0 || !uses ? r : set_number(entry, "uses", uses, e);
}

static int read_bytes(const json_t *j, json_t *entry, struct err *e)
{
	const json_t *said = json_object_get(j, "bytes");
	uint64_t bytes = 0;
	if (!said || json_is_null(said))
		return 0;
	if (json_is_integer(said) && json_integer_value(said) > 0)
		bytes = (uint64_t)json_integer_value(said);
	else if (!json_is_string(said) || str_to_bytes(json_string_value(said), &bytes) < 0)
		return err_set(
			e, EINVAL,
			"bytes must be a number of bytes from 1 up, or one with kB, MB or GB "
			"behind it");
	return set_number(entry, "bytes", bytes, e);
}

static int read_ttl(const json_t *j, json_t *entry, struct err *e)
{
	const json_t *said = json_object_get(j, "ttl");
	uint64_t ms = 0;
	if (!said || json_is_null(said))
		return 0;
	bool number = json_is_integer(said) && json_integer_value(said) > 0 &&
		      (uint64_t)json_integer_value(said) <= DEFINITION_TTL_MAX_MS / 1000;
	if (number)
		ms = (uint64_t)json_integer_value(said) * 1000;
	if (!number && (!json_is_string(said) || str_to_ms(json_string_value(said), &ms) < 0))
		ms = 0;
	if (!ms || ms > DEFINITION_TTL_MAX_MS)
		return err_set(e, EINVAL,
			       "ttl must be a time like 90, 30m or 1h, and at most 30 days");
	return set_number(entry, "expiresMs", ms, e);
}

/* Judged by who will use it: whether a set of its own takes the entry, with that member set. */
static int check_entry(const struct definition *d, const char *member, json_t *value, struct err *e)
{
	auto_json json_t *copy = json_copy(d->entry);
	/* What a policy leaves to the store was judged there. */
	bool open = d->kind == SOURCE_STORED && !json_object_get(d->entry, "hosts");
	struct secrets *set = secrets_new();
	int r = -ENOMEM;
	if (!copy || !set || !value || json_object_set(copy, member, value) < 0 ||
	    (open && json_object_set_new(copy, "hosts", json_pack("[s]", "example.com")) < 0))
		no_memory(e);
	else
		r = secrets_put(set, copy, clock_mono_ms(), e);
	secrets_free(set);
	return r;
}

static int check_without_value(const struct definition *d, struct err *e)
{
	auto_json json_t *why = json_string("not asked yet");
	return check_entry(d, "unavailable", why, e);
}

/* Some ways to put a credential in take what some sources can't give. */
static int check_match(const struct definition *d, struct err *e)
{
	const char *inject = definition_inject(d);
	bool several = str_eq(inject, "sigv4") || str_eq(inject, "certificate");
	if (several && d->kind == SOURCE_OAUTH2)
		return err_set(e, EINVAL, "inject: an OAuth 2 token is no %s", inject);
	if (str_eq(inject, "certificate") && d->kind == SOURCE_COMMAND)
		return err_set(e, EINVAL,
			       "source: a command gives no certificate: use file or value");
	if (several && d->kind == SOURCE_ENV)
		return err_set(e, EINVAL,
			       "source: %s takes more than a variable holds: use file, or the "
			       "node's store",
			       inject);
	return 0;
}

static int read_all(const char *name, const json_t *j, enum definition_place place,
		    struct definition *d, struct err *e)
{
	static const char *const known[] = {"name",   "hosts",  "methods", "paths",
					    "inject", "canary", "uses",    "bytes",
					    "ttl",    "source", NULL};
	const char *same = name;
	int r = doc_only(j, known, e);
	if (r == 0)
		r = doc_opt_string(j, "name", &same, e);
	if (r < 0)
		return r;
	if (!str_eq(same, name))
		return err_set(e, EINVAL, "name: is '%.64s'", same);
	d->entry = json_pack("{s:s}", "name", name);
	if (!d->entry)
		return no_memory(e);
	r = read_source(name, j, place, d, e);
	if (r == 0)
		r = copy_members(j, d->entry, e);
	if (r == 0)
		r = read_inject(j, d->kind, d->entry, e);
	if (r == 0)
		r = read_uses(j, d->entry, e);
	if (r == 0)
		r = read_bytes(j, d->entry, e);
	if (r == 0)
		r = read_ttl(j, d->entry, e);
	return r;
}

int definition_read(const char *name, const json_t *j, enum definition_place place,
		    struct definition *ret, struct err *e)
{
	struct definition d = {0};
	if (!str_is_env_name(name))
		return err_set(e, EINVAL,
			       "credential '%.64s': a name has letters, digits and '_', as a "
			       "variable's",
			       name);
	if (!json_is_object(j))
		return err_set(e, EINVAL, "credential %s: its definition must be an object", name);
	int r = read_all(name, j, place, &d, e);
	if (r == 0)
		r = check_match(&d, e);
	if (r < 0)
		err_prefix(e, "credential %s", name);
	else
		r = check_without_value(&d, e);
	if (r < 0) {
		definition_done(&d);
		return r;
	}
	*ret = d;
	return 0;
}

void definition_done(struct definition *d)
{
	json_decref(d->entry);
	json_decref(d->source);
	*d = (struct definition){0};
}

const char *definition_name(const struct definition *d)
{
	return json_string_value(json_object_get(d->entry, "name"));
}

const char *definition_inject(const struct definition *d)
{
	return json_string_value(json_object_get(json_object_get(d->entry, "inject"), "kind"));
}

const char *definition_source(const struct definition *d)
{
	return sources[d->kind].name;
}

bool definition_is_canary(const struct definition *d)
{
	return json_is_true(json_object_get(d->entry, "canary"));
}

bool definition_same_grant(const struct definition *a, const struct definition *b)
{
	return json_equal(a->entry, b->entry);
}

int definition_check_value(const struct definition *d, const json_t *value, struct err *e)
{
	return check_entry(d, "value", (json_t *)(uintptr_t)value, e);
}
