/* SPDX-License-Identifier: Apache-2.0 */
/* spaced's configuration file: what is taken, and the one line that says what is wrong. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "daemon/config.h"

static int parse(struct config *c, const char *text, struct err *e)
{
	config_defaults(c);
	return config_parse(c, "spaced.yaml", text, strlen(text), e);
}

static void nothing_said_means_defaults(void **state)
{
	static const char *const texts[] = {"", "\n \n", "# a remark\n", "{}", "pool: {}\n"};
	struct config c;
	struct err e;
	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		assert_int_equal(parse(&c, texts[i], &e), 0);
		assert_int_equal(c.ready, 2);
		assert_int_equal(c.pool_count, 0);
		assert_int_equal(c.compress_after_s, 3600);
		config_done(&c);
	}
}

static void all_that_can_be_said_is_taken(void **state)
{
	struct config c;
	struct err e;
	(void)state;
	assert_int_equal(parse(&c,
			       "ready: 0\n"
			       "pool:\n"
			       "  base: {size: 4}\n"
			       "  big: {size: 1, cpus: 2, memoryMB: 2048}\n"
			       "memoryReserveMB: 1024\n"
			       "templates: {maxAgeDays: 7, maxMB: 100}\n"
			       "compressAfter: 0\n",
			       &e),
			 0);
	assert_int_equal(c.ready, 0);
	assert_int_equal(c.pool_count, 2);
	for (size_t i = 0; i < 2; i++) {
		const struct config_pool *p = &c.pools[i];
		bool big = str_eq(p->image, "big");
		assert_true(big || str_eq(p->image, "base"));
		assert_int_equal(p->size, big ? 1 : 4);
		assert_int_equal(p->cpus, big ? 2 : 1);
		assert_int_equal(p->memory_mib, big ? 2048 : 512);
	}
	assert_int_equal(c.memory_reserve_mib, 1024);
	assert_int_equal(c.template_age_days, 7);
	assert_int_equal(c.template_max_mib, 100);
	assert_int_equal(c.compress_after_s, 0);
	config_done(&c);
}

static void what_is_wrong_is_named(void **state)
{
	static const struct {
		const char *text, *says;
	} wrong[] = {
		{"[]", "object"},
		{"reddy: 1\n", "reddy"},
		{"ready: many\n", "ready"},
		{"ready: 33\n", "ready"},
		{"pool: 4\n", "pool"},
		{"pool: {base: 4}\n", "base"},
		{"pool: {base: {}}\n", "size"},
		{"pool: {base: {size: 65}}\n", "size"},
		{"pool: {base: {size: 1, memory: 512}}\n", "memory"},
		{"pool: {base: {size: 1, cpus: 0}}\n", "cpus"},
		{"pool: {base: {size: 1, memoryMB: 1}}\n", "memoryMB"},
		{"pool: {\"../x\": {size: 1}}\n", "name"},
		{"templates: {maxAgeDays: 0}\n", "maxAgeDays"},
		{"templates: {maxMb: 1}\n", "maxMb"},
		{"compressAfter: -1\n", "compressAfter"},
		{"ready: 1\nready: 2\n", "twice"},
		{"ready: [\n", "spaced.yaml"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct config c;
		struct err e = {0};
		assert_int_equal(parse(&c, wrong[i].text, &e), -EINVAL);
		assert_non_null(strstr(e.text, wrong[i].says));
		assert_non_null(strstr(e.text, "spaced.yaml"));
		config_done(&c);
	}
}

static void pools_are_bounded(void **state)
{
	auto_free char *text = strdup("pool:\n");
	struct config c;
	struct err e;
	(void)state;
	for (int i = 0; i <= CONFIG_POOLS_MAX; i++) {
		char *more = str_printf("%s  i%d: {size: 1}\n", text, i);
		free(text);
		text = more;
	}
	assert_int_equal(parse(&c, text, &e), -EINVAL);
	assert_non_null(strstr(e.text, "pools"));
	config_done(&c);
}

static void file_that_is_not_there_says_nothing(void **state)
{
	char dir[] = "/tmp/config-XXXXXX";
	struct config c;
	struct err e;
	(void)state;
	assert_non_null(mkdtemp(dir));
	auto_free char *path = str_printf("%s/spaced.yaml", dir);
	config_defaults(&c);
	assert_int_equal(config_load(&c, path, &e), 0);
	assert_int_equal(file_write_atomic(path, "ready: 7\n", 9, 0600), 0);
	assert_int_equal(config_load(&c, path, &e), 0);
	assert_int_equal(c.ready, 7);
	assert_true(config_load(&c, dir, &e) < 0);
	assert_non_null(strstr(e.text, dir));
	config_done(&c);
	dir_remove_all(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_said_means_defaults),
		cmocka_unit_test(all_that_can_be_said_is_taken),
		cmocka_unit_test(what_is_wrong_is_named),
		cmocka_unit_test(pools_are_bounded),
		cmocka_unit_test(file_that_is_not_there_says_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
