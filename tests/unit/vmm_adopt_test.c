/* SPDX-License-Identifier: Apache-2.0 */
/* Monitors outlive who started them: another process takes them over, or ends them. */
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "vmm_fixture.h"

/* What a first process leaves behind. */
struct legacy {
	struct vmm_identity who;
	unsigned machines; /* of its place */
	bool paused;
};

/* In a process that is then killed: a machine that has counted to 2, paused or not. */
static void be_first(struct place *p, bool boot, bool pause_it, int out)
{
	struct legacy l = {.paused = pause_it};
	struct machine m;

	assert_int_equal(uv_loop_init(&p->loop), 0); /* ours is the parent's */
	if (boot) {
		machine_up(&m, p);
		machine_tell(&m, "ii", "12");
	} else {
		machine_open(&m, p, false);
	}
	if (pause_it) {
		assert_int_equal(vmm_pause(m.vmm, on_done, &m), 0);
		machine_must(&m);
	}
	l.who = vmm_identity(m.vmm);
	l.machines = p->machines;
	assert_int_equal(write(out, &l, sizeof(l)), sizeof(l));
	for (;;)
		pause();
}

/* Whether an orphan becomes our child, to be waited for. Else it is init's, as in real life. */
static void inherit_orphans(bool on)
{
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, on ? 1 : 0), 0);
}

static struct legacy first_process(struct place *p, bool boot, bool pause_it)
{
	struct legacy l;
	int ends[2], status;

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	auto_fd int in = ends[0];
	pid_t pid = fork();
	if (pid == 0)
		be_first(p, boot, pause_it, ends[1]);
	close(ends[1]);
	assert_int_equal(fd_read_all(in, &l, sizeof(l)), sizeof(l));
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	p->machines = l.machines;
	return l;
}

static struct vmm *take_over(struct machine *m, struct place *p, const struct legacy *l, uid_t uid,
			     bool *ret_running, struct err *e)
{
	memset(m, 0, sizeof(*m));
	m->place = p;
	m->console = m->scratch_fd = -1;
	m->dir = str_printf("%s/run/%u", p->path, l->machines);
	m->vmm = vmm_adopt(&p->loop, "adopted", m->dir, uid, &l->who, ret_running, on_done,
			   &machine_events, m, e);
	return m->vmm;
}

static void adopted(struct machine *m, struct place *p, const struct legacy *l)
{
	bool running = l->paused;
	struct err e = {0};

	if (!take_over(m, p, l, TEST_UID, &running, &e))
		fail_msg("%s", e.text);
	machine_must(m);
	assert_int_equal(running, !l->paused);
	machine_watch_console(m);
}

static void machine_goes_on_under_another(void **state)
{
	struct place p;
	struct machine m;

	(void)state;
	need(host_once());
	place_init(&p);
	inherit_orphans(false);
	struct legacy l = first_process(&p, true, false);
	adopted(&m, &p, &l);
	assert_int_equal(vmm_identity(m.vmm).pid, l.who.pid);
	machine_tell(&m, "im", "3s");
	machine_kill(&m);
	place_done(&p);
}

static void adopted_machine_can_be_frozen_and_thawed(void **state)
{
	struct place p;
	struct machine m, copy;
	struct err e = {0};

	(void)state;
	need(host_once());
	place_init(&p);
	inherit_orphans(false);
	const struct vmm_machine size = machine_size(&p);
	struct legacy l = first_process(&p, true, true);
	adopted(&m, &p, &l);
	auto_free char *memory_path = place_path(&p, "memory"),
		       *state_path = place_path(&p, "state");
	auto_fd int memory = new_file(memory_path, 0444, 0);
	close(new_file(state_path, 0444, 0));
	auto_fd int devices = open(state_path, O_WRONLY | O_CLOEXEC);
	assert_int_equal(vmm_copy_base(m.vmm, memory, on_done, &m), 0);
	machine_must(&m);
	assert_int_equal(vmm_save(m.vmm, memory, devices, on_done, &m), 0);
	machine_must(&m);
	machine_kill(&m);
	machine_open(&copy, &p, false);
	const struct vmm_frozen frozen = {memory_path, state_path};
	assert_int_equal(vmm_restore(copy.vmm, &size, &frozen, true, on_done, &copy, &e), 0);
	machine_must(&copy);
	machine_tell(&copy, "im", "3s");
	machine_kill(&copy);
	place_done(&p);
}

