/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/oauth.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/doc.h"
#include "base/fd.h"
#include "base/str.h"
#include "daemon/jwt.h"
#include "daemon/token_call.h"

#define GITHUB_API    "https://api.github.com"
#define TEXT_MAX      1024 /* bytes of a setting */
#define CA_MAX        (64 * 1024)
#define VALUE_MAX     (64 * 1024)
#define CLAIMS_BACK_S 60  /* issued so long ago: clocks differ */
#define CLAIMS_LIFE_S 300 /* from now; GitHub takes 600 from iat at most, Google 3600 */
#define SKEW_TOLD_S   30  /* clocks that differ less are not worth a word */
#define JTI_SIZE      25

static int no_memory(struct err *e)
{
	return err_set(e, ENOMEM, "no memory");
}

static const char *setting(const json_t *settings, const char *name)
{
	return json_string_value(json_object_get(settings, name));
}

/* -- what is set -- */

struct grant {
	const char *name;
	const char *must[4], *may[7]; /* settings besides grant and ca */
	const char *given, *also;     /* values: what it needs, what it may have */
	int (*fetch)(const json_t *settings, const json_t *values, int stop_fd,
		     struct source_value *ret, struct err *e);
};

static int fetch_client(const json_t *settings, const json_t *values, int stop_fd,
			struct source_value *ret, struct err *e);
static int fetch_refresh(const json_t *settings, const json_t *values, int stop_fd,
			 struct source_value *ret, struct err *e);
static int fetch_bearer(const json_t *settings, const json_t *values, int stop_fd,
			struct source_value *ret, struct err *e);
static int fetch_github(const json_t *settings, const json_t *values, int stop_fd,
			struct source_value *ret, struct err *e);

static const struct grant grants[] = {
	{"client_credentials",
	 {"tokenURL", "clientID"},
	 {"scope", "audience", "clientAuth"},
	 "clientSecret",
	 NULL,
	 fetch_client},
	{"refresh_token",
	 {"tokenURL", "clientID"},
	 {"scope", "clientAuth"},
	 "refreshToken",
	 "clientSecret",
	 fetch_refresh},
	{"jwt_bearer",
	 {"tokenURL", "issuer"},
	 {"subject", "audience", "scope", "keyID"},
	 "key",
	 NULL,
	 fetch_bearer},
	{"github_app", {"clientID", "installation"}, {"apiURL"}, "key", NULL, fetch_github},
};

static const struct grant *find_grant(const json_t *settings)
{
	for (size_t i = 0; i < sizeof(grants) / sizeof(grants[0]); i++)
		if (str_eq(grants[i].name, setting(settings, "grant")))
			return &grants[i];
	return NULL;
}

/* Ids are numbers in the eyes of YAML, and texts in ours. */
static int numbers_to_text(json_t *settings, struct err *e)
{
	static const char *const ids[] = {"clientID", "installation", "issuer", "keyID"};
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		const json_t *id = json_object_get(settings, ids[i]);
		if (!json_is_integer(id))
			continue;
		json_t *text = json_sprintf("%" JSON_INTEGER_FORMAT, json_integer_value(id));
		if (json_object_set_new(settings, ids[i], text) < 0)
			return no_memory(e);
	}
	return 0;
}

static bool is_plain(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			return false;
	return true;
}

static int check_setting(const json_t *settings, const char *name, bool must, struct err *e)
{
	const char *text = NULL;
	int r = must ? doc_want_string(settings, name, &text, e)
		     : doc_opt_string(settings, name, &text, e);
	if (r < 0 || !text)
		return r;
	if (!*text || strlen(text) > (str_ends(name, "URL") ? TOKEN_URL_MAX : TEXT_MAX) ||
	    !is_plain(text))
		return err_set(e, EINVAL, "%s must be 1 to %d characters, none of control", name,
			       TEXT_MAX);
	if (str_ends(name, "URL") && token_url_check(text, e) < 0)
		return err_prefix(e, "%s", name);
	if (str_eq(name, "installation") && text[strspn(text, "0123456789")])
		return err_set(e, EINVAL, "installation is a number");
	if (str_eq(name, "clientAuth") && !str_eq(text, "basic") && !str_eq(text, "post"))
		return err_set(e, EINVAL, "clientAuth is basic or post");
	return 0;
}

