/* SPDX-License-Identifier: Apache-2.0 */
/* The policy as an object: rules and pins, and the rules that come from the command line. */
#include "policy/policy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "policy/rules.h"

struct policy *policy_new_empty(void)
{
	return calloc(1, sizeof(struct policy));
}

void policy_learn(struct policy *p)
{
	p->learn = true;
}

bool policy_learns(const struct policy *p)
{
	return p->learn;
}

void policy_free(struct policy *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->pin_count; i++) {
		free(p->pins[i].address);
		free(p->pins[i].ca);
	}
	for (size_t i = 0; i < p->rule_count; i++)
		policy_rule_done(&p->rules[i]);
	free(p->pins);
	free(p->rules);
	free(p->proxy);
	free(p);
}

void policy_rule_done(struct policy_rule *rule)
{
	for (size_t i = 0; i < rule->method_count; i++)
		free(rule->methods[i]);
	for (size_t i = 0; i < rule->path_count; i++)
		free(rule->paths[i]);
	free(rule->methods);
	free(rule->paths);
}

static const struct {
	const char *name;
	uint16_t port;
} schemes[POLICY_SCHEMES] = {
	[POLICY_HTTPS] = {"https", 443},
	[POLICY_HTTP] = {"http", 80},
	[POLICY_TLS] = {"tls", 443},
	[POLICY_TCP] = {"tcp", 0},
};

const char *scheme_name(enum policy_scheme scheme)
{
	return schemes[scheme].name;
}

uint16_t scheme_port(enum policy_scheme scheme)
{
	return schemes[scheme].port;
}

int scheme_from_name(const char *name, enum policy_scheme *ret)
{
	for (unsigned i = 0; i < POLICY_SCHEMES; i++)
		if (str_eq(schemes[i].name, name)) {
			*ret = (enum policy_scheme)i;
			return 0;
		}
	return -EINVAL;
}

bool scheme_has_requests(enum policy_scheme scheme)
{
	return scheme == POLICY_HTTPS || scheme == POLICY_HTTP;
}

int policy_add_rule(struct policy *p, const struct policy_rule *rule, struct err *e)
{
	if (p->rule_count == POLICY_RULES_MAX)
		return err_set(e, E2BIG, "a policy has at most %d rules", POLICY_RULES_MAX);
	struct policy_rule *more = reallocarray(p->rules, p->rule_count + 1, sizeof(*more));
	if (!more)
		return err_set(e, ENOMEM, "no memory");
	p->rules = more;
	struct policy_rule *copy = &p->rules[p->rule_count++];
	*copy = *rule;
	copy->exact = copy->pattern[0] && !strchr(copy->pattern, '*');
	return 0;
}

int policy_add_pin(struct policy *p, const char *host, const char *address, const char *ca,
		   struct err *e)
{
	if (p->pin_count == POLICY_PINS_MAX)
		return err_set(e, E2BIG, "a policy resolves at most %d names", POLICY_PINS_MAX);
	struct policy_pin *more = reallocarray(p->pins, p->pin_count + 1, sizeof(*more));
	if (!more)
		return err_set(e, ENOMEM, "no memory");
	p->pins = more;

	auto_free char *address_copy = strdup(address);
	auto_free char *ca_copy = ca ? strdup(ca) : NULL;
	if (!address_copy || (ca && !ca_copy))
		return err_set(e, ENOMEM, "no memory");
	struct policy_pin *pin = &p->pins[p->pin_count++];
	snprintf(pin->host, sizeof(pin->host), "%s", host);
	pin->address = take_ptr(address_copy);
	pin->ca = take_ptr(ca_copy);
	return 0;
}

int port_from_text(const char *s, uint16_t *ret, struct err *e)
{
	uint64_t port;
	if (str_to_u64(s, 1, 65535, &port) < 0)
		return err_set(e, EINVAL, "the port is a number from 1 to 65535");
	*ret = (uint16_t)port;
	return 0;
}

/* Splits "[scheme://]HOST[:PORT]"; *ret_scheme is -1 where none is said, *ret_port 0. */
static int split_spec(char *spec, char **ret_host, int *ret_scheme, uint16_t *ret_port,
		      struct err *e)
{
	char *host = spec;
	*ret_scheme = -1;
	char *slashes = strstr(spec, "://");
	if (slashes) {
		*slashes = '\0';
		str_lower(spec);
		enum policy_scheme scheme;
		if (scheme_from_name(spec, &scheme) < 0)
			return err_set(e, EINVAL, "the scheme is https, http, tls or tcp");
		*ret_scheme = (int)scheme;
		host = slashes + 3;
	}
	if (strpbrk(host, "/?#@"))
		return err_set(e, EINVAL, "give a host and a port only, no user, path or query");
	*ret_host = host;
	*ret_port = 0;
	char *colon = strchr(host, ':');
	if (!colon)
		return 0;
	if (host[0] == '[' || strchr(colon + 1, ':'))
		return err_set(e, EINVAL, "an IP address is no host name; name the host");
	*colon = '\0';
	return port_from_text(colon + 1, ret_port, e);
}

int policy_allow(struct policy *p, const char *spec, struct err *e)
{
	auto_free char *copy = strdup(spec);
	if (!copy)
		return err_set(e, ENOMEM, "no memory");
	char *host = NULL;
	int scheme = -1;
	struct policy_rule rule = {.port_count = 1};
	int r = split_spec(copy, &host, &scheme, &rule.ports[0], e);
	if (r == 0)
		r = policy_pattern_canonical(host, rule.pattern, e);
	if (r == 0 && scheme == POLICY_TCP && !rule.ports[0])
		r = err_set(e, EINVAL, "tcp has no port of its own: tcp://HOST:PORT");
	if (r < 0)
		return err_prefix(e, "allow %.200s", spec);

	if (scheme < 0)
		scheme = rule.ports[0] == 80 ? POLICY_HTTP : POLICY_HTTPS;
	rule.scheme = (enum policy_scheme)scheme;
	if (!rule.ports[0])
		rule.ports[0] = scheme_port(rule.scheme);
	return policy_add_rule(p, &rule, e);
}
