/* SPDX-License-Identifier: Apache-2.0 */
/* Places that are no name of a host: ranges of addresses, and the proxy through which all leaves.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "policy/policy.h"
#include "policy/rules.h"

int cidr_from_text(const char *s, bool deny, struct address_prefix *ret, struct err *e)
{
	struct address_prefix p;
	if (address_prefix_parse(s, &p) < 0)
		return err_set(e, EINVAL,
			       "must be an address or a prefix without bits behind it: 10.1.2.3, "
			       "10.1.0.0/16, fd00:1::/32");
	struct address inner = p.base;
	address_unwrap(&inner);
	if (inner.family != p.base.family)
		return err_set(e, EINVAL,
			       "IPv4 inside IPv6 is judged as IPv4: name the IPv4 prefix");
	if (!deny && p.bits == 0)
		return err_set(e, EINVAL, "would be every address; name the networks");
	if (!deny && p.bits == (p.base.family == AF_INET ? 32 : 128) &&
	    address_is_metadata(&p.base))
		return err_set(e, EINVAL, "a cloud's metadata service is never reachable");
	*ret = p;
	return 0;
}

void cidr_to_text(const struct address_prefix *p, char out[INET6_ADDRSTRLEN + 4])
{
	address_format(&p->base, out);
	size_t n = strlen(out);
	snprintf(out + n, INET6_ADDRSTRLEN + 4 - n, "/%u", p->bits);
}

/* The host of a proxy: a name, an IPv4 address, or an IPv6 address in brackets. */
static int proxy_host(const char *s, size_t n, char *out, size_t size, struct err *e)
{
	char text[POLICY_HOST_MAX];
	struct address a;
	bool brackets = n > 2 && s[0] == '[' && s[n - 1] == ']';
	if (brackets) {
		s++;
		n -= 2;
	}
	if (n >= sizeof(text))
		return err_set(e, EINVAL, "the host's name is too long");
	memcpy(text, s, n);
	text[n] = '\0';
	if (address_parse(text, &a) < 0 || (a.family == AF_INET6) != brackets) {
		if (brackets)
			return err_set(e, EINVAL, "no IPv6 address between the brackets");
		int r = policy_host_canonical(text, n, text, e);
		if (r == 0)
			snprintf(out, size, "%s", text);
		return r;
	}
	char canonical[INET6_ADDRSTRLEN];
	address_format(&a, canonical);
	snprintf(out, size, brackets ? "[%s]" : "%s", canonical);
	return 0;
}

int proxy_from_text(const char *s, char **ret, struct err *e)
{
	const char *scheme = str_starts(s, "http://")     ? "http://"
			     : str_starts(s, "socks5://") ? "socks5://"
							  : NULL;
	if (!scheme)
		return err_set(e, EINVAL, "must be http://HOST:PORT or socks5://HOST:PORT");
	const char *place = s + strlen(scheme);
	size_t n = strlen(place);
	if (memchr(place, '@', n))
		return err_set(e, EINVAL, "no user and password: a policy is no place for them");
	if (n && place[n - 1] == '/')
		n--;
	const char *colon = memrchr(place, ':', n);
	char digits[8] = "", host[POLICY_HOST_MAX + 2];
	uint64_t port;
	size_t len = colon ? (size_t)(place + n - colon) - 1 : 0;
	if (len > 0 && len < sizeof(digits))
		memcpy(digits, colon + 1, len);
	if (str_to_u64(digits, 1, 65535, &port) < 0)
		return err_set(e, EINVAL,
			       "a port from 1 to 65535 stands behind the host: %sHOST:PORT",
			       scheme);
	int r = proxy_host(place, (size_t)(colon - place), host, sizeof(host), e);
	if (r < 0)
		return r;
	*ret = str_printf("%s%s:%u", scheme, host, (unsigned)port);
	return *ret ? 0 : err_set(e, ENOMEM, "no memory");
}
