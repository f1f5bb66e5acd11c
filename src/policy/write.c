/* SPDX-License-Identifier: Apache-2.0 */
/* A policy as a document: what it says in full, nothing left to defaults. */
#include <stdio.h>

#include "policy/entry.h"
#include "policy/policy.h"
#include "policy/rules.h"

static json_t *strings(char *const *list, size_t count)
{
	json_t *j = count ? json_array() : NULL;
	for (size_t i = 0; i < count; i++)
		json_array_append_new(j, json_string(list[i]));
	return j;
}

static json_t *rule_to_json(const struct policy_rule *rule)
{
	char cidr[INET6_ADDRSTRLEN + 4];
	json_t *ports = rule->port_count ? json_array() : NULL;
	for (size_t i = 0; i < rule->port_count; i++)
		json_array_append_new(ports, json_integer(rule->ports[i]));
	if (!rule->pattern[0])
		cidr_to_text(&rule->cidr, cidr);
	return json_pack("{s:s, s:s*, s:o*, s:o*, s:o*, s:o*, s:o*, s:o*}",
			 rule->pattern[0] ? "host" : "cidr",
			 rule->pattern[0] ? rule->pattern : cidr, "scheme",
			 rule->any_scheme ? NULL : scheme_name(rule->scheme), "ports", ports,
			 "methods", strings(rule->methods, rule->method_count), "paths",
			 strings(rule->paths, rule->path_count), "encodedSlash",
			 rule->encoded_slash ? json_true() : NULL, "deny",
			 rule->deny ? json_true() : NULL, "limits", limits_to_json(&rule->limits));
}

static json_t *pin_to_json(const struct policy_pin *pin)
{
	return json_pack("{s:s, s:s, s:s*}", "host", pin->host, "address", pin->address, "ca",
			 pin->ca);
}

json_t *policy_to_json(const struct policy *p)
{
	json_t *egress = json_array();
	for (size_t i = 0; i < p->rule_count; i++)
		json_array_append_new(egress, rule_to_json(&p->rules[i]));
	json_t *resolve = json_array();
	for (size_t i = 0; i < p->pin_count; i++)
		json_array_append_new(resolve, pin_to_json(&p->pins[i]));
	json_t *proxy = p->proxy ? json_pack("{s:s}", "url", p->proxy) : NULL;
	return json_pack("{s:o, s:o, s:o*, s:o*, s:o*}", "egress", egress, "resolve", resolve,
			 "limits", limits_to_json(&p->limits), "proxy", proxy, "learn",
			 p->learn ? json_true() : NULL);
}