static int check_settings(const json_t *settings, const struct grant *g, struct err *e)
{
	const char *known[14] = {"grant", "ca"}, *ca = NULL;
	size_t n = 2;
	for (size_t i = 0; i < 4 && g->must[i]; i++)
		known[n++] = g->must[i];
	size_t musts = n;
	for (size_t i = 0; i < 7 && g->may[i]; i++)
		known[n++] = g->may[i];
	int r = doc_only(settings, known, e);
	for (size_t i = 2; r == 0 && i < n; i++)
		r = check_setting(settings, known[i], i < musts, e);
	if (r == 0)
		r = doc_opt_string(settings, "ca", &ca, e);
	if (r == 0 && ca && (strlen(ca) > CA_MAX || !strstr(ca, "-----BEGIN CERTIFICATE-----")))
		r = err_set(e, EINVAL, "ca must be a certificate in PEM form");
	return r;
}

int oauth_check(json_t *settings, struct err *e)
{
	const char *name = NULL;
	int r = doc_want_string(settings, "grant", &name, e);
	const struct grant *g = r == 0 ? find_grant(settings) : NULL;
	if (r == 0 && !g)
		r = err_set(e, EINVAL,
			    "grant must be client_credentials, refresh_token, jwt_bearer or "
			    "github_app");
	if (r == 0)
		r = numbers_to_text(settings, e);
	if (r == 0)
		r = check_settings(settings, g, e);
	return r < 0 ? err_prefix(e, "oauth2") : 0;
}

bool oauth_rotates(const json_t *settings)
{
	return str_eq(setting(settings, "grant"), "refresh_token");
}

/* -- values -- */

static int check_value(const char *name, const json_t *value, struct err *e)
{
	const char *text = json_string_value(value);
	if (!text || !*text || strlen(text) != json_string_length(value) ||
	    strlen(text) > VALUE_MAX)
		return err_set(e, EINVAL, "%s must be text of 1 to %d bytes", name, VALUE_MAX);
	if (str_eq(name, "key"))
		return jwt_check_key(text, e) < 0 ? err_prefix(e, "key") : 0;
	return is_plain(text) ? 0
			      : err_set(e, EINVAL,
					"%s has a line break or another control character in it "
					"(a file's last newline?)",
					name);
}

int oauth_check_values(const json_t *settings, const json_t *values, struct err *e)
{
	const struct grant *g = find_grant(settings);
	const char *known[] = {g->given, g->also, NULL};
	int r = doc_only(values, known, e);
	for (size_t i = 0; r == 0 && known[i]; i++) {
		const json_t *value = json_object_get(values, known[i]);
		if (value || i == 0)
			r = value ? check_value(known[i], value, e)
				  : err_set(e, EINVAL, "%s is missing", known[i]);
	}
	return r;
}

/* -- requests -- */

/* Pairs of a form, text NULL where there is none. */
struct pair {
	const char *name, *text;
};

/* application/x-www-form-urlencoded; nothing of out is written when it is NULL. The length. */
static size_t form_encode(const char *s, char *out)
{
	static const char hex[] = "0123456789ABCDEF";
	size_t n = 0;
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;
		bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
			     (c >= 'a' && c <= 'z') || strchr("-._~", c);
		if (out && plain) {
			out[n] = *s;
		} else if (out) {
			out[n] = '%';
			out[n + 1] = hex[c >> 4];
			out[n + 2] = hex[c & 15];
		}
		n += plain ? 1 : 3;
	}
	return n;
}

static void wipe_free(char *s)
{
	if (s)
		explicit_bzero(s, strlen(s));
	free(s);
}

static void cleanup_wipe(char **s)
{
	wipe_free(*s);
}
#define auto_wipe __attribute__((cleanup(cleanup_wipe)))

