/* SPDX-License-Identifier: Apache-2.0 */
/* What comes before and around a build: the content address, the running of tools, and refusals
 * that leave nothing behind. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "image/address.h"
#include "image/disk.h"
#include "image/image.h"
#include "image/tool.h"

static const char ca_pem[] = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";

static int setup(void **state)
{
	char *dir = strdup("/tmp/build-test-XXXXXX");
	if (!dir || !mkdtemp(dir))
		return -1;
	*state = dir;
	return 0;
}

static int teardown(void **state)
{
	dir_remove_all(*state);
	free(*state);
	return 0;
}

static void put(const char *dir, const char *file, const char *text, mode_t mode)
{
	auto_free char *path = str_printf("%s/%s", dir, file);
	assert_non_null(path);
	assert_int_equal(file_write_atomic(path, text, strlen(text), mode), 0);
}

struct inputs {
	char *recipe;
	char *agent;
};

static void make_inputs(const char *dir, struct inputs *in)
{
	in->recipe = str_printf("%s/recipe", dir);
	in->agent = str_printf("%s/agent", dir);
	assert_int_equal(dir_make_all(in->recipe, 0755), 0);
	put(in->recipe, "recipe.yaml", "suite: bookworm\n", 0644);
	put(in->recipe, "customize", "#!/bin/sh\n", 0755);
	put(dir, "agent", "agent", 0755);
}

static void inputs_done(struct inputs *in)
{
	free(in->recipe);
	free(in->agent);
}

static void address_changes_with_each_input_alone(void **state)
{
	struct inputs in;
	char hash[10][ADDRESS_HEX_SIZE];
	struct err e = {0};
	make_inputs(*state, &in);
	struct address_inputs a = {in.recipe, ca_pem, in.agent, 0};
	size_t n = 0;
	assert_int_equal(address_of(&a, hash[n++], &e), 0);
	a.generation = 1;
	assert_int_equal(address_of(&a, hash[n++], &e), 0);
	a.generation = 0;
	a.ca_pem = "-----BEGIN CERTIFICATE-----\n";
	assert_int_equal(address_of(&a, hash[n++], &e), 0);
	a.ca_pem = ca_pem;
	put(*state, "agent", "agenT", 0755);
	assert_int_equal(address_of(&a, hash[n++], &e), 0);
	put(*state, "agent", "agent", 0755);
	put(in.recipe, "customize", "#!/bin/sh\n", 0644);
	assert_int_equal(address_of(&a, hash[n++], &e), 0);
	put(in.recipe, "customize", "#!/bin/sh\ntrue\n", 0755);
	assert_int_equal(address_of(&a, hash[n++], &e), 0);
	put(in.recipe, "customize", "#!/bin/sh\n", 0755);
	put(in.recipe, "extra", "", 0644);
	assert_int_equal(address_of(&a, hash[n++], &e), 0);
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(hash[i], hash[j]);
	inputs_done(&in);
}

static void address_ignores_times_and_editors_files(void **state)
{
	struct inputs in;
	char first[ADDRESS_HEX_SIZE];
	char second[ADDRESS_HEX_SIZE];
	struct err e = {0};
	make_inputs(*state, &in);
	struct address_inputs a = {in.recipe, ca_pem, in.agent, 0};
	assert_int_equal(address_of(&a, first, &e), 0);
	assert_int_equal(strlen(first), 64);
	put(in.recipe, "recipe.yaml", "suite: bookworm\n", 0644);
	put(in.recipe, "recipe.yaml~", "old", 0644);
	put(in.recipe, ".recipe.swp", "x", 0644);
	assert_int_equal(address_of(&a, second, &e), 0);
	assert_string_equal(first, second);
	inputs_done(&in);
}

static void address_names_the_input_that_is_missing(void **state)
{
	struct inputs in;
	char hash[ADDRESS_HEX_SIZE];
	struct err e = {0};
	make_inputs(*state, &in);
	struct address_inputs a = {in.recipe, ca_pem, in.agent, 0};
	unlink(in.agent);
	assert_int_equal(address_of(&a, hash, &e), -ENOENT);
	assert_non_null(strstr(e.text, in.agent));
	put(*state, "agent", "agent", 0755);
	auto_free char *sub = str_printf("%s/sub", in.recipe);
	assert_int_equal(dir_make_all(sub, 0755), 0);
	assert_int_equal(address_of(&a, hash, &e), -EINVAL);
	assert_string_equal(e.text, "recipe file sub is not a plain file");
	a.recipe_dir = "/nonexistent/recipe";
	assert_int_equal(address_of(&a, hash, &e), -ENOENT);
	inputs_done(&in);
}

static const char *const tool_env[] = {TOOL_PATH_ENV, "GREETING=hello", NULL};

static int run(const char *script, struct err *e)
{
	struct tools t = {.title = "test", .env = tool_env, .lock_fd = -1};
	const char *const argv[] = {"sh", "-c", script, NULL};
	return tools_run(&t, argv, e);
}

static void tools_get_their_environment_and_no_input(void **state)
{
	(void)state;
	struct err e = {0};
	assert_int_equal(run("test \"$GREETING\" = hello && test -z \"$HOME\" && ! read x", &e), 0);
}

static void tools_failures_carry_the_line_that_says_most(void **state)
{
	(void)state;
	struct err e = {0};
	assert_int_equal(run("echo one; echo 'E: no such mirror' >&2; echo last; exit 3", &e),
			 -EIO);
	assert_string_equal(e.text, "sh failed: E: no such mirror");
	assert_int_equal(run("echo one; printf last; exit 1", &e), -EIO);
	assert_string_equal(e.text, "sh failed: last");
	assert_int_equal(run("exit 1", &e), -EIO);
	assert_string_equal(e.text, "sh failed: it said nothing");
	assert_int_equal(run("echo 'x: No space left on device'; echo 'E: x'; exit 1", &e),
			 -ENOSPC);
	assert_string_equal(e.text, "sh found no space left on the device: free some");
	assert_int_equal(run("kill -9 $$", &e), -EIO);
	assert_string_equal(e.text, "sh was ended by signal 9");
	assert_int_equal(run("i=0; while [ $i -lt 500 ]; do printf 'xxxxxxxxxxxxxxxx'; i=$((i+1)); "
			     "done; exit 1",
			     &e),
			 -EIO);
	assert_true(strlen(e.text) < 300);
}

static void tools_do_not_wait_for_what_stays_in_the_background(void **state)
{
	struct err e = {0};
	auto_free char *pid_file = str_printf("%s/pid", (char *)*state);
	auto_free char *script = str_printf("sleep 60 & echo $! >%s", pid_file);
	uint64_t start = clock_mono_ms();
	assert_int_equal(run(script, &e), 0);
	assert_true(clock_mono_ms() - start < 30000);
	auto_free char *text = NULL;
	size_t len;
	uint64_t pid;
	assert_int_equal(file_read(pid_file, 32, &text, &len), 0);
	text[strcspn(text, "\n")] = '\0';
	assert_int_equal(str_to_u64(text, 2, INT32_MAX, &pid), 0);
	assert_int_equal(kill((pid_t)pid, SIGKILL), 0);
}

static void tools_missing_name_their_package(void **state)
{
	(void)state;
	struct err e = {0};
	assert_int_equal(tools_want("sh", "dash", &e), 0);
	assert_int_equal(tools_want("no-such-tool", "some-package", &e), -ENOENT);
	assert_string_equal(e.text, "no-such-tool is missing: apt-get install some-package");
}

static void build_fails(const char *store, const struct inputs *in, const char *name,
			const char *pem, const char *text)
{
	struct err e = {0};
	assert_true(image_build(store, in->recipe, name, pem, false, &e) < 0);
	if (!strstr(e.text, text))
		fail_msg("'%s' does not say '%s'", e.text, text);
	assert_null(strchr(e.text, '\n'));
}

static void build_refuses_before_it_makes_anything(void **state)
{
	struct inputs in;
	struct stat st;
	make_inputs(*state, &in);
	auto_free char *store = str_printf("%s/store", (char *)*state);
	setenv("SPACE_AGENT", in.agent, 1);
	build_fails(store, &in, "../x", ca_pem, "not the name of an image");
	build_fails(store, &in, "base", "", "image base: the CA certificate is not PEM");
	build_fails(store, &in, "base",
		    "-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n", "private key");
	if (geteuid() != 0) {
		build_fails(store, &in, "base", ca_pem, "needs root");
		print_message("the rest needs root\n");
		skip();
	}
	setenv("SPACE_AGENT", "/nonexistent/agent", 1);
	build_fails(store, &in, "base", ca_pem, "/nonexistent/agent");
	setenv("SPACE_AGENT", in.agent, 1);
	put(in.recipe, "customize", "#!/bin/sh\n", 0644);
	build_fails(store, &in, "base", ca_pem, "customize, which has to be a program");
	assert_int_equal(stat(store, &st), -1);
	inputs_done(&in);
	unsetenv("SPACE_AGENT");
}

static void measure_rounds_files_up_to_blocks(void **state)
{
	const char *dir = *state;
	struct disk_need before;
	struct disk_need after;
	struct err e = {0};
	assert_int_equal(disk_measure(dir, &before, &e), 0);
	put(dir, "one-byte", "x", 0644);
	auto_free char *link = str_printf("%s/link", dir);
	assert_int_equal(symlink("one-byte", link), 0);
	assert_int_equal(disk_measure(dir, &after, &e), 0);
	assert_int_equal(after.bytes - before.bytes, DISK_BLOCK);
	assert_int_equal(after.inodes - before.inodes, 2);
	assert_int_equal(disk_measure("/nonexistent/tree", &after, &e), -ENOENT);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(address_changes_with_each_input_alone),
		TEST(address_ignores_times_and_editors_files),
		TEST(address_names_the_input_that_is_missing),
		TEST(tools_get_their_environment_and_no_input),
		TEST(tools_failures_carry_the_line_that_says_most),
		TEST(tools_do_not_wait_for_what_stays_in_the_background),
		TEST(tools_missing_name_their_package),
		TEST(build_refuses_before_it_makes_anything),
		TEST(measure_rounds_files_up_to_blocks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
