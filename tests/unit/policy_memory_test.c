/* SPDX-License-Identifier: Apache-2.0 */
/* Each allocation of the room fails in turn: nothing half done, nothing left behind, and no
 * decision that allows. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "policy/policy.h"

/* The linker sends the room's allocations here (--wrap). */
void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__real_calloc(size_t count, size_t n);
void *__wrap_calloc(size_t count, size_t n);
void *__real_reallocarray(void *p, size_t count, size_t size);
void *__wrap_reallocarray(void *p, size_t count, size_t size);
char *__real_strdup(const char *s);
char *__wrap_strdup(const char *s);

static int allowed = -1; /* allocations until one fails; < 0: none does */

static bool denied(void)
{
	return allowed >= 0 && allowed-- == 0;
}

void *__wrap_malloc(size_t n)
{
	return denied() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t count, size_t n)
{
	return denied() ? NULL : __real_calloc(count, n);
}

void *__wrap_reallocarray(void *p, size_t count, size_t size)
{
	return denied() ? NULL : __real_reallocarray(p, count, size);
}

char *__wrap_strdup(const char *s)
{
	return denied() ? NULL : __real_strdup(s);
}

/* Runs step with the first, the second, ... allocation failing until it succeeds. */
static void fail_each(bool (*step)(void), int at_least)
{
	int n = 0;
	for (bool done = false; !done; n++) {
		allowed = n;
		done = step();
		assert_int_equal(done, allowed >= 0);
		allowed = -1;
		assert_true(n < 1000);
	}
	assert_true(n > at_least);
}

static json_t *document;

static bool compile(void)
{
	struct err e = {0};
	struct policy *p = policy_from_json(document, &e);
	if (!p)
		assert_non_null(strstr(e.text, "no memory"));
	policy_free(p);
	return p;
}

static struct policy *policy;

static bool allow(void)
{
	struct err e = {0};
	struct policy *p = policy_new_empty();
	int r = p ? policy_allow(p, "a.example", &e) : -ENOMEM;
	assert_int_equal(r, r < 0 ? -ENOMEM : 0);
	assert_true(!p || policy_rule_count(p) == (r == 0));
	policy_free(p);
	return r == 0;
}

static bool read_url(void)
{
	struct policy_dest dest;
	struct err e = {0};
	char *path = NULL;
	int r = policy_dest_from_url("https://a.example?y", &dest, &path, &e);
	assert_int_equal(r, r < 0 ? -ENOMEM : 0);
	free(path);
	return r == 0;
}

/* What can't be read in its second meaning is denied in any. */
static bool decide(void)
{
	struct policy_dest dest = {
		.host = "a.example", .port = 443, .method = "GET", .path = "/b%2Fc"};
	struct policy_verdict v;
	int before = allowed;
	policy_decide(policy, &dest, &v);
	bool failed = before >= 0 && allowed < 0;
	assert_int_equal(v.allow, !failed);
	return !failed;
}

static void no_memory_is_no_policy(void **state)
{
	(void)state;
	document =
		json_pack("{s:[{s:s, s:[s,s], s:[s,s]}], s:{s:s}, s:[{s:s, s:s, s:s}]}", "egress",
			  "host", "a.example", "methods", "GET", "PUT", "paths", "/a", "/b",
			  "proxy", "url", "http://p.example:1", "resolve", "host", "a.example",
			  "address", "10.0.0.1", "ca", "-----BEGIN CERTIFICATE-----");
	assert_non_null(document);
	fail_each(compile, 12);
	json_decref(document);
	fail_each(allow, 2);
	fail_each(read_url, 3);
}

static void no_memory_allows_nothing(void **state)
{
	(void)state;
	auto_json json_t *j =
		json_pack("{s:[{s:s, s:b, s:[s]}, {s:s, s:b}]}", "egress", "host", "a.example",
			  "deny", 1, "paths", "/x/**", "host", "a.example", "encodedSlash", 1);
	assert_non_null(j);
	policy = policy_from_json(j, NULL);
	assert_non_null(policy);
	fail_each(decide, 0);
	policy_free(policy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_memory_is_no_policy),
		cmocka_unit_test(no_memory_allows_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
