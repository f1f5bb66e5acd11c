/* SPDX-License-Identifier: Apache-2.0 */
/* The decision: the first rule that fits decides; where none does, the answer is no. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "policy/policy.h"
#include "policy/rules.h"

static bool fits_host(const struct policy_rule *rule, const char *host)
{
	if (rule->exact)
		return strcmp(rule->pattern, host) == 0;
	return rule->pattern[0] && policy_pattern_matches(rule->pattern, host);
}

static bool fits_place(const struct policy_rule *rule, const struct policy_dest *dest)
{
	if (!dest->address.family)
		return fits_host(rule, dest->host);
	if (rule->pattern[0])
		return false;
	struct address a = dest->address;
	address_unwrap(&a);
	return rule->deny ? address_in(&a, &rule->cidr) : address_opened_by(&a, &rule->cidr);
}

static bool fits_scheme(const struct policy_rule *rule, enum policy_scheme scheme)
{
	if (!rule->any_scheme)
		return rule->scheme == scheme;
	return scheme_has_requests(scheme) || (!rule->method_count && !rule->path_count);
}

static bool fits_port(const struct policy_rule *rule, uint16_t port)
{
	for (size_t i = 0; i < rule->port_count; i++)
		if (rule->ports[i] == port)
			return true;
	return !rule->port_count;
}

bool rule_fits_connection(const struct policy_rule *rule, const struct policy_dest *dest)
{
	return fits_scheme(rule, dest->scheme) && fits_place(rule, dest) &&
	       fits_port(rule, dest->port);
}

static bool fits_method(const struct policy_rule *rule, const char *method)
{
	if (!rule->method_count)
		return true;
	if (!method)
		return !rule->deny;
	for (size_t i = 0; i < rule->method_count; i++)
		if (str_eq(rule->methods[i], method))
			return true;
	return false;
}

static bool any_pattern(const struct policy_rule *rule, const char *path)
{
	for (size_t i = 0; i < rule->path_count; i++)
		if (policy_path_pattern_matches(rule->paths[i], path))
			return true;
	return false;
}

/* The path as a server reads it that takes %2F for a slash; NULL: no memory. */
static char *path_decoded(const char *path)
{
	char *decoded = malloc(strlen(path) + 1), *to = decoded;
	if (!decoded)
		return NULL;
	while (*path) {
		bool slash = str_starts(path, "%2F");
		*to++ = slash ? '/' : *path;
		path += slash ? 3 : 1;
	}
	*to = '\0';
	return decoded;
}

static bool fits_path(const struct policy_rule *rule, const char *path)
{
	if (!path) {
		bool all = !rule->path_count;
		for (size_t i = 0; i < rule->path_count; i++)
			all |= str_eq(rule->paths[i], "/**");
		return all || !rule->deny;
	}
	bool encoded = strstr(path, "%2F");
	if (encoded && !rule->deny && !rule->encoded_slash)
		return false;
	if (!rule->path_count || any_pattern(rule, path))
		return true;
	if (!encoded || !rule->deny)
		return false;
	auto_free char *decoded = path_decoded(path);
	return !decoded || any_pattern(rule, decoded);
}

static bool rule_fits(const struct policy_rule *rule, const struct policy_dest *dest)
{
	return rule_fits_connection(rule, dest) && fits_method(rule, dest->method) &&
	       fits_path(rule, dest->path);
}

/* What a policy that learns allows where no rule decides. */
static bool learns(const struct policy *p, const struct policy_dest *dest)
{
	return p->learn && !dest->address.family && scheme_has_requests(dest->scheme);
}

void policy_decide(const struct policy *p, const struct policy_dest *dest,
		   struct policy_verdict *ret)
{
	ret->allow = false;
	ret->index = POLICY_NO_RULE;
	ret->hint[0] = '\0';
	for (size_t i = 0; i < p->rule_count; i++) {
		const struct policy_rule *rule = &p->rules[i];
		if (!rule_fits(rule, dest))
			continue;
		ret->allow = !rule->deny;
		ret->index = i;
		rule_to_text(rule, dest->port, ret->rule, sizeof(ret->rule));
		return;
	}
	if (learns(p, dest)) {
		ret->allow = true;
		snprintf(ret->rule, sizeof(ret->rule), "learn");
		return;
	}
	snprintf(ret->rule, sizeof(ret->rule), "default deny");
	hint_to_text(p, dest, ret->hint, sizeof(ret->hint));
}

