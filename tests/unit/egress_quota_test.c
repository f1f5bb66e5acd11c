/* SPDX-License-Identifier: Apache-2.0 */
/* Limits are charged before anything passes, to the sandbox and the rule or to neither. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/doc.h"
#include "egress/quota.h"

/* rule and sandbox: members of their limits. */
static struct policy *make(const char *rule, const char *sandbox)
{
	char text[1024];
	struct err e;
	snprintf(text, sizeof(text),
		 "{\"egress\":[{\"host\":\"a.example.com\",\"limits\":{%s}},"
		 "{\"host\":\"b.example.com\"}],\"limits\":{%s}}",
		 rule, sandbox);
	auto_json json_t *document = doc_parse_json(text, strlen(text), &e);
	assert_non_null(document);
	struct policy *p = policy_from_json(document, &e);
	if (!p)
		fail_msg("%s", e.text);
	return p;
}

static void set(struct quotas *q, const char *rule, const char *sandbox, uint64_t now)
{
	struct policy *p = make(rule, sandbox);
	assert_int_equal(quotas_set(q, p, now), 0);
	policy_free(p);
}

static struct quotas *with(const char *rule, const char *sandbox)
{
	struct quotas *q = quotas_new();
	assert_non_null(q);
	set(q, rule, sandbox, 0);
	return q;
}

/* Begins and ends. */
static const char *one(struct quotas *q, size_t rule, uint64_t now, unsigned *ret_status)
{
	struct quota_hold h;
	struct quota_excess e = {0};
	bool may = quota_begin(q, rule, now, &h, &e);
	*ret_status = e.status;
	quota_end(&h);
	return may ? NULL : e.limit;
}

static void requests_are_counted_for_rule_and_sandbox(void **state)
{
	(void)state;
	unsigned status;
	struct quotas *q = with("\"requests\":2", "\"requests\":3");
	assert_null(one(q, 0, 0, &status));
	assert_null(one(q, 0, 0, &status));
	assert_string_equal(one(q, 0, 0, &status), "requests");
	assert_int_equal(status, 403);
	assert_null(one(q, 1, 0, &status)); /* what the rule refused was not charged */
	assert_string_equal(one(q, 1, 0, &status), "requests");
	quotas_free(q);
}

static void rate_is_a_bucket_that_fills_evenly(void **state)
{
	(void)state;
	unsigned status;
	struct quotas *q = with("", "\"requestsPerMinute\":60");
	for (int i = 0; i < 60; i++)
		assert_null(one(q, 1, 5, &status));
	assert_string_equal(one(q, 1, 5, &status), "requestsPerMinute");
	assert_int_equal(status, 429);
	assert_non_null(one(q, 1, 1004, &status));
	assert_null(one(q, 1, 1005, &status));
	assert_non_null(one(q, 1, 1006, &status));
	for (int i = 0; i < 60; i++)
		assert_null(one(q, 1, 10000000, &status));
	assert_non_null(one(q, 1, 10000000, &status));
	quotas_free(q);
}

static void connections_are_given_back(void **state)
{
	(void)state;
	struct quota_hold a, b, c;
	struct quota_excess e;
	struct quotas *q = with("\"connections\":1", "\"connections\":2");
	assert_true(quota_begin(q, 0, 0, &a, &e));
	assert_false(quota_begin(q, 0, 0, &b, &e));
	assert_string_equal(e.limit, "connections");
	assert_int_equal(e.status, 429);
	assert_true(quota_begin(q, 1, 0, &b, &e));
	assert_false(quota_begin(q, 1, 0, &c, &e));
	quota_end(&a);
	quota_end(&a);
	assert_true(quota_begin(q, 0, 0, &c, &e));
	quota_end(&b);
	quota_end(&c);
	quotas_free(q);
}

static void bytes_are_charged_before_they_pass(void **state)
{
	(void)state;
	struct quota_hold h;
	struct quota_excess e;
	struct quotas *q = with("\"bytesUp\":10", "\"bytesDown\":5");
	assert_true(quota_begin(q, 0, 0, &h, &e));
	assert_true(quota_charge(&h, QUOTA_UP, 9, &e));
	assert_false(quota_charge(&h, QUOTA_UP, 2, &e));
	assert_string_equal(e.limit, "bytesUp");
	assert_false(quota_charge(&h, QUOTA_UP, UINT64_MAX, &e));
	assert_true(quota_charge(&h, QUOTA_UP, 1, &e));
	assert_true(quota_charge(&h, QUOTA_DOWN, 5, &e));
	assert_false(quota_charge(&h, QUOTA_DOWN, 1, &e));
	assert_string_equal(e.limit, "bytesDown");
	quota_end(&h);
	assert_false(quota_begin(q, 0, 0, &h, &e)); /* used up */
	quota_end(&h);
	quotas_free(q);
}

