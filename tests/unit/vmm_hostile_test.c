/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A monitor that its guest has taken over may say and do anything. Here it is a child of ours that
 * follows a script, adopted as if it were QEMU: for each, vmm.h's promises hold, and it ends with a
 * reason.
 */
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/proc.h"
#include "vmm/qemu_state.h"
#include "vmm_fixture.h"

#define GREETING "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n"
#define OK(id)   "{\"return\": {}, \"id\": " #id "}\r\n"
#define RUNNING  "{\"return\": {\"status\": \"running\"}, \"id\": 2}\r\n"
#define PAUSED   "{\"return\": {\"status\": \"paused\"}, \"id\": 2}\r\n"

/* What it says, each piece after another command has come. */
struct script {
	const char *says[8];
	bool hangs_up;
};

struct fake {
	struct place place;
	struct machine m;
	pid_t pid;
	bool running;
};

static void act(int listener, const struct script *s)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	char byte;

	for (size_t i = 0; i < 8 && s->says[i]; i++) {
		while (i > 0 && read(fd, &byte, 1) == 1 && byte != '\n')
			;
		(void)!write(fd, s->says[i], strlen(s->says[i]));
	}
	if (s->hangs_up)
		close(fd);
	for (;;)
		pause();
}

static int listen_in(const char *dir)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/control", dir);
	assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 1), 0);
	return fd;
}

static void fake_start(struct fake *f, const struct script *s)
{
	struct vmm_identity who;
	struct err e = {0};

	memset(f, 0, sizeof(*f));
	place_init(&f->place);
	f->m.place = &f->place;
	f->m.console = f->m.scratch_fd = -1;
	f->m.dir = place_path(&f->place, "run/fake");
	assert_int_equal(mkdir(f->m.dir, 0711), 0);
	auto_free char *memory = str_printf("%s/memory", f->m.dir);
	close(new_file(memory, 0444, RAM_BYTES));
	auto_fd int listener = listen_in(f->m.dir);
	f->pid = fork();
	if (f->pid == 0) {
		/* The change of uid clears the signal. */
		if (setresuid(TEST_UID, TEST_UID, TEST_UID) == 0 &&
		    prctl(PR_SET_PDEATHSIG, SIGKILL) == 0)
			act(listener, s);
		_exit(1);
	}
	who.pid = f->pid;
	assert_int_equal(proc_started(f->pid, &who.started), 0);
	do /* until it has changed its uid */
		f->m.vmm = vmm_adopt(&f->place.loop, "fake", f->m.dir, TEST_UID, &who, &f->running,
				     on_done, &machine_events, &f->m, &e);
	while (!f->m.vmm && e.code == EPERM);
	if (!f->m.vmm)
		fail_msg("%s", e.text);
}

static void fake_done(struct fake *f)
{
	wait_for(&f->place, &f->m.exited);
	free(f->m.dir);
	place_done(&f->place);
}

static void need_root(void)
{
	if (geteuid() == 0)
		return;
	print_message("needs root\n");
	skip();
}

/* Adoption fails with code, and so does the monitor. */
static void fails_with(const struct script *s, int code, const char *part)
{
	struct fake f;

	fake_start(&f, s);
	assert_int_equal(machine_await(&f.m), code);
	if (!strstr(f.m.result.text, part))
		fail_msg("'%s' is not in: %s", part, f.m.result.text);
	fake_done(&f);
	assert_int_equal(f.m.why.code, code);
}

static void script_that_is_good_is_believed(void **state)
{
	const struct script s = {.says = {GREETING, OK(1), PAUSED, OK(3)}};
	struct fake f;

	(void)state;
	need_root();
	fake_start(&f, &s);
	machine_must(&f.m);
	assert_false(f.running);
	assert_int_equal(vmm_resume(f.m.vmm, on_done, &f.m), 0);
	machine_must(&f.m);
	vmm_kill(f.m.vmm);
	fake_done(&f);
	assert_int_equal(f.m.why.code, ECANCELED);
}

