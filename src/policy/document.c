/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy documents, read into rules. One decoder for what a person wrote (YAML or
 * JSON, with places for the errors) and for what travels to a gateway. Everything that it doesn't
 * know is an error: a misspelt field must not silently open or close anything.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "net/address.h"
#include "policy/entry.h"
#include "policy/policy.h"
#include "policy/rules.h"

#define PEM_CERTIFICATE "-----BEGIN CERTIFICATE-----"

static int read_ports(const struct entry *at, struct policy_rule *rule)
{
	const json_t *list = entry_get(at, "ports");
	if (!list) {
		uint16_t usual = scheme_port(rule->scheme);
		if (rule->deny)
			return 0;
		if (!usual)
			return entry_error(at, "ports", "missing: tcp has no port of its own");
		rule->ports[0] = usual;
		rule->port_count = 1;
		return 0;
	}
	size_t count = json_array_size(list);
	if (!json_is_array(list) || count == 0)
		return entry_error(at, "ports", "must be a list of ports, for instance [443]");
	if (count > POLICY_PORTS_MAX)
		return entry_error(at, "ports", "at most %d ports", POLICY_PORTS_MAX);
	for (size_t i = 0; i < count; i++) {
		const json_t *item = json_array_get(list, i);
		json_int_t port = json_integer_value(item);
		if (!json_is_integer(item) || port < 1 || port > 65535)
			return entry_item_error(at, "ports", i,
						"a port is a number from 1 to 65535");
		rule->ports[i] = (uint16_t)port;
	}
	rule->port_count = count;
	return 0;
}

/* A list of strings, each taken by one(), which gives a heap string. The rule owns what is there
   even on failure. */
static int read_list(const struct entry *at, const char *field, size_t most,
		     int (*one)(const char *, char **, struct err *), char ***ret,
		     size_t *ret_count)
{
	const json_t *list = entry_get(at, field);
	if (!list)
		return 0;
	size_t count = json_array_size(list);
	if (!json_is_array(list) || count == 0)
		return entry_error(at, field, "must be a list with something in it");
	if (count > most)
		return entry_error(at, field, "at most %zu %s", most, field);
	*ret = calloc(count, sizeof(**ret));
	if (!*ret)
		return err_set(at->e, ENOMEM, "no memory");
	for (size_t i = 0; i < count; i++) {
		struct err why = {0};
		const char *s = item_string(json_array_get(list, i));
		if (!s)
			return entry_item_error(at, field, i, "must be a string");
		if (one(s, &(*ret)[i], &why) < 0)
			return entry_item_error(at, field, i, "%s", why.text);
		*ret_count = i + 1;
	}
	return 0;
}

static int one_method(const char *s, char **ret, struct err *e)
{
	if (!policy_method_is_name(s))
		return err_set(e, EINVAL,
			       "a method is in upper case, at most %d letters, digits, '-' and '_'",
			       POLICY_METHOD_MAX);
	if (str_eq(s, "CONNECT") || str_eq(s, "TRACE") || str_eq(s, "TRACK"))
		return err_set(e, EINVAL, "%s never passes", s);
	*ret = strdup(s);
	return *ret ? 0 : err_set(e, ENOMEM, "no memory");
}

/* What is asked on a connection: methods and paths. */
static int read_requests(const struct entry *at, struct policy_rule *rule)
{
	static const char *const fields[] = {"methods", "paths", "encodedSlash"};
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (!scheme_has_requests(rule->scheme) && entry_get(at, fields[i]))
			return entry_error(at, fields[i], "%s is passed on unread and has no %s",
					   scheme_name(rule->scheme), fields[i]);
	int r = read_list(at, "methods", POLICY_METHODS_MAX, one_method, &rule->methods,
			  &rule->method_count);
	if (r < 0 ||
	    (r = read_list(at, "paths", POLICY_PATHS_MAX, policy_path_pattern_canonical, &rule->paths,
			   &rule->path_count)) < 0 ||
	    (r = entry_bool(at, "encodedSlash", &rule->encoded_slash)) < 0)
		return r;
	if (rule->deny && rule->encoded_slash)
		return entry_error(at, "encodedSlash", "a deny rule meets %%2F in either reading");
	for (size_t i = 0; i < rule->path_count; i++)
		if (!rule->deny && !rule->encoded_slash && strstr(rule->paths[i], "%2F"))
			return entry_item_error(at, "paths", i,
						"%%2F needs encodedSlash: true beside it");
	return 0;
}

