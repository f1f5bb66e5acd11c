/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host names and patterns in their one spelling. What the guest says must be letters, digits, '-'
 * and '_' already; what a person writes into a policy may also be an internationalised name, and is
 * converted. Source: RFC 1123 section 2.1, RFC 5891, UTS 46, the Public Suffix List.
 */
#include <errno.h>
#include <idn2.h>
#include <libpsl.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "net/address.h"
#include "policy/policy.h"
#include "policy/rules.h"

#define LABEL_MAX 63 /* bytes */

static bool is_host_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static int check_label(const char *label, size_t n, struct err *e)
{
	if (n == 0)
		return err_set(e, EINVAL, "a host name has no empty labels");
	if (n > LABEL_MAX)
		return err_set(e, EINVAL, "a label of a host name has at most %d characters",
			       LABEL_MAX);
	for (size_t i = 0; i < n; i++)
		if (!is_host_char(label[i]))
			return err_set(e, EINVAL,
				       "a host name has letters, digits, '-', '_' and dots only");
	if (label[0] == '-' || label[n - 1] == '-')
		return err_set(e, EINVAL,
			       "a label of a host name neither begins nor ends with '-'");
	return 0;
}

int policy_host_canonical(const char *s, size_t n, char ret[POLICY_HOST_MAX], struct err *e)
{
	char host[POLICY_HOST_MAX];
	if (n && s[n - 1] == '.')
		n--;
	if (n == 0)
		return err_set(e, EINVAL, "an empty host name");
	if (n >= sizeof(host))
		return err_set(e, EINVAL, "a host name has at most %d characters",
			       POLICY_HOST_MAX - 1);
	if (memchr(s, '\0', n))
		return err_set(e, EINVAL, "a NUL in a host name");
	memcpy(host, s, n);
	host[n] = '\0';
	str_lower(host);

	struct address a;
	if (address_is_numeric_host(host) || address_parse(host, &a) == 0 || host[0] == '[')
		return err_set(e, EINVAL, "an IP address is no host name; name the host");
	for (size_t at = 0; at <= n;) {
		size_t len = strcspn(host + at, ".");
		int r = check_label(host + at, len, e);
		if (r < 0)
			return r;
		at += len + 1;
	}
	memcpy(ret, host, n + 1);
	return 0;
}

static bool is_ascii(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s >= 0x80)
			return false;
	return true;
}

int host_from_text(const char *s, char ret[POLICY_HOST_MAX], struct err *e)
{
	if (is_ascii(s))
		return policy_host_canonical(s, strlen(s), ret, e);

	char *ascii = NULL;
	int r = idn2_to_ascii_8z(s, &ascii, IDN2_NFC_INPUT | IDN2_NONTRANSITIONAL);
	if (r != IDN2_OK)
		return err_set(e, EINVAL, "no valid internationalised host name: %s",
			       idn2_strerror(r));
	r = policy_host_canonical(ascii, strlen(ascii), ret, e);
	idn2_free(ascii);
	return r;
}

/* The part of a pattern that stands before the host name: "", "*." or "**.". */
static const char *pattern_star(const char *s)
{
	return str_starts(s, "**.") ? "**." : str_starts(s, "*.") ? "*." : "";
}

int policy_pattern_canonical(const char *s, char ret[POLICY_PATTERN_MAX], struct err *e)
{
	const char *star = pattern_star(s);
	const char *name = s + strlen(star);
	char host[POLICY_HOST_MAX];
	if (str_eq(s, "*") || str_eq(s, "**"))
		return err_set(e, EINVAL, "'%s' would be every host; name the hosts", s);
	if (strchr(name, '*'))
		return err_set(
			e, EINVAL,
			"'*' stands only for whole labels in front: *.example.com (one label) "
			"or **.example.com (any depth, and example.com itself)");
	int r = host_from_text(name, host, e);
	if (r < 0)
		return r;
	if (*star && psl_is_public_suffix(psl_builtin(), host))
		return err_set(
			e, EINVAL,
			"anybody can register names under the public suffix %s; name the hosts",
			host);
	memcpy(stpcpy(ret, star), host, strlen(host) + 1);
	return 0;
}

int policy_pattern_check(const char *s, struct err *e)
{
	char canonical[POLICY_PATTERN_MAX];
	return policy_pattern_canonical(s, canonical, e);
}

bool policy_pattern_matches(const char *pattern, const char *host)
{
	const char *star = pattern_star(pattern);
	const char *name = pattern + strlen(star);
	if (!*star)
		return str_eq(pattern, host);
	if (str_eq(star, "**.") && str_eq(name, host))
		return true;

	size_t n = strlen(name), m = strlen(host);
	if (m < n + 2 || host[m - n - 1] != '.' || !str_eq(host + m - n, name))
		return false;
	size_t in_front = m - n - 1;
	return str_eq(star, "**.") || !memchr(host, '.', in_front);
}
