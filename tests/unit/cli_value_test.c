/* SPDX-License-Identifier: Apache-2.0 */
/* Values of credentials out of what people have: lines, JSON, AWS's files, PEM. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/definition.h"
#include "cli/value.h"

#define CERTIFICATE(n) "-----BEGIN CERTIFICATE-----\n" n "\n-----END CERTIFICATE-----\n"
#define KEY(kind) \
	"-----BEGIN " kind "PRIVATE KEY-----\nhunter2\n-----END " kind "PRIVATE KEY-----\n"

static struct err e;

static int each(void **state)
{
	(void)state;
	e = (struct err){0};
	return 0;
}

static json_t *parse_n(enum value_form form, const char *text, size_t n)
{
	json_t *values = NULL;
	assert_int_equal(value_parse("NAME", form, text, n, &values, &e), 0);
	return values;
}

static json_t *parse(enum value_form form, const char *text)
{
	return parse_n(form, text, strlen(text));
}

/* Whatever is wrong, the value stays out of what is said about it. */
static void refuse_n(enum value_form form, const char *text, size_t n, const char *what)
{
	json_t *values = NULL;
	assert_int_equal(value_parse("NAME", form, text, n, &values, &e), -EINVAL);
	assert_null(values);
	assert_non_null(strstr(e.text, "NAME"));
	assert_non_null(strstr(e.text, what));
	assert_null(strstr(e.text, "hunter2"));
}

static void refuse(enum value_form form, const char *text, const char *what)
{
	refuse_n(form, text, strlen(text), what);
}

static const char *member(const json_t *j, const char *key)
{
	return json_string_value(json_object_get(j, key));
}

static void one_newline_at_the_end_is_dropped(void **state)
{
	(void)state;
	static const char *const texts[] = {"s3cret", "s3cret\n", "s3cret\r\n"};
	for (size_t i = 0; i < 3; i++) {
		auto_json json_t *v = parse(VALUE_TEXT, texts[i]);
		assert_string_equal(member(v, "value"), "s3cret");
		assert_int_equal(json_object_size(v), 1);
	}
	auto_json json_t *spaced = parse(VALUE_TEXT, " two words ");
	assert_string_equal(member(spaced, "value"), " two words ");
	auto_json json_t *braces = parse(VALUE_TEXT, "{\"a\":1}\n"); /* a token may look so */
	assert_string_equal(member(braces, "value"), "{\"a\":1}");
}

static void values_that_no_request_could_carry_are_refused(void **state)
{
	(void)state;
	refuse(VALUE_TEXT, "", "is empty");
	refuse(VALUE_TEXT, "\n", "is empty");
	refuse(VALUE_TEXT, "hunter2\n\n", "line break");
	refuse(VALUE_TEXT, "hunter2\r\nX: y", "line break");
	refuse(VALUE_TEXT, "hunter2\x7f", "control character");
	refuse_n(VALUE_TEXT, "hunter2\0", 8, "control character");
	refuse(VALUE_TEXT, "hunter2\xff", "UTF-8");
	refuse(VALUE_AWS, "{\"accessKeyId\":\"a\",\"secretAccessKey\":\"hunter2\\u000a\"}",
	       "line break");
}