bool policy_reads_requests(const struct policy *p, const struct policy_dest *dest)
{
	for (size_t i = 0; i < p->rule_count; i++) {
		const struct policy_rule *rule = &p->rules[i];
		if (!rule_fits_connection(rule, dest))
			continue;
		if (rule->method_count || rule->path_count)
			return true;
		if (rule_fits(rule, dest))
			return false;
	}
	return false;
}

const char *policy_rule_differs(const struct policy *p, size_t i, const struct policy_dest *dest)
{
	const struct policy_rule *rule = &p->rules[i];
	if (!fits_place(rule, dest))
		return rule->pattern[0] ? "host" : "cidr";
	if (!fits_scheme(rule, dest->scheme))
		return "scheme";
	if (!fits_port(rule, dest->port))
		return "ports";
	if (!fits_method(rule, dest->method))
		return "methods";
	if (fits_path(rule, dest->path))
		return NULL;
	bool listed = !rule->path_count || (dest->path && any_pattern(rule, dest->path));
	return listed && !rule->deny ? "encodedSlash" : "paths";
}

int policy_first_scheme(const struct policy *p, const struct policy_dest *dest, unsigned among)
{
	struct policy_dest connection = *dest;
	connection.method = connection.path = NULL;
	for (size_t i = 0; i < p->rule_count; i++) {
		for (unsigned s = 0; s < POLICY_SCHEMES; s++) {
			connection.scheme = (enum policy_scheme)s;
			if (!(among & 1u << s) || !rule_fits(&p->rules[i], &connection))
				continue;
			if (!p->rules[i].deny)
				return (int)s;
			among &= ~(1u << s);
		}
	}
	for (unsigned s = 0; s < POLICY_SCHEMES; s++) {
		connection.scheme = (enum policy_scheme)s;
		if ((among & 1u << s) && learns(p, &connection))
			return (int)s;
	}
	return -ENOENT;
}

/* Whether a rule before number n denies all that rule n allows for this name. */
static bool denied_before(const struct policy *p, size_t n, const char *host)
{
	const struct policy_rule *allowing = &p->rules[n];
	struct policy_dest dest = {.scheme = allowing->scheme};
	snprintf(dest.host, sizeof(dest.host), "%s", host);
	for (size_t k = 0; k < allowing->port_count; k++) {
		bool denied = false;
		dest.port = allowing->ports[k];
		for (size_t i = 0; i < n && !denied; i++)
			denied = p->rules[i].deny && rule_fits(&p->rules[i], &dest);
		if (!denied)
			return false;
	}
	return true;
}

bool policy_knows_host(const struct policy *p, const char *host)
{
	bool denies = false;
	for (size_t i = 0; i < p->rule_count; i++) {
		const struct policy_rule *rule = &p->rules[i];
		if (!rule->pattern[0] || !policy_pattern_matches(rule->pattern, host))
			continue;
		if (rule->deny)
			denies = true;
		else if (!denies || !denied_before(p, i, host))
			return true;
	}
	return p->learn && *host;
}

const char *policy_exact_host(const struct policy *p, size_t i)
{
	if (i >= p->rule_count)
		return NULL;
	const struct policy_rule *rule = &p->rules[i];
	return rule->deny || strchr(rule->pattern, '*') ? "" : rule->pattern;
}

bool policy_resolve(const struct policy *p, const char *host, const char **ret_address,
		    const char **ret_ca)
{
	for (size_t i = 0; i < p->pin_count; i++) {
		if (!str_eq(p->pins[i].host, host))
			continue;
		*ret_address = p->pins[i].address;
		*ret_ca = p->pins[i].ca;
		return true;
	}
	return false;
}

bool policy_names_address(const struct policy *p, const struct address *a)
{
	unsigned whole = a->family == AF_INET ? 32 : 128;
	for (size_t i = 0; i < p->rule_count; i++) {
		const struct policy_rule *rule = &p->rules[i];
		if (!rule->deny && !rule->pattern[0] && rule->cidr.bits == whole &&
		    address_in(a, &rule->cidr))
			return true;
	}
	return false;
}

size_t policy_rule_count(const struct policy *p)
{
	return p->rule_count;
}

const struct policy_limits *policy_limits(const struct policy *p, size_t i)
{
	static const struct policy_limits none;
	if (i == POLICY_NO_RULE)
		return &p->limits;
	return i < p->rule_count ? &p->rules[i].limits : &none;
}

const char *policy_proxy(const struct policy *p)
{
	return p->proxy;
}
