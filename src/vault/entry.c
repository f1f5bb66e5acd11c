/* SPDX-License-Identifier: Apache-2.0 */
/* Reading an entry. No error holds a value. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "vault/secret_state.h"

#define FIELD_NAME_MAX 128 /* bytes */
#define TEMPLATE_MAX   512 /* bytes */

/* -- words -- */

static int words_append(struct secret_words *w, const char *text)
{
	char *copy = strdup(text);
	if (!copy)
		return -ENOMEM;
	w->list[w->count++] = copy;
	return 0;
}

/* A member's list of strings, each put in its one spelling by canonical (which gives a heap
   string). */
static int read_words(const json_t *entry, const char *member, size_t max, struct secret_words *ret,
		      int (*canonical)(const char *text, char **ret, struct err *e), struct err *e)
{
	json_t *list = NULL;
	int r = doc_opt_array(entry, member, &list, e);
	size_t count = json_array_size(list);
	if (r < 0 || !list)
		return r;
	if (!count || count > max)
		return err_set(e, EINVAL, "%s: 1 to %zu are needed", member, max);
	ret->list = calloc(count, sizeof(*ret->list));
	if (!ret->list)
		return err_set(e, ENOMEM, "no memory");
	for (size_t i = 0; i < count; i++) {
		const json_t *word = json_array_get(list, i);
		const char *text = json_string_value(word);
		auto_free char *spelt = NULL;
		if (!text || strlen(text) != json_string_length(word))
			return err_set(e, EINVAL, "%s: must be a list of strings", member);
		r = canonical(text, &spelt, e);
		if (r < 0)
			return err_prefix(e, "%s: '%.64s'", member, text);
		if (words_append(ret, spelt) < 0)
			return err_set(e, ENOMEM, "no memory");
	}
	return 0;
}

static int copy_of(const char *text, char **ret, struct err *e)
{
	*ret = strdup(text);
	return *ret ? 0 : err_set(e, ENOMEM, "no memory");
}

static int host_of(const char *text, char **ret, struct err *e)
{
	char name[POLICY_PATTERN_MAX];
	int r = policy_pattern_canonical(text, name, e);
	return r < 0 ? r : copy_of(name, ret, e);
}

static int method_of(const char *text, char **ret, struct err *e)
{
	if (!policy_method_is_name(text))
		return err_set(e, EINVAL, "is no method: they are in upper case");
	return copy_of(text, ret, e);
}

static int read_placeholders(struct secret *s, const json_t *entry, struct err *e)
{
	json_t *variables = NULL, *value;
	const char *name;
	int r = doc_opt_object(entry, "variables", &variables, e);
	if (r < 0 || !variables)
		return r;
	s->placeholders.list =
		calloc(json_object_size(variables) + 1, sizeof(*s->placeholders.list));
	if (!s->placeholders.list)
		return err_set(e, ENOMEM, "no memory");
	json_object_foreach(variables, name, value)
	{
		if (!str_is_env_name(name) || !json_is_string(value))
			return err_set(e, EINVAL, "variables: names with strings are needed");
		if (words_append(&s->placeholders, json_string_value(value)) < 0)
			return err_set(e, ENOMEM, "no memory");
	}
	return 0;
}

/* -- the recipe -- */

