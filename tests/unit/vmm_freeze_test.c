/* SPDX-License-Identifier: Apache-2.0 */
/* Freezing and thawing of real machines: what the guest had in memory is there again, in any number
 * of copies, and nothing else is. */
#include "vmm_fixture.h"

static void machine_pause(struct machine *m)
{
	assert_int_equal(vmm_pause(m->vmm, on_done, m), 0);
	machine_must(m);
}

static void machine_resume(struct machine *m)
{
	assert_int_equal(vmm_resume(m->vmm, on_done, m), 0);
	machine_must(m);
}

static struct frozen_pair pair_new(const struct place *p, const char *name, int *ret_memory,
				   int *ret_state)
{
	struct frozen_pair f = {str_printf("%s/%s.memory", p->path, name),
				str_printf("%s/%s.state", p->path, name)};

	*ret_memory = new_file(f.memory, 0444, 0);
	close(new_file(f.state, 0444, 0));
	*ret_state = open(f.state, O_WRONLY | O_CLOEXEC);
	assert_true(*ret_state >= 0);
	return f;
}

static void pair_done(struct frozen_pair *f)
{
	free(f->memory);
	free(f->state);
}

/* Freezes a paused machine. */
static struct frozen_pair freeze(struct machine *m, const char *name)
{
	int memory_raw, state_raw;
	struct frozen_pair f = pair_new(m->place, name, &memory_raw, &state_raw);
	auto_fd int memory = memory_raw, state = state_raw;

	assert_int_equal(vmm_copy_base(m->vmm, memory, on_done, m), 0);
	machine_must(m);
	assert_int_equal(vmm_save(m->vmm, memory, state, on_done, m), 0);
	assert_int_equal(vmm_save(m->vmm, memory, state, on_done, m), -EBUSY);
	machine_must(m);
	return f;
}

static void thaw(struct machine *m, struct place *p, const struct frozen_pair *f, bool run)
{
	const struct vmm_frozen frozen = {f->memory, f->state};
	const struct vmm_machine size = machine_size(p);
	struct err e = {0};

	machine_open(m, p, false);
	if (vmm_restore(m->vmm, &size, &frozen, run, on_done, m, &e) < 0)
		fail_msg("%s", e.text);
}

/* The first byte of a page. */
static char byte_at(const char *path, off_t at)
{
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	char c;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &c, 1, at), 1);
	return c;
}

static off_t blocks_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, RAM_BYTES);
	return st.st_blocks;
}

static void frozen_machine_goes_on_in_each_copy(void **state)
{
	struct place p;
	struct machine m, a, b;

	(void)state;
	need(host_once());
	place_init(&p);
	machine_up(&m, &p);
	machine_tell(&m, "ii", "12");
	machine_pause(&m);
	struct frozen_pair f = freeze(&m, "f");
	assert_true(blocks_of(f.memory) < 16384); /* of 512 bytes: it is sparse */
	assert_int_equal(byte_at(f.memory, MARK_AT), MARK[0]);

	thaw(&a, &p, &f, true);
	thaw(&b, &p, &f, true);
	machine_must(&a);
	machine_must(&b);
	assert_int_equal(unlink(f.memory), 0); /* both have it */
	assert_int_equal(unlink(f.state), 0);
	machine_tell(&a, "i", "3");
	machine_tell(&a, "im", "4s");
	machine_tell(&b, "i", "3");
	machine_resume(&m); /* the first is whole */
	machine_tell(&m, "i", "3");
	machine_kill(&m);
	machine_kill(&a);
	machine_kill(&b);
	pair_done(&f);
	place_done(&p);
}

static void paused_copy_waits_for_resume(void **state)
{
	struct place p;
	struct machine m, a;

	(void)state;
	need(host_once());
	place_init(&p);
	machine_up(&m, &p);
	machine_pause(&m);
	struct frozen_pair f = freeze(&m, "f");
	machine_kill(&m);
	thaw(&a, &p, &f, false);
	machine_must(&a);
	/* It can be frozen at once: nothing has happened in it. */
	struct frozen_pair g = freeze(&a, "g");
	assert_int_equal(byte_at(g.memory, COUNT_AT), '0');
	assert_int_equal(write(a.console, "i", 1), 1);
	assert_int_equal(a.said_len, 0);
	machine_resume(&a);
	machine_expect(&a, "1");
	machine_kill(&a);
	pair_done(&f);
	pair_done(&g);
	place_done(&p);
}

static void chain_of_freezes_loses_nothing(void **state)
{
	struct place p;
	struct machine m[4];
	struct frozen_pair f[3];

	(void)state;
	need(host_once());
	place_init(&p);
	machine_up(&m[0], &p);
	for (int i = 0; i < 3; i++) {
		const char names[] = {(char)('a' + i), 0}, said[] = {(char)('1' + i), 's', 0};

		machine_tell(&m[i], "im", said);
		machine_pause(&m[i]);
		f[i] = freeze(&m[i], names);
		machine_kill(&m[i]);
		assert_int_equal(byte_at(f[i].memory, COUNT_AT), '1' + i);
		thaw(&m[i + 1], &p, &f[i], true);
		machine_must(&m[i + 1]);
	}
	machine_tell(&m[3], "im", "4s");
	machine_kill(&m[3]);
	for (int i = 0; i < 3; i++)
		pair_done(&f[i]);
	place_done(&p);
}

