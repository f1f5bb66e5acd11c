/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A placeholder is worth nothing, but where it does not belong it tells of somebody who tries to
 * carry a credential away, so what holds one is refused, before the policy is asked. It belongs to
 * a request that gets its credential, in the fields that carry credentials, for these stay behind,
 * and in the slot where the value takes its place.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "egress/request_state.h"

#define WHERE_MAX 64 /* bytes, with the NUL: "the field NAME" */

/* Whether the placeholder of found may stand where that of own may. Grants for AWS share one pair
 * of variables, so a client signs for all of them with what the last one put there. */
static bool belongs(const struct secret *found, const struct secret *own)
{
	return own &&
	       (found == own || (secret_kind(found) == SECRET_SIGV4 &&
				 secret_kind(own) == SECRET_SIGV4 && !secret_is_canary(found)));
}

/* Overwrites the placeholders of s. */
static void mask(char *text, const struct secret *s)
{
	const char *placeholder;
	for (size_t i = 0; (placeholder = secret_placeholder_at(s, i)); i++)
		for (char *at = text; (at = strstr(at, placeholder));)
			memset(at, '*', strlen(placeholder));
}

/* Whose placeholder is in the text besides those that belong where own's does, NULL for anybody's.
 */
static const struct secret *find_beside(const struct request *r, const char *text, size_t n,
					const struct secret *own)
{
	struct needles *all = secrets_placeholders(r->g->secrets);
	const struct secret *found, *before = NULL;
	unsigned index;
	if (!all || !n || !needles_in(all, text, n, &index))
		return NULL;
	found = secrets_at(r->g->secrets, index);
	auto_free char *rest = belongs(found, own) ? strndup(text, n) : NULL;
	if (!rest)
		return found;
	do {
		mask(rest, found);
		before = found;
		if (!needles_in(all, rest, n, &index))
			return NULL;
		found = secrets_at(r->g->secrets, index);
	} while (found != before && belongs(found, own));
	return belongs(found, own) ? NULL : found;
}

/* False: it was refused for what is in the text. */
static bool check_text(struct request *r, const char *text, const struct secret *own,
		       const char *where)
{
	const struct secret *stray = text ? find_beside(r, text, strlen(text), own) : NULL;
	if (!stray)
		return true;
	request_refuse_leak(r, stray, where);
	return false;
}

static bool check_fields(struct request *r, const struct http_fields *fields,
			 const struct secret *granted, const char *kind)
{
	char where[WHERE_MAX];
	for (size_t i = 0; i < fields->count; i++) {
		const char *name = fields->list[i].name, *value = fields->list[i].value;
		bool slot = granted && inject_slot_field(granted, name);
		snprintf(where, sizeof(where), "%s %.40s", kind, name);
		if (!check_text(r, value, slot ? granted : NULL, where) ||
		    !check_text(r, name, NULL, "the name of a field"))
			return false;
	}
	return true;
}

/* The decoded name of a parameter, or "" where it does not read. */
static void parameter_name(const char *p, size_t n, char *out)
{
	const char *end = memchr(p, '=', n);
	if (http_percent_decode(p, end ? (size_t)(end - p) : n, true, out) < 0)
		out[0] = '\0';
}

static bool check_query(struct request *r, const struct secret *granted)
{
	const char *at = r->query;
	auto_free char *name = at ? malloc(strlen(at) + 1) : NULL;
	if (at && !name)
		return check_text(r, at, NULL, "the query");
	while (at && *at) {
		size_t n = strcspn(at, "&;");
		bool whole = at == r->query || at[-1] == '&'; /* not to all servers behind a ';' */
		parameter_name(at, n, name);
		bool slot = granted && whole && inject_slot_query(granted, name);
		const struct secret *stray = find_beside(r, at, n, slot ? granted : NULL);
		if (stray) {
			request_refuse_leak(r, stray, "the query");
			return false;
		}
		at += n + (at[n] != 0);
	}
	return true;
}

bool request_check_head(struct request *r, const struct http_head *head)
{
	if (!secrets_placeholders(r->g->secrets))
		return true;
	const struct secret *granted = secrets_for(r->g->secrets, &r->dest);
	return check_text(r, r->path, NULL, "the path") && check_query(r, granted) &&
	       check_text(r, head->method, NULL, "the method") &&
	       check_fields(r, &head->fields, granted, "the field");
}

/* No trailer is a slot: nothing is put in there. */
bool request_check_trailers(struct request *r, const struct http_fields *fields)
{
	return check_fields(r, fields, NULL, "the trailer");
}