static bool is_token(const char *s)
{
	size_t n = strspn(s, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
			     "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
	return n && !s[n] && n <= FIELD_NAME_MAX;
}

/* Fields that the gateway makes itself, or that say how a message is to be read. */
static int check_field_name(const char *name, struct err *e)
{
	static const char *const ours[] = {
		"Host",   "Connection", "Transfer-Encoding", "Upgrade",         "TE", "Trailer",
		"Expect", "Keep-Alive", "HTTP2-Settings",    "Accept-Encoding", NULL};
	if (!is_token(name))
		return err_set(e, EINVAL, "'%.64s' is no name of a header", name);
	bool taken = strncasecmp(name, "Content-", strlen("Content-")) == 0 ||
		     strncasecmp(name, "Proxy-", strlen("Proxy-")) == 0;
	for (const char *const *n = ours; !taken && *n; n++)
		taken = str_same_field(name, *n);
	return taken ? err_set(e, EINVAL, "the header %s is not for credentials", name) : 0;
}

/* Printable text without control characters. */
static bool is_plain(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			return false;
	return true;
}

static int check_header(const json_t *recipe, struct err *e)
{
	const char *name = NULL, *template = "{}";
	int r = doc_want_string(recipe, "name", &name, e);
	if (r == 0)
		r = doc_opt_string(recipe, "template", &template, e);
	if (r == 0)
		r = check_field_name(name, e);
	if (r < 0)
		return r;
	const char *slot = strstr(template, "{}");
	if (!slot || strstr(slot + 2, "{}") || strlen(template) > TEMPLATE_MAX ||
	    !is_plain(template))
		return err_set(e, EINVAL, "template: needs one {} where the value goes");
	return 0;
}

static int check_user(const json_t *recipe, const char *member, struct err *e)
{
	const char *user = "";
	int r = doc_opt_string(recipe, member, &user, e);
	if (r == 0 && (strchr(user, ':') || !is_plain(user)))
		r = err_set(e, EINVAL, "%s: no ':' and no control characters", member);
	return r;
}

static int check_bearer(const json_t *recipe, struct err *e)
{
	return check_user(recipe, "gitUser", e);
}

static int check_basic(const json_t *recipe, struct err *e)
{
	return check_user(recipe, "user", e);
}

static int check_parameter(const char *name, struct err *e)
{
	size_t n =
		strspn(name, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-._~");
	if (!n || name[n] || n > FIELD_NAME_MAX)
		return err_set(e, EINVAL,
			       "'%.64s': a parameter of the query has letters, digits, '-', "
			       "'.', '_' and '~'",
			       name);
	return 0;
}

static int check_query(const json_t *recipe, struct err *e)
{
	const char *name = NULL;
	int r = doc_want_string(recipe, "name", &name, e);
	return r < 0 ? r : check_parameter(name, e);
}

static int check_placeholder(const json_t *recipe, struct err *e)
{
	const char *header = NULL, *query = NULL;
	int r = doc_opt_string(recipe, "header", &header, e);
	if (r == 0)
		r = doc_opt_string(recipe, "query", &query, e);
	if (r < 0)
		return r;
	if (!header == !query)
		return err_set(e, EINVAL, "needs the one slot of the placeholder: header or query");
	return header ? check_field_name(header, e) : check_parameter(query, e);
}

static int check_sigv4(const json_t *recipe, struct err *e)
{
	static const char *const members[] = {"service", "region"};
	for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
		const char *word = NULL;
		int r = doc_want_string(recipe, members[i], &word, e);
		if (r < 0)
			return r;
		size_t n = strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789-");
		if (!n || word[n] || n > 40)
			return err_set(e, EINVAL, "%s: lower-case letters, digits and '-'",
				       members[i]);
	}
	return 0;
}

static int check_nothing(const json_t *recipe, struct err *e)
{
	(void)recipe, (void)e;
	return 0;
}

static const struct {
	const char *name;
	enum secret_kind kind;
	const char *members[4];
	int (*check)(const json_t *recipe, struct err *e);
} kinds[] = {
	{"bearer", SECRET_BEARER, {"kind", "gitUser"}, check_bearer},
	{"basic", SECRET_BASIC, {"kind", "user"}, check_basic},
	{"header", SECRET_HEADER, {"kind", "name", "template"}, check_header},
	{"query", SECRET_QUERY, {"kind", "name"}, check_query},
	{"placeholder", SECRET_PLACEHOLDER, {"kind", "header", "query"}, check_placeholder},
	{"sigv4", SECRET_SIGV4, {"kind", "service", "region"}, check_sigv4},
	{"certificate", SECRET_CERTIFICATE, {"kind"}, check_nothing},
};

static int read_recipe(struct secret *s, const json_t *entry, struct err *e)
{
	json_t *recipe = NULL;
	const char *kind = "bearer";
	int r = doc_opt_object(entry, "inject", &recipe, e);
	if (r == 0 && recipe)
		r = doc_want_string(recipe, "kind", &kind, e);
	if (r < 0)
		return r;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (!str_eq(kinds[i].name, kind))
			continue;
		s->kind = kinds[i].kind;
		s->recipe = recipe ? json_deep_copy(recipe) : json_object();
		if (!s->recipe)
			return err_set(e, ENOMEM, "no memory");
		r = doc_only(s->recipe, kinds[i].members, e);
		if (r == 0)
			r = kinds[i].check(s->recipe, e);
		return r < 0 ? err_prefix(e, "inject") : 0;
	}
	return err_set(e, EINVAL,
		       "inject: kind '%.32s' is none of bearer, basic, header, query, placeholder, "
		       "sigv4, certificate",
		       kind);
}

