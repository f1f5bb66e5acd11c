/* SPDX-License-Identifier: Apache-2.0 */
/* Users from texts of /etc/passwd and /etc/group: what is found, what is skipped, what is refused.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/user.h"
#include "base/buf.h"
#include "base/cleanup.h"

static const char passwd[] = "root:x:0:0:root:/root:/bin/bash\n"
			     "\n"
			     "# comment\n"
			     "broken\n"
			     "bad:x:one:two::/:/bin/sh\n"
			     "user:x:1000:1001:A User,,,:/home/user:/bin/zsh\n"
			     "user:x:7:7::/second:/bin/false\n"
			     "1000:x:5:5::/number:/bin/sh\n"
			     "nohome:x:8:8:::\n"
			     "relative:x:9:9::home:sh\n"
			     "huge:x:4294967295:0::/:/bin/sh\n"
			     "negative:x:-1:0::/:/bin/sh\n"
			     "more:x:10:10::/:/bin/sh:extra\n"
			     "last:x:11:11::/l:/bin/sh";

static const char group[] = "root:x:0:\n"
			    "user:x:1001:user\n"
			    "sudo:x:27:someone,user\n"
			    "users:x:100:user1,xuser,useruser\n"
			    "bad:x:abc:user\n"
			    "short:x:5\n"
			    "audio:x:29:user";

static void user_has_name_ids_home_and_shell(void **state)
{
	(void)state;
	auto_user struct user u = {0};
	assert_int_equal(user_find(passwd, group, "user", &u), 0);
	assert_string_equal(u.name, "user");
	assert_string_equal(u.home, "/home/user");
	assert_string_equal(u.shell, "/bin/zsh");
	assert_int_equal(u.uid, 1000);
	assert_int_equal(u.gid, 1001);
}

static void user_has_all_groups_that_list_him_once(void **state)
{
	static const gid_t want[] = {1001, 27, 29};
	(void)state;
	auto_user struct user u = {0};
	assert_int_equal(user_find(passwd, group, "user", &u), 0);
	assert_int_equal(u.group_count, 3);
	assert_memory_equal(u.groups, want, sizeof(want));
}

static void user_last_line_needs_no_newline(void **state)
{
	(void)state;
	auto_user struct user u = {0};
	assert_int_equal(user_find(passwd, group, "last", &u), 0);
	assert_string_equal(u.home, "/l");
}

static void user_name_goes_before_number(void **state)
{
	(void)state;
	auto_user struct user u = {0};
	assert_int_equal(user_find(passwd, group, "1000", &u), 0);
	assert_int_equal(u.uid, 5);
}

static void user_is_found_by_number(void **state)
{
	(void)state;
	auto_user struct user u = {0};
	assert_int_equal(user_find(passwd, group, "11", &u), 0);
	assert_string_equal(u.name, "last");
}

static void user_without_home_or_shell_gets_defaults(void **state)
{
	static const char *const names[] = {"nohome", "relative"};
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		auto_user struct user u = {0};
		assert_int_equal(user_find(passwd, group, names[i], &u), 0);
		assert_string_equal(u.home, "/");
		assert_string_equal(u.shell, "/bin/sh");
	}
}

static void user_that_is_none_is_not_found(void **state)
{
	static const char *const names[] = {
		"",       "nosuch",    "bad",        "broken",
		"huge",   "more",      "12",         "-1",
		"user:x", "negative",  "us",         "user ",
		"root\n", "# comment", "4294967295", "99999999999999999999"};
	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		auto_user struct user u = {0};
		assert_int_equal(user_find(passwd, group, names[i], &u), -ENOENT);
	}
}

static void user_root_needs_no_files(void **state)
{
	(void)state;
	auto_user struct user u = {0};
	assert_int_equal(user_find("", "", "root", &u), 0);
	assert_int_equal(u.uid, 0);
	assert_string_equal(u.home, "/root");
	assert_int_equal(u.group_count, 1);
}

static void user_with_too_many_groups_is_refused(void **state)
{
	(void)state;
	auto_user struct user u = {0};
	auto_buf struct buf text;
	buf_init(&text, 1 << 20);
	for (int i = 0; i <= USER_GROUPS_MAX; i++)
		assert_int_equal(buf_printf(&text, "g%d:x:%d:user\n", i, 2000 + i), 0);
	auto_free char *many = buf_take_str(&text);
	assert_int_equal(user_find(passwd, many, "user", &u), -E2BIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(user_has_name_ids_home_and_shell),
		cmocka_unit_test(user_has_all_groups_that_list_him_once),
		cmocka_unit_test(user_last_line_needs_no_newline),
		cmocka_unit_test(user_name_goes_before_number),
		cmocka_unit_test(user_is_found_by_number),
		cmocka_unit_test(user_without_home_or_shell_gets_defaults),
		cmocka_unit_test(user_that_is_none_is_not_found),
		cmocka_unit_test(user_root_needs_no_files),
		cmocka_unit_test(user_with_too_many_groups_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
