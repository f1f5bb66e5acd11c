/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions of credentials, read for the sake of their values; spaced checks them. */
#include "cli/definition.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#define FILE_MAX (1 << 20) /* bytes of a definition */

const char *definition_kind(const json_t *definition)
{
	const json_t *inject = json_object_get(definition, "inject");
	const char *kind = json_string_value(inject);
	if (!kind)
		kind = json_string_value(json_object_get(inject, "kind"));
	if (!kind)
		kind = json_string_value(json_object_get(definition, "kind")); /* as shown */
	return kind ? kind : "bearer";
}

const char *definition_source(const json_t *definition)
{
	json_t *source = json_object_get(definition, "source");
	return json_object_iter_key(json_object_iter(source));
}

bool definition_takes_values(const json_t *definition, enum value_form *ret_form)
{
	const char *source = definition_source(definition);
	*ret_form = value_form_of(definition_kind(definition));
	if (!source || str_eq(source, "value") || str_eq(source, "env"))
		return true;
	if (!str_eq(source, "oauth2"))
		return false;
	const json_t *oauth2 = json_object_get(json_object_get(definition, "source"), "oauth2");
	const char *grant = json_string_value(json_object_get(oauth2, "grant"));
	*ret_form = str_eq(grant, "refresh_token") ? VALUE_REFRESH_TOKEN
		    : str_eq(grant, "jwt_bearer") || str_eq(grant, "github_app")
			    ? VALUE_KEY
			    : VALUE_CLIENT_SECRET;
	return true;
}

/* In a file "bearer" may stand for {kind: bearer}; the API has the latter alone. */
static int spell_out(json_t *definition, struct err *e)
{
	json_t *inject = json_object_get(definition, "inject");
	if (!json_is_string(inject))
		return 0;
	return json_object_set_new(definition, "inject", json_pack("{s:O}", "kind", inject)) < 0
		       ? err_set(e, ENOMEM, "out of memory")
		       : 0;
}

int definition_load(const char *path, json_t **ret, struct err *e)
{
	auto_free char *text = NULL;
	size_t len;
	struct doc doc;
	int r = file_read(path, FILE_MAX, &text, &len);
	if (r < 0)
		return err_sys(e, -r, "cannot read the definition %.200s", path);
	if (!str_is_utf8(text, len) || strlen(text) != len)
		return err_set(e, EINVAL, "the definition %.200s is not UTF-8 text", path);
	r = doc_load(&doc, path, text, len, e);
	if (r < 0)
		return r;
	if (json_is_object(doc.root))
		r = spell_out(doc.root, e);
	else
		r = err_set(e, EINVAL,
			    "%.200s is no definition of a credential: it is to be one mapping with "
			    "'hosts', 'inject', 'source' and so on",
			    path);
	if (r == 0)
		*ret = json_incref(doc.root);
	doc_done(&doc);
	return r;
}

/* PATH as a policy file means it: from where that lies. Heap. */
static char *beside(const char *file, const char *path)
{
	const char *slash = strrchr(file, '/');
	if (*path == '/' || !slash)
		return strdup(path);
	return str_printf("%.*s/%s", (int)(slash - file), file, path);
}

static int from_file(const char *policy, const char *name, enum value_form form, const char *path,
		     json_t **ret, struct err *e)
{
	auto_free char *whole = beside(policy, path);
	if (!whole)
		return err_set(e, ENOMEM, "out of memory");
	int r = value_from_file(name, form, whole, NULL, ret, e);
	return r < 0 ? err_prefix(e, "%.200s", whole) : 0;
}

static int read_one(const char *policy, const json_t *definition, json_t *values, struct err *e)
{
	const char *name = json_string_value(json_object_get(definition, "name"));
	const char *source = definition_source(definition);
	enum value_form form = value_form_of(definition_kind(definition));
	const char *where = json_string_value(
		json_object_get(json_object_get(definition, "source"), source ? source : "env"));
	auto_json json_t *got = NULL;
	int r = 0;
	if (!name || !str_is_env_name(name))
		return 0; /* spaced says where and what is wrong */
	if ((!source || str_eq(source, "env")) && form == VALUE_TEXT)
		r = value_from_env(name, form, where, &got, e);
	else if (str_eq(source, "file") && where)
		r = from_file(policy, name, form, where, &got, e);
	if (r < 0)
		return err_prefix(e, "%.200s", policy);
	if (!got)
		return 0;
	return json_object_set_new(values, name, value_of_entry(got)) < 0
		       ? err_set(e, ENOMEM, "out of memory")
		       : 0;
}

int definition_policy_values(const json_t *policy, json_t **ret, struct err *e)
{
	const char *name = json_string_value(json_object_get(policy, "name"));
	const char *text = json_string_value(json_object_get(policy, "text"));
	auto_json json_t *values = json_object();
	struct doc doc;
	size_t i;
	json_t *one;
	int r = values ? 0 : err_set(e, ENOMEM, "out of memory");
	if (r == 0 && doc_load(&doc, name, text, strlen(text), NULL) == 0) {
		json_array_foreach(json_object_get(doc.root, "credentials"), i, one)
		{
			if (r == 0)
				r = read_one(name, one, values, e);
		}
		doc_done(&doc);
	}
	if (r < 0)
		return r;
	*ret = take_ptr(values);
	return 0;
}
