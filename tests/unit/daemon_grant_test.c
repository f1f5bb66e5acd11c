/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of granted credentials: what a grant may narrow, when it ends, what a gateway and a child
 * get of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "daemon/grant_entry.h"

#define NOW 1000000u

static json_t *parse(const char *text)
{
	struct err e;
	json_t *j = doc_parse_json(text, strlen(text), &e);
	if (!j)
		fail_msg("%s: %s", e.text, text);
	return j;
}

/* An entry with these members besides. */
static json_t *entry_of(const char *members)
{
	auto_free char *text =
		str_printf("{\"name\":\"T\",\"stored\":\"S\",\"hosts\":[\"a.test\"]%s%s}",
			   *members ? "," : "", members);
	return parse(text);
}

/* A list's item within another's, as the member of that name has them. */
static int narrow(const char *member, const char *mine, const char *wide, struct err *e)
{
	auto_free char *definition_text =
		str_printf("{\"hosts\":[\"a.test\"],\"%s\":[\"%s\"]}", member, wide);
	auto_free char *entry_text =
		str_printf("{\"name\":\"T\",\"stored\":\"S\",\"%s\":[\"%s\"]}", member, mine);
	if (str_eq(member, "hosts")) {
		free(definition_text);
		definition_text = str_printf("{\"hosts\":[\"%s\"]}", wide);
	}
	auto_json json_t *definition = parse(definition_text), *entry = parse(entry_text);
	return grant_entry_narrow(entry, definition, e);
}

static void a_list_narrows_and_never_widens(void **state)
{
	(void)state;
	static const struct {
		const char *member, *mine, *wide;
		bool within;
	} cases[] = {
		{"hosts", "api.test", "api.test", true},
		{"hosts", "API.test.", "api.test", true},
		{"hosts", "api.x.test", "*.x.test", true},
		{"hosts", "x.test", "*.x.test", false},
		{"hosts", "a.b.x.test", "*.x.test", false},
		{"hosts", "a.b.x.test", "**.x.test", true},
		{"hosts", "x.test", "**.x.test", true},
		{"hosts", "*.x.test", "*.x.test", true},
		{"hosts", "*.x.test", "**.x.test", true},
		{"hosts", "**.x.test", "*.x.test", false},
		{"hosts", "**.a.x.test", "**.x.test", true},
		{"hosts", "*.ax.test", "**.x.test", false},
		{"hosts", "*.a.x.test", "*.x.test", false},
		{"hosts", "*.x.test", "a.x.test", false},
		{"hosts", "other.test", "api.test", false},
		{"methods", "GET", "GET", true},
		{"methods", "POST", "GET", false},
		{"paths", "/a", "/a", true},
		{"paths", "/a/b", "/a/*", true},
		{"paths", "/a/b/c", "/a/*", false},
		{"paths", "/a/b/c", "/a/**", true},
		{"paths", "/a", "/a/**", true},
		{"paths", "/a/*/c", "/a/**", true},
		{"paths", "/a/*/c", "/a/*/*", true},
		{"paths", "/a/b*", "/a/*", true},
		{"paths", "/a/*", "/a/b*", false},
		{"paths", "/a*", "/ab*", false},
		{"paths", "/a/**", "/a/*", false},
		{"paths", "/a/**", "/a/**", true},
		{"paths", "/a/b/**", "/a/**", true},
		{"paths", "/a/**", "/a/b/**", false},
		{"paths", "/a/**", "/a/*/**", false},
		{"paths", "/a/*/**", "/a/**", true},
		{"paths", "/**", "/**", true},
		{"paths", "/**", "/*", false},
		{"paths", "/**", "/a/**", false},
		{"paths", "/a/**/b", "/a/**", false}, /* it is, but need not be seen */
		{"paths", "/a/**/b", "/**", true},
		{"paths", "/%61", "/a", true},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct err e = {0};
		int r = narrow(cases[i].member, cases[i].mine, cases[i].wide, &e);
		if ((r == 0) != cases[i].within)
			fail_msg("%s %s within %s: %d %s", cases[i].member, cases[i].mine,
				 cases[i].wide, r, e.text);
		if (r < 0)
			assert_non_null(strstr(e.text, "never widens"));
	}
}

static int narrow_all(const char *mine, json_t **ret, struct err *e)
{
	auto_json json_t *definition =
		parse("{\"hosts\":[\"a.test\"],\"methods\":[\"GET\"],\"paths\":[\"/a/**\"],"
		      "\"inject\":{\"kind\":\"basic\"},\"canary\":true,\"uses\":10,\"bytes\":100,"
		      "\"expiresMs\":5000}");
	*ret = parse(mine);
	return grant_entry_narrow(*ret, definition, e);
}

