/* SPDX-License-Identifier: Apache-2.0 */
/* Variables, secrets, commands and places as they are written on the command line; text made safe
 * for a terminal. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "cli/spec.h"
#include "cli/text.h"

static struct err e;

static const char *member(const json_t *obj, const char *key)
{
	return json_string_value(json_object_get(obj, key));
}

static void env_takes_values_and_our_own(void **state)
{
	(void)state;
	auto_json json_t *envs = json_object();
	setenv("CLI_TEST_OWN", "mine", 1);
	unsetenv("CLI_TEST_NONE");
	assert_int_equal(spec_env(envs, "A=1=2", &e), 0);
	assert_int_equal(spec_env(envs, "EMPTY=", &e), 0);
	assert_int_equal(spec_env(envs, "CLI_TEST_OWN", &e), 0);
	assert_int_equal(spec_env(envs, "CLI_TEST_NONE", &e), 0);
	assert_string_equal(member(envs, "A"), "1=2");
	assert_string_equal(member(envs, "EMPTY"), "");
	assert_string_equal(member(envs, "CLI_TEST_OWN"), "mine");
	assert_null(member(envs, "CLI_TEST_NONE"));
}

static void env_rejects_what_cannot_be_a_variable(void **state)
{
	(void)state;
	auto_json json_t *envs = json_object();
	static const char *const bad[] = {"", "=x", "1A=x", "A B=x", "A-B", "A=\xff", "\xff=x"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(spec_env(envs, bad[i], &e), -EINVAL);
	assert_int_equal(json_object_size(envs), 0);
}

static void write_file(char *path, const char *text, size_t n)
{
	strcpy(path, "cli_spec_test.XXXXXX");
	auto_fd int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, n), 0);
}

static void env_file_is_read_line_by_line(void **state)
{
	(void)state;
	char path[64];
	static const char text[] = "# comment\n\nA=1\r\nB=x # y\nC=";
	write_file(path, text, sizeof(text) - 1);
	auto_json json_t *envs = json_object();
	assert_int_equal(spec_env_file(envs, path, &e), 0);
	unlink(path);
	assert_int_equal(json_object_size(envs), 3);
	assert_string_equal(member(envs, "A"), "1");
	assert_string_equal(member(envs, "B"), "x # y");
	assert_string_equal(member(envs, "C"), "");
}

static void env_file_errors_name_the_line(void **state)
{
	(void)state;
	char path[64];
	write_file(path, "A=1\n2=x\n", 8);
	auto_json json_t *envs = json_object();
	assert_int_equal(spec_env_file(envs, path, &e), -EINVAL);
	unlink(path);
	assert_non_null(strstr(e.text, ":2: "));
	write_file(path, "A=1\0B", 5);
	assert_int_equal(spec_env_file(envs, path, &e), -EINVAL);
	unlink(path);
	assert_int_equal(spec_env_file(envs, "/nonexistent/x", &e), -ENOENT);
}

static void secret_takes_its_value_from_the_environment(void **state)
{
	(void)state;
	auto_json json_t *secrets = json_array();
	setenv("CLI_TEST_TOKEN", "s3cret", 1);
	assert_int_equal(spec_secret(secrets, "CLI_TEST_TOKEN@a.example,*.b.example", &e), 0);
	const json_t *s = json_array_get(secrets, 0);
	assert_string_equal(member(s, "name"), "CLI_TEST_TOKEN");
	assert_string_equal(member(s, "value"), "s3cret");
	const json_t *hosts = json_object_get(s, "hosts");
	assert_int_equal(json_array_size(hosts), 2);
	assert_string_equal(json_string_value(json_array_get(hosts, 1)), "*.b.example");
}

static void secret_rejects_unset_and_empty_variables(void **state)
{
	(void)state;
	auto_json json_t *secrets = json_array();
	unsetenv("CLI_TEST_TOKEN");
	assert_int_equal(spec_secret(secrets, "CLI_TEST_TOKEN@a.example", &e), -EINVAL);
	assert_non_null(strstr(e.text, "not set"));
	setenv("CLI_TEST_TOKEN", "", 1);
	assert_int_equal(spec_secret(secrets, "CLI_TEST_TOKEN@a.example", &e), -EINVAL);
	assert_non_null(strstr(e.text, "empty"));
}

static void secret_without_hosts_is_the_nodes(void **state)
{
	(void)state;
	auto_json json_t *secrets = json_array();
	unsetenv("CLI_TEST_TOKEN");
	assert_int_equal(spec_secret(secrets, "CLI_TEST_TOKEN", &e), 0);
	const json_t *s = json_array_get(secrets, 0);
	assert_string_equal(member(s, "name"), "CLI_TEST_TOKEN");
	assert_string_equal(member(s, "stored"), "CLI_TEST_TOKEN");
	assert_int_equal(json_object_size(s), 2);
}

static void secret_never_repeats_a_value_given_by_mistake(void **state)
{
	(void)state;
	auto_json json_t *secrets = json_array();
	static const char *const bad[] = {
		"K=hunter2@a.example", "K=hunter2", "hunter2 x", "hunter2@", "@a", ""};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(spec_secret(secrets, bad[i], &e), -EINVAL);
		assert_null(strstr(e.text, "hunter2"));
	}
	setenv("CLI_TEST_TOKEN", "v", 1);
	assert_int_equal(spec_secret(secrets, "CLI_TEST_TOKEN@a,,b", &e), -EINVAL);
	assert_int_equal(json_array_size(secrets), 0);
}

static void command_must_be_text(void **state)
{
	(void)state;
	json_t *j = NULL;
	char *good[] = {"sh", "-c", "echo \xc3\xa4", ""};
	assert_int_equal(spec_command(4, good, &j, &e), 0);
	assert_string_equal(member(j, "cmd"), "sh");
	assert_int_equal(json_array_size(json_object_get(j, "args")), 3);
	json_decref(j);
	char *bad[] = {"sh", "\xff"};
	assert_int_equal(spec_command(2, bad, &j, &e), -EINVAL);
	char *empty[] = {""};
	assert_int_equal(spec_command(1, empty, &j, &e), -EINVAL);
}

static void place_is_here_unless_a_name_stands_before_the_colon(void **state)
{
	(void)state;
	static const struct {
		const char *text, *sandbox, *path;
	} cases[] = {
		{"w:/etc/passwd", "w", "/etc/passwd"},
		{"w-1.x:a:b", "w-1.x", "a:b"},
		{"./w:x", NULL, "./w:x"},
		{"/tmp/a", NULL, "/tmp/a"},
		{"-", NULL, "-"},
		{":x", NULL, ":x"},
		{"file", NULL, "file"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct spec_place p;
		assert_int_equal(spec_place(cases[i].text, &p, &e), 0);
		if (cases[i].sandbox)
			assert_string_equal(p.sandbox, cases[i].sandbox);
		else
			assert_null(p.sandbox);
		assert_string_equal(p.path, cases[i].path);
		spec_place_done(&p);
	}
	struct spec_place p;
	assert_int_equal(spec_place("w:", &p, &e), -EINVAL);
	assert_int_equal(spec_place("", &p, &e), -EINVAL);
}

static void expect_safe(const char *in, size_t n, const char *out)
{
	auto_free char *s = text_safe(in, n);
	assert_string_equal(s, out);
}

static void text_escapes_what_steers_a_terminal(void **state)
{
	(void)state;
	expect_safe("plain \xc3\xa4\xe2\x82\xac \xf0\x9f\x9a\x80", 16,
		    "plain \xc3\xa4\xe2\x82\xac \xf0\x9f\x9a\x80");
	expect_safe("\x1b[31mred\x1b[0m", 12, "\\x1b[31mred\\x1b[0m");
	expect_safe("a\nb\tc\rd\0e", 9, "a\\nb\\tc\\x0dd\\x00e");
	expect_safe("\x7f\xc2\x9b", 3, "\\x7f\\x9b");
	expect_safe("\xe2\x80\xae", 3, "\\u{202e}");
	expect_safe("\xff\xc3", 2, "\\xff\\xc3");
	expect_safe("\xc0\xaf", 2, "\\xc0\\xaf");
	expect_safe("", 0, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(env_takes_values_and_our_own),
		cmocka_unit_test(env_rejects_what_cannot_be_a_variable),
		cmocka_unit_test(env_file_is_read_line_by_line),
		cmocka_unit_test(env_file_errors_name_the_line),
		cmocka_unit_test(secret_takes_its_value_from_the_environment),
		cmocka_unit_test(secret_rejects_unset_and_empty_variables),
		cmocka_unit_test(secret_without_hosts_is_the_nodes),
		cmocka_unit_test(secret_never_repeats_a_value_given_by_mistake),
		cmocka_unit_test(command_must_be_text),
		cmocka_unit_test(place_is_here_unless_a_name_stands_before_the_colon),
		cmocka_unit_test(text_escapes_what_steers_a_terminal),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
