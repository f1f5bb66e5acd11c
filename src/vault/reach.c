/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a policy lets secrets be used: some request to each of their hosts must be possible. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "vault/secret_state.h"

#define SAMPLE_MAX (POLICY_HOST_MAX + 8)

/* Turns "*.x" and "**.x" into a name that the pattern matches: the labels put for the stars are
 * given. */
static bool pattern_sample(const char *pattern, const char *labels, char out[SAMPLE_MAX])
{
	const char *rest = pattern;
	while (*rest == '*')
		rest++;
	if (rest == pattern) {
		snprintf(out, SAMPLE_MAX, "%s", pattern);
		return !*labels;
	}
	if (!*labels)
		snprintf(out, SAMPLE_MAX, "%s", rest + 1);
	else
		snprintf(out, SAMPLE_MAX, "%s%s", labels, rest);
	return policy_pattern_matches(pattern, out);
}

/* Whether some name matches both. Stars stand at the front alone, so three samples of each tell. */
bool patterns_overlap(const char *a, const char *b)
{
	static const char *const labels[] = {"", "a", "a.a"};
	char sample[SAMPLE_MAX];
	for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++) {
		if (pattern_sample(a, labels[i], sample) && policy_pattern_matches(b, sample))
			return true;
		if (pattern_sample(b, labels[i], sample) && policy_pattern_matches(a, sample))
			return true;
	}
	return false;
}

/* Whether a rule before the one for https has such a connection passed on, where nothing can be put
 * in. */
static bool passes_unread(const struct policy *p, const struct policy_dest *dest)
{
	const unsigned all = (1u << POLICY_SCHEMES) - 1,
		       tls = 1u << POLICY_HTTPS | 1u << POLICY_TLS;
	return policy_first_scheme(p, dest, all) == POLICY_TCP ||
	       policy_first_scheme(p, dest, tls) == POLICY_TLS;
}

/* Whether rule (of a policy's document) allows https to some name that the pattern host matches. */
static bool rule_opens(const struct policy *p, const json_t *rule, const char *host)
{
	const char *pattern = json_string_value(json_object_get(rule, "host"));
	const char *scheme = json_string_value(json_object_get(rule, "scheme"));
	if (!pattern || json_is_true(json_object_get(rule, "deny")) ||
	    (scheme && !str_eq(scheme, "https")) || !patterns_overlap(pattern, host))
		return false;

	/* Labels that no deny rule is about. */
	static const char *const labels[] = {"", "_0", "_0._0"};
	const json_t *ports = json_object_get(rule, "ports");
	size_t count = json_array_size(ports);
	for (size_t i = 0; i < (count ? count : 1); i++) {
		json_int_t port = count ? json_integer_value(json_array_get(ports, i)) : 443;
		for (size_t k = 0; k < 2 * sizeof(labels) / sizeof(labels[0]); k++) {
			char sample[SAMPLE_MAX];
			struct policy_dest dest = {.scheme = POLICY_HTTPS, .port = (uint16_t)port};
			struct policy_verdict verdict;
			if (!pattern_sample(k % 2 ? pattern : host, labels[k / 2], sample) ||
			    strlen(sample) >= sizeof(dest.host) ||
			    !policy_pattern_matches(host, sample))
				continue;
			memcpy(dest.host, sample, strlen(sample) + 1);
			policy_decide(p, &dest, &verdict);
			if (verdict.allow && !passes_unread(p, &dest))
				return true;
		}
	}
	return false;
}

static bool policy_opens(const struct policy *p, const json_t *document, const char *host)
{
	const json_t *rules = json_object_get(document, "egress");
	for (size_t i = 0; i < json_array_size(rules); i++)
		if (rule_opens(p, json_array_get(rules, i), host))
			return true;
	return false;
}

int secret_check(const struct secret *s, const struct policy *p, const json_t *document,
		 struct err *e)
{
	for (size_t i = 0; i < s->hosts.count; i++)
		if (!policy_opens(p, document, s->hosts.list[i]))
			return err_set(e, EINVAL,
				       "secret %s is for %s, which no rule allows: add "
				       "--allow-host %s",
				       s->name, s->hosts.list[i], s->hosts.list[i]);
	return 0;
}