static void end_of_an_adopted_machine_is_seen(void **state)
{
	struct place p;
	struct machine m;

	(void)state;
	need(host_once());
	place_init(&p);
	inherit_orphans(false);
	struct legacy l = first_process(&p, true, false);
	adopted(&m, &p, &l);
	assert_int_equal(write(m.console, "r", 1), 1);
	machine_close(&m);
	assert_int_equal(m.why.code, 0);
	assert_non_null(strstr(m.why.text, "guest-reset"));
	place_done(&p);
}

static void wait_until_gone(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void stranger_is_not_adopted(void **state)
{
	struct place p;
	struct machine m;
	bool running;
	struct err e = {0};

	(void)state;
	need(host_once());
	place_init(&p);
	inherit_orphans(true);
	struct legacy l = first_process(&p, true, false);
	struct legacy other = l;
	other.who.started++;
	assert_null(take_over(&m, &p, &other, TEST_UID, &running, &e));
	assert_int_equal(e.code, ESRCH);
	free(m.dir);
	assert_null(take_over(&m, &p, &l, TEST_UID + 1, &running, &e));
	assert_int_equal(e.code, EPERM);
	free(m.dir);
	kill(l.who.pid, SIGKILL);
	wait_until_gone(l.who.pid);
	assert_null(take_over(&m, &p, &l, TEST_UID, &running, &e));
	assert_int_equal(e.code, ESRCH);
	free(m.dir);
	place_done(&p);
}

/* It has no machine, and can't get one: its scratch disk is another process's. */
static void waiting_monitor_is_not_adopted(void **state)
{
	struct place p;
	struct machine m;
	bool running;
	struct err e = {0};

	(void)state;
	need(host_once());
	place_init(&p);
	inherit_orphans(false);
	struct legacy l = first_process(&p, false, false);
	assert_non_null(take_over(&m, &p, &l, TEST_UID, &running, &e));
	assert_int_equal(machine_await(&m), EPROTO);
	wait_for(&p, &m.exited);
	assert_int_equal(m.why.code, EPROTO);
	free(m.dir);
	place_done(&p);
}

static void sweep_ends_all_but_those_kept(void **state)
{
	struct place p;
	struct machine m;
	struct err e = {0};

	(void)state;
	need(host_once());
	place_init(&p);
	inherit_orphans(true);
	auto_free char *run = place_path(&p, "run"), *images = place_path(&p, "images");
	struct legacy kept = first_process(&p, true, false);
	struct legacy lost = first_process(&p, true, false);
	struct legacy waiting = first_process(&p, false, false);
	assert_int_equal(vmm_sweep(images, NULL, 0, &e), 0);
	assert_int_equal(vmm_sweep("/nonexistent", NULL, 0, &e), 0);
	assert_int_equal(vmm_sweep(run, &kept.who.pid, 1, &e), 2);
	wait_until_gone(lost.who.pid);
	wait_until_gone(waiting.who.pid);
	adopted(&m, &p, &kept);
	machine_tell(&m, "i", "3");
	assert_int_equal(vmm_sweep(run, NULL, 0, &e), 1);
	machine_close(&m);
	place_done(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(machine_goes_on_under_another),
		cmocka_unit_test(adopted_machine_can_be_frozen_and_thawed),
		cmocka_unit_test(end_of_an_adopted_machine_is_seen),
		cmocka_unit_test(stranger_is_not_adopted),
		cmocka_unit_test(waiting_monitor_is_not_adopted),
		cmocka_unit_test(sweep_ends_all_but_those_kept),
	};

	return cmocka_run_group_tests_name("vmm_adopt", tests, places_init, places_done);
}
