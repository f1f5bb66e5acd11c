/* SPDX-License-Identifier: Apache-2.0 */
/* Of this machine's apt sources, those of the suite are taken and nothing else. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "image/source.h"

static void sources_are_those_of_the_suite(void **state)
{
	(void)state;
	static const char targets[] =
		"deb|Packages|main|bookworm|bookworm|http://mirror.example/debian\n"
		"deb|DEP-11|main|bookworm|bookworm|http://mirror.example/debian\n"
		"deb|Packages|contrib|bookworm|bookworm|http://mirror.example/debian\n"
		"deb-src|Sources|main|bookworm|bookworm|http://mirror.example/debian\n"
		"deb|Packages|main|bookworm-updates|bookworm-updates|http://mirror.example/debian\n"
		"deb|Packages|main|bookworm-security|$(CODENAME)|https://security.example/debian-security\n"
		"deb|Packages|main|bookworm-backports|bookworm-backports|http://mirror.example/debian\n"
		"deb|Packages|main|bookwormish|$(CODENAME)|http://mirror.example/debian\n"
		"deb|Packages|main|trixie|trixie|http://mirror.example/debian\n"
		"deb|Packages|main|bookworm|bookworm|http://mirror.example/debian\n"
		"deb|Packages|main|bookworm\n"
		"\n";
	struct sources s;
	struct err e = {0};
	assert_int_equal(sources_pick(targets, "bookworm", &s, &e), 0);
	assert_int_equal(s.count, 3);
	assert_string_equal(s.lines[0], "deb http://mirror.example/debian bookworm main");
	assert_string_equal(s.lines[1], "deb http://mirror.example/debian bookworm-updates main");
	assert_string_equal(s.lines[2],
			    "deb https://security.example/debian-security bookworm-security main");
	sources_done(&s);
}

static void sources_named_by_status_are_known_by_code_name(void **state)
{
	(void)state;
	struct sources s;
	struct err e = {0};
	assert_int_equal(
		sources_pick("deb|Packages|main|oldstable|bookworm|http://m.example/debian\n",
			     "bookworm", &s, &e),
		0);
	assert_string_equal(s.lines[0], "deb http://m.example/debian bookworm main");
	sources_done(&s);
}

static void sources_without_the_suite_are_an_error(void **state)
{
	(void)state;
	struct sources s;
	struct err e = {0};
	assert_int_equal(sources_pick("", "bookworm", &s, &e), -ENOENT);
	assert_non_null(strstr(e.text, "/etc/apt/sources.list.d"));
	assert_int_equal(
		sources_pick(
			"deb|Packages|main|bookworm-updates|bookworm-updates|http://m.example\n",
			"bookworm", &s, &e),
		-ENOENT);
	assert_int_equal(s.count, 0);
}

static void sources_with_a_password_are_refused(void **state)
{
	(void)state;
	struct sources s;
	struct err e = {0};
	assert_int_equal(
		sources_pick("deb|Packages|main|bookworm||https://u:hunter2@m.example/debian\n",
			     "bookworm", &s, &e),
		-EINVAL);
	assert_null(strstr(e.text, "hunter2"));
	assert_int_equal(sources_pick("deb|Packages|main|bookworm||https://m.example/debian@x\n",
				      "bookworm", &s, &e),
			 0);
	sources_done(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sources_are_those_of_the_suite),
		cmocka_unit_test(sources_named_by_status_are_known_by_code_name),
		cmocka_unit_test(sources_without_the_suite_are_an_error),
		cmocka_unit_test(sources_with_a_password_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
