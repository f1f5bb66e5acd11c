/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions of credentials: what they mean, where each source may stand, and what is wrong. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/doc.h"
#include "daemon/definition.h"

static int parse(const char *text, enum definition_place place, struct definition *d, struct err *e)
{
	auto_json json_t *j = doc_parse_json(text, strlen(text), e);
	assert_non_null(j);
	return definition_read("API_TOKEN", j, place, d, e);
}

/* text holds for entry and source, with ' for ". */
static void means(const char *text, enum definition_place place, const char *entry,
		  const char *source)
{
	struct definition d;
	struct err e = {0};
	if (parse(text, place, &d, &e) < 0)
		fail_msg("%s: %s", text, e.text);
	auto_json json_t *want = doc_parse_json(entry, strlen(entry), &e);
	auto_json json_t *from = doc_parse_json(source, strlen(source), &e);
	assert_non_null(want);
	assert_non_null(from);
	if (!json_equal(d.entry, want) || !json_equal(d.source, from))
		fail_msg("%s: %s from %s", text, json_dumps(d.entry, 0), json_dumps(d.source, 0));
	definition_done(&d);
}

static void defaults_are_filled_in(void **state)
{
	(void)state;
	means("{\"hosts\":[\"a.example\"]}", DEFINITION_IN_STORE,
	      "{\"name\":\"API_TOKEN\",\"hosts\":[\"a.example\"],\"inject\":{\"kind\":\"bearer\"}}",
	      "{\"value\":true}");
	means("{\"name\":\"API_TOKEN\",\"hosts\":[\"a.example\"],\"ttl\":null,\"source\":null}",
	      DEFINITION_IN_POLICY,
	      "{\"name\":\"API_TOKEN\",\"hosts\":[\"a.example\"],\"inject\":{\"kind\":\"bearer\"}}",
	      "{\"env\":\"API_TOKEN\"}");
	means("{\"hosts\":[\"a.example\"],\"source\":{\"command\":[\"x\",\"y\"]}}",
	      DEFINITION_IN_POLICY,
	      "{\"name\":\"API_TOKEN\",\"hosts\":[\"a.example\"],\"inject\":{\"kind\":\"bearer\"}}",
	      "{\"command\":[\"x\",\"y\"],\"timeoutSeconds\":10}");
}

static void texts_become_numbers(void **state)
{
	(void)state;
	means("{\"hosts\":[\"*.a.example\"],\"ttl\":\"30m\",\"bytes\":\"1GB\",\"uses\":7,"
	      "\"inject\":\"basic\",\"methods\":[\"GET\"],\"paths\":[\"/x/**\"],\"canary\":true}",
	      DEFINITION_IN_STORE,
	      "{\"name\":\"API_TOKEN\",\"hosts\":[\"*.a.example\"],\"expiresMs\":1800000,"
	      "\"bytes\":1000000000,\"uses\":7,\"inject\":{\"kind\":\"basic\"},"
	      "\"methods\":[\"GET\"],\"paths\":[\"/x/**\"],\"canary\":true}",
	      "{\"value\":true}");
	static const struct {
		const char *ttl;
		json_int_t ms;
	} ttls[] = {{"90", 90000},       {"\"90\"", 90000},        {"\"90s\"", 90000},
		    {"\"1h\"", 3600000}, {"\"720h\"", 2592000000}, {"2592000", 2592000000}};
	for (size_t i = 0; i < sizeof(ttls) / sizeof(ttls[0]); i++) {
		char text[100];
		struct definition d;
		snprintf(text, sizeof(text), "{\"hosts\":[\"a.example\"],\"ttl\":%s}", ttls[i].ttl);
		assert_int_equal(parse(text, DEFINITION_IN_STORE, &d, NULL), 0);
		assert_int_equal(json_integer_value(json_object_get(d.entry, "expiresMs")),
				 ttls[i].ms);
		definition_done(&d);
	}
}

static void policy_may_leave_hosts_and_kind_to_the_store(void **state)
{
	(void)state;
	means("{\"source\":{\"stored\":\"OTHER\"},\"uses\":3}", DEFINITION_IN_POLICY,
	      "{\"name\":\"API_TOKEN\",\"uses\":3}", "{\"stored\":\"OTHER\"}");
	means("{\"source\":{\"stored\":\"OTHER\"},\"inject\":\"basic\",\"hosts\":[\"a.example\"]}",
	      DEFINITION_IN_POLICY,
	      "{\"name\":\"API_TOKEN\",\"inject\":{\"kind\":\"basic\"},\"hosts\":[\"a.example\"]}",
	      "{\"stored\":\"OTHER\"}");
}