static void keys_of_aws_come_as_its_tools_write_them(void **state)
{
	(void)state;
	static const char *const texts[] = {
		"{\"accessKeyId\":\"AKIA1\",\"secretAccessKey\":\"s3/+=\",\"sessionToken\":\"t==\"}",
		"\n {\"Version\":1,\"AccessKeyId\":\"AKIA1\",\"SecretAccessKey\":\"s3/+=\","
		"\"SessionToken\":\"t==\",\"Expiration\":\"2030-01-01T00:00:00Z\"}",
		"[default]\naws_access_key_id = AKIA1\r\naws_secret_access_key=s3/+=\n"
		"region = x\n\n  aws_session_token  =  t==  \n",
	};
	for (size_t i = 0; i < 3; i++) {
		auto_json json_t *v = parse(VALUE_AWS, texts[i]);
		assert_int_equal(json_object_size(v), 3);
		assert_string_equal(member(v, "accessKeyId"), "AKIA1");
		assert_string_equal(member(v, "secretAccessKey"), "s3/+=");
		assert_string_equal(member(v, "sessionToken"), "t==");
		auto_json json_t *whole = value_of_entry(v);
		assert_ptr_equal(whole, v);
	}
	auto_json json_t *two =
		parse(VALUE_AWS, "aws_access_key_id=AKIA1\naws_secret_access_key=s");
	assert_int_equal(json_object_size(two), 2);
	refuse(VALUE_AWS, "hunter2", "secretAccessKey");
	refuse(VALUE_AWS, "{\"accessKeyId\":\"hunter2\"}", "secretAccessKey");
	refuse(VALUE_AWS, "{\"accessKeyId\":\"hunter2\",\"secretAccessKey\":7}", "secretAccessKey");
	refuse(VALUE_AWS, "{\"accessKeyId\":\"hunter2\"", "secretAccessKey");
	refuse(VALUE_AWS, "[a]\naws_access_key_id=hunter2\n[b]\n", "several profiles");
}

static void certificate_and_key_are_told_apart(void **state)
{
	(void)state;
	static const char *const kinds[] = {KEY(""), KEY("RSA "), KEY("EC ")};
	for (size_t i = 0; i < 3; i++) {
		char text[1024];
		snprintf(text, sizeof(text), "Bag Attributes\n%s%s junk %s", CERTIFICATE("one"),
			 kinds[i], CERTIFICATE("two"));
		auto_json json_t *v = parse(VALUE_CERTIFICATE, text);
		assert_string_equal(member(v, "certificate"),
				    CERTIFICATE("one") CERTIFICATE("two"));
		assert_string_equal(member(v, "key"), kinds[i]);
	}
	refuse(VALUE_CERTIFICATE, CERTIFICATE("hunter2"), "private key");
	refuse(VALUE_CERTIFICATE, KEY(""), "certificate");
	refuse(VALUE_CERTIFICATE, CERTIFICATE("x") KEY("") KEY(""), "more than one private key");
	refuse(VALUE_CERTIFICATE, CERTIFICATE("x") "-----BEGIN PRIVATE KEY-----\nhunter2", "PEM");
	refuse(VALUE_CERTIFICATE, "-----BEGIN ", "PEM");
	refuse(VALUE_CERTIFICATE, "", "PEM");
}

static void oauth_takes_what_its_grant_needs(void **state)
{
	(void)state;
	auto_json json_t *secret = parse(VALUE_CLIENT_SECRET, "s3cret\n");
	assert_string_equal(member(secret, "clientSecret"), "s3cret");
	auto_json json_t *refresh = parse(VALUE_REFRESH_TOKEN, "r3fresh\n");
	assert_string_equal(member(refresh, "refreshToken"), "r3fresh");
	assert_null(json_object_get(refresh, "clientSecret"));
	auto_json json_t *both =
		parse(VALUE_REFRESH_TOKEN, "{\"client_id\":\"c\",\"client_secret\":"
					   "\"s\",\"refresh_token\":\"r\"}");
	assert_string_equal(member(both, "refreshToken"), "r");
	assert_string_equal(member(both, "clientSecret"), "s");
	assert_int_equal(json_object_size(both), 2);
	auto_json json_t *key = parse(VALUE_KEY, KEY("RSA "));
	assert_string_equal(member(key, "key"), KEY("RSA "));
	auto_json json_t *google =
		parse(VALUE_KEY,
		      "{\"private_key\":\"-----BEGIN PRIVATE KEY-----\\nx\\n\",\"type\":\"t\"}");
	assert_string_equal(member(google, "key"), "-----BEGIN PRIVATE KEY-----\nx\n");
	refuse(VALUE_KEY, "hunter2", "private key");
	refuse(VALUE_CLIENT_SECRET, "", "client secret");
}

