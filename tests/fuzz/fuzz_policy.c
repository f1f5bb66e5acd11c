/* SPDX-License-Identifier: Apache-2.0 */
/* Policy documents: what compiles must mean the same after the way to a gateway. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "policy/policy.h"

#define ENTRIES_ASKED 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool truth)
{
	if (!truth)
		abort();
}

static void compare_verdicts(const struct policy *a, const struct policy *b,
			     const struct policy_dest *dest, struct policy_verdict *ret)
{
	struct policy_verdict vb;
	policy_decide(a, dest, ret);
	policy_decide(b, dest, &vb);
	require(ret->allow == vb.allow && ret->index == vb.index &&
		strcmp(ret->rule, vb.rule) == 0 && strcmp(ret->hint, vb.hint) == 0);
	require(!ret->allow || !ret->hint[0]);
	for (size_t i = 0; i < policy_rule_count(a) && i <= ret->index; i++)
		require((policy_rule_differs(a, i, dest) == NULL) == (i == ret->index));
}

/* The rule that a denial proposes, behind all that there are, allows just what was denied. */
static void follow_hint(const struct policy *a, const struct policy_dest *dest, const char *hint)
{
	auto_json json_t *whole = policy_to_json(a);
	struct err e = {0};
	if (strncmp(hint, "--allow-host ", 13) == 0) {
		struct policy *p = policy_from_json(whole, &e);
		require(p);
		if (policy_allow(p, hint + 13, &e) == 0) {
			struct policy_verdict v;
			policy_decide(p, dest, &v);
			require(v.allow);
		} else {
			require(e.code == E2BIG);
		}
		policy_free(p);
		return;
	}
	struct doc doc;
	require(doc_load(&doc, "hint", hint, strlen(hint), &e) == 0);
	json_array_extend(json_object_get(whole, "egress"), doc.root);
	doc_done(&doc);
	struct policy *p = policy_from_json(whole, &e);
	if (p) {
		struct policy_verdict v;
		policy_decide(p, dest, &v);
		require(v.allow);
	} else {
		require(strstr(e.text, "at most"));
	}
	policy_free(p);
}

static void compare(const struct policy *a, const struct policy *b, struct policy_dest *dest)
{
	struct policy_verdict asked, connection;
	const char *method = dest->method, *path = dest->path;
	compare_verdicts(a, b, dest, &asked);
	if (asked.hint[0])
		follow_hint(a, dest, asked.hint);
	dest->method = dest->path = NULL;
	compare_verdicts(a, b, dest, &connection);
	/* Who may ask something may connect, and who may connect can learn the address. */
	require(!asked.allow || connection.allow);
	require(!connection.allow || !dest->host[0] || policy_knows_host(a, dest->host));
	require(policy_knows_host(a, dest->host) == policy_knows_host(b, dest->host));
	int first = policy_first_scheme(a, dest, 1u << dest->scheme);
	require(first == (connection.allow ? (int)dest->scheme : -ENOENT));
	dest->method = method;
	dest->path = path;

	const char *address_a, *address_b, *ca_a, *ca_b;
	bool pinned = policy_resolve(a, dest->host, &address_a, &ca_a);
	require(pinned == policy_resolve(b, dest->host, &address_b, &ca_b));
	if (pinned)
		require(strcmp(address_a, address_b) == 0 && !ca_a == !ca_b &&
			(!ca_a || strcmp(ca_a, ca_b) == 0));
}

static void compare_places(const struct policy *a, const struct policy *b, struct policy_dest *dest,
			   const char *path)
{
	static const char *const methods[] = {"GET", "POST", "get"};
	static const uint16_t ports[] = {443, 80, 8443, 1};
	for (size_t i = 0; i < 4 * POLICY_SCHEMES; i++) {
		dest->scheme = (enum policy_scheme)(i % POLICY_SCHEMES);
		dest->port = ports[i / POLICY_SCHEMES];
		bool reads = dest->scheme == POLICY_HTTPS || dest->scheme == POLICY_HTTP;
		dest->method = reads ? methods[i % 3] : NULL;
		dest->path = reads ? path : NULL;
		compare(a, b, dest);
	}
}

/* Asks for the hosts and addresses that the document names, and for a name below and beside each;
   for each of its paths, whose stars stand for themselves. */
static void compare_entry(const struct policy *a, const struct policy *b, const json_t *entry)
{
	static const char *const fronts[] = {"", "x.", "x.y.", "evil"};
	const json_t *paths = json_object_get(entry, "paths");
	const char *path = json_string_value(json_array_get(paths, 0));
	const char *host = json_string_value(json_object_get(entry, "host"));
	const char *cidr = json_string_value(json_object_get(entry, "cidr"));
	char text[64];
	for (size_t f = 0; host && f < 4; f++) {
		struct policy_dest dest = {0};
		const char *name = host + strspn(host, "*.");
		int n = snprintf(dest.host, sizeof(dest.host), "%s%s", fronts[f], name);
		if ((size_t)n >= sizeof(dest.host))
			continue;
		if (policy_host_canonical(dest.host, strlen(dest.host), dest.host, NULL) < 0)
			continue;
		compare_places(a, b, &dest, f == 1 || !path ? "/a%2Fb" : path);
	}
	if (cidr) {
		struct policy_dest dest = {0};
		snprintf(text, sizeof(text), "%.*s", (int)strcspn(cidr, "/"), cidr);
		require(address_parse(text, &dest.address) == 0);
		compare_places(a, b, &dest, path ? path : "/");
		dest.address.bytes[3] ^= 1;
		compare_places(a, b, &dest, "/");
	}
}

static void compare_limits(const struct policy *a, const struct policy *b)
{
	require(policy_rule_count(a) == policy_rule_count(b));
	require(!policy_proxy(a) == !policy_proxy(b));
	require(!policy_proxy(a) || strcmp(policy_proxy(a), policy_proxy(b)) == 0);
	for (size_t i = 0; i <= policy_rule_count(a); i++) {
		size_t n = i < policy_rule_count(a) ? i : POLICY_NO_RULE;
		require(memcmp(policy_limits(a, n), policy_limits(b, n),
			       sizeof(struct policy_limits)) == 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = {0};
	struct doc doc;
	if (doc_load(&doc, "fuzz", (const char *)data, size, &e) < 0) {
		require(e.code != 0 && e.text[0]);
		return 0;
	}
	struct policy *a = policy_compile(&doc, &e);
	doc_done(&doc);
	if (!a) {
		require(e.code != 0 && strncmp(e.text, "fuzz:", 5) == 0);
		return 0;
	}
	auto_json json_t *j = policy_to_json(a);
	auto_free char *text = doc_to_text(j);
	auto_json json_t *received = doc_parse_json(text, strlen(text), &e);
	struct policy *b = policy_from_json(received, &e);
	require(b);
	auto_json json_t *again = policy_to_json(b);
	require(json_equal(j, again));
	static const char *const sections[] = {"egress", "resolve"};
	for (size_t s = 0; s < 2; s++) {
		const json_t *list = json_object_get(j, sections[s]);
		for (size_t i = 0; i < json_array_size(list) && i < ENTRIES_ASKED; i++)
			compare_entry(a, b, json_array_get(list, i));
	}
	compare_limits(a, b);
	policy_free(a);
	policy_free(b);
	return 0;
}
