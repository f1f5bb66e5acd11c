/* SPDX-License-Identifier: Apache-2.0 */
/* Values of credentials. Whatever held one is wiped before it is freed. */
#include "cli/value.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "cli/ask.h"

#define FIELDS_MAX 3
#define TYPED_MAX  4096 /* bytes of a line at a terminal, which takes no more */

struct field {
	const char *member; /* as the API calls it */
	const char *json;   /* as others do, in JSON */
	const char *
		variable; /* in lower case: in a file of lines; in upper case: in our environment */
	const char *prompt; /* NULL: it can't be typed */
	bool optional;
};

static const struct field fields[][FIELDS_MAX] = {
	[VALUE_TEXT] = {{"value", NULL, NULL, "value", false}},
	[VALUE_AWS] = {{"accessKeyId", "AccessKeyId", "aws_access_key_id", "access key id", false},
		       {"secretAccessKey", "SecretAccessKey", "aws_secret_access_key",
			"secret access key", false},
		       {"sessionToken", "SessionToken", "aws_session_token",
			"session token (empty: none)", true}},
	[VALUE_CERTIFICATE] = {{"certificate", NULL, NULL, NULL, false},
			       {"key", NULL, NULL, NULL, false}},
	[VALUE_CLIENT_SECRET] = {{"clientSecret", "client_secret", NULL, "client secret", false}},
	[VALUE_REFRESH_TOKEN] = {{"refreshToken", "refresh_token", NULL, "refresh token", false},
				 {"clientSecret", "client_secret", NULL,
				  "client secret (empty: none)", true}},
	[VALUE_KEY] = {{"key", "private_key", NULL, NULL, false}},
};

static const char *const wanted[] = {
	[VALUE_TEXT] = "one line",
	[VALUE_AWS] = "JSON with accessKeyId, secretAccessKey and, if there is one, sessionToken, "
		      "or a credentials file of AWS's with one profile",
	[VALUE_CERTIFICATE] = "PEM: the certificate, those between it and its authority, and the "
			      "private key, in one file",
	[VALUE_CLIENT_SECRET] = "the client secret, or JSON with clientSecret",
	[VALUE_REFRESH_TOKEN] = "the refresh token, or JSON with refreshToken and, if there is "
				"one, clientSecret",
	[VALUE_KEY] = "a private key in PEM form, or JSON with private_key",
};

struct secret_text {
	char *data;
	size_t len, cap;
};

static int secret_text_init(struct secret_text *t, size_t cap, struct err *e)
{
	*t = (struct secret_text){.data = malloc(cap), .cap = cap};
	return t->data ? 0 : err_set(e, ENOMEM, "out of memory");
}

static void secret_text_done(struct secret_text *t)
{
	if (t->data)
		explicit_bzero(t->data, t->cap);
	free(t->data);
	*t = (struct secret_text){0};
}
#define auto_secret __attribute__((cleanup(secret_text_done)))

enum value_form value_form_of(const char *kind)
{
	if (str_eq(kind, "sigv4"))
		return VALUE_AWS;
	return str_eq(kind, "certificate") ? VALUE_CERTIFICATE : VALUE_TEXT;
}

static int wrong_form(const char *name, enum value_form form, struct err *e)
{
	return err_set(e, EINVAL, "the value of %s is to be %s", name, wanted[form]);
}

static bool has_control(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
			return true;
	return false;
}

/* Nothing for an empty value: whether there has to be one is checked at the end. */
static int put(json_t *values, const char *name, const struct field *f, const char *s, size_t n,
	       struct err *e)
{
	bool pem = str_eq(f->member, "key") || str_eq(f->member, "certificate");
	if (!str_is_utf8(s, n))
		return err_set(e, EINVAL, "the value of %s is not valid UTF-8", name);
	if (memchr(s, 0, n) || (!pem && has_control(s, n)))
		return err_set(e, EINVAL,
			       "the value of %s holds a line break or another control character: "
			       "no request could carry it",
			       name);
	if (!n)
		return 0;
	return json_object_set_new(values, f->member, json_stringn(s, n)) < 0
		       ? err_set(e, ENOMEM, "out of memory")
		       : 0;
}

static int check_complete(const json_t *values, const char *name, enum value_form form,
			  struct err *e)
{
	if (form == VALUE_TEXT && !json_object_size(values))
		return err_set(e, EINVAL, "the value of %s is empty", name);
	for (size_t i = 0; i < FIELDS_MAX && fields[form][i].member; i++)
		if (!fields[form][i].optional && !json_object_get(values, fields[form][i].member))
			return wrong_form(name, form, e);
	return 0;
}

static int from_json(json_t *values, const char *name, enum value_form form, const json_t *j,
		     struct err *e)
{
	int r = 0;
	for (size_t i = 0; r == 0 && i < FIELDS_MAX && fields[form][i].member; i++) {
		const struct field *f = &fields[form][i];
		json_t *v = json_object_get(j, f->member);
		if (!v && f->json)
			v = json_object_get(j, f->json);
		if (json_is_string(v))
			r = put(values, name, f, json_string_value(v), json_string_length(v), e);
		else if (v && !json_is_null(v))
			r = wrong_form(name, form, e);
	}
	return r;
}

