/* SPDX-License-Identifier: Apache-2.0 */
/* The probe's answers differ from host to host; that they agree with each other does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "vmm/vmm.h"

#define LONGEST_MS 5000 /* a second of KVM that hangs, and a busy machine */

static void answers_agree_and_come_soon(void **state)
{
	struct vmm_probe p;
	uint64_t start = clock_mono_ms();

	(void)state;
	vmm_probe(&p);
	assert_true(clock_mono_ms() - start < LONGEST_MS);
	print_message("KVM: %s%s; QEMU '%s'; TSC %u kHz\n",
		      p.kvm_usable ? "usable" : "not usable, ", p.kvm_reason, p.qemu_version,
		      p.tsc_khz);
	assert_true(p.kvm_present || !p.kvm_usable);
	assert_int_equal(p.kvm_usable, p.kvm_reason[0] == '\0');
	assert_int_equal(p.accel, p.kvm_usable ? VMM_KVM : VMM_TCG);
	if (p.qemu_version[0])
		assert_in_range(p.qemu_version[0], '1', '9');
	if (p.tsc_khz)
		assert_in_range(p.tsc_khz, 100000, 10000000);
}

static void clock_rate_is_measured_to_a_few_ppm(void **state)
{
	struct vmm_probe a, b;

	(void)state;
	vmm_probe(&a);
	vmm_probe(&b);
	if (a.tsc_khz == 0 || b.tsc_khz == 0) {
		print_message("the TSC of this host is no clock\n");
		skip();
	}
	uint32_t off = a.tsc_khz > b.tsc_khz ? a.tsc_khz - b.tsc_khz : b.tsc_khz - a.tsc_khz;
	assert_in_range(off * 1000 / (a.tsc_khz / 1000), 0, 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers_agree_and_come_soon),
		cmocka_unit_test(clock_rate_is_measured_to_a_few_ppm),
	};

	return cmocka_run_group_tests_name("vmm_probe", tests, NULL, NULL);
}
