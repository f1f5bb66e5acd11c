/* SPDX-License-Identifier: Apache-2.0 */
/* Policy documents: what compiles must mean the same after the way to a gateway. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "policy/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool truth)
{
	if (!truth)
		abort();
}

static void compare(const struct policy *a, const struct policy *b, const struct policy_dest *dest)
{
	struct policy_verdict va, vb;
	policy_decide(a, dest, &va);
	policy_decide(b, dest, &vb);
	require(va.allow == vb.allow && strcmp(va.rule, vb.rule) == 0 &&
		strcmp(va.hint, vb.hint) == 0);
	require(!va.allow || policy_knows_host(a, dest->host));
	require(policy_knows_host(a, dest->host) == policy_knows_host(b, dest->host));

	const char *address_a, *address_b, *ca_a, *ca_b;
	bool pinned = policy_resolve(a, dest->host, &address_a, &ca_a);
	require(pinned == policy_resolve(b, dest->host, &address_b, &ca_b));
	if (pinned)
		require(strcmp(address_a, address_b) == 0 && !ca_a == !ca_b &&
			(!ca_a || strcmp(ca_a, ca_b) == 0));
}

/* Asks for the hosts that the document names, and for a name below and beside each. */
static void compare_hosts(const struct policy *a, const struct policy *b, const json_t *list)
{
	static const char *const fronts[] = {"", "x.", "x.y.", "evil"};
	static const uint16_t ports[] = {443, 80, 8443, 1};
	size_t i;
	json_t *entry;
	json_array_foreach((json_t *)(uintptr_t)list, i, entry)
	{
		const char *host = json_string_value(json_object_get(entry, "host"));
		host += strspn(host, "*.");
		for (size_t f = 0; f < 16; f++) {
			struct policy_dest dest = {.scheme = f & 1 ? POLICY_HTTP : POLICY_HTTPS,
						   .port = ports[f % 4]};
			if (strlen(fronts[f / 4]) + strlen(host) >= sizeof(dest.host))
				continue;
			strcpy(dest.host, fronts[f / 4]);
			strcat(dest.host, host);
			compare(a, b, &dest);
		}
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
	compare_hosts(a, b, json_object_get(j, "egress"));
	compare_hosts(a, b, json_object_get(j, "resolve"));
	policy_free(a);
	policy_free(b);
	return 0;
}
