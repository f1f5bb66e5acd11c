/* SPDX-License-Identifier: Apache-2.0 */
/* URLs that a person asks about, read as strictly as what a guest sends. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "policy/policy.h"
#include "policy/rules.h"

/* "HOST", "ADDRESS" or "[ADDRESS]", each with ":PORT" or without. */
static int read_authority(char *s, struct policy_dest *dest, struct err *e)
{
	char *host = s, *port = NULL;
	if (strchr(s, '@'))
		return err_set(e, EINVAL, "no user and password before the host");
	if (*s == '[') {
		char *end = strchr(s, ']');
		if (!end || (end[1] && end[1] != ':'))
			return err_set(e, EINVAL, "no ']' behind the address");
		*end = '\0';
		port = end[1] ? end + 2 : NULL;
		host++;
		if (address_parse(host, &dest->address) < 0 || dest->address.family != AF_INET6)
			return err_set(e, EINVAL, "no IPv6 address between the brackets");
	} else {
		port = strchr(s, ':');
		if (port)
			*port++ = '\0';
		if (address_parse(host, &dest->address) < 0) {
			dest->address = (struct address){0};
			int r = host_from_text(host, dest->host, e);
			if (r < 0)
				return r;
		}
	}
	dest->port = scheme_port(dest->scheme);
	if (port)
		return port_from_text(port, &dest->port, e);
	return dest->port ? 0 : err_set(e, EINVAL, "tcp has no port of its own: tcp://HOST:PORT");
}

static int read_url(char *url, struct policy_dest *dest, char **ret_path, struct err *e)
{
	const char *query;
	char *slashes = strstr(url, "://");
	if (slashes)
		*slashes = '\0';
	str_lower(url);
	if (!slashes || scheme_from_name(url, &dest->scheme) < 0)
		return err_set(e, EINVAL, "a URL begins with https://, http://, tls:// or tcp://");
	char *authority = slashes + 3, *rest = authority + strcspn(authority, "/?#");
	auto_free char *target = *rest == '/' ? strdup(rest) : str_printf("/%s", rest);
	if (!target)
		return err_set(e, ENOMEM, "no memory");
	bool has_rest = *rest;
	*rest = '\0';
	int r = read_authority(authority, dest, e);
	if (r < 0)
		return r;
	if (!scheme_has_requests(dest->scheme))
		return has_rest ? err_set(e, EINVAL, "%s has no path", url) : 0;
	return policy_path_canonical(target, ret_path, &query, e);
}

int policy_dest_from_url(const char *url, struct policy_dest *ret, char **ret_path, struct err *e)
{
	struct policy_dest dest = {0};
	char *path = NULL;
	auto_free char *copy = strdup(url);
	if (!copy)
		return err_set(e, ENOMEM, "no memory");
	int r = read_url(copy, &dest, &path, e);
	if (r < 0)
		return r;
	dest.path = path;
	*ret = dest;
	*ret_path = path;
	return 0;
}
