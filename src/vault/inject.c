/* SPDX-License-Identifier: Apache-2.0 */
#include "vault/inject.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "vault/inject_sigv4.h"

#define GIT_USER       "x-access-token"     /* GitHub's word; others take any */
#define PARAMETER_ENDS "&;"                 /* in a query; some servers take one, some both */
#define QUERY_MAX      ((size_t)128 * 1024) /* bytes of a query with a value in it */

/* -- pieces -- */

static void wipe(const char *text)
{
	if (!text)
		return;
	explicit_bzero((char *)text, strlen(text));
	free((char *)text);
}

void injection_done(struct injection *i)
{
	for (size_t k = 0; k < i->count; k++) {
		free((char *)i->fields[k].name);
		wipe(i->fields[k].value);
	}
	wipe(i->path);
	wipe(i->query);
	explicit_bzero(i, sizeof(*i));
}

/* Takes value over, which is NULL where there was no memory. */
static int add_field(struct injection *i, const char *name, char *value, struct err *e)
{
	char *copy = value ? strdup(name) : NULL;
	if (!copy) {
		wipe(value);
		return err_set(e, ENOMEM, "no memory");
	}
	i->fields[i->count++] = (struct inject_field){.name = copy, .value = value};
	i->used = true;
	return 0;
}

/* "before", the value, "after". */
static char *around(const char *before, size_t n, const char *value, const char *after)
{
	size_t length = strlen(value), rest = strlen(after);
	char *text = malloc(n + length + rest + 1);
	if (!text)
		return NULL;
	memcpy(text, before, n);
	memcpy(text + n, value, length);
	memcpy(text + n + length, after, rest + 1);
	return text;
}

/* "Basic …" for user and password, or, without a user, for the value as it is. */
static char *basic(const char *user, const char *value)
{
	static const char scheme[] = "Basic ";
	const size_t head = sizeof(scheme) - 1;
	size_t before = user ? strlen(user) + 1 : 0;
	char *plain = before ? malloc(before + strlen(value) + 1) : strdup(value);
	if (!plain)
		return NULL;
	if (before) {
		memcpy(plain, user, before - 1);
		plain[before - 1] = ':';
		strcpy(plain + before, value);
	}
	size_t n = strlen(plain);
	char *text = malloc(head + base64_encoded_len(n) + 1);
	if (text) {
		memcpy(text, scheme, head);
		base64_encode(plain, n, text + head);
	}
	wipe(plain);
	return text;
}

/* -- git -- */

static bool query_has(const char *query, const char *word)
{
	size_t n = strlen(word);
	for (const char *at = query; at && (at = strstr(at, word)); at++)
		if ((at == query || at[-1] == '&') && (!at[n] || at[n] == '&'))
			return true;
	return false;
}

/* Its smart HTTP, whose servers want a user and a password where their API wants a bearer. */
static bool is_git(const struct inject_request *q)
{
	return str_ends(q->path, "/git-upload-pack") || str_ends(q->path, "/git-receive-pack") ||
	       (str_ends(q->path, "/info/refs") &&
		(query_has(q->query, "service=git-upload-pack") ||
		 query_has(q->query, "service=git-receive-pack")));
}

/* -- parameters of the query -- */

