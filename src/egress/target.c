/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three places may name the destination: the address that was connected to (and the SNI, which must
 * name the same), the Host field, and an absolute-form target. They must agree, port included; then
 * there is one destination and no way to be judged by one name and served by another.
 */
#include "egress/target.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"

static unsigned default_port(enum policy_scheme scheme)
{
	return scheme == POLICY_HTTPS ? 443 : 80;
}

/* An IPv4 address in its one spelling; the guest's network has no others. */
static bool read_literal(const char *s, size_t n, char ret_host[POLICY_HOST_MAX])
{
	struct address a;
	if (n >= POLICY_HOST_MAX)
		return false;
	memcpy(ret_host, s, n);
	ret_host[n] = '\0';
	return address_parse(ret_host, &a) == 0 && a.family == AF_INET;
}

/* Reads "host" or "host:port". False when it is no host as the origin's is one. */
static bool read_authority(const char *s, size_t n, const struct policy_dest *origin,
			   char ret_host[POLICY_HOST_MAX], uint64_t *ret_port)
{
	const char *colon = memchr(s, ':', n);
	char digits[8];
	*ret_port = default_port(origin->scheme);
	if (colon) {
		size_t len = n - (size_t)(colon - s) - 1;
		if (len >= sizeof(digits))
			return false;
		memcpy(digits, colon + 1, len);
		digits[len] = '\0';
		if (str_to_u64(digits, 1, UINT16_MAX, ret_port) < 0)
			return false;
		n = (size_t)(colon - s);
	}
	if (origin->address.family)
		return read_literal(s, n, ret_host);
	return policy_host_canonical(s, n, ret_host, NULL) == 0;
}

static bool means_origin(const char *authority, size_t n, const struct policy_dest *origin)
{
	char host[POLICY_HOST_MAX];
	uint64_t port;
	return read_authority(authority, n, origin, host, &port) && str_eq(host, origin->host) &&
	       port == origin->port;
}

/* Skips "scheme://authority" of an absolute-form. NULL when it is not the origin. */
static const char *skip_absolute(const char *target, const struct policy_dest *origin)
{
	const char *scheme = origin->scheme == POLICY_HTTPS ? "https://" : "http://";
	size_t n = strlen(scheme);
	if (strncasecmp(target, scheme, n) != 0)
		return NULL;
	size_t len = strcspn(target + n, "/?");
	if (!means_origin(target + n, len, origin))
		return NULL;
	return target + n + len;
}

static unsigned judge_path(const char *path, char **ret_path, const char **ret_query, struct err *e)
{
	if (!*path || *path == '?') { /* an absolute-form without a path */
		*ret_path = strdup("/");
		*ret_query = *path ? path + 1 : NULL;
		return *ret_path ? 0 : 503;
	}
	int r = policy_path_canonical(path, ret_path, ret_query, e);
	return r == 0 ? 0 : r == -ENOMEM ? 503 : 400;
}

unsigned target_judge(const struct http_head *head, const struct policy_dest *origin,
		      char **ret_path, const char **ret_query, struct err *e)
{
	const char *host = http_fields_get(&head->fields, "Host");
	const char *target = head->target;
	*ret_path = NULL;
	*ret_query = NULL;
	err_set(e, ENOMEM, "the gateway has no memory");
	if (!host) {
		err_set(e, EINVAL, "the request has no Host field");
		return 400;
	}
	if (!means_origin(host, strlen(host), origin)) {
		err_set(e, EINVAL, "Host is '%.300s', but the connection is to %s:%u", host,
			origin->host, origin->port);
		return 421;
	}
	if (!strcmp(target, "*")) {
		*ret_path = strdup("*");
		return *ret_path ? 0 : 503;
	}
	if (target[0] != '/') {
		target = skip_absolute(target, origin);
		if (!target) {
			err_set(e, EINVAL,
				"the target names another scheme, host or port than the "
				"connection (%s:%u)",
				origin->host, origin->port);
			return 400;
		}
	}
	return judge_path(target, ret_path, ret_query, e);
}
