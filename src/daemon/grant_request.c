/* SPDX-License-Identifier: Apache-2.0 */
/* Grants as requests ask for them: entries, and their values. Nothing runs of them yet. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "daemon/broker.h"
#include "daemon/grant_entry.h"
#include "daemon/grants.h"
#include "daemon/grants_state.h"
#include "daemon/secrets.h"
#include "vault/placeholder.h"
#include "vault/secret.h"

const char *grant_name(const json_t *entry)
{
	const char *name = json_string_value(json_object_get(entry, "name"));
	return name ? name : "";
}

const char *grant_stored(const json_t *entry)
{
	return json_string_value(json_object_get(entry, "stored"));
}

/* Its values come from the broker. */
bool grant_is_brokered(const json_t *entry)
{
	return grant_stored(entry) || json_object_get(entry, "source");
}

bool grant_is_state(const json_t *entry, const char *state)
{
	return str_eq(json_string_value(json_object_get(entry, "state")), state);
}

bool grant_lives(const json_t *entry)
{
	return grant_entry_lives(entry, clock_wall_ms());
}

json_t *grant_find(const json_t *entries, const char *name)
{
	size_t i;
	json_t *entry;
	json_array_foreach((json_t *)(uintptr_t)entries, i,
			   entry) if (str_eq(grant_name(entry), name)) return entry;
	return NULL;
}

/* -- made from requests -- */

static int from_store(struct node *n, json_t *entry, struct err *e)
{
	const char *name = NULL;
	int r = doc_want_string(entry, "stored", &name, e);
	if (r < 0)
		return r;
	if (json_object_get(entry, "value"))
		return err_set(e, EINVAL, "secret %.64s: its value is in the node's store", name);
	const struct definition *d = n ? credentials_find(n, name, e) : NULL;
	if (!d)
		return n ? -e->code : err_set(e, ENOENT, "there is no store for %.64s", name);
	if (!json_object_get(entry, "name") &&
	    json_object_set_new(entry, "name", json_string(name)) < 0)
		return err_set(e, ENOMEM, "no memory");
	return grant_entry_narrow(entry, d->entry, e);
}

/* The form in which a set takes it, values or not. */
static int put(struct secrets *set, const json_t *entry, struct err *e)
{
	auto_json json_t *copy = json_copy((json_t *)(uintptr_t)entry);
	auto_json json_t *wire = copy ? grant_entry_wire(copy, clock_wall_ms()) : NULL;
	return wire ? secrets_put(set, wire, clock_mono_ms(), e) : err_set(e, ENOMEM, "no memory");
}

static int set_variables(json_t *entry, struct err *e)
{
	struct secrets *set = secrets_new();
	int r = set ? put(set, entry, e) : err_set(e, ENOMEM, "no memory");
	if (r == 0) {
		json_t *variables =
			placeholder_variables(grant_name(entry), secret_kind(secrets_at(set, 0)));
		if (!variables || json_object_set_new(entry, "variables", variables) < 0)
			r = err_set(e, ENOMEM, "no memory");
	}
	secrets_free(set);
	return r;
}

/* What a shell, a loader or a TLS library obeys: as a credential's variable it would break the
   task, or the way to the gateway. */
static bool is_obeyed(const char *name)
{
	static const char *const names[] = {
		"PATH",
		"HOME",
		"SHELL",
		"USER",
		"LOGNAME",
		"IFS",
		"ENV",
		"BASH_ENV",
		/* whom an image trusts */
		"SSL_CERT_FILE",
		"SSL_CERT_DIR",
		"NIX_SSL_CERT_FILE",
		"CURL_CA_BUNDLE",
		"REQUESTS_CA_BUNDLE",
		"AWS_CA_BUNDLE",
		"PIP_CERT",
		"GIT_SSL_CAINFO",
		"NODE_EXTRA_CA_CERTS",
		"NODE_USE_SYSTEM_CA",
		"DENO_CERT",
		"DENO_TLS_CA_STORE",
		"CARGO_HTTP_CAINFO",
		"UV_SYSTEM_CERTS",
		"UV_NATIVE_TLS",
		"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
		"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
		"HTTPLIB2_CA_CERTS",
	};
	size_t n = strlen(name);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (str_eq(name, names[i]))
			return true;
	return str_starts(name, "LD_") || (n >= 6 && strcasecmp(name + n - 6, "_PROXY") == 0);
}