static const char *trimmed(const char *s, size_t *n)
{
	while (*n && strchr(" \t\r", *s) && *s) {
		s++;
		(*n)--;
	}
	while (*n && strchr(" \t\r", s[*n - 1]) && s[*n - 1])
		(*n)--;
	return s;
}

/* "[profile]" and "name = value" lines. */
static int from_lines(json_t *values, const char *name, enum value_form form, const char *text,
		      size_t len, struct err *e)
{
	unsigned profiles = 0;
	int r = 0;
	for (const char *end = text + len, *line = text; r == 0 && line < end;) {
		const char *eol = memchr(line, '\n', (size_t)(end - line));
		eol = eol ? eol : end;
		const char *eq = memchr(line, '=', (size_t)(eol - line));
		if (*line == '[' && ++profiles > 1)
			return err_set(e, EINVAL,
				       "the file for %s has several profiles: give one alone",
				       name);
		for (size_t i = 0; eq && r == 0 && i < FIELDS_MAX && fields[form][i].member; i++) {
			const struct field *f = &fields[form][i];
			size_t n = (size_t)(eq - line), m = (size_t)(eol - eq - 1);
			const char *key = trimmed(line, &n), *value = eq + 1;
			if (n != strlen(f->variable) || memcmp(key, f->variable, n) != 0)
				continue;
			value = trimmed(value, &m);
			r = put(values, name, f, value, m, e);
		}
		line = eol < end ? eol + 1 : end;
	}
	return r;
}

#define PEM_BEGIN "-----BEGIN "
#define PEM_END   "-----END "

/* The end of the block at p, behind its last line; NULL when it has none. */
static const char *pem_block_end(const char *p, const char *end)
{
	const char *stop = memmem(p, (size_t)(end - p), PEM_END, strlen(PEM_END));
	if (!stop)
		return NULL;
	const char *eol = memchr(stop, '\n', (size_t)(end - stop));
	return eol ? eol + 1 : end;
}

static bool pem_is_key(const char *p, const char *end)
{
	const char *eol = memchr(p, '\n', (size_t)(end - p));
	return eol && memmem(p, (size_t)(eol - p), "PRIVATE KEY-----", 16);
}

/* Blocks of certificates to one member, that of a private key to the other; what stands between
 * blocks is no part of either. */
static int from_pem(json_t *values, const char *name, enum value_form form, const char *text,
		    size_t len, struct err *e)
{
	auto_secret struct secret_text certificates = {0};
	const char *end = text + len, *p = text, *stop;
	int r = secret_text_init(&certificates, len + 1, e);
	while (r == 0 && (p = memmem(p, (size_t)(end - p), PEM_BEGIN, strlen(PEM_BEGIN)))) {
		stop = pem_block_end(p, end);
		if (!stop)
			return wrong_form(name, form, e);
		size_t n = (size_t)(stop - p);
		if (!pem_is_key(p, stop)) {
			memcpy(certificates.data + certificates.len, p, n);
			certificates.len += n;
		} else if (json_object_get(values, "key")) {
			r = err_set(e, EINVAL, "the file for %s holds more than one private key",
				    name);
		} else {
			r = put(values, name, &fields[VALUE_KEY][0], p, n, e);
		}
		p = stop;
	}
	if (r == 0 && form == VALUE_CERTIFICATE)
		r = put(values, name, &fields[form][0], certificates.data, certificates.len, e);
	return r;
}

static size_t without_newline(const char *text, size_t len)
{
	if (len && text[len - 1] == '\n')
		len--;
	return len && text[len - 1] == '\r' ? len - 1 : len;
}

static bool is_json(const char *text, size_t len)
{
	size_t n = len;
	while (n && strchr(" \t\r\n", *text) && *text) {
		text++;
		n--;
	}
	return n && *text == '{';
}

int value_parse(const char *name, enum value_form form, const char *text, size_t len, json_t **ret,
		struct err *e)
{
	auto_json json_t *values = json_object();
	int r;
	if (!values)
		return err_set(e, ENOMEM, "out of memory");
	if (form != VALUE_TEXT && is_json(text, len)) {
		auto_json json_t *j = doc_parse_json(text, len, NULL); /* its error might quote */
		r = j ? from_json(values, name, form, j, e) : wrong_form(name, form, e);
	} else if (form == VALUE_AWS) {
		r = from_lines(values, name, form, text, len, e);
	} else if (form == VALUE_CERTIFICATE || form == VALUE_KEY) {
		r = from_pem(values, name, form, text, len, e);
	} else {
		r = put(values, name, &fields[form][0], text, without_newline(text, len), e);
	}
	if (r == 0)
		r = check_complete(values, name, form, e);
	if (r < 0)
		return r;
	*ret = take_ptr(values);
	return 0;
}

static int unset(const char *name, const char *variable, struct err *e)
{
	return err_set(e, ENOENT, "the variable %s is %s: export the value of %s in it", variable,
		       getenv(variable) ? "empty" : "not set", name);
}