static void wrong_ones_are_named(void **state)
{
	(void)state;
	static const struct {
		enum definition_place place;
		const char *text, *part;
	} bad[] = {
		{DEFINITION_IN_STORE, "{}", "hosts"},
		{DEFINITION_IN_STORE, "{\"hosts\":[\"a.example\"],\"name\":\"OTHER\"}", "OTHER"},
		{DEFINITION_IN_STORE, "{\"hosts\":[\"a.example\"],\"value\":\"x\"}", "value"},
		{DEFINITION_IN_STORE, "{\"hosts\":[\"a.example\"],\"ttl\":2592001}", "ttl"},
		{DEFINITION_IN_STORE, "{\"hosts\":[\"a.example\"],\"ttl\":\"721h\"}", "ttl"},
		{DEFINITION_IN_STORE, "{\"hosts\":[\"a.example\"],\"ttl\":-1}", "ttl"},
		{DEFINITION_IN_STORE, "{\"hosts\":[\"a.example\"],\"ttl\":1.5}", "ttl"},
		{DEFINITION_IN_STORE, "{\"hosts\":[\"a.example\"],\"bytes\":\"1\"}", "bytes"},
		{DEFINITION_IN_STORE, "{\"hosts\":[\"a.example\"],\"bytes\":0}", "bytes"},
		{DEFINITION_IN_STORE, "{\"hosts\":[\"a.example\"],\"uses\":\"5\"}", "uses"},
		{DEFINITION_IN_STORE, "{\"hosts\":[\"a.example\"],\"source\":{\"env\":\"X\"}}",
		 "env"},
		{DEFINITION_IN_POLICY, "{\"hosts\":[\"a.example\"],\"source\":{\"value\":true}}",
		 "value"},
		{DEFINITION_IN_POLICY, "{\"hosts\":[\"a.example\"],\"source\":{\"oauth2\":{}}}",
		 "secret set"},
		{DEFINITION_IN_POLICY, "{\"source\":{\"env\":\"X\"}}", "hosts"},
		{DEFINITION_IN_POLICY, "{\"hosts\":[\"a.example\"],\"source\":{\"env\":\"a-b\"}}",
		 "a-b"},
		{DEFINITION_IN_POLICY, "{\"source\":{\"stored\":\"X\"},\"methods\":[\"get\"]}",
		 "methods"},
		{DEFINITION_IN_POLICY, "{\"source\":{\"stored\":\"X\"},\"inject\":\"x\"}",
		 "inject"},
		{DEFINITION_IN_POLICY,
		 "{\"hosts\":[\"a.example\"],\"inject\":\"certificate\",\"source\":{\"command\":["
		 "\"x\"]}}",
		 "certificate"},
		{DEFINITION_IN_POLICY, "{\"hosts\":[\"a.example\"],\"inject\":\"certificate\"}",
		 "certificate"},
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct definition d = {0};
		struct err e = {0};
		assert_int_equal(parse(bad[i].text, bad[i].place, &d, &e), -EINVAL);
		if (!strstr(e.text, bad[i].part) || !strstr(e.text, "API_TOKEN"))
			fail_msg("%s: %s", bad[i].text, e.text);
		assert_null(d.entry);
	}
	struct err e = {0};
	struct definition d;
	auto_json json_t *fine = json_pack("{s:[s]}", "hosts", "a.example");
	assert_int_equal(definition_read("a-b", fine, DEFINITION_IN_STORE, &d, &e), -EINVAL);
	assert_int_equal(definition_read("X", NULL, DEFINITION_IN_STORE, &d, &e), -EINVAL);
}

static void values_are_judged_by_kind(void **state)
{
	(void)state;
	struct definition d;
	struct err e = {0};
	assert_int_equal(parse("{\"hosts\":[\"a.example\"]}", DEFINITION_IN_STORE, &d, &e), 0);
	auto_json json_t *good = json_string("hunter2-x");
	auto_json json_t *cut = json_string("hunter2\r\nx");
	auto_json json_t *pair = json_pack("{s:s}", "accessKeyId", "hunter2");
	assert_int_equal(definition_check_value(&d, good, &e), 0);
	assert_int_equal(definition_check_value(&d, cut, &e), -EINVAL);
	assert_non_null(strstr(e.text, "API_TOKEN"));
	assert_null(strstr(e.text, "hunter2"));
	assert_int_equal(definition_check_value(&d, pair, &e), -EINVAL);
	assert_int_equal(definition_check_value(&d, NULL, &e), -ENOMEM);
	definition_done(&d);
}

static void sources_are_no_part_of_a_grant(void **state)
{
	(void)state;
	struct definition a, b, c;
	struct err e;
	parse("{\"hosts\":[\"a.example\"]}", DEFINITION_IN_STORE, &a, &e);
	parse("{\"hosts\":[\"a.example\"],\"source\":{\"file\":\"/x\"}}", DEFINITION_IN_STORE, &b,
	      &e);
	parse("{\"hosts\":[\"b.example\"]}", DEFINITION_IN_STORE, &c, &e);
	assert_true(definition_same_grant(&a, &b));
	assert_false(definition_same_grant(&a, &c));
	definition_done(&a);
	definition_done(&b);
	definition_done(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_are_filled_in),
		cmocka_unit_test(texts_become_numbers),
		cmocka_unit_test(policy_may_leave_hosts_and_kind_to_the_store),
		cmocka_unit_test(wrong_ones_are_named),
		cmocka_unit_test(values_are_judged_by_kind),
		cmocka_unit_test(sources_are_no_part_of_a_grant),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