static int check_variables(const json_t *entry, struct err *e)
{
	const char *name;
	json_t *value;
	json_object_foreach(json_object_get(entry, "variables"), name, value) if (
		is_obeyed(
			name)) return err_set(e, EINVAL,
					      "secret %.64s: programs obey the variable %.64s: choose another name",
					      grant_name(entry), name);
	return 0;
}

int grants_make(struct node *n, json_t *entry, struct err *e)
{
	int r = json_object_get(entry, "stored") ? from_store(n, entry, e) : 0;
	if (r == 0)
		r = grant_entry_accept(entry, clock_wall_ms(), e);
	if (r == 0)
		r = set_variables(entry, e);
	return r < 0 ? r : check_variables(entry, e);
}

/* An entry of the API: a copy, for the rest is ours to write. */
int grant_make_asked(struct node *n, const json_t *asked, json_t **ret, struct err *e)
{
	static const char *const known[] = {"name",      "hosts",  "methods", "paths",
					    "expiresMs", "uses",   "bytes",   "inject",
					    "canary",    "stored", "value",   NULL};
	const char *name = NULL;
	if (!json_is_object(asked))
		return err_set(e, EINVAL, "secrets: must be a list of objects");
	int r = doc_only(asked, known, e);
	if (r == 0)
		r = json_object_get(asked, "stored") ? doc_opt_string(asked, "name", &name, e)
						     : doc_want_string(asked, "name", &name, e);
	if (r == 0 && !json_object_get(asked, "stored") && !json_object_get(asked, "value"))
		r = err_set(e, EINVAL, "secret %.64s has no value", name);
	if (r < 0)
		return r;
	auto_json json_t *entry = json_copy((json_t *)(uintptr_t)asked);
	r = entry ? grants_make(n, entry, e) : err_set(e, ENOMEM, "no memory");
	if (r == 0)
		*ret = take_ptr(entry);
	return r;
}

static int append(json_t *list, json_t *entry, struct err *e)
{
	if (grant_find(list, grant_name(entry)))
		return err_set(e, EINVAL, "secret %.64s is given twice: list its hosts in one",
			       grant_name(entry));
	return json_array_append(list, entry) < 0 ? err_set(e, ENOMEM, "no memory") : 0;
}

/* One of a policy's file, whose value the caller has, or the broker. */
static int give_value(json_t *entry, json_t *values, struct err *e)
{
	json_t *value = json_object_get(values, grant_name(entry));
	if (grant_is_brokered(entry))
		return 0;
	if (!value || json_is_null(value))
		return err_set(e, EINVAL,
			       "values: there is none for the credential %.64s of the policy",
			       grant_name(entry));
	if (json_object_set(entry, "value", value) < 0)
		return err_set(e, ENOMEM, "no memory");
	struct secrets *set = secrets_new();
	int r = set ? put(set, entry, e) : err_set(e, ENOMEM, "no memory");
	secrets_free(set);
	return r;
}

static int check_values_named(const json_t *credentials, json_t *values, struct err *e)
{
	const char *name;
	json_t *value;
	json_object_foreach(values, name, value) if (!grant_find(credentials, name)) return err_set(
		e, EINVAL, "values: the policy defines no credential %.64s", name);
	return 0;
}

int grants_from_request(struct node *n, const json_t *request, json_t *credentials, json_t **ret,
			struct err *e)
{
	auto_json json_t *list = json_array();
	json_t *asked = NULL, *values = NULL, *one;
	size_t i;
	int r = list ? doc_opt_array(request, "secrets", &asked, e) : -ENOMEM;
	if (r == 0)
		r = doc_opt_object(request, "values", &values, e);
	if (r == 0)
		r = check_values_named(credentials, values, e);
	if (r < 0)
		return r;
	json_array_foreach(credentials, i, one)
	{
		r = give_value(one, values, e);
		if (r == 0)
			r = append(list, one, e);
		if (r < 0)
			return r;
	}
	json_array_foreach(asked, i, one)
	{
		auto_json json_t *entry = NULL;
		r = grant_make_asked(n, one, &entry, e);
		if (r == 0)
			r = append(list, entry, e);
		if (r < 0)
			return r;
	}
	*ret = take_ptr(list);
	return 0;
}

