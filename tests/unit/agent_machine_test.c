/* SPDX-License-Identifier: Apache-2.0 */
/* When the guest's clock is set by the host's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/machine.h"

#define MS  1000000LL
#define NOW 1796058726886000000LL

static void clock_goes_forward_when_it_is_noticeably_behind(void **state)
{
	(void)state;
	assert_false(machine_clock_is_off(NOW - 10 * MS, NOW));
	assert_true(machine_clock_is_off(NOW - 10 * MS - 1, NOW));
	assert_true(machine_clock_is_off(NOW - 86400000 * MS, NOW));
}

static void clock_goes_back_only_when_it_is_far_ahead(void **state)
{
	(void)state;
	assert_false(machine_clock_is_off(NOW, NOW));
	assert_false(machine_clock_is_off(NOW + 10 * MS + 1, NOW)); /* the call took that long */
	assert_false(machine_clock_is_off(NOW + 5000 * MS, NOW));
	assert_true(machine_clock_is_off(NOW + 5000 * MS + 1, NOW));
}

static void clock_can_be_off_by_all_the_time_there_is(void **state)
{
	(void)state;
	assert_true(machine_clock_is_off(0, MACHINE_TIME_MAX_NS));
	assert_true(machine_clock_is_off(MACHINE_TIME_MAX_NS, 0));
	assert_false(machine_clock_is_off(0, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(clock_goes_forward_when_it_is_noticeably_behind),
		cmocka_unit_test(clock_goes_back_only_when_it_is_far_ahead),
		cmocka_unit_test(clock_can_be_off_by_all_the_time_there_is),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
