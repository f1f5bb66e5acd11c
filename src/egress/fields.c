/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields are chosen, not copied: what the Connection field lists is dropped with it, framing is
 * left to the codec, which makes it anew, and offers of other protocols (Upgrade, Alt-Svc) are
 * dropped, but for WebSocket, for the gateway could not judge them. What a server may read as one
 * of these is one: CGI does not tell Proxy_Authorization from Proxy-Authorization.
 */
#include "egress/fields.h"

#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "vault/secret.h"

static bool in_list(const char *name, const char *const *list)
{
	for (; *list; list++)
		if (str_same_field(name, *list))
			return true;
	return false;
}

/* Whether the comma-separated list has the token, in any case. */
static bool has_token(const char *list, const char *token)
{
	size_t n = strlen(token);
	while (*list) {
		list += strspn(list, " \t,");
		size_t len = strcspn(list, ",");
		size_t bare = len;
		while (bare && (list[bare - 1] == ' ' || list[bare - 1] == '\t'))
			bare--;
		if (bare == n && !strncasecmp(list, token, n))
			return true;
		list += len;
	}
	return false;
}

bool fields_have_token(const struct http_fields *in, const char *name, const char *token)
{
	for (size_t i = 0; i < in->count; i++)
		if (!strcasecmp(in->list[i].name, name) && has_token(in->list[i].value, token))
			return true;
	return false;
}

/* Fields of one connection, in requests and responses alike. listed: there is a Connection field.
 */
static bool is_hop_by_hop(const struct http_fields *in, const char *name, bool listed)
{
	static const char *const known[] = {
		"Connection", "Content-Length",    "HTTP2-Settings", "Keep-Alive", "TE",
		"Trailer",    "Transfer-Encoding", "Upgrade",        NULL};
	static const size_t proxy = sizeof("Proxy") - 1;
	bool of_proxy =
		!strncasecmp(name, "Proxy", proxy) && (name[proxy] == '-' || name[proxy] == '_');
	return in_list(name, known) || of_proxy ||
	       (listed && fields_have_token(in, "Connection", name));
}

static void add(struct fields *f, const char *name, const char *value)
{
	if (f->list.count < FIELDS_ROOM)
		f->room[f->list.count++] = (struct http_field){.name = name, .value = value};
}

/* What servers and frameworks read instead of the method, the path or the host that was judged. */
static bool is_override(const char *name)
{
	static const char *const known[] = {"X-HTTP-Method-Override",
					    "X-HTTP-Method",
					    "X-Method-Override",
					    "HTTP-Method-Override",
					    "X-Forwarded-Method",
					    "X-Original-Method",
					    "X-Original-URL",
					    "X-Original-URI",
					    "X-Original-Path",
					    "X-Rewrite-URL",
					    "X-Rewrite-URI",
					    "X-Override-URL",
					    "X-Forwarded-URI",
					    "X-Forwarded-URL",
					    "X-Forwarded-Path",
					    "X-Forwarded-Prefix",
					    "X-Original-Host",
					    "X-Forwarded-Host",
					    "X-Host",
					    "X-HTTP-Host-Override",
					    "X-Forwarded-Server",
					    "Forwarded",
					    NULL};
	return in_list(name, known);
}

/* Whether an Accept asks for text that is not searched for values: in another charset than those in
 * which ASCII is itself. Without the field, all is accepted. */
static bool asks_for_charset(const char *value)
{
	static const char *const plain[] = {"utf-8", "us-ascii", "iso-8859-1", NULL};
	for (const char *at = value; (at = strcasestr(at, "charset"));) {
		at += strlen("charset");
		at += strspn(at, " \t");
		if (*at != '=')
			return true;
		at += 1 + strspn(at + 1, " \t\"");
		size_t n = strcspn(at, " \t\";,");
		bool known = false;
		for (const char *const *p = plain; *p; p++)
			known |= strlen(*p) == n && !strncasecmp(at, *p, n);
		if (!known)
			return true;
	}
	return false;
}

/* Whether what the guest sent in this field stays behind at the host of a grant. Ranges could cut a
 * value into pieces that nobody knows; those who sign for AWS, and load large objects so, never
 * send their key. */
static bool is_dropped(const struct fields_credential *c, const char *name, const char *value)
{
	static const char *const hiding[] = {"Accept-Encoding",
					     "grpc-accept-encoding",
					     "connect-accept-encoding",
					     "Accept-Charset",
					     "A-IM",
					     "Sec-WebSocket-Extensions",
					     NULL};
	static const char *const cutting[] = {"Range", "If-Range", "Request-Range", NULL};
	for (size_t i = 0; i < c->count; i++)
		if (str_same_field(name, c->list[i].name))
			return true;
	bool signs = c->secret && secret_kind(c->secret) == SECRET_SIGV4;
	if (str_same_field(name, "Accept") && asks_for_charset(value))
		return true;
	if (in_list(name, hiding) || (!signs && in_list(name, cutting)))
		return true;
	return c->secret ? inject_strips(c->secret, name) : secret_is_credential_field(name);
}

void fields_for_upstream(struct fields *f, const struct http_fields *in, const char *host,
			 const struct fields_credential *credential, unsigned hop)
{
	static const char *const ours[] = {"Host", "Expect", NULL};
	bool listed = http_fields_get(in, "Connection");
	bool overrides = hop & FIELDS_OVERRIDES && !credential;
	f->list = (struct http_fields){.list = f->room};
	add(f, "Host", host);
	for (size_t i = 0; i < in->count; i++) {
		const char *name = in->list[i].name;
		if (is_hop_by_hop(in, name, listed) || in_list(name, ours) ||
		    (!overrides && is_override(name)) ||
		    (credential && is_dropped(credential, name, in->list[i].value)))
			continue;
		add(f, name, in->list[i].value);
	}
	if (hop & FIELDS_WEBSOCKET)
		add(f, "Upgrade", "websocket");
	if (hop & FIELDS_TRAILERS && fields_have_token(in, "TE", "trailers"))
		add(f, "TE", "trailers");
	if (!credential)
		return;
	add(f, "Accept-Encoding", "identity");
	for (size_t i = 0; i < credential->count; i++)
		add(f, credential->list[i].name, credential->list[i].value);
}

void fields_for_guest(struct fields *f, const struct http_fields *in, unsigned hop)
{
	bool listed = http_fields_get(in, "Connection");
	f->list = (struct http_fields){.list = f->room};
	for (size_t i = 0; i < in->count; i++) {
		const char *name = in->list[i].name;
		if (!is_hop_by_hop(in, name, listed) && strcasecmp(name, "Alt-Svc") != 0)
			add(f, name, in->list[i].value);
	}
	if (hop & FIELDS_WEBSOCKET)
		add(f, "Upgrade", "websocket");
}

void fields_for_trailers(struct fields *f, const struct http_fields *in)
{
	static const char *const of_head[] = {
		"Host",          "Expect",           "Range",   "Cache-Control", "Max-Forwards",
		"Content-Range", "Set-Cookie",       "Alt-Svc", "Location",      "WWW-Authenticate",
		"Content-Type",  "Content-Encoding", NULL};
	f->list = (struct http_fields){.list = f->room};
	for (size_t i = 0; i < in->count; i++) {
		const char *name = in->list[i].name;
		if (!is_hop_by_hop(in, name, false) && !in_list(name, of_head) &&
		    !is_override(name) && !secret_is_credential_field(name))
			add(f, name, in->list[i].value);
	}
}