static void page_that_is_cleared_is_zero_in_the_copy(void **state)
{
	struct place p;
	struct machine m, a, b;

	(void)state;
	need(host_once());
	place_init(&p);
	machine_up(&m, &p);
	machine_pause(&m);
	struct frozen_pair f = freeze(&m, "f");
	machine_kill(&m);
	thaw(&a, &p, &f, true);
	machine_must(&a);
	machine_tell(&a, "mz", "s ");
	machine_pause(&a);
	struct frozen_pair g = freeze(&a, "g");
	machine_kill(&a);
	assert_int_equal(byte_at(f.memory, MARK_AT), MARK[0]); /* the base is untouched */
	assert_int_equal(byte_at(g.memory, MARK_AT), 0);
	thaw(&b, &p, &g, true);
	machine_must(&b);
	machine_tell(&b, "m", " ");
	machine_kill(&b);
	pair_done(&f);
	pair_done(&g);
	place_done(&p);
}

/* Restores what is no frozen machine: the error, from whichever moment it shows. */
static void refused(struct place *p, const struct frozen_pair *f, const char *part)
{
	const struct vmm_frozen frozen = {f->memory, f->state};
	const struct vmm_machine size = machine_size(p);
	struct machine m;
	struct err e = {0};

	machine_open(&m, p, false);
	if (vmm_restore(m.vmm, &size, &frozen, true, on_done, &m, &e) < 0) {
		assert_true(e.code > 0);
		vmm_kill(m.vmm);
	} else {
		assert_int_not_equal(machine_await(&m), 0);
		e = m.result;
	}
	machine_close(&m);
	if (!strstr(e.text, part))
		fail_msg("'%s' is not in: %s", part, e.text);
}

static void damaged_files_are_refused_in_words(void **state)
{
	struct place p;
	struct machine m;

	(void)state;
	need(host_once());
	place_init(&p);
	machine_up(&m, &p);
	machine_pause(&m);
	struct frozen_pair f = freeze(&m, "f");
	machine_kill(&m);

	assert_int_equal(truncate(f.memory, RAM_BYTES - 4096), 0);
	refused(&p, &f, "bytes, not 134217728");
	assert_int_equal(truncate(f.memory, RAM_BYTES), 0);
	assert_int_equal(truncate(f.state, 1000), 0);
	refused(&p, &f, "QEMU failed with status 1");
	assert_int_equal(truncate(f.state, 0), 0);
	refused(&p, &f, "is empty");
	assert_int_equal(file_write_atomic(f.state, "nonsense", 8, 0444), 0);
	refused(&p, &f, "Not a migration stream");
	assert_int_equal(chmod(f.memory, 0400), 0);
	refused(&p, &f, "Permission denied");
	assert_int_equal(unlink(f.memory), 0);
	refused(&p, &f, "No such file");
	pair_done(&f);
	place_done(&p);
}

static void missing_root_and_wrong_order_are_refused(void **state)
{
	struct place p;
	struct machine m;
	struct err e = {0};

	(void)state;
	need(host_once());
	place_init(&p);
	const struct vmm_kernel kernel = {.kernel = p.kernel, .initramfs = p.initramfs};
	struct vmm_machine size = machine_size(&p);
	machine_open(&m, &p, true);
	assert_int_equal(vmm_pause(m.vmm, on_done, &m), -EINVAL);
	assert_int_equal(vmm_copy_base(m.vmm, 0, on_done, &m), -EINVAL);
	assert_int_equal(vmm_save(m.vmm, 0, 0, on_done, &m), -EINVAL);
	const struct vmm_frozen frozen = {p.kernel, p.kernel};
	assert_int_equal(vmm_restore(m.vmm, &size, &frozen, true, on_done, &m, &e), -EBUSY);
	size.root = "/nonexistent/root";
	assert_int_equal(vmm_boot(m.vmm, &size, &kernel, on_done, &m, &e), -ENOENT);
	size.root = p.root;
	assert_int_equal(vmm_boot(m.vmm, &size, &kernel, on_done, &m, &e), 0);
	machine_must(&m);
	assert_int_equal(vmm_boot(m.vmm, &size, &kernel, on_done, &m, &e), -EBUSY);
	auto_free char *path = place_path(&p, "file");
	auto_fd int file = new_file(path, 0444, 0);
	assert_int_equal(vmm_save(m.vmm, file, file, on_done, &m), -EINVAL); /* it runs */
	machine_pause(&m);
	assert_int_equal(vmm_save(m.vmm, file, file, on_done, &m), -EINVAL); /* no base in it */
	machine_kill(&m);
	place_done(&p);
}

