/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy documents: read into rules, and written back. One decoder for what a person wrote (YAML or
 * JSON, with places for the errors) and for what travels to a gateway. Everything that it doesn't
 * know is an error: a misspelt field must not silently open or close anything.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "net/address.h"
#include "policy/policy.h"
#include "policy/rules.h"

#define PEM_CERTIFICATE "-----BEGIN CERTIFICATE-----"

/* Where in the document an entry stands, for its errors. */
struct entry {
	const struct doc *doc;
	const json_t *value;
	const char *section;
	size_t index;
	struct err *e;
};

/* "NAME:LINE:COLUMN: egress[2].host: what is wrong". Names the place of the field when it has one,
 * else the entry's. */
static int entry_error(const struct entry *at, const char *field, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int entry_error(const struct entry *at, const char *field, const char *fmt, ...)
{
	char text[ERR_TEXT_MAX];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	const json_t *value = json_object_get(at->value, field);
	bool marked = value && !json_is_null(value) && !json_is_boolean(value);
	return doc_error(at->doc, marked ? value : at->value, at->e, "%s[%zu].%.64s: %s",
			 at->section, at->index, field, text);
}

static const char *unknown_member(const json_t *obj, const char *const *known)
{
	const char *key;
	json_t *value;
	json_object_foreach((json_t *)(uintptr_t)obj, key, value)
	{
		const char *const *k = known;
		while (*k && !str_eq(*k, key))
			k++;
		if (!*k)
			return key;
	}
	return NULL;
}

/* The entry is an object with no fields but these; allowed names them for the error. */
static int entry_check(const struct entry *at, const char *const *known, const char *allowed)
{
	if (!json_is_object(at->value))
		return doc_error(at->doc, at->value, at->e, "%s[%zu]: must be a mapping with %s",
				 at->section, at->index, allowed);
	const char *unknown = unknown_member(at->value, known);
	if (unknown)
		return entry_error(at, unknown, "unknown field; allowed are %s", allowed);
	return 0;
}

/* A string member; *ret stays NULL when it is missing and may be. */
static int entry_string(const struct entry *at, const char *field, bool must, const char **ret)
{
	const json_t *j = json_object_get(at->value, field);
	*ret = NULL;
	if (!j || json_is_null(j))
		return must ? entry_error(at, field, "missing") : 0;
	if (!json_is_string(j))
		return entry_error(at, field, "must be a string");
	if (strlen(json_string_value(j)) != json_string_length(j))
		return entry_error(at, field, "a NUL in a string");
	*ret = json_string_value(j);
	return 0;
}

static int read_ports(const struct entry *at, struct policy_rule *rule)
{
	const json_t *list = json_object_get(at->value, "ports");
	if (!list || json_is_null(list)) {
		rule->ports[0] = scheme_port(rule->scheme);
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
			return doc_error(at->doc, json_is_integer(item) ? item : list, at->e,
					 "%s[%zu].ports[%zu]: a port is a number from 1 to 65535",
					 at->section, at->index, i);
		rule->ports[i] = (uint16_t)port;
	}
	rule->port_count = count;
	return 0;
}

static int read_rule(const struct entry *at, struct policy *p)
{
	static const char *const known[] = {"host", "ports", "scheme", NULL};
	struct policy_rule rule = {.scheme = POLICY_HTTPS};
	const char *host, *scheme;
	int r = entry_check(at, known, "host, ports, scheme");
	if (r < 0 || (r = entry_string(at, "host", true, &host)) < 0 ||
	    (r = entry_string(at, "scheme", false, &scheme)) < 0)
		return r;
	if (scheme && !str_eq(scheme, "http") && !str_eq(scheme, "https"))
		return entry_error(at, "scheme", "must be https or http");
	if (str_eq(scheme, "http"))
		rule.scheme = POLICY_HTTP;

	struct err why = {0};
	if (strchr(host, ':') || strchr(host, '/'))
		return entry_error(at, "host",
				   "a host name only; the port goes into ports, http into scheme");
	if (policy_pattern_canonical(host, rule.pattern, &why) < 0)
		return entry_error(at, "host", "%s", why.text);
	if ((r = read_ports(at, &rule)) < 0)
		return r;
	return policy_add_rule(p, &rule, &why) < 0 ? entry_error(at, "host", "%s", why.text) : 0;
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

static int read_document(const struct doc *doc, struct policy *p, struct err *e)
{
	static const char *const known[] = {"egress", "resolve", NULL};
	if (json_is_null(doc->root))
		return 0;
	if (!json_is_object(doc->root))
		return doc_error(doc, doc->root, e, "must be a mapping with egress, resolve");
	const char *unknown = unknown_member(doc->root, known);
	if (unknown)
		return doc_error(doc, json_object_get(doc->root, unknown), e,
				 "%.64s: unknown field; allowed are egress, resolve", unknown);
	int r = read_section(doc, "egress", p, read_rule, e);
	return r < 0 ? r : read_section(doc, "resolve", p, read_pin, e);
}

struct policy *policy_compile(const struct doc *doc, struct err *e)
{
	struct err ignored;
	struct policy *p = policy_new_empty();
	if (!p) {
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	if (read_document(doc, p, e ? e : &ignored) < 0) {
		policy_free(p);
		return NULL;
	}
	return p;
}

struct policy *policy_from_json(const json_t *j, struct err *e)
{
	/* The tree is only read; a document has no const form of it. */
	char name[] = "policy";
	struct doc doc = {.root = (json_t *)(uintptr_t)j, .name = name};
	return policy_compile(&doc, e);
}

static json_t *rule_to_json(const struct policy_rule *rule)
{
	json_t *ports = json_array();
	for (size_t i = 0; i < rule->port_count; i++)
		json_array_append_new(ports, json_integer(rule->ports[i]));
	return json_pack("{s:s, s:s, s:o}", "host", rule->pattern, "scheme",
			 scheme_name(rule->scheme), "ports", ports);
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
	return json_pack("{s:o, s:o}", "egress", egress, "resolve", resolve);
}
