/* SPDX-License-Identifier: Apache-2.0 */
/* Secrets by name out of the environment. */
#include "cli/grant.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/definition.h"
#include "cli/value.h"

#define MISSING_MAX 240 /* bytes of "A=... B=..." in an error, which has its own end */

static bool has_name(const json_t *names, const char *name)
{
	size_t i;
	json_t *word;
	json_array_foreach((json_t *)names, i, word)
	{
		if (str_eq(json_string_value(word), name))
			return true;
	}
	return false;
}

int grant_name(json_t *names, const char *text, struct err *e)
{
	/* NAME=value is an easy slip, so the text is not repeated. */
	if (!str_is_env_name(text))
		return err_set(e, EINVAL,
			       "--secret takes the NAME alone of a secret that the sandbox was "
			       "made with: its hosts stay, its value comes from the variable NAME");
	if (has_name(names, text))
		return 0;
	return json_array_append_new(names, json_string(text)) < 0
		       ? err_set(e, ENOMEM, "out of memory")
		       : 0;
}

static const char *secret_name(const json_t *secret)
{
	return json_string_value(json_object_get(secret, "name"));
}

static int check_known(const struct grant *g, const json_t *have, struct err *e)
{
	size_t i, k;
	json_t *word, *secret;
	json_array_foreach((json_t *)g->only, i, word)
	{
		bool known = false;
		json_array_foreach((json_t *)have, k, secret) known |=
			str_eq(secret_name(secret), json_string_value(word));
		if (!known)
			return err_set(e, EINVAL,
				       "%s has no secret %s: 'space inspect %s' shows what it has",
				       g->ref, json_string_value(word), g->ref);
	}
	return 0;
}

/* What the node's store has, or a source of spaced's own (it says which), is fetched there; what
 * has ended needs no value any more. */
static bool needs_value(const json_t *secret)
{
	const char *state = json_string_value(json_object_get(secret, "state"));
	return !json_is_string(json_object_get(secret, "stored")) &&
	       !json_is_object(json_object_get(secret, "source")) && !str_eq(state, "revoked") &&
	       !str_eq(state, "expired") && !str_eq(state, "used up");
}

/* One secret's value into what is given, or its name to those that are missing. */
static int take_value(const json_t *secret, json_t *given, struct buf *missing, struct err *e)
{
	const char *name = secret_name(secret);
	auto_json json_t *values = NULL;
	int r = value_from_env(name, value_form_of(definition_kind(secret)), NULL, &values, e);
	if (r == -ENOENT) {
		/* The first in any case; the rest is told when these are there. */
		if (!missing->len || missing->len + strlen(name) < MISSING_MAX)
			buf_printf(missing, " %s=...", name);
		return 0;
	}
	if (r < 0)
		return r;
	auto_json json_t *value = value_of_entry(values);
	return json_array_append_new(given, json_pack("{s:s, s:O}", "name", name, "value", value)) <
			       0
		       ? err_set(e, ENOMEM, "out of memory")
		       : 0;
}

int grant_collect(const struct grant *g, const json_t *sandbox, json_t **ret, bool *ret_all,
		  struct err *e)
{
	json_t *have = NULL, *secret;
	int r = doc_opt_array(sandbox, "secrets", &have, e);
	if (r < 0)
		return err_prefix(e, "spaced's answer cannot be read");
	r = check_known(g, have, e);
	if (r < 0)
		return r;
	auto_json json_t *values = json_array();
	auto_buf struct buf missing;
	buf_init(&missing, MISSING_MAX + 512);
	*ret_all = true;
	size_t i;
	json_array_foreach(have, i, secret)
	{
		const char *name;
		r = doc_want_string(secret, "name", &name, e);
		if (r < 0)
			return err_prefix(e, "spaced's answer cannot be read");
		if (!needs_value(secret))
			continue;
		if (g->only && !has_name(g->only, name)) {
			*ret_all = false;
			continue;
		}
		r = take_value(secret, values, &missing, e);
		if (r < 0)
			return r;
	}
	if (missing.len)
		return err_set(e, ENOENT, "%s needs its secrets' values again: 'export%.*s', %s",
			       g->ref, (int)missing.len, (const char *)missing.data, g->otherwise);
	*ret = take_ptr(values);
	return 0;
}
