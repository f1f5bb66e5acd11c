/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patterns of paths: '*' within a segment, "**" across. Both are matched with one place to go back
 * to, the last star: what stands before it was matched at the earliest place, and no later one
 * could serve better.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "policy/policy.h"
#include "policy/rules.h"

int policy_path_pattern_canonical(const char *s, char **ret, struct err *e)
{
	if (s[0] != '/')
		return err_set(e, EINVAL, "begins with '/'");
	if (strlen(s) > POLICY_PATH_MAX)
		return err_set(e, EINVAL, "longer than %d bytes", POLICY_PATH_MAX);
	if (strchr(s, '?'))
		return err_set(e, EINVAL, "the query is no part of what is matched");
	for (const char *star = strstr(s, "**"); star; star = strstr(star + 2, "**"))
		if (star[-1] != '/' || (star[2] && star[2] != '/'))
			return err_set(e, EINVAL,
				       "'**' stands for whole segments only: /repos/**, /**/x");
	const char *query;
	return policy_path_canonical(s, ret, &query, e);
}

/* One segment of n bytes against a pattern of m, in which '*' is any bytes. */
static bool segment_matches(const char *pattern, size_t m, const char *s, size_t n)
{
	size_t i = 0, k = 0, star = SIZE_MAX, from = 0;
	while (i < n) {
		if (k < m && pattern[k] == '*') {
			star = k++;
			from = i;
		} else if (k < m && pattern[k] == s[i]) {
			k++;
			i++;
		} else if (star != SIZE_MAX) {
			k = star + 1;
			i = ++from;
		} else {
			return false;
		}
	}
	while (k < m && pattern[k] == '*')
		k++;
	return k == m;
}

static const char *next_segment(const char *s)
{
	s += strcspn(s, "/");
	return *s ? s + 1 : NULL;
}

static bool is_any(const char *segment)
{
	return segment && segment[0] == '*' && segment[1] == '*';
}

bool policy_path_pattern_matches(const char *pattern, const char *path)
{
	/* Segments, behind their slash; NULL past the last. */
	const char *k = pattern + 1, *i = path + 1, *star = NULL, *from = NULL;
	while (i) {
		if (is_any(k)) {
			star = k = next_segment(k);
			from = i;
			if (!star)
				return true;
		} else if (k && segment_matches(k, strcspn(k, "/"), i, strcspn(i, "/"))) {
			k = next_segment(k);
			i = next_segment(i);
		} else if (star) {
			k = star;
			i = from = next_segment(from);
		} else {
			return false;
		}
	}
	while (is_any(k))
		k = next_segment(k);
	return !k;
}

bool policy_method_is_name(const char *s)
{
	size_t n = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");
	return n > 0 && n <= POLICY_METHOD_MAX && !s[n] && s[0] >= 'A' && s[0] <= 'Z';
}