static void a_body_has_a_limit_of_its_own(void **state)
{
	(void)state;
	struct quota_hold h;
	struct quota_excess e;
	struct quotas *q = with("\"bodyBytes\":4", "\"bodyBytes\":100");
	for (int i = 0; i < 2; i++) {
		assert_true(quota_begin(q, 0, 0, &h, &e));
		assert_true(quota_charge(&h, QUOTA_UP, 50, &e)); /* a head */
		assert_true(quota_fits(&h, 4, &e));
		assert_false(quota_fits(&h, 5, &e));
		assert_int_equal(e.status, 413);
		assert_true(quota_charge_body(&h, 4, &e));
		assert_false(quota_charge_body(&h, 1, &e));
		assert_string_equal(e.limit, "bodyBytes");
		quota_end(&h);
	}
	quotas_free(q);
}

static void lifetimes_end_what_is_open(void **state)
{
	(void)state;
	struct quota_hold a, b;
	struct quota_excess e;
	struct quotas *q = with("\"lifetimeSeconds\":2", "\"lifetimeSeconds\":3");
	assert_true(quota_begin(q, 0, 0, &a, &e));
	assert_true(quota_begin(q, 1, 0, &b, &e));
	assert_int_equal(quotas_next_end_ms(q, 0), 2000);
	assert_true(quota_alive(&a, 1999, &e));
	assert_false(quota_alive(&a, 2000, &e));
	assert_string_equal(e.limit, "lifetimeSeconds");
	assert_int_equal(e.status, 403);
	assert_true(quota_alive(&b, 2000, &e));
	assert_int_equal(quotas_next_end_ms(q, 2000), 1000);
	assert_false(quota_alive(&b, 3000, &e));
	assert_int_equal(quotas_next_end_ms(q, 3000), 0);
	quota_end(&a);
	assert_false(quota_begin(q, 1, 3000, &a, &e));
	quota_end(&a);
	quota_end(&b);
	quotas_free(q);
}

static void a_new_policy_keeps_what_the_sandbox_has_used(void **state)
{
	(void)state;
	struct quota_hold a, b;
	struct quota_excess e;
	struct quotas *q = with("\"requests\":1", "\"requests\":2,\"lifetimeSeconds\":1");
	assert_true(quota_begin(q, 0, 0, &a, &e));
	set(q, "\"requests\":1,\"connections\":1", "\"requests\":2,\"lifetimeSeconds\":1", 5000);
	assert_true(quota_move(&a, 0, &e));
	assert_true(quota_alive(&a, 5500, &e));
	assert_false(quota_begin(q, 0, 5500, &b, &e)); /* a holds the connection */
	assert_string_equal(e.limit, "connections");
	assert_true(quota_begin(q, 1, 5500, &b, &e));
	quota_end(&b);
	assert_false(quota_begin(q, 1, 5500, &b, &e));
	assert_string_equal(e.limit, "requests");
	quota_end(&a);
	quotas_free(q);
}

static void what_began_under_an_old_policy_can_end(void **state)
{
	(void)state;
	struct quota_hold a, b;
	struct quota_excess e;
	struct quotas *q = with("", "");
	assert_true(quota_begin(q, 0, 0, &a, &e));
	assert_true(quota_begin(q, 0, 0, &b, &e));
	set(q, "\"connections\":1", "", 0);
	assert_true(quota_move(&a, 0, &e));
	assert_false(quota_move(&b, 0, &e));
	quota_end(&b);
	quota_end(&a);
	quotas_free(q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests_are_counted_for_rule_and_sandbox),
		cmocka_unit_test(rate_is_a_bucket_that_fills_evenly),
		cmocka_unit_test(connections_are_given_back),
		cmocka_unit_test(bytes_are_charged_before_they_pass),
		cmocka_unit_test(a_body_has_a_limit_of_its_own),
		cmocka_unit_test(lifetimes_end_what_is_open),
		cmocka_unit_test(a_new_policy_keeps_what_the_sandbox_has_used),
		cmocka_unit_test(what_began_under_an_old_policy_can_end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