static void what_is_not_said_is_the_definitions(void **state)
{
	(void)state;
	struct err e;
	json_t *entry;
	assert_int_equal(narrow_all("{\"name\":\"T\",\"stored\":\"S\"}", &entry, &e), 0);
	auto_json json_t *all = parse(
		"{\"name\":\"T\",\"stored\":\"S\",\"hosts\":[\"a.test\"],\"methods\":[\"GET\"],"
		"\"paths\":[\"/a/**\"],\"inject\":{\"kind\":\"basic\"},\"canary\":true,"
		"\"uses\":10,\"bytes\":100,\"expiresMs\":5000}");
	assert_true(json_equal(entry, all));
	json_decref(entry);

	assert_int_equal(narrow_all("{\"name\":\"T\",\"stored\":\"S\",\"uses\":9,\"bytes\":100,"
				    "\"expiresMs\":1,\"inject\":{\"kind\":\"basic\"}}",
				    &entry, &e),
			 0);
	assert_int_equal(json_integer_value(json_object_get(entry, "uses")), 9);
	assert_int_equal(json_integer_value(json_object_get(entry, "expiresMs")), 1);
	json_decref(entry);
	static const char *const wrong[] = {
		"\"uses\":11",        "\"bytes\":101",
		"\"expiresMs\":5001", "\"inject\":{\"kind\":\"bearer\"}",
		"\"canary\":false",   "\"uses\":0",
		"\"hosts\":[]",       "\"paths\":[5]"};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		auto_free char *text = str_printf("{\"name\":\"T\",\"stored\":\"S\",%s}", wrong[i]);
		if (narrow_all(text, &entry, &e) == 0)
			fail_msg("%s", wrong[i]);
		assert_non_null(strstr(e.text, "T"));
		json_decref(entry);
	}
}

static void it_ends_by_time_use_bytes_and_hand(void **state)
{
	(void)state;
	static const struct {
		const char *members, *state;
		bool lives;
	} cases[] = {
		{"", "good", true},
		{"\"unavailable\":\"x\"", "unavailable", true},
		{"\"expires\":1000001", "good", true},
		{"\"expires\":1000000", "expired", false},
		{"\"uses\":3,\"used\":2", "good", true},
		{"\"uses\":3,\"used\":3", "used up", false},
		{"\"bytes\":3,\"usedBytes\":3", "used up", false},
		{"\"used\":1000,\"usedBytes\":1000", "good", true},
		{"\"state\":\"revoked\",\"expires\":5", "revoked", false},
		{"\"state\":\"adding\"", "good", true},
		{"\"expires\":5,\"unavailable\":\"x\"", "expired", false},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		auto_json json_t *entry = entry_of(cases[i].members);
		assert_string_equal(grant_entry_state(entry, NOW), cases[i].state);
		assert_int_equal(grant_entry_lives(entry, NOW), cases[i].lives);
	}
}

/* The members of a wire form as text, in order. */
static char *wire(json_t *entry)
{
	auto_json json_t *j = grant_entry_wire(entry, NOW);
	assert_non_null(j);
	return json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS);
}

static void a_gateway_gets_what_is_left_and_nothing_of_ours(void **state)
{
	(void)state;
	auto_json json_t *entry = entry_of(
		"\"uses\":5,\"used\":2,\"bytes\":10,\"usedBytes\":4,\"expires\":1000500,\"value\":\"v\","
		"\"source\":{\"command\":[\"x\"]},\"firstUse\":1,\"lastUse\":2,\"usedBefore\":1,"
		"\"variables\":{\"T\":\"p\"},\"methods\":[\"GET\"]");
	auto_free char *text = wire(entry);
	assert_string_equal(text, "{\"bytes\":6,\"expiresMs\":500,\"hosts\":[\"a.test\"],"
				  "\"methods\":[\"GET\"],\"name\":\"T\",\"uses\":3,\"value\":\"v\","
				  "\"variables\":{\"T\":\"p\"}}");

	/* From now on its counts are added to these. */
	auto_json json_t *use =
		parse("{\"kind\":\"egress.request\",\"credential\":\"T\",\"use\":1}");
	assert_false(grant_entry_count(entry, use, NOW));
	assert_int_equal(json_integer_value(json_object_get(entry, "used")), 3);
	assert_int_equal(json_integer_value(json_object_get(entry, "firstUse")), 1);
	assert_int_equal(json_integer_value(json_object_get(entry, "lastUse")), NOW);

	/* What is dead has no value, whatever is known. */
	json_object_set_new(entry, "state", json_string("revoked"));
	auto_free char *dead = wire(entry);
	assert_null(strstr(dead, "\"value\""));
	assert_non_null(strstr(dead, "\"unavailable\":\"revoked\""));
	auto_json json_t *spent = entry_of("\"uses\":2,\"used\":9,\"value\":\"v\"");
	auto_free char *none = wire(spent);
	assert_non_null(strstr(none, "\"uses\":0"));
	assert_null(strstr(none, "\"value\""));
}