int grants_check(const json_t *entries, const struct policy *p, struct err *e)
{
	struct secrets *set = secrets_new();
	int r = set ? 0 : err_set(e, ENOMEM, "no memory");
	for (size_t i = 0; r == 0 && i < json_array_size(entries); i++)
		if (grant_lives(json_array_get(entries, i)))
			r = put(set, json_array_get(entries, i), e);
	if (r == 0)
		r = secrets_check(set, p, e);
	secrets_free(set);
	return r;
}

bool grants_named_twice(const json_t *entries)
{
	for (size_t i = 0; i < json_array_size(entries); i++) {
		const json_t *entry = json_array_get(entries, i);
		if (grant_find(entries, grant_name(entry)) != entry)
			return true;
	}
	return false;
}

json_t *grants_names(const json_t *entries)
{
	json_t *names = json_array(), *entry;
	size_t i;
	json_array_foreach((json_t *)(uintptr_t)entries, i, entry) if (grant_lives(entry))
		json_array_append(names, json_object_get(entry, "name"));
	return names;
}

/* -- values that a caller gives again -- */

int grants_complete(json_t *entries, const json_t *given, bool without, struct err *e)
{
	size_t i;
	json_t *entry;
	auto_buf struct buf missing;
	buf_init(&missing, ERR_TEXT_MAX);
	json_array_foreach(entries, i, entry)
	{
		json_t *value = json_object_get(grant_find(given, grant_name(entry)), "value");
		if (grant_is_brokered(entry) || !grant_lives(entry))
			continue;
		if (value && !json_is_null(value)) {
			json_object_set(entry, "value", value);
			json_object_del(entry, "unavailable");
		} else if (!without) {
			buf_printf(&missing, " %s", grant_name(entry));
		}
	}
	if (missing.len)
		return err_set(e, EINVAL,
			       "the values of its secrets are not kept, give them again:%.*s "
			       "(or go on without secrets)",
			       (int)missing.len, (const char *)missing.data);
	struct secrets *set = secrets_new();
	int r = set ? 0 : err_set(e, ENOMEM, "no memory");
	json_array_foreach(entries, i, entry) if (r == 0 && json_object_get(entry, "value")) r =
		put(set, entry, e);
	secrets_free(set);
	return r;
}

void grants_forget_values(json_t *entries)
{
	size_t i;
	json_t *entry;
	json_array_foreach(entries, i, entry) json_object_del(entry, "value");
}

json_t *grants_inherit(const json_t *entries, struct err *e)
{
	auto_json json_t *list = json_array();
	json_t *entry;
	size_t i;
	int r = list ? 0 : err_set(e, ENOMEM, "no memory");
	json_array_foreach((json_t *)(uintptr_t)entries, i, entry)
	{
		json_t *child = NULL;
		if (r < 0 || grant_is_state(entry, "adding"))
			continue;
		child = grant_entry_inherit(entry);
		r = child ? set_variables(child, e) : err_set(e, ENOMEM, "no memory");
		if (json_array_append_new(list, child) < 0 && r == 0)
			r = err_set(e, ENOMEM, "no memory");
	}
	return r < 0 ? NULL : take_ptr(list);
}

int grants_leave(struct sandbox_spec *spec, struct err *e)
{
	json_t *entry;
	size_t i;
	json_array_foreach(spec->secrets, i, entry)
	{
		json_t *stray = grant_entry_stray(entry);
		if (!stray || json_array_append_new(spec->strays, stray) < 0)
			return err_set(e, ENOMEM, "no memory");
	}
	while (json_array_size(spec->strays) > STRAYS_MAX)
		json_array_remove(spec->strays, 0);
	return json_array_clear(spec->secrets);
}