static int read_place(const struct entry *at, struct policy_rule *rule)
{
	const char *host, *cidr;
	struct err why = {0};
	int r = entry_string(at, "cidr", false, &cidr);
	if (r < 0 || (r = entry_string(at, "host", !cidr, &host)) < 0)
		return r;
	if (cidr && host)
		return entry_error(at, "cidr", "stands instead of host; make it two rules");
	if (cidr)
		return cidr_from_text(cidr, rule->deny, &rule->cidr, &why) < 0
			       ? entry_error(at, "cidr", "%s", why.text)
			       : 0;
	if (strchr(host, ':') || strchr(host, '/'))
		return entry_error(at, "host",
				   "a host name only; the port goes into ports, http into scheme");
	return policy_pattern_canonical(host, rule->pattern, &why) < 0
		       ? entry_error(at, "host", "%s", why.text)
		       : 0;
}

static int read_scheme(const struct entry *at, struct policy_rule *rule)
{
	const char *scheme;
	int r = entry_string(at, "scheme", false, &scheme);
	if (r < 0)
		return r;
	rule->any_scheme = rule->deny && !scheme;
	if (scheme && scheme_from_name(scheme, &rule->scheme) < 0)
		return entry_error(at, "scheme", "must be https, http, tls or tcp");
	return 0;
}

static int read_rule_limits(const struct entry *at, struct policy_rule *rule)
{
	const json_t *value = entry_get(at, "limits");
	char section[64];
	if (!value)
		return 0;
	if (rule->deny)
		return entry_error(at, "limits", "nothing passes a deny rule");
	snprintf(section, sizeof(section), "%s[%zu].limits", at->section, at->index);
	struct entry limits = {at->doc, json_is_boolean(value) ? at->value : value, section,
			       SIZE_MAX, at->e};
	if (!json_is_object(value))
		return entry_error(at, "limits",
				   "must be a mapping, for instance {requests: 1000}");
	return read_limits(&limits, &rule->limits);
}

#define RULE_FIELDS "host, cidr, ports, scheme, methods, paths, encodedSlash, deny, limits"

static int fill_rule(const struct entry *at, struct policy_rule *rule)
{
	static const char *const known[] = {"host",  "cidr",         "ports", "scheme", "methods",
					    "paths", "encodedSlash", "deny",  "limits", NULL};
	int r = entry_check(at, known, RULE_FIELDS);
	if (r < 0 || (r = entry_bool(at, "deny", &rule->deny)) < 0 ||
	    (r = read_scheme(at, rule)) < 0 || (r = read_place(at, rule)) < 0 ||
	    (r = read_ports(at, rule)) < 0 || (r = read_requests(at, rule)) < 0)
		return r;
	return read_rule_limits(at, rule);
}

static int read_rule(const struct entry *at, struct policy *p)
{
	struct policy_rule rule = {.scheme = POLICY_HTTPS};
	struct err why = {0};
	int r = fill_rule(at, &rule);
	if (r == 0 && policy_add_rule(p, &rule, &why) < 0)
		r = entry_error(at, rule.pattern[0] ? "host" : "cidr", "%s", why.text);
	if (r < 0)
		policy_rule_done(&rule);
	return r;
}

/* The one spelling of an address that a pin may name. */
static int pin_address(const struct entry *at, const char *text, char ret[INET6_ADDRSTRLEN])
{
	struct address a;
	if (address_parse(text, &a) < 0)
		return entry_error(
			at, "address",
			"must be an IPv4 address (10.0.0.7) or an IPv6 address (fd00::7)");
	address_unwrap(&a);
	if (address_is_metadata(&a))
		return entry_error(at, "address", "a cloud's metadata service is never reachable");
	const char *special = address_special(&a);
	if (str_eq(special, "multicast") || str_eq(special, "broadcast") ||
	    str_eq(special, "unspecified") || str_eq(special, "this network"))
		return entry_error(at, "address", "%s: not the address of one host", special);
	address_format(&a, ret);
	return 0;
}