static int put_encoded(struct buf *out, const char *value)
{
	static const char plain[] = "0123456789abcdefghijklmnopqrstuvwxyz"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ-._~";
	int r = 0;
	for (; r == 0 && *value; value++)
		r = strchr(plain, *value) ? buf_append(out, value, 1)
					  : buf_printf(out, "%%%02X", (unsigned char)*value);
	return r;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Whether the n bytes are a parameter of that name, as a server may read it: percent-decoded, in
   any case. */
static bool is_parameter(const char *p, size_t n, const char *name)
{
	for (size_t i = 0; i < n && p[i] != '='; name++) {
		int c = (unsigned char)p[i++];
		if (c == '%' && i + 1 < n && hex_digit(p[i]) >= 0 && hex_digit(p[i + 1]) >= 0) {
			c = hex_digit(p[i]) << 4 | hex_digit(p[i + 1]);
			i += 2;
		}
		if (!*name || (c | 0x20) != (*name | 0x20))
			return false;
		if (i == n || p[i] == '=')
			return !name[1];
	}
	return false;
}

/* The parameters that have another name. */
static int keep_others(struct buf *out, const char *query, const char *name)
{
	int r = 0;
	while (r == 0 && query && *query) {
		size_t n = strcspn(query, PARAMETER_ENDS);
		if (n && !is_parameter(query, n, name))
			r = buf_printf(out, "%s%.*s", out->len ? "&" : "", (int)n, query);
		query += n + (query[n] != 0);
	}
	return r;
}

/* The text of a buffer that held a value, which is wiped. */
static char *take_text(struct buf *b)
{
	char *text = b->len ? strndup((const char *)b->data, b->len) : NULL;
	if (b->data)
		explicit_bzero(b->data, b->len);
	buf_done(b);
	return text;
}

static int inject_query(const struct secret *s, const struct inject_request *q,
			struct injection *ret, struct err *e)
{
	const char *name = secret_recipe(s, "name");
	struct buf out;
	buf_init(&out, QUERY_MAX * 3);
	int r = keep_others(&out, q->query, name);
	if (r == 0)
		r = buf_printf(&out, "%s%s=", out.len ? "&" : "", name);
	if (r == 0)
		r = put_encoded(&out, secret_value(s, SECRET_VALUE, NULL));
	ret->query = take_text(&out);
	ret->used = true;
	return r < 0 || !ret->query ? err_set(e, ENOMEM, "no memory") : 0;
}

/* -- placeholders -- */

/* text with each placeholder of s replaced by the value: a heap string; NULL where none is in it or
   there is no memory (*ret says which: -ENOENT, -ENOMEM). */
static char *replaced(const struct secret *s, const char *text, bool encode, int *ret)
{
	const char *placeholder, *at = NULL;
	size_t i = 0;
	while ((placeholder = secret_placeholder_at(s, i++)) && !(at = strstr(text, placeholder)))
		;
	*ret = -ENOENT;
	if (!at)
		return NULL;
	struct buf out;
	buf_init(&out, QUERY_MAX * 3);
	int r = 0;
	for (; r == 0 && at; at = strstr(text, placeholder)) {
		r = buf_append(&out, text, (size_t)(at - text));
		const char *value = secret_value(s, SECRET_VALUE, NULL);
		if (r == 0)
			r = encode ? put_encoded(&out, value)
				   : buf_append(&out, value, strlen(value));
		text = at + strlen(placeholder);
	}
	if (r == 0)
		r = buf_append(&out, text, strlen(text));
	char *whole = take_text(&out);
	*ret = r < 0 || !whole ? -ENOMEM : 0;
	if (r < 0)
		wipe(whole);
	return r < 0 ? NULL : whole;
}

static int inject_field_slot(const struct secret *s, const struct inject_request *q,
			     struct injection *ret, struct err *e)
{
	const char *slot = secret_recipe(s, "header");
	for (size_t i = 0; i < q->field_count && ret->count < INJECTION_FIELDS_MAX; i++) {
		if (!str_same_field(q->fields[i].name, slot))
			continue;
		int r;
		char *value = replaced(s, q->fields[i].value, false, &r);
		if (r == -ENOENT) /* it is the guest's own: it goes on as it is */
			continue;
		r = add_field(ret, slot, value, e);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Whether some servers read what begins here as a part of the parameter before it. */
static bool is_behind_semicolon(const char *query, const char *at)
{
	return at > query && at[-1] == ';';
}

static int inject_query_slot(const struct secret *s, const struct inject_request *q,
			     struct injection *ret, struct err *e)
{
	const char *name = secret_recipe(s, "query");
	struct buf out;
	buf_init(&out, QUERY_MAX * 3);
	int r = 0;
	for (const char *at = q->query; r == 0 && at && *at;) {
		size_t n = strcspn(at, PARAMETER_ENDS);
		auto_free char *parameter = strndup(at, n);
		int found = -ENOENT;
		bool slot = is_parameter(at, n, name) && !is_behind_semicolon(q->query, at);
		char *with = parameter && slot ? replaced(s, parameter, true, &found) : NULL;
		r = !parameter || found == -ENOMEM
			    ? -ENOMEM
			    : buf_printf(&out, "%s%.1s", with ? with : parameter, at + n);
		ret->used = ret->used || with;
		wipe(with);
		at += n + (at[n] != 0);
	}
	ret->query = take_text(&out);
	if (r == 0 && !ret->used) {
		wipe(ret->query);
		ret->query = NULL;
	}
	return r < 0 || (ret->used && !ret->query) ? err_set(e, ENOMEM, "no memory") : 0;
}

/* -- the kinds -- */

static int inject_bearer(const struct secret *s, const struct inject_request *q,
			 struct injection *ret, struct err *e)
{
	const char *user = secret_recipe(s, "gitUser");
	const char *value = secret_value(s, SECRET_VALUE, NULL);
	return add_field(ret, "Authorization",
			 is_git(q) ? basic(user ? user : GIT_USER, value)
				   : around("Bearer ", strlen("Bearer "), value, ""),
			 e);
}

static int inject_header(const struct secret *s, struct injection *ret, struct err *e)
{
	const char *template = secret_recipe(s, "template");
	if (!template)
		template = "{}";
	const char *slot = strstr(template, "{}");
	return add_field(ret, secret_recipe(s, "name"),
			 around(template, (size_t)(slot - template),
				secret_value(s, SECRET_VALUE, NULL), slot + 2),
			 e);
}

static int inject_kind(const struct secret *s, const struct inject_request *q,
		       struct injection *ret, struct err *e)
{
	switch (secret_kind(s)) {
	case SECRET_BEARER:
		return inject_bearer(s, q, ret, e);
	case SECRET_BASIC:
		return add_field(
			ret, "Authorization",
			basic(secret_recipe(s, "user"), secret_value(s, SECRET_VALUE, NULL)), e);
	case SECRET_HEADER:
		return inject_header(s, ret, e);
	case SECRET_QUERY:
		return inject_query(s, q, ret, e);
	case SECRET_PLACEHOLDER:
		return secret_recipe(s, "header") ? inject_field_slot(s, q, ret, e)
						  : inject_query_slot(s, q, ret, e);
	case SECRET_SIGV4:
		return inject_sigv4(s, q, ret, e);
	case SECRET_CERTIFICATE: /* the connection has it */
		ret->used = true;
		return 0;
	}
	return err_set(e, EINVAL, "no such kind of credential");
}

int inject(const struct secret *s, const struct inject_request *q, struct injection *ret,
	   struct err *e)
{
	*ret = (struct injection){0};
	int r = inject_kind(s, q, ret, e);
	if (r < 0)
		injection_done(ret);
	return r;
}

/* -- what is sent -- */

static int tell(char *text, size_t skip, int (*each)(void *user, const char *text, size_t len),
		void *user)
{
	int r = text ? each(user, text + skip, strlen(text + skip)) : -ENOMEM;
	wipe(text);
	return r;
}

static char *encoded(const char *value)
{
	struct buf out;
	buf_init(&out, QUERY_MAX * 3);
	if (put_encoded(&out, value) < 0) {
		wipe(take_text(&out));
		return NULL;
	}
	return take_text(&out);
}

int inject_spellings(const struct secret *s, const char *value,
		     int (*each)(void *user, const char *text, size_t len), void *user)
{
	static const size_t scheme = sizeof("Basic ") - 1;
	const char *name = secret_recipe(s, "user"), *git = secret_recipe(s, "gitUser");
	const char *password = strchr(value, ':');
	int r = each(user, value, strlen(value));
	switch (secret_kind(s)) {
	case SECRET_BASIC:
		if (r == 0)
			r = tell(basic(name, value), scheme, each, user);
		if (r == 0 && !name && password)
			r = each(user, password + 1, strlen(password + 1));
		break;
	case SECRET_BEARER:
		if (r == 0)
			r = tell(basic(git ? git : GIT_USER, value), scheme, each, user);
		break;
	case SECRET_QUERY:
	case SECRET_PLACEHOLDER:
		if (r == 0)
			r = tell(encoded(value), 0, each, user);
		break;
	case SECRET_HEADER:
	case SECRET_SIGV4:
	case SECRET_CERTIFICATE:
		break;
	}
	return r;
}

/* -- what the guest sent -- */

bool inject_strips(const struct secret *s, const char *field)
{
	const char *filled = secret_kind(s) == SECRET_HEADER ? secret_recipe(s, "name") : NULL;
	/* What the guest wrote around its placeholder goes on with the value in its place. */
	if (inject_slot_declared(s, field))
		return false;
	return secret_is_credential_field(field) || (filled && str_same_field(field, filled));
}

bool inject_slot_declared(const struct secret *s, const char *field)
{
	const char *slot = secret_kind(s) == SECRET_PLACEHOLDER ? secret_recipe(s, "header") : NULL;
	return slot && str_same_field(field, slot);
}

bool inject_slot_field(const struct secret *s, const char *field)
{
	return inject_slot_declared(s, field) || inject_strips(s, field);
}

bool inject_slot_query(const struct secret *s, const char *name)
{
	const char *slot = secret_kind(s) == SECRET_QUERY         ? secret_recipe(s, "name")
			   : secret_kind(s) == SECRET_SIGV4       ? "X-Amz-Credential"
			   : secret_kind(s) == SECRET_PLACEHOLDER ? secret_recipe(s, "query")
								  : NULL;
	return slot && name && is_parameter(name, strlen(name), slot);
}