/* Kills QEMU when the call is so far; whatever comes of it, nobody uses what is freed. */
static void murder_during(struct place *p, bool save, int turns)
{
	struct machine m;
	int memory_raw, state_raw;

	machine_up(&m, p);
	machine_pause(&m);
	auto_free char *name = str_printf("%u", p->machines);
	struct frozen_pair f = pair_new(p, name, &memory_raw, &state_raw);
	auto_fd int memory = memory_raw, devices = state_raw;
	if (save) {
		assert_int_equal(vmm_copy_base(m.vmm, memory, on_done, &m), 0);
		machine_must(&m);
		assert_int_equal(vmm_save(m.vmm, memory, devices, on_done, &m), 0);
	} else {
		assert_int_equal(vmm_copy_base(m.vmm, memory, on_done, &m), 0);
	}
	for (int i = 0; i < turns && !m.done; i++)
		uv_run(&p->loop, UV_RUN_ONCE);
	kill(vmm_identity(m.vmm).pid, SIGKILL);
	machine_close(&m);
	assert_true(m.done);
	assert_int_equal(m.why.code, EIO);
	pair_done(&f);
}

static void murder_while_freezing_is_safe(void **state)
{
	struct place p;

	(void)state;
	need(host_once());
	int before = count_fds();
	place_init(&p);
	murder_during(&p, false, 0);
	for (int turns = 0; turns < 5; turns++)
		murder_during(&p, true, turns);
	place_done(&p);
	assert_true(count_fds() <= before + 4); /* of libuv's workers */
}

static void full_disk_leaves_the_machine_whole(void **state)
{
	struct place p;
	struct machine m;
	int memory_raw, state_raw;

	(void)state;
	need(host_once());
	place_init(&p);
	machine_up(&m, &p);
	machine_tell(&m, "i", "1");
	machine_pause(&m);
	struct frozen_pair f = pair_new(&p, "f", &memory_raw, &state_raw);
	auto_fd int memory = memory_raw, devices = state_raw;
	auto_fd int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	assert_int_equal(vmm_copy_base(m.vmm, memory, on_done, &m), 0);
	machine_must(&m);
	assert_int_equal(vmm_save(m.vmm, memory, full, on_done, &m), 0);
	assert_int_equal(machine_await(&m), ENOSPC);
	assert_int_equal(vmm_save(m.vmm, memory, devices, on_done, &m), 0);
	machine_must(&m);
	machine_resume(&m);
	machine_tell(&m, "i", "2");
	machine_kill(&m);
	pair_done(&f);
	place_done(&p);
}

/* QEMU is stopped from outside, as good as one that hangs. */
static void hanging_monitor_is_ended(void **state)
{
	struct place p;
	struct machine m;

	(void)state;
	need(host_once());
	place_init(&p);
	machine_up(&m, &p);
	kill(vmm_identity(m.vmm).pid, SIGSTOP);
	assert_int_equal(vmm_pause(m.vmm, on_done, &m), 0);
	assert_int_equal(machine_await(&m), ETIMEDOUT);
	machine_close(&m);
	assert_int_equal(m.why.code, ETIMEDOUT);
	place_done(&p);
}

static void only_its_sockets_stay_in_its_directory(void **state)
{
	struct place p;
	struct machine m, a;

	(void)state;
	need(host_once());
	place_init(&p);
	machine_up(&m, &p);
	machine_pause(&m);
	struct frozen_pair f = freeze(&m, "f");
	machine_kill(&m);
	thaw(&a, &p, &f, true);
	machine_must(&a);
	auto_free char *root = str_printf("%s/run/2/root", p.path);
	auto_free char *devices = str_printf("%s/run/2/state", p.path);
	auto_free char *memory = str_printf("%s/run/2/memory", p.path);
	assert_int_equal(access(root, F_OK), -1);
	assert_int_equal(access(devices, F_OK), -1);
	assert_int_equal(access(memory, F_OK), 0); /* for who adopts it */
	machine_kill(&a);
	assert_int_equal(access(memory, F_OK), -1);
	assert_int_equal(access(f.memory, F_OK), 0);
	pair_done(&f);
	place_done(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frozen_machine_goes_on_in_each_copy),
		cmocka_unit_test(paused_copy_waits_for_resume),
		cmocka_unit_test(chain_of_freezes_loses_nothing),
		cmocka_unit_test(page_that_is_cleared_is_zero_in_the_copy),
		cmocka_unit_test(damaged_files_are_refused_in_words),
		cmocka_unit_test(missing_root_and_wrong_order_are_refused),
		cmocka_unit_test(murder_while_freezing_is_safe),
		cmocka_unit_test(full_disk_leaves_the_machine_whole),
		cmocka_unit_test(hanging_monitor_is_ended),
		cmocka_unit_test(only_its_sockets_stay_in_its_directory),
	};

	return cmocka_run_group_tests_name("vmm_freeze", tests, places_init, places_done);
}