static char *encoded(const char *s)
{
	size_t n = form_encode(s, NULL);
	char *out = malloc(n + 1);
	if (!out)
		return NULL;
	form_encode(s, out);
	out[n] = '\0';
	return out;
}

static char *form_of(const struct pair *pairs, size_t count)
{
	size_t n = 0;
	for (size_t i = 0; i < count; i++)
		if (pairs[i].text)
			n += strlen(pairs[i].name) + 1 + form_encode(pairs[i].text, NULL) + 1;
	char *out = malloc(n + 1), *p = out;
	for (size_t i = 0; out && i < count; i++) {
		if (!pairs[i].text)
			continue;
		if (p > out)
			*p++ = '&';
		p = stpcpy(p, pairs[i].name);
		*p++ = '=';
		p += form_encode(pairs[i].text, p);
	}
	if (out)
		*p = '\0';
	return out;
}

/* -- answers -- */

/* ": the server's clock is 300 s ahead of ours" */
static void tell_skew(const struct token_answer *a, struct err *e)
{
	int64_t s = a->skew_s < 0 ? -a->skew_s : a->skew_s;
	struct err was = *e;
	if (s >= SKEW_TOLD_S)
		err_set(e, was.code, "%s; this host's clock is %jd s %s the server's", was.text,
			(intmax_t)s, a->skew_s < 0 ? "ahead of" : "behind");
}

/* The error codes of RFC 6749, section 5.2, and no other word of a server. */
static const char *error_code(const json_t *j)
{
	static const char *const known[] = {
		"invalid_request",     "invalid_client",         "invalid_grant",
		"unauthorized_client", "unsupported_grant_type", "invalid_scope",
		"invalid_target",      "access_denied",          "temporarily_unavailable"};
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (str_eq(setting(j, "error"), known[i]))
			return known[i];
	return NULL;
}

static int refused(const json_t *settings, const struct token_answer *a, const json_t *j,
		   const char *url, struct err *e)
{
	const char *code = error_code(j);
	bool refresh = oauth_rotates(settings);
	if (refresh && str_eq(code, "invalid_grant"))
		err_set(e, EACCES,
			"%s refuses the refresh token (invalid_grant): it has expired, was revoked, "
			"or was used already; set another with 'space secret set'",
			url);
	else if (a->status >= 300 && a->status < 400)
		err_set(e, EIO, "%s answers %u: redirects are not followed, set the URL itself",
			url, a->status);
	else if (code)
		err_set(e, EIO, "%s refuses: %s (status %u)", url, code, a->status);
	else if (refresh && a->status == 400) /* some servers give no code */
		err_set(e, EIO,
			"%s answers with status 400: the refresh token may have expired, been "
			"revoked or been used already; 'space secret set' sets another",
			url);
	else
		err_set(e, EIO, "%s answers with status %u", url, a->status);
	tell_skew(a, e);
	return -e->code;
}

static int odd(const struct token_answer *a, const char *url, const char *what, struct err *e)
{
	err_set(e, EIO, "%s: %s", url, what);
	tell_skew(a, e);
	return -EIO;
}

/* The answer of RFC 6749, section 5.1. */
static int take_token(const json_t *j, const struct token_answer *a, const char *url,
		      uint64_t asked_ms, struct source_value *ret, struct err *e)
{
	json_t *token = json_object_get(j, "access_token");
	const json_t *type = json_object_get(j, "token_type");
	const json_t *life = json_object_get(j, "expires_in");
	if (!json_is_string(token) || !json_string_length(token))
		return odd(a, url, "its answer has no access_token", e);
	if (type && (!json_is_string(type) || strcasecmp(json_string_value(type), "bearer") != 0))
		return odd(a, url, "its token_type is not Bearer", e);
	if (life && !json_is_null(life)) {
		if (source_life(life, asked_ms, &ret->expires_ms) < 0)
			return odd(a, url, "its expires_in is no time", e);
		if (source_expired(ret->expires_ms, clock_wall_ms(), e) < 0)
			return err_prefix(e, "%s", url);
	}
	ret->value = json_incref(token);
	return 0;
}

