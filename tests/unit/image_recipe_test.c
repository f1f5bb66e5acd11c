/* SPDX-License-Identifier: Apache-2.0 */
/* A recipe is read whole, and what could turn into an option, a path or a line of a file elsewhere
 * is refused with its place. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "image/recipe.h"

static const char *const lines[] = {
	"suite: bookworm",
	"packages: [bash, python3.11, g++]",
	"kernel: linux-image-cloud-amd64",
	"modules: [virtio_blk, virtio-rng]",
	"cmdline: quiet panic=-1",
	"scratch: 8G",
	"user: user",
	"workdir: /home/user",
	"env: {LANG: C.UTF-8, _X: 'a=b c'}",
	"warmup: \"ls /\\ntrue\"",
};
#define LINES (sizeof(lines) / sizeof(lines[0]))

/* The good recipe with one line replaced (dropped when instead is NULL). */
static int parse_with(size_t which, const char *instead, struct recipe *r, struct err *e)
{
	auto_buf struct buf text;
	buf_init(&text, 1 << 16);
	for (size_t i = 0; i < LINES; i++)
		if (i != which || instead)
			buf_printf(&text, "%s\n", i == which ? instead : lines[i]);
	return recipe_parse("recipe.yaml", (const char *)text.data, text.len, r, e);
}

static void recipe_reads_every_key(void **state)
{
	(void)state;
	struct recipe r;
	struct err e = {0};
	assert_int_equal(parse_with(LINES, NULL, &r, &e), 0);
	assert_string_equal(r.suite, "bookworm");
	assert_int_equal(json_array_size(r.packages), 3);
	assert_string_equal(r.kernel, "linux-image-cloud-amd64");
	assert_int_equal(json_array_size(r.modules), 2);
	assert_string_equal(r.cmdline, "quiet panic=-1");
	assert_int_equal(r.scratch_bytes, 8ull << 30);
	assert_string_equal(r.user, "user");
	assert_string_equal(r.workdir, "/home/user");
	assert_string_equal(json_string_value(json_object_get(r.env, "_X")), "a=b c");
	assert_string_equal(r.warmup, "ls /\ntrue");
	recipe_done(&r);
}

static void recipe_does_without_optional_keys(void **state)
{
	(void)state;
	struct recipe r;
	struct err e = {0};
	assert_int_equal(parse_with(4, NULL, &r, &e), 0);
	assert_string_equal(r.cmdline, "");
	recipe_done(&r);
	assert_int_equal(parse_with(8, NULL, &r, &e), 0);
	assert_null(r.env);
	recipe_done(&r);
	assert_int_equal(parse_with(9, NULL, &r, &e), 0);
	assert_string_equal(r.warmup, "");
	recipe_done(&r);
}

static void refuses(size_t which, const char *instead, const char *text)
{
	struct recipe r;
	struct err e = {0};
	assert_int_equal(parse_with(which, instead, &r, &e), -EINVAL);
	if (!strstr(e.text, text))
		fail_msg("'%s' does not say '%s'", e.text, text);
}

static void recipe_names_the_missing_key(void **state)
{
	(void)state;
	static const struct {
		size_t line;
		const char *key;
	} wanted[] = {{0, "suite"},   {1, "packages"}, {2, "kernel"}, {3, "modules"},
		      {5, "scratch"}, {6, "user"},     {7, "workdir"}};
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		refuses(wanted[i].line, NULL, wanted[i].key);
	refuses(4, "cmdlin: quiet", "cmdlin");
}

static void recipe_refuses_values_with_their_place(void **state)
{
	(void)state;
	refuses(0, "suite: --help", "recipe.yaml:1:8: suite must be");
	refuses(0, "suite: ../x", "recipe.yaml:1:8");
	refuses(1, "packages: [bash, -oDebug=1]", "recipe.yaml:2:18: not the name of a package");
	refuses(1, "packages: ['a,b']", "not the name of a package");
	refuses(1, "packages: ['?essential']", "not the name of a package");
	refuses(1, "packages: [./x.deb]", "not the name of a package");
	refuses(1, "packages: [7]", "not the name of a package");
	refuses(1, "packages: bash", "packages");
	refuses(2, "kernel: 'x; reboot'", "recipe.yaml:3:9: kernel must be");
	refuses(2, "kernel: ''", "kernel must be");
	refuses(3, "modules: [../../x]", "recipe.yaml:4:11: not the name of a module");
	refuses(4, "cmdline: \"a\\nb\"", "cmdline must be");
	refuses(5, "scratch: 1M", "scratch must be a size");
	refuses(5, "scratch: 4000G", "scratch must be a size");
	refuses(5, "scratch: lots", "scratch must be a size");
	refuses(6, "user: Root", "user must be");
	refuses(6, "user: 0", "user");
	refuses(7, "workdir: home", "workdir must be");
	refuses(8, "env: {A-B: x}", "not the name of a variable");
	refuses(8, "env: {A: 1}", "not a string");
	refuses(8, "env: {A: \"x\\ny\"}", "not a string of printable ASCII");
	refuses(8, "env: {A: x, A: y}", "recipe.yaml:9:");
}

static void recipe_bounds_the_warmup(void **state)
{
	(void)state;
	struct recipe r;
	struct err e = {0};
	char line[RECIPE_WARMUP_MAX + 16] = "warmup: ";
	size_t head = strlen(line);
	memset(line + head, 'x', RECIPE_WARMUP_MAX);
	assert_int_equal(parse_with(9, line, &r, &e), 0);
	assert_int_equal(strlen(r.warmup), RECIPE_WARMUP_MAX);
	recipe_done(&r);
	line[head + RECIPE_WARMUP_MAX] = 'x';
	refuses(9, line, "recipe.yaml:10:9: warmup must be");
	refuses(9, "warmup: [ls]", "warmup");
	refuses(9, "warmup: \"a\\0b\"", "NUL");
}

static void recipe_refuses_other_documents(void **state)
{
	(void)state;
	struct recipe r;
	struct err e = {0};
	assert_int_equal(recipe_parse("r", "- a\n", 4, &r, &e), -EINVAL);
	assert_int_equal(recipe_parse("r", "", 0, &r, &e), -EINVAL);
	assert_int_equal(recipe_parse("r", "a: [\n", 5, &r, &e), -EINVAL);
	assert_int_equal(recipe_load("/nonexistent", &r, &e), -ENOENT);
	assert_non_null(strstr(e.text, "/nonexistent/recipe.yaml"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(recipe_reads_every_key),
		cmocka_unit_test(recipe_does_without_optional_keys),
		cmocka_unit_test(recipe_names_the_missing_key),
		cmocka_unit_test(recipe_refuses_values_with_their_place),
		cmocka_unit_test(recipe_bounds_the_warmup),
		cmocka_unit_test(recipe_refuses_other_documents),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