static void records_are_counted_once(void **state)
{
	(void)state;
	auto_json json_t *entry = entry_of("");
	auto_json json_t *first = parse("{\"credential\":\"T\",\"use\":1}");
	auto_json json_t *third = parse("{\"credential\":\"T\",\"use\":3}");
	auto_json json_t *other = parse("{\"credential\":\"U\",\"use\":9}");
	auto_json json_t *end = parse("{\"credential\":\"T\",\"credential_bytes\":70}");
	auto_json json_t *alarm = parse("{\"alarm\":\"T\",\"reason\":\"x\"}");
	grant_entry_count(entry, first, 5);
	grant_entry_count(entry, third, 6); /* the second was told to a spaced that died */
	grant_entry_count(entry, first, 7); /* and may come again */
	grant_entry_count(entry, other, 8);
	grant_entry_count(entry, end, 9);
	assert_int_equal(json_integer_value(json_object_get(entry, "used")), 3);
	assert_int_equal(json_integer_value(json_object_get(entry, "usedBytes")), 70);
	assert_int_equal(json_integer_value(json_object_get(entry, "firstUse")), 5);
	assert_int_equal(json_integer_value(json_object_get(entry, "lastUse")), 7);
	assert_true(grant_entry_count(entry, alarm, 10));
	assert_int_equal(json_integer_value(json_object_get(entry, "alarmed")), 10);
}

static void a_child_gets_what_is_left(void **state)
{
	(void)state;
	auto_json json_t *entry = entry_of("\"uses\":5,\"used\":2,\"usedBefore\":1,\"firstUse\":3,"
					   "\"variables\":{\"T\":\"p\"},\"expires\":9");
	auto_json json_t *child = grant_entry_inherit(entry);
	auto_json json_t *want = entry_of("\"uses\":3,\"variables\":{\"T\":\"p\"},\"expires\":9,"
					  "\"inherited\":[{\"T\":\"p\"}]");
	assert_true(json_equal(child, want));

	/* What its processes hold is known to its gateway, up to a bound. */
	json_object_set_new(child, "variables", parse("{\"T\":\"q\"}"));
	json_t *last = grant_entry_inherit(child);
	json_object_set_new(last, "variables", parse("{\"T\":\"r\"}"));
	auto_free char *text = wire(last);
	assert_non_null(strstr(text, "\"variables\":{\"PARENT_0_T\":\"p\",\"PARENT_1_T\":\"q\","
				     "\"T\":\"r\"}"));
	for (size_t i = 0; i < 40; i++) {
		json_t *next = grant_entry_inherit(last);
		json_decref(last);
		last = next;
	}
	assert_int_equal(json_array_size(json_object_get(last, "inherited")), 16);
	json_decref(last);

	auto_json json_t *spent = entry_of("\"uses\":5,\"used\":5");
	auto_json json_t *dead = grant_entry_inherit(spent);
	assert_string_equal(grant_entry_state(dead, NOW), "used up");
}

static void no_value_is_written_down_or_shown(void **state)
{
	(void)state;
	auto_json json_t *entry = entry_of("\"value\":\"v-secret\",\"unavailable\":\"why\"");
	json_t *forms[] = {grant_entry_stored(entry), grant_entry_shown(entry, NOW),
			   grant_entry_scope(entry)};
	for (size_t i = 0; i < 3; i++) {
		auto_json json_t *form = forms[i];
		auto_free char *text = json_dumps(form, 0);
		assert_null(strstr(text, "v-secret"));
	}
	auto_json json_t *old =
		parse("{\"name\":\"T\",\"hosts\":[\"a.test\"],\"placeholder\":\"p\"}");
	grant_entry_update(old);
	auto_json json_t *want =
		parse("{\"name\":\"T\",\"hosts\":[\"a.test\"],\"variables\":{\"T\":\"p\"}}");
	assert_true(json_equal(old, want));
}

static void a_guest_learns_nothing_of_the_host_from_what_fails(void **state)
{
	(void)state;
	static const char why[] = "credential T: /opt/helper exited with status 3";
	auto_json json_t *entry = entry_of("\"variables\":{\"T\":\"p\"}");
	grant_entry_fail(entry, why);
	assert_string_equal(grant_entry_state(entry, NOW), "unavailable");
	auto_free char *told = wire(entry);
	assert_null(strstr(told, "helper"));
	assert_non_null(strstr(told, "\"unavailable\":\"its source fails\""));
	auto_json json_t *shown = grant_entry_shown(entry, NOW);
	assert_string_equal(json_string_value(json_object_get(shown, "reason")), why);
	auto_json json_t *stored = grant_entry_stored(entry);
	auto_free char *kept = json_dumps(stored, 0);
	assert_null(strstr(kept, "helper"));

	/* Another reason of another time is not that one. */
	json_object_set_new(entry, "unavailable", json_string("it was resumed without its value"));
	auto_json json_t *other = grant_entry_shown(entry, NOW);
	assert_null(strstr(json_string_value(json_object_get(other, "reason")), "helper"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_list_narrows_and_never_widens),
		cmocka_unit_test(what_is_not_said_is_the_definitions),
		cmocka_unit_test(it_ends_by_time_use_bytes_and_hand),
		cmocka_unit_test(a_gateway_gets_what_is_left_and_nothing_of_ours),
		cmocka_unit_test(records_are_counted_once),
		cmocka_unit_test(a_child_gets_what_is_left),
		cmocka_unit_test(a_guest_learns_nothing_of_the_host_from_what_fails),
		cmocka_unit_test(no_value_is_written_down_or_shown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