/* One POST whose answer must be an object of that status. */
static int ask(const json_t *settings, const struct token_call *call, unsigned status,
	       struct token_answer *ret, json_t **ret_object, struct err *e)
{
	struct token_answer a;
	int r = token_call(call, &a, e);
	if (r < 0)
		return r;
	json_t *j = doc_parse_json(a.body, a.len, NULL);
	if (a.status != status)
		r = refused(settings, &a, j, call->url, e);
	else if (!json_is_object(j))
		r = odd(&a, call->url, "its answer is no JSON object", e);
	if (r < 0) {
		json_decref(j);
		token_answer_done(&a);
		return r;
	}
	*ret_object = j;
	*ret = a;
	return 0;
}

static int ask_for_token(const json_t *settings, const struct token_call *call,
			 struct source_value *ret, json_t **ret_object, struct err *e)
{
	struct token_answer a;
	json_t *j = NULL;
	uint64_t asked_ms = clock_wall_ms();
	int r = ask(settings, call, 200, &a, &j, e);
	if (r < 0)
		return r;
	r = take_token(j, &a, call->url, asked_ms, ret, e);
	token_answer_done(&a);
	*ret_object = j;
	return r;
}

/* -- the grants -- */

/* With the client's secret in the way that is set: RFC 6749, section 2.3.1. */
static int ask_as_client(const json_t *settings, const char *secret, const struct pair *more,
			 size_t count, int stop_fd, struct source_value *ret, json_t **ret_object,
			 struct err *e)
{
	const char *id = setting(settings, "clientID");
	bool basic = secret && !str_eq(setting(settings, "clientAuth"), "post");
	struct pair pairs[8] = {
		{"grant_type", setting(settings, "grant")},
		{"scope", setting(settings, "scope")},
		{"client_id", basic ? NULL : id},
		{"client_secret", basic ? NULL : secret},
	};
	for (size_t i = 0; i < count; i++)
		pairs[4 + i] = more[i];
	auto_wipe char *form = form_of(pairs, 4 + count);
	auto_wipe char *user = encoded(id), *password = secret ? encoded(secret) : NULL;
	if (!form || !user || (secret && !password))
		return no_memory(e);
	const struct token_call call = {
		.url = setting(settings, "tokenURL"),
		.ca = setting(settings, "ca"),
		.user = basic ? user : NULL,
		.password = password,
		.form = form,
		.stop_fd = stop_fd,
	};
	return ask_for_token(settings, &call, ret, ret_object, e);
}

static int fetch_client(const json_t *settings, const json_t *values, int stop_fd,
			struct source_value *ret, struct err *e)
{
	const struct pair more[] = {{"audience", setting(settings, "audience")}};
	auto_json json_t *j = NULL;
	return ask_as_client(settings, setting(values, "clientSecret"), more, 1, stop_fd, ret, &j,
			     e);
}

static int fetch_refresh(const json_t *settings, const json_t *values, int stop_fd,
			 struct source_value *ret, struct err *e)
{
	const char *token = setting(values, "refreshToken");
	const struct pair more[] = {{"refresh_token", token}};
	auto_json json_t *j = NULL;
	int r = ask_as_client(settings, setting(values, "clientSecret"), more, 1, stop_fd, ret, &j,
			      e);
	json_t *next = json_object_get(j, "refresh_token");
	/* Also where the access token was no good: the old one may be worth nothing now. */
	if (!json_is_string(next) || !json_string_length(next) ||
	    str_eq(json_string_value(next), token))
		return r;
	ret->rotated = json_pack("{s:O}", "refreshToken", next);
	return ret->rotated ? r : no_memory(e);
}

static json_t *claims_of(const char *issuer, const char *subject, const char *audience,
			 const char *scope)
{
	char jti[JTI_SIZE];
	json_int_t now_s = (json_int_t)(clock_wall_ms() / 1000);
	random_id(jti, sizeof(jti), 'j');
	return json_pack("{s:s, s:s*, s:s*, s:s*, s:I, s:I, s:s}", "iss", issuer, "sub", subject,
			 "aud", audience, "scope", scope, "iat", now_s - CLAIMS_BACK_S, "exp",
			 now_s + CLAIMS_LIFE_S, "jti", jti);
}

