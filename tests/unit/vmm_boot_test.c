/* SPDX-License-Identifier: Apache-2.0 */
/* A monitor from start to grave: vmm_open(), vmm_boot(), the ends that it can come to. */
#include "vmm_fixture.h"

static void guest_runs_and_sees_its_devices(void **state)
{
	struct place p;
	struct machine m;

	(void)state;
	need(host_once());
	place_init(&p);
	machine_up(&m, &p);
	machine_tell(&m, "imi", "1s2");
	machine_kill(&m);
	place_done(&p);
}

static void restart_by_the_guest_is_a_clean_end(void **state)
{
	struct place p;
	struct machine m;

	(void)state;
	need(host_once());
	place_init(&p);
	machine_up(&m, &p);
	assert_int_equal(write(m.console, "r", 1), 1);
	machine_close(&m);
	assert_int_equal(m.why.code, 0);
	assert_non_null(strstr(m.why.text, "guest-reset"));
	place_done(&p);
}

static void murder_is_reported(void **state)
{
	struct place p;
	struct machine m;

	(void)state;
	need(host_once());
	int before = count_fds();
	place_init(&p);
	machine_up(&m, &p);
	kill(vmm_identity(m.vmm).pid, SIGKILL);
	machine_close(&m);
	assert_int_equal(m.why.code, EIO);
	assert_non_null(strstr(m.why.text, "signal 9"));
	place_done(&p);
	assert_int_equal(count_fds(), before);
}

static void early_kill_is_safe(void **state)
{
	struct place p;
	struct machine m;

	(void)state;
	need(host_once());
	place_init(&p);
	machine_boot(&m, &p);
	vmm_kill(m.vmm);
	vmm_kill(m.vmm);
	assert_int_equal(machine_await(&m), ECANCELED);
	machine_close(&m);
	assert_int_equal(m.why.code, ECANCELED);
	place_done(&p);
}

static void waiting_monitor_may_be_killed(void **state)
{
	struct place p;
	struct machine m;

	(void)state;
	need(host_once());
	place_init(&p);
	machine_open(&m, &p, false);
	machine_kill(&m);
	assert_false(m.done);
	place_done(&p);
}

static void failure_tells_what_qemu_said(void **state)
{
	struct place p;
	struct machine m;

	(void)state;
	need(host_once());
	place_init(&p);
	assert_int_equal(unlink(p.kernel), 0);
	assert_int_equal(file_write_atomic(p.kernel, "no kernel", 9, 0444), 0);
	machine_boot(&m, &p);
	assert_int_equal(machine_await(&m), EIO);
	machine_close(&m);
	assert_int_equal(m.why.code, EIO);
	assert_non_null(strstr(m.why.text, "kernel"));
	place_done(&p);
}

/* Nothing of it can be linked into the monitor's directory. */
static void files_may_be_on_another_filesystem(void **state)
{
	static const char zeroes[4096];
	char dir[] = "/dev/shm/space-vmm-XXXXXX";
	struct place p;
	struct machine m;

	(void)state;
	need(host_once());
	place_init(&p);
	assert_non_null(mkdtemp(dir));
	free(p.kernel);
	free(p.initramfs);
	free(p.root);
	p.kernel = str_printf("%s/kernel", dir);
	p.initramfs = str_printf("%s/initramfs", dir);
	p.root = str_printf("%s/root", dir);
	put_kernel(p.kernel);
	assert_int_equal(file_write_atomic(p.initramfs, "none", 4, 0444), 0);
	assert_int_equal(file_write_atomic(p.root, zeroes, sizeof(zeroes), 0444), 0);
	machine_up(&m, &p);
	machine_kill(&m);
	place_done(&p);
	assert_int_equal(dir_remove_all(dir), 0);
}

static void process_is_confined(void **state)
{
	struct place p;
	struct machine m;
	auto_free char *status = NULL;
	size_t len;

	(void)state;
	need(host_once());
	place_init(&p);
	machine_up(&m, &p);
	auto_free char *path = str_printf("/proc/%d/status", (int)vmm_identity(m.vmm).pid);
	assert_int_equal(file_read(path, 65536, &status, &len), 0);
	machine_kill(&m);
	place_done(&p);
	assert_non_null(strstr(status, "\nUid:\t64998\t64998\t64998\t64998\n"));
	assert_non_null(strstr(status, "\nCapEff:\t0000000000000000\n"));
	assert_non_null(strstr(status, "\nCapBnd:\t0000000000000000\n"));
	assert_non_null(strstr(status, "\nNoNewPrivs:\t1\n"));
	assert_non_null(strstr(status, "\nSeccomp:\t2\n"));
}

static void memory_dump_holds_the_guests_ram(void **state)
{
	struct place p;
	struct machine m;
	auto_free char *image = NULL;
	size_t len;

	(void)state;
	need(host_once());
	place_init(&p);
	machine_boot(&m, &p);
	auto_free char *path = place_path(&p, "dump");
	assert_int_equal(vmm_dump_memory(m.vmm, path, on_done, &m), -EBUSY);
	machine_must(&m);
	machine_expect(&m, "0422\n");
	assert_int_equal(vmm_dump_memory(m.vmm, path, on_done, &m), 0);
	assert_int_equal(vmm_dump_memory(m.vmm, path, on_done, &m), -EBUSY);
	machine_must(&m);
	assert_int_equal(file_read(path, 256 << 20, &image, &len), 0);
	assert_non_null(memmem(image, len, MARK, strlen(MARK)));
	machine_tell(&m, "i", "1"); /* it still runs */
	machine_kill(&m);
	place_done(&p);
}

static void dump_ends_with_the_machine(void **state)
{
	struct place p;
	struct machine m;

	(void)state;
	need(host_once());
	place_init(&p);
	machine_up(&m, &p);
	auto_free char *path = place_path(&p, "dump");
	assert_int_equal(vmm_dump_memory(m.vmm, path, on_done, &m), 0);
	vmm_kill(m.vmm);
	assert_int_equal(machine_await(&m), ECANCELED);
	machine_close(&m);
	place_done(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(guest_runs_and_sees_its_devices),
		cmocka_unit_test(restart_by_the_guest_is_a_clean_end),
		cmocka_unit_test(murder_is_reported),
		cmocka_unit_test(early_kill_is_safe),
		cmocka_unit_test(waiting_monitor_may_be_killed),
		cmocka_unit_test(failure_tells_what_qemu_said),
		cmocka_unit_test(files_may_be_on_another_filesystem),
		cmocka_unit_test(process_is_confined),
		cmocka_unit_test(memory_dump_holds_the_guests_ram),
		cmocka_unit_test(dump_ends_with_the_machine),
	};

	return cmocka_run_group_tests_name("vmm_boot", tests, places_init, places_done);
}