static int read_pin(const struct entry *at, struct policy *p)
{
	static const char *const known[] = {"host", "address", "ca", NULL};
	const char *name, *address, *ca;
	int r = entry_check(at, known, "host, address, ca");
	if (r < 0 || (r = entry_string(at, "host", true, &name)) < 0 ||
	    (r = entry_string(at, "address", true, &address)) < 0 ||
	    (r = entry_string(at, "ca", false, &ca)) < 0)
		return r;

	struct err why = {0};
	char host[POLICY_HOST_MAX], canonical[INET6_ADDRSTRLEN];
	if (strchr(name, '*'))
		return entry_error(at, "host", "one name, no pattern");
	if (host_from_text(name, host, &why) < 0)
		return entry_error(at, "host", "%s", why.text);
	const char *other_address, *other_ca;
	if (policy_resolve(p, host, &other_address, &other_ca))
		return entry_error(at, "host", "%s already has an address above", host);
	r = pin_address(at, address, canonical);
	if (r < 0)
		return r;
	if (ca && strlen(ca) > POLICY_CA_MAX)
		return entry_error(at, "ca", "longer than %d bytes", POLICY_CA_MAX);
	if (ca && !strstr(ca, PEM_CERTIFICATE))
		return entry_error(at, "ca",
				   "must hold a certificate in PEM form (\"" PEM_CERTIFICATE "\")");
	r = policy_add_pin(p, host, canonical, ca, &why);
	return r < 0 ? entry_error(at, "host", "%s", why.text) : 0;
}

static int read_section(const struct doc *doc, const char *section, struct policy *p,
			int (*read_entry)(const struct entry *, struct policy *), struct err *e)
{
	const json_t *list = json_object_get(doc->root, section);
	if (!list || json_is_null(list))
		return 0;
	if (!json_is_array(list))
		return doc_error(doc, json_is_boolean(list) ? doc->root : list, e,
				 "%s: must be a list", section);
	for (size_t i = 0; i < json_array_size(list); i++) {
		struct entry at = {doc, json_array_get(list, i), section, i, e};
		int r = read_entry(&at, p);
		if (r < 0)
			return r;
	}
	return 0;
}

static int read_proxy(const struct doc *doc, struct policy *p, struct err *e)
{
	static const char *const known[] = {"url", NULL};
	const json_t *value = json_object_get(doc->root, "proxy");
	struct entry at = {doc, value, "proxy", SIZE_MAX, e};
	const char *url;
	struct err why = {0};
	if (!value || json_is_null(value))
		return 0;
	int r = entry_check(&at, known, "url");
	if (r < 0 || (r = entry_string(&at, "url", true, &url)) < 0)
		return r;
	return proxy_from_text(url, &p->proxy, &why) < 0 ? entry_error(&at, "url", "%s", why.text)
							 : 0;
}

/* travelled: it is not what a person wrote, but what policy_to_json() did. */
static int read_document(const struct doc *doc, bool travelled, struct policy *p, struct err *e)
{
	static const char *const written[] = {"egress", "limits", "proxy", "resolve", NULL};
	static const char *const travels[] = {"egress",  "limits", "proxy",
					      "resolve", "learn",  NULL};
	const char *const *known = travelled ? travels : written;
	if (json_is_null(doc->root))
		return 0;
	if (!json_is_object(doc->root))
		return doc_error(doc, doc->root, e,
				 "must be a mapping with egress, limits, proxy, resolve");
	const char *unknown = unknown_member(doc->root, known);
	if (unknown)
		return doc_error(doc, json_object_get(doc->root, unknown), e,
				 "%.64s: unknown field; allowed are egress, limits, proxy, resolve",
				 unknown);
	const json_t *limits = json_object_get(doc->root, "limits");
	struct entry at = {doc, limits, "limits", SIZE_MAX, e};
	p->learn = travelled && json_is_true(json_object_get(doc->root, "learn"));
	int r = read_section(doc, "egress", p, read_rule, e);
	if (r == 0 && limits && !json_is_null(limits))
		r = read_limits(&at, &p->limits);
	if (r == 0)
		r = read_proxy(doc, p, e);
	return r < 0 ? r : read_section(doc, "resolve", p, read_pin, e);
}

static struct policy *compile(const struct doc *doc, bool travelled, struct err *e)
{
	struct err ignored;
	struct policy *p = policy_new_empty();
	if (!p) {
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	if (read_document(doc, travelled, p, e ? e : &ignored) < 0) {
		policy_free(p);
		return NULL;
	}
	return p;
}

struct policy *policy_compile(const struct doc *doc, struct err *e)
{
	return compile(doc, false, e);
}

struct policy *policy_from_json(const json_t *j, struct err *e)
{
	/* The tree is only read; a document has no const form of it. */
	char name[] = "policy";
	struct doc doc = {.root = (json_t *)(uintptr_t)j, .name = name};
	return compile(&doc, true, e);
}