/* -- values -- */

static int check_text(const char *value, size_t len, const char *name, struct err *e)
{
	if (!len)
		return err_set(e, EINVAL, "secret %s is empty: set the variable", name);
	if (len > SECRET_VALUE_MAX)
		return err_set(e, EINVAL, "secret %s is longer than %d bytes", name,
			       SECRET_VALUE_MAX);
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)value[i];
		if (c == '\n' || c == '\r')
			return err_set(e, EINVAL,
				       "secret %s has a line break in it: remove it (a file's last "
				       "newline?)",
				       name);
		if (c < 0x20 || c == 0x7f)
			return err_set(e, EINVAL, "secret %s has a control character in it", name);
	}
	if (value[0] == ' ' || value[len - 1] == ' ')
		return err_set(e, EINVAL, "secret %s begins or ends with a space", name);
	return 0;
}

static int check_pem(const char *value, size_t len, const char *name, const char *what,
		     struct err *e)
{
	if (len > SECRET_VALUE_MAX)
		return err_set(e, EINVAL, "secret %s is longer than %d bytes", name,
			       SECRET_VALUE_MAX);
	if (strlen(value) != len || !strstr(value, "-----BEGIN ") || !strstr(value, what))
		return err_set(e, EINVAL, "secret %s has no %s in PEM form", name, what);
	return 0;
}

/* One value of a kind that has several: member of the object. */
static int read_part(struct value *to, const char *name, const json_t *value, const char *member,
		     const char *pem, struct err *e)
{
	const json_t *text = json_object_get(value, member);
	if (!json_is_string(text))
		return err_set(e, EINVAL, "secret %s: value.%s must be a string", name, member);
	size_t len = json_string_length(text);
	int r = pem ? check_pem(json_string_value(text), len, name, pem, e)
		    : check_text(json_string_value(text), len, name, e);
	return r < 0 ? r : value_set(to, json_string_value(text), len, name, e);
}

static int read_sigv4(struct value to[SECRET_PARTS], const char *name, const json_t *value,
		      struct err *e)
{
	int r = read_part(&to[SECRET_ID], name, value, "accessKeyId", NULL, e);
	if (r == 0)
		r = read_part(&to[SECRET_VALUE], name, value, "secretAccessKey", NULL, e);
	if (r == 0 && json_object_get(value, "sessionToken"))
		r = read_part(&to[SECRET_SESSION], name, value, "sessionToken", NULL, e);
	return r;
}

static int read_certificate(struct value to[SECRET_PARTS], const char *name, const json_t *value,
			    struct err *e)
{
	int r = read_part(&to[SECRET_ID], name, value, "certificate", "CERTIFICATE", e);
	if (r == 0)
		r = read_part(&to[SECRET_VALUE], name, value, "key", "PRIVATE KEY", e);
	return r;
}

static int read_text(struct value to[SECRET_PARTS], const struct secret *s, const json_t *value,
		     struct err *e)
{
	if (!json_is_string(value))
		return err_set(e, EINVAL, "secret %s: value must be a string", s->name);
	const char *text = json_string_value(value);
	size_t len = json_string_length(value);
	int r = check_text(text, len, s->name, e);
	if (r < 0)
		return r;
	if (s->kind == SECRET_BASIC && !json_object_get(s->recipe, "user") && !strchr(text, ':'))
		return err_set(e, EINVAL,
			       "secret %s: without a user the value is \"user:password\"", s->name);
	return value_set(&to[SECRET_VALUE], text, len, s->name, e);
}

static int read_value(struct value to[SECRET_PARTS], const struct secret *s, const json_t *value,
		      struct err *e)
{
	bool several = s->kind == SECRET_SIGV4 || s->kind == SECRET_CERTIFICATE;
	if (several && !json_is_object(value))
		return err_set(e, EINVAL, "secret %s: value must be an object", s->name);
	if (s->kind == SECRET_SIGV4)
		return read_sigv4(to, s->name, value, e);
	if (s->kind == SECRET_CERTIFICATE)
		return read_certificate(to, s->name, value, e);
	return read_text(to, s, value, e);
}

