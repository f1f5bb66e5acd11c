/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields are chosen, not copied: what the Connection field lists is dropped with it, framing is
 * left to the codec, which makes it anew, and offers of other protocols (Upgrade, Alt-Svc) are
 * dropped, for the gateway could not judge them. What a server may read as one of these is one:
 * CGI does not tell Proxy_Authorization from Proxy-Authorization.
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

/* Whether the comma-separated list has the token. */
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

static bool any_has_token(const struct http_fields *in, const char *name, const char *token)
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
	       (listed && any_has_token(in, "Connection", name));
}

static void add(struct fields *f, const char *name, const char *value)
{
	if (f->list.count < FIELDS_ROOM)
		f->room[f->list.count++] = (struct http_field){.name = name, .value = value};
}

void fields_for_upstream(struct fields *f, const struct http_fields *in, const char *host,
			 const char *credential)
{
	static const char *const ours[] = {"Host", "Expect", NULL};
	bool listed = http_fields_get(in, "Connection");
	f->list = (struct http_fields){.list = f->room};
	add(f, "Host", host);
	for (size_t i = 0; i < in->count; i++) {
		const char *name = in->list[i].name;
		if (is_hop_by_hop(in, name, listed) || in_list(name, ours))
			continue;
		if (credential &&
		    (secret_is_credential_field(name) || str_same_field(name, "Accept-Encoding")))
			continue;
		add(f, name, in->list[i].value);
	}
	if (credential) {
		add(f, "Accept-Encoding", "identity");
		add(f, "Authorization", credential);
	}
}

void fields_for_guest(struct fields *f, const struct http_fields *in)
{
	bool listed = http_fields_get(in, "Connection");
	f->list = (struct http_fields){.list = f->room};
	for (size_t i = 0; i < in->count; i++) {
		const char *name = in->list[i].name;
		if (!is_hop_by_hop(in, name, listed) && strcasecmp(name, "Alt-Svc") != 0)
			add(f, name, in->list[i].value);
	}
}

bool fields_ask_websocket(const struct http_fields *in)
{
	return any_has_token(in, "Upgrade", "websocket");
}
