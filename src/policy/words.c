/* SPDX-License-Identifier: Apache-2.0 */
/* Decisions in words: which rule it was, and the smallest one that would allow. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "policy/policy.h"
#include "policy/rules.h"

struct text {
	char *out;
	size_t n, size;
	bool cut;
};

static void add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct text *t, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(t->out + t->n, t->size - t->n, fmt, ap);
	va_end(ap);
	t->n += (size_t)n;
	if (t->n < t->size)
		return;
	t->cut = true;
	t->n = t->size - 1;
}

/* The same for what is there as it is: each request that passes has its rule written. */
static void add_text(struct text *t, const char *s)
{
	size_t n = strlen(s), room = t->size - t->n - 1;
	t->cut |= n > room;
	n = n < room ? n : room;
	memcpy(t->out + t->n, s, n);
	t->n += n;
	t->out[t->n] = '\0';
}

static void add_port(struct text *t, uint16_t port)
{
	char digits[8];
	size_t at = sizeof(digits) - 1;
	digits[at] = '\0';
	do
		digits[--at] = (char)('0' + port % 10);
	while (port /= 10);
	digits[--at] = ':';
	add_text(t, digits + at);
}

static void add_list(struct text *t, char *const *list, size_t count)
{
	for (size_t i = 0; i < count && !t->cut; i++) {
		add_text(t, i ? "," : " ");
		add_text(t, list[i]);
	}
}

static void add_prefix(struct text *t, const struct address_prefix *p)
{
	char text[INET6_ADDRSTRLEN + 4];
	bool six = p->base.family == AF_INET6;
	cidr_to_text(p, text);
	add(t, six ? "[%s]" : "%s", text);
}

void rule_to_text(const struct policy_rule *rule, uint16_t port, char *out, size_t size)
{
	static const char more[] = "...";
	struct text t = {.out = out, .size = size};
	out[0] = '\0';
	if (rule->deny)
		add_text(&t, "deny ");
	if (!rule->any_scheme) {
		add_text(&t, scheme_name(rule->scheme));
		add_text(&t, "://");
	}
	if (rule->pattern[0])
		add_text(&t, rule->pattern);
	else
		add_prefix(&t, &rule->cidr);
	if (rule->port_count)
		add_port(&t, port);
	add_list(&t, rule->methods, rule->method_count);
	add_list(&t, rule->paths, rule->path_count);
	if (t.cut)
		memcpy(out + size - sizeof(more), more, sizeof(more));
}

/* The flag as one would type it: without what it means anyhow. */
static void flag_hint(struct text *t, const struct policy_dest *dest)
{
	bool say_scheme = dest->scheme != POLICY_HTTPS || dest->port == 80;
	add(t, "--allow-host %s%s%s", say_scheme ? scheme_name(dest->scheme) : "",
	    say_scheme ? "://" : "", dest->host);
	if (dest->port != scheme_port(dest->scheme))
		add_port(t, dest->port);
}

/* The scheme, unless https is meant anyhow, and the port, unless the scheme means it. */
static void add_way(struct text *t, const struct policy_dest *dest)
{
	if (dest->port != scheme_port(dest->scheme))
		add(t, ", ports: [%u]", dest->port);
	if (dest->scheme != POLICY_HTTPS)
		add(t, ", scheme: %s", scheme_name(dest->scheme));
}

/* A word as YAML: in quotes where it would be a number, a truth or nothing. */
static void add_word(struct text *t, const char *word)
{
	static const char *const taken[] = {"true", "false", "null", "TRUE", "FALSE", "NULL"};
	bool quote = word[0] >= '0' && word[0] <= '9';
	for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++)
		quote |= str_eq(word, taken[i]);
	add(t, quote ? "\"%s\"" : "%s", word);
}

/* A path as YAML: in quotes where its characters mean something between braces. One that is too
   long, or looks like a pattern, ends in "**" behind the last whole segment before that. */
static void add_path(struct text *t, const char *path)
{
	size_t room = t->size - t->n - sizeof(", paths: [\"/**\"], encodedSlash: true}");
	const char *stars = strstr(path, "**");
	size_t len = strlen(path), n = stars ? (size_t)(stars - path) : len;
	n = n < room ? n : room;
	bool whole = n == len;
	while (!whole && n > 0 && path[n] != '/')
		n--;
	size_t plain =
		strspn(path, "/-._~%@+=$&()"
			     "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");
	const char *quote = plain < n ? "\"" : "";
	add(t, ", paths: [%s%.*s%s%s]", quote, (int)n, path, whole ? "" : "/**", quote);
	if (strstr(path, "%2F"))
		add(t, ", encodedSlash: true");
}

static void add_place(struct text *t, const struct policy_dest *dest)
{
	struct address a = dest->address;
	char text[INET6_ADDRSTRLEN];
	if (!dest->address.family) {
		add(t, "host: ");
		add_word(t, dest->host);
		return;
	}
	address_unwrap(&a);
	address_format(&a, text);
	add(t, "cidr: \"%s/%u\"", text, a.family == AF_INET ? 32u : 128u);
}

/* One line of a document, for this request alone or for the whole place. */
static void line_hint(struct text *t, const struct policy_dest *dest, bool request)
{
	add(t, "- {");
	add_place(t, dest);
	add_way(t, dest);
	if (request && dest->method && policy_method_is_name(dest->method)) {
		add(t, ", methods: [");
		add_word(t, dest->method);
		add(t, "]");
	}
	if (request && dest->path)
		add_path(t, dest->path);
	add(t, "}");
}

/* Whether some request to this place is allowed, so that it is the request that is not. */
static bool place_allowed(const struct policy *p, const struct policy_dest *dest)
{
	for (size_t i = 0; i < p->rule_count; i++)
		if (!p->rules[i].deny && rule_fits_connection(&p->rules[i], dest))
			return true;
	return false;
}

void hint_to_text(const struct policy *p, const struct policy_dest *dest, char *out, size_t size)
{
	struct text t = {.out = out, .size = size};
	out[0] = '\0';
	bool literal = dest->address.family != 0, named = dest->host[0] && !literal;
	if (!named && (!literal || address_is_metadata(&dest->address)))
		return;
	/* No flag says that %2F may stand in a path. */
	bool request = place_allowed(p, dest) || (dest->path && strstr(dest->path, "%2F"));
	if (named && !request)
		flag_hint(&t, dest);
	else
		line_hint(&t, dest, request);
}