int entry_read_values(struct secret *s, const json_t *entry, struct err *e)
{
	const json_t *value = json_object_get(entry, "value");
	const char *why = NULL;
	int r = doc_opt_string(entry, "unavailable", &why, e);
	if (r < 0)
		return err_prefix(e, "secret %s", s->name);
	if (why && !value) {
		snprintf(s->unavailable, sizeof(s->unavailable), "%s",
			 *why ? why : "no reason given");
		str_drop_partial(s->unavailable);
		return 0;
	}
	if (s->canary && !value) {
		snprintf(s->unavailable, sizeof(s->unavailable), "it is a canary");
		return 0;
	}
	struct value fresh[SECRET_PARTS] = {0};
	r = read_value(fresh, s, value, e);
	if (r < 0) {
		for (size_t i = 0; i < SECRET_PARTS; i++)
			value_done(&fresh[i]);
		return r;
	}
	for (size_t i = 0; i < SECRET_PARTS; i++) {
		struct value former = s->parts[i];
		s->parts[i] = fresh[i];
		secret_retire(s, &former);
	}
	s->unavailable[0] = '\0';
	return 0;
}

/* -- the whole -- */

static int read_most(const json_t *entry, const char *member, bool *ret_there, uint64_t *ret,
		     struct err *e)
{
	*ret_there =
		json_object_get(entry, member) && !json_is_null(json_object_get(entry, member));
	return doc_opt_uint(entry, member, 0, INT64_MAX, ret, e);
}

static int read_bounds(struct secret *s, const json_t *entry, uint64_t now_ms, struct err *e)
{
	uint64_t left = 0;
	bool ends = false;
	int r = read_most(entry, "expiresMs", &ends, &left, e);
	if (r == 0)
		r = read_most(entry, "uses", &s->counted, &s->uses, e);
	if (r == 0)
		r = read_most(entry, "bytes", &s->weighed, &s->bytes, e);
	if (r == 0)
		r = doc_opt_bool(entry, "canary", &s->canary, e);
	if (ends)
		s->end_ms = now_ms + left + !now_ms;
	return r;
}

/* One that another sandbox has, of whose memory this one is a copy. */
static int read_stray(struct secret *s, const json_t *entry, struct err *e)
{
	static const char *const known[] = {"name", "stray", "variables", "canary", NULL};
	s->revoked = true;
	int r = doc_only(entry, known, e);
	if (r == 0)
		r = read_placeholders(s, entry, e);
	return r < 0 ? r : doc_opt_bool(entry, "canary", &s->canary, e);
}

int entry_read(struct secret *s, const json_t *entry, uint64_t now_ms, struct err *e)
{
	static const char *const known[] = {
		"name",   "hosts",     "methods", "paths", "expiresMs",   "uses",  "bytes",
		"inject", "variables", "canary",  "value", "unavailable", "stray", NULL};
	const char *name;
	int r = doc_only(entry, known, e);
	if (r < 0 || (r = doc_want_string(entry, "name", &name, e)) < 0)
		return r;
	if (!str_is_env_name(name))
		return err_set(e, EINVAL, "secret '%.64s': not a variable's name", name);
	s->name = strdup(name);
	if (!s->name)
		return err_set(e, ENOMEM, "no memory");
	r = doc_opt_bool(entry, "stray", &s->stray, e);
	if (r == 0 && s->stray)
		r = read_stray(s, entry, e);
	if (r < 0 || s->stray)
		return r < 0 ? err_prefix(e, "secret %s", name) : 0;
	r = read_words(entry, "hosts", SECRET_HOSTS_MAX, &s->hosts, host_of, e);
	if (r == 0 && !s->hosts.count)
		r = err_set(e, EINVAL, "hosts: 1 to %d are needed", SECRET_HOSTS_MAX);
	if (r == 0)
		r = read_words(entry, "methods", SECRET_PATHS_MAX, &s->methods, method_of, e);
	if (r == 0)
		r = read_words(entry, "paths", SECRET_PATHS_MAX, &s->paths,
			       policy_path_pattern_canonical, e);
	if (r == 0)
		r = read_placeholders(s, entry, e);
	if (r == 0)
		r = read_recipe(s, entry, e);
	if (r == 0)
		r = read_bounds(s, entry, now_ms, e);
	if (r < 0)
		return err_prefix(e, "secret %s", name);
	return entry_read_values(s, entry, e);
}