/* What AWS's own tools read. */
static int from_aws_variables(const char *name, json_t **ret, struct err *e)
{
	auto_json json_t *values = json_object();
	int r = values ? 0 : err_set(e, ENOMEM, "out of memory");
	for (size_t i = 0; r == 0 && i < FIELDS_MAX; i++) {
		const struct field *f = &fields[VALUE_AWS][i];
		char variable[32];
		size_t n = strlen(f->variable);
		for (size_t k = 0; k <= n; k++)
			variable[k] = f->variable[k] >= 'a' && f->variable[k] <= 'z'
					      ? (char)(f->variable[k] - 'a' + 'A')
					      : f->variable[k];
		const char *value = getenv(variable);
		if (value && *value)
			r = put(values, name, f, value, strlen(value), e);
		else if (!f->optional)
			r = unset(name, variable, e);
	}
	if (r < 0)
		return r;
	*ret = take_ptr(values);
	return 0;
}

int value_from_env(const char *name, enum value_form form, const char *variable, json_t **ret,
		   struct err *e)
{
	if (form == VALUE_AWS && !variable)
		return from_aws_variables(name, ret, e);
	variable = variable ? variable : name;
	const char *value = getenv(variable);
	if (!value || !*value)
		return unset(name, variable, e);
	return value_parse(name, form, value, strlen(value), ret, e);
}

static int type_values(const char *name, enum value_form form, json_t **ret, struct err *e)
{
	auto_json json_t *values = json_object();
	char typed[TYPED_MAX];
	if (!fields[form][0].prompt)
		return err_set(e, EINVAL, "the value of %s can't be typed: name a file with %s",
			       name, wanted[form]);
	int r = values ? 0 : err_set(e, ENOMEM, "out of memory");
	for (size_t i = 0; r == 0 && i < FIELDS_MAX && fields[form][i].member; i++) {
		auto_free char *prompt = str_printf("%s of %s", fields[form][i].prompt, name);
		r = prompt ? ask_hidden(prompt, typed, sizeof(typed), e)
			   : err_set(e, ENOMEM, "out of memory");
		if (r == 0)
			r = put(values, name, &fields[form][i], typed, strlen(typed), e);
		explicit_bzero(typed, sizeof(typed));
	}
	if (r == 0)
		r = check_complete(values, name, form, e);
	if (r < 0)
		return r;
	*ret = take_ptr(values);
	return 0;
}

static int read_text(const char *name, const char *path, struct secret_text *t, struct err *e)
{
	auto_fd int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (path && fd < 0)
		return err_sys(e, errno,
			       "cannot read the file for %s's value (the value itself is never an "
			       "argument)",
			       name);
	int r = secret_text_init(t, VALUE_TEXT_MAX + 1, e);
	if (r < 0)
		return r;
	ssize_t n = fd_read_all(path ? fd : STDIN_FILENO, t->data, VALUE_TEXT_MAX + 1);
	if (n < 0)
		return err_sys(e, (int)-n, "cannot read the value of %s", name);
	if (n > VALUE_TEXT_MAX)
		return err_set(e, EFBIG, "the value of %s is longer than %d bytes", name,
			       VALUE_TEXT_MAX);
	t->len = (size_t)n;
	return 0;
}

/* What a key file of Google's says besides the key. */
static int complete_oauth2(json_t *oauth2, enum value_form form, const struct secret_text *t,
			   struct err *e)
{
	static const char *const of_keys[][2] = {
		{"issuer", "client_email"}, {"keyID", "private_key_id"}, {"tokenURL", "token_uri"}};
	static const char *const of_tokens[][2] = {{"clientID", "client_id"}};
	const char *const(*pairs)[2] = form == VALUE_KEY ? of_keys : of_tokens;
	size_t count = form == VALUE_KEY ? 3 : 1;
	auto_json json_t *j =
		is_json(t->data, t->len) ? doc_parse_json(t->data, t->len, NULL) : NULL;
	for (size_t i = 0; i < count; i++) {
		json_t *v = json_object_get(j, pairs[i][1]);
		if (json_is_string(v) && !json_object_get(oauth2, pairs[i][0]) &&
		    json_object_set(oauth2, pairs[i][0], v) < 0)
			return err_set(e, ENOMEM, "out of memory");
	}
	return 0;
}

int value_from_file(const char *name, enum value_form form, const char *path, json_t *oauth2,
		    json_t **ret, struct err *e)
{
	auto_secret struct secret_text text = {0};
	path = str_eq(path, "-") ? NULL : path;
	if (!path && isatty(STDIN_FILENO))
		return type_values(name, form, ret, e);
	int r = read_text(name, path, &text, e);
	if (r == 0)
		r = value_parse(name, form, text.data, text.len, ret, e);
	if (r == 0 && oauth2)
		r = complete_oauth2(oauth2, form, &text, e);
	return r;
}

json_t *value_of_entry(const json_t *values)
{
	json_t *one = json_object_get(values, "value");
	return json_incref(one ? one : (json_t *)values);
}