static const char *first_of(const char *a, const char *b)
{
	return a ? a : b;
}

static int sign(const json_t *settings, const json_t *values, const json_t *claims, char **ret,
		struct err *e)
{
	return claims ? jwt_sign(setting(values, "key"), setting(settings, "keyID"), claims, ret, e)
		      : no_memory(e);
}

static int fetch_bearer(const json_t *settings, const json_t *values, int stop_fd,
			struct source_value *ret, struct err *e)
{
	auto_wipe char *assertion = NULL;
	auto_json json_t *j = NULL;
	auto_json json_t *claims =
		claims_of(setting(settings, "issuer"), setting(settings, "subject"),
			  first_of(setting(settings, "audience"), setting(settings, "tokenURL")),
			  setting(settings, "scope"));
	int r = sign(settings, values, claims, &assertion, e);
	if (r < 0)
		return r;
	const struct pair pairs[] = {
		{"grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"},
		{"assertion", assertion},
		{"scope", setting(settings, "scope")},
	};
	auto_wipe char *form = form_of(pairs, sizeof(pairs) / sizeof(pairs[0]));
	if (!form)
		return no_memory(e);
	const struct token_call call = {
		.url = setting(settings, "tokenURL"),
		.ca = setting(settings, "ca"),
		.form = form,
		.stop_fd = stop_fd,
	};
	return ask_for_token(settings, &call, ret, &j, e);
}

/* "token", "expires_at" by the server's clock. */
static int take_installation(const json_t *j, const struct token_answer *a, const char *url,
			     struct source_value *ret, struct err *e)
{
	json_t *token = json_object_get(j, "token");
	const char *until = setting(j, "expires_at");
	int64_t ns;
	if (!json_is_string(token) || !json_string_length(token))
		return odd(a, url, "its answer has no token", e);
	if (!until || clock_from_rfc3339(until, &ns) < 0)
		return odd(a, url, "its expires_at is no time", e);
	int64_t ms = ns / 1000000 - a->skew_s * 1000;
	ret->expires_ms = ms > 0 ? (uint64_t)ms : 1;
	if (source_expired(ret->expires_ms, clock_wall_ms(), e) < 0)
		return err_prefix(e, "%s", url);
	ret->value = json_incref(token);
	return 0;
}

static int fetch_github(const json_t *settings, const json_t *values, int stop_fd,
			struct source_value *ret, struct err *e)
{
	const char *api = first_of(setting(settings, "apiURL"), GITHUB_API);
	size_t n = strlen(api);
	auto_free char *url = str_printf("%.*s/app/installations/%s/access_tokens",
					 (int)(n && api[n - 1] == '/' ? n - 1 : n), api,
					 setting(settings, "installation"));
	auto_wipe char *token = NULL;
	auto_json json_t *claims = claims_of(setting(settings, "clientID"), NULL, NULL, NULL);
	if (!url)
		return no_memory(e);
	int r = sign(settings, values, claims, &token, e);
	if (r < 0)
		return r;
	const struct token_call call = {
		.url = url,
		.ca = setting(settings, "ca"),
		.bearer = token,
		.accept = "application/vnd.github+json",
		.stop_fd = stop_fd,
	};
	struct token_answer a;
	auto_json json_t *j = NULL;
	r = ask(settings, &call, 201, &a, &j, e);
	if (r < 0)
		return r;
	r = take_installation(j, &a, url, ret, e);
	token_answer_done(&a);
	return r;
}

int oauth_fetch(const json_t *settings, const json_t *values, int stop_fd, struct source_value *ret,
		struct err *e)
{
	const struct grant *g = find_grant(settings);
	if (!json_object_get(values, g->given))
		return err_set(e, EACCES, "no %s is stored: set it anew", g->given);
	return g->fetch(settings, values, stop_fd, ret, e);
}