static void nonsense_ends_it(void **state)
{
	const struct script nonsense = {.says = {GREETING, OK(1), "{\"return\": nonsense}\n"}};
	const struct script hangs_up = {.says = {GREETING, OK(1), ""}, .hangs_up = true};
	const struct script refuses = {
		.says = {GREETING, "{\"id\":1,\"error\":{\"class\":\"X\",\"desc\":\"no\"}}\n"}};
	const struct script strange = {
		.says = {GREETING, OK(1),
			 "{\"return\": {\"status\": \"inmigrate\"}, \"id\": 2}\n"}};
	const struct script shapeless = {
		.says = {GREETING, OK(1), "{\"return\": [], \"id\": 2}\n"}};

	(void)state;
	need_root();
	fails_with(&nonsense, EBADMSG, "QMP");
	fails_with(&hangs_up, ECONNRESET, "closed");
	fails_with(&refuses, EPROTO, "refuses");
	fails_with(&strange, EPROTO, "no machine");
	fails_with(&shapeless, EPROTO, "no machine");
}

static void silence_ends_it(void **state)
{
	const struct script mute = {.says = {GREETING}};

	(void)state;
	need_root();
	fails_with(&mute, ETIMEDOUT, "in time");
}

/* It has not got the memory mapped that it should have. */
static void machine_without_its_memory_is_not_saved(void **state)
{
	const struct script s = {.says = {GREETING, OK(1), PAUSED, OK(3), OK(4), OK(5), OK(6)}};
	struct fake f;

	(void)state;
	need_root();
	fake_start(&f, &s);
	machine_must(&f.m);
	auto_free char *memory_path = place_path(&f.place, "memory");
	auto_free char *state_path = place_path(&f.place, "state");
	auto_fd int memory = new_file(memory_path, 0444, RAM_BYTES);
	auto_fd int devices = new_file(state_path, 0444, 0);
	assert_int_equal(vmm_save(f.m.vmm, memory, devices, on_done, &f.m), 0);
	assert_int_equal(machine_await(&f.m), ENODATA);
	assert_int_equal(vmm_resume(f.m.vmm, on_done, &f.m), 0); /* it is as it was */
	machine_must(&f.m);
	vmm_kill(f.m.vmm);
	fake_done(&f);
}

static void refused_save_is_told(void **state)
{
	const struct script s = {
		.says = {GREETING, OK(1), PAUSED, OK(3),
			 "{\"id\":4,\"error\":{\"class\":\"X\",\"desc\":\"no state\"}}\n", OK(5)}};
	struct fake f;

	(void)state;
	need_root();
	fake_start(&f, &s);
	machine_must(&f.m);
	auto_free char *memory_path = place_path(&f.place, "memory");
	auto_fd int memory = new_file(memory_path, 0444, RAM_BYTES);
	assert_int_equal(vmm_save(f.m.vmm, memory, memory, on_done, &f.m), 0);
	assert_int_equal(machine_await(&f.m), EIO);
	assert_non_null(strstr(f.m.result.text, "no state"));
	vmm_kill(f.m.vmm);
	fake_done(&f);
}

static void running_machine_that_says_it_runs_is_not_saved(void **state)
{
	const struct script s = {.says = {GREETING, OK(1), RUNNING}};
	struct fake f;

	(void)state;
	need_root();
	fake_start(&f, &s);
	machine_must(&f.m);
	assert_true(f.running);
	auto_free char *path = place_path(&f.place, "file");
	auto_fd int file = new_file(path, 0444, RAM_BYTES);
	assert_int_equal(vmm_save(f.m.vmm, file, file, on_done, &f.m), -EINVAL);
	vmm_kill(f.m.vmm);
	fake_done(&f);
}

static void end_by_the_filter_is_told(void **state)
{
	struct vmm v = {.status = W_EXITCODE(0, SIGSYS)};
	struct err why = {0};

	(void)state;
	qemu_explain(&v, &why);
	assert_int_equal(why.code, EIO);
	assert_non_null(strstr(why.text, "system call"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(end_by_the_filter_is_told),
		cmocka_unit_test(script_that_is_good_is_believed),
		cmocka_unit_test(nonsense_ends_it),
		cmocka_unit_test(silence_ends_it),
		cmocka_unit_test(machine_without_its_memory_is_not_saved),
		cmocka_unit_test(refused_save_is_told),
		cmocka_unit_test(running_machine_that_says_it_runs_is_not_saved),
	};

	return cmocka_run_group_tests_name("vmm_hostile", tests, places_init, places_done);
}
