/* SPDX-License-Identifier: Apache-2.0 */
/* The decision: the first rule that fits allows; where none does, the answer is no. */
#include <stdio.h>

#include "base/str.h"
#include "policy/policy.h"
#include "policy/rules.h"

static bool rule_fits(const struct policy_rule *rule, const struct policy_dest *dest)
{
	if (rule->scheme != dest->scheme || !policy_pattern_matches(rule->pattern, dest->host))
		return false;
	for (size_t i = 0; i < rule->port_count; i++)
		if (rule->ports[i] == dest->port)
			return true;
	return false;
}

/* The flag as one would type it: without what it means anyhow. */
static void write_hint(const struct policy_dest *dest, char *out, size_t size)
{
	enum policy_scheme meant = dest->port == 80 ? POLICY_HTTP : POLICY_HTTPS;
	bool say_scheme = dest->scheme == POLICY_HTTP || dest->scheme != meant;
	bool say_port = dest->port != scheme_port(dest->scheme);
	int n = snprintf(out, size, "--allow-host %s%s%s",
			 say_scheme ? scheme_name(dest->scheme) : "", say_scheme ? "://" : "",
			 dest->host);
	if (say_port)
		snprintf(out + n, size - (size_t)n, ":%u", dest->port);
}

void policy_decide(const struct policy *p, const struct policy_dest *dest,
		   struct policy_verdict *ret)
{
	*ret = (struct policy_verdict){.allow = false};
	for (size_t i = 0; i < p->rule_count; i++) {
		const struct policy_rule *rule = &p->rules[i];
		if (!rule_fits(rule, dest))
			continue;
		ret->allow = true;
		snprintf(ret->rule, sizeof(ret->rule), "%s://%s:%u", scheme_name(rule->scheme),
			 rule->pattern, dest->port);
		return;
	}
	snprintf(ret->rule, sizeof(ret->rule), "default deny");
	if (dest->host[0])
		write_hint(dest, ret->hint, sizeof(ret->hint));
}

bool policy_knows_host(const struct policy *p, const char *host)
{
	for (size_t i = 0; i < p->rule_count; i++)
		if (policy_pattern_matches(p->rules[i].pattern, host))
			return true;
	return false;
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
