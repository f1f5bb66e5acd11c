/* SPDX-License-Identifier: Apache-2.0 */
/* Flags into members of a definition. What only spaced can judge (hosts, patterns) is left to it.
 */
#include "cli/scope.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/size.h"
#include "cli/spec.h"

int scope_init(struct scope *s, struct err *e)
{
	*s = (struct scope){.members = json_object()};
	return s->members ? 0 : err_set(e, ENOMEM, "out of memory");
}

void scope_done(struct scope *s)
{
	json_decref(s->members);
	*s = (struct scope){0};
}

static int set(struct scope *s, const char *key, json_t *value, struct err *e)
{
	return json_object_set_new(s->members, key, value) < 0 ? err_set(e, ENOMEM, "out of memory")
							       : 0;
}

/* The list of that name, made when it is not there. */
static int list_of(struct scope *s, const char *key, json_t **ret, struct err *e)
{
	*ret = json_object_get(s->members, key);
	if (*ret)
		return 0;
	*ret = json_array();
	return set(s, key, *ret, e);
}

static int add_list(struct scope *s, const char *key, const char *what, const char *text,
		    struct err *e)
{
	json_t *list;
	int r = list_of(s, key, &list, e);
	return r < 0 ? r : spec_list(list, what, text, e);
}

static int add_path(struct scope *s, const char *text, struct err *e)
{
	json_t *list;
	int r = list_of(s, "paths", &list, e);
	if (r < 0)
		return r;
	if (*text != '/' || !str_is_utf8(text, strlen(text)))
		return err_set(e, EINVAL,
			       "--path takes a pattern that begins with '/', not '%.80s'", text);
	return json_array_append_new(list, json_string(text)) < 0
		       ? err_set(e, ENOMEM, "out of memory")
		       : 0;
}

static int set_ttl(struct scope *s, const char *text, struct err *e)
{
	if (str_to_ms(text, &s->ttl_ms) < 0 || !s->ttl_ms)
		return err_set(e, EINVAL, "--ttl takes a time like 90, 90s, 30m, 1h or 7d, not '%.40s'",
			       text);
	return 0;
}

static int set_uses(struct scope *s, const char *text, struct err *e)
{
	uint64_t n;
	if (str_to_u64(text, 1, INT64_MAX, &n) < 0)
		return err_set(e, EINVAL, "--uses takes a whole number from 1, not '%.40s'", text);
	return set(s, "uses", json_integer((json_int_t)n), e);
}

static int set_bytes(struct scope *s, const char *text, struct err *e)
{
	uint64_t n;
	int r = size_bytes(text, &n, e);
	return r < 0 ? r : set(s, "bytes", json_integer((json_int_t)n), e);
}

static int set_inject(struct scope *s, json_t *recipe, struct err *e)
{
	if (!recipe)
		return err_set(e, ENOMEM, "out of memory");
	if (!json_object_get(s->members, "inject"))
		return set(s, "inject", recipe, e);
	json_decref(recipe);
	return err_set(e, EINVAL, "--header, --basic, --query and --sigv4 exclude each other");
}

/* True for the name of a field of HTTP. Source: RFC 9110, section 5.6.2. */
static bool is_token(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (s[i] <= ' ' || s[i] >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", s[i]))
			return false;
	return n > 0;
}

/* Somebody may have put the value where its place is named: what was given is not repeated. */
static int set_header(struct scope *s, const char *text, struct err *e)
{
	size_t n = strcspn(text, "=");
	const char *template = text[n] ? text + n + 1 : "{}";
	const char *place = strstr(template, "{}");
	if (!is_token(text, n))
		return err_set(e, EINVAL,
			       "--header takes the name of a header, and behind a '=' "
			       "how it is filled");
	if (!place || strstr(place + 2, "{}") || !str_is_utf8(template, strlen(template)))
		return err_set(e, EINVAL,
			       "the template of --header has one {} where the value goes, as in "
			       "'X-Auth=Token {}'; the value is no part of it");
	return set_inject(s,
			  json_pack("{s:s, s:s%, s:s}", "kind", "header", "name", text, n,
				    "template", template),
			  e);
}

static int set_basic(struct scope *s, const char *user, struct err *e)
{
	if (strchr(user, ':') || !str_is_utf8(user, strlen(user)))
		return err_set(e, EINVAL,
			       "--basic takes the name of a user, and no password: the value is "
			       "that");
	return set_inject(s, json_pack("{s:s, s:s*}", "kind", "basic", "user", *user ? user : NULL),
			  e);
}

static int set_query(struct scope *s, const char *name, struct err *e)
{
	if (!*name || strpbrk(name, "=&") || !str_is_utf8(name, strlen(name)))
		return err_set(e, EINVAL, "--query takes the name of a parameter alone");
	return set_inject(s, json_pack("{s:s, s:s}", "kind", "query", "name", name), e);
}

static int set_sigv4(struct scope *s, const char *text, struct err *e)
{
	const char *slash = strchr(text, '/');
	if (!slash || slash == text || !slash[1] || strchr(slash + 1, '/') ||
	    !str_is_utf8(text, strlen(text)))
		return err_set(e, EINVAL, "--sigv4 takes SERVICE/REGION, as in s3/eu-central-1");
	return set_inject(s,
			  json_pack("{s:s, s:s%, s:s}", "kind", "sigv4", "service", text,
				    (size_t)(slash - text), "region", slash + 1),
			  e);
}

int scope_option(struct scope *s, const struct flag_found *f, struct err *e)
{
	switch (f->id) {
	case SCOPE_HOST:
		return add_list(s, "hosts", "host", f->value, e);
	case SCOPE_METHOD:
		return add_list(s, "methods", "method", f->value, e);
	case SCOPE_PATH:
		return add_path(s, f->value, e);
	case SCOPE_TTL:
		return set_ttl(s, f->value, e);
	case SCOPE_USES:
		return set_uses(s, f->value, e);
	case SCOPE_BYTES:
		return set_bytes(s, f->value, e);
	case SCOPE_HEADER:
		return set_header(s, f->value, e);
	case SCOPE_BASIC:
		return set_basic(s, f->value, e);
	case SCOPE_QUERY:
		return set_query(s, f->value, e);
	case SCOPE_SIGV4:
		return set_sigv4(s, f->value, e);
	default:
		return err_set(e, EINVAL, "flag %d is not handled", f->id);
	}
}

bool scope_given(const struct scope *s)
{
	return s->ttl_ms || json_object_size(s->members);
}