static void one_value_is_a_string_in_an_entry(void **state)
{
	(void)state;
	auto_json json_t *v = parse(VALUE_TEXT, "s3cret");
	auto_json json_t *value = value_of_entry(v);
	assert_string_equal(json_string_value(value), "s3cret");
}

static void environment_is_that_of_aws_for_its_keys(void **state)
{
	(void)state;
	auto_json json_t *v = NULL, *named = NULL, *none = NULL;
	setenv("AWS_ACCESS_KEY_ID", "AKIA1", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "s3", 1);
	unsetenv("AWS_SESSION_TOKEN");
	assert_int_equal(value_from_env("KEYS", VALUE_AWS, NULL, &v, &e), 0);
	assert_int_equal(json_object_size(v), 2);
	assert_string_equal(member(v, "secretAccessKey"), "s3");
	setenv("OTHER", "{\"accessKeyId\":\"A\",\"secretAccessKey\":\"B\"}", 1);
	assert_int_equal(value_from_env("KEYS", VALUE_AWS, "OTHER", &named, &e), 0);
	assert_string_equal(member(named, "accessKeyId"), "A");
	unsetenv("AWS_SECRET_ACCESS_KEY");
	assert_int_equal(value_from_env("KEYS", VALUE_AWS, NULL, &none, &e), -ENOENT);
	assert_string_equal(e.text,
			    "the variable AWS_SECRET_ACCESS_KEY is not set: export the value "
			    "of KEYS in it");
	setenv("CLI_EMPTY", "", 1);
	assert_int_equal(value_from_env("CLI_EMPTY", VALUE_TEXT, NULL, &none, &e), -ENOENT);
	assert_non_null(strstr(e.text, "CLI_EMPTY is empty"));
}

static void form_follows_source_and_kind(void **state)
{
	(void)state;
	static const struct {
		const char *definition;
		bool takes;
		enum value_form form;
	} cases[] = {
		{"{}", true, VALUE_TEXT},
		{"{\"inject\":{\"kind\":\"sigv4\"}}", true, VALUE_AWS},
		{"{\"inject\":\"certificate\",\"source\":{\"value\":true}}", true,
		 VALUE_CERTIFICATE},
		{"{\"kind\":\"sigv4\",\"source\":{\"env\":\"A\"}}", true, VALUE_AWS},
		{"{\"source\":{\"command\":[\"x\"]}}", false, VALUE_TEXT},
		{"{\"source\":{\"file\":\"/x\"}}", false, VALUE_TEXT},
		{"{\"source\":{\"oauth2\":{}}}", true, VALUE_CLIENT_SECRET},
		{"{\"source\":{\"oauth2\":{\"grant\":\"refresh_token\"}}}", true,
		 VALUE_REFRESH_TOKEN},
		{"{\"source\":{\"oauth2\":{\"grant\":\"github_app\"}}}", true, VALUE_KEY},
		{"{\"source\":7,\"inject\":[]}", true, VALUE_TEXT},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *text = cases[i].definition;
		auto_json json_t *d = doc_parse_json(text, strlen(text), &e);
		enum value_form form;
		assert_non_null(d);
		assert_int_equal(definition_takes_values(d, &form), cases[i].takes);
		if (cases[i].takes)
			assert_int_equal(form, cases[i].form);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(one_newline_at_the_end_is_dropped, each),
		cmocka_unit_test_setup(values_that_no_request_could_carry_are_refused, each),
		cmocka_unit_test_setup(keys_of_aws_come_as_its_tools_write_them, each),
		cmocka_unit_test_setup(certificate_and_key_are_told_apart, each),
		cmocka_unit_test_setup(oauth_takes_what_its_grant_needs, each),
		cmocka_unit_test_setup(one_value_is_a_string_in_an_entry, each),
		cmocka_unit_test_setup(environment_is_that_of_aws_for_its_keys, each),
		cmocka_unit_test_setup(form_follows_source_and_kind, each),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
