/* SPDX-License-Identifier: Apache-2.0 */
/* Request targets and host names of a hostile guest: the canonical form is its own canonical form,
 * and harmless. */
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

static void check_path(const char *target)
{
	auto_free char *path = NULL, *again = NULL;
	const char *query;
	struct err e = {0};
	if (policy_path_canonical(target, &path, &query, &e) < 0) {
		require(e.code != 0 && e.text[0]);
		return;
	}
	require(path[0] == '/' && !strstr(path, "//") && !strpbrk(path, "\\?# \r\n"));
	require(!strstr(path, "/../") && !strstr(path, "/./"));
	for (const char *c = path; *c; c++)
		require(*c > 0x20 && *c < 0x7f);
	require(policy_path_canonical(path, &again, &query, &e) == 0);
	require(strcmp(path, again) == 0 && !query);
}

static void check_url(const char *url)
{
	struct policy_dest dest;
	char *path = NULL;
	struct err e = {0};
	if (policy_dest_from_url(url, &dest, &path, &e) < 0) {
		require(e.code != 0 && e.text[0] && !path);
		return;
	}
	require(dest.port && path == dest.path && !dest.host[0] == (dest.address.family != 0));
	free(path);
}

static void check_host(const char *s, size_t n)
{
	char host[POLICY_HOST_MAX], again[POLICY_HOST_MAX], pattern[POLICY_PATTERN_MAX];
	struct err e = {0};
	if (policy_host_canonical(s, n, host, &e) == 0) {
		require(policy_host_canonical(host, strlen(host), again, &e) == 0);
		require(strcmp(host, again) == 0);
		require(policy_pattern_matches(host, host));
	} else {
		require(e.code != 0 && e.text[0]);
	}
	if (strlen(s) == n && policy_pattern_canonical(s, pattern, &e) == 0)
		require(policy_pattern_check(pattern, &e) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_free char *s = malloc(size + 1);
	if (size)
		memcpy(s, data, size);
	s[size] = '\0';
	check_path(s);
	check_host(s, size);
	check_url(s);
	struct policy *p = policy_new_empty();
	policy_allow(p, s, NULL);
	policy_free(p);
	return 0;
}
