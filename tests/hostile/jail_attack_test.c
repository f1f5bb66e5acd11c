/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An attacker in the place of a monitor and of a gateway: attacker.c is started through
 * jail_spawn() with the specs that spaced makes for both, a process for each step, and each step
 * has to be refused. One line for each says how. "killed": the filter ended the process.
 *
 * The program lies over QEMU's in a mount namespace of this test's own; and under space-egress's
 * name in a directory of its own, where it has the real one say which system calls it makes.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/proc.h"
#include "base/str.h"
#include "daemon/gateway.h"
#include "jail/jail.h"
#include "vmm/qemu_args.h"
#include "vmm/qemu_jail.h"

#define TEST_UID     64997
#define DEADLINE_MS  10000
#define STEPS_LEAST  40
#define CONTROL_FD   3
#define ABSTRACT     "\0space-hostile"
#define OUTPUT_MAX   65536
#define NAME_MAX_OUT 128

static const char *attacker; /* where it was built */
static const char *egress;   /* the real gateway */

static size_t count_steps(void)
{
	const char *const argv[] = {attacker, "--count", NULL};
	auto_free char *text = NULL;
	struct err e;

	if (proc_output(argv, OUTPUT_MAX, &text, &e) < 0)
		fail_msg("%s", e.text);
	return strtoul(text, NULL, 10);
}

static void name_of(size_t step, char out[static NAME_MAX_OUT])
{
	char number[24];
	const char *const argv[] = {attacker, "--name", number, NULL};
	auto_free char *text = NULL;
	struct err e;

	snprintf(number, sizeof(number), "%zu", step);
	if (proc_output(argv, OUTPUT_MAX, &text, &e) < 0)
		fail_msg("%s", e.text);
	snprintf(out, NAME_MAX_OUT, "%.*s", (int)strcspn(text, "\n"), text);
}

/* One attempt; waitid's view of its end. The first of fds is replaced by the order. */
static siginfo_t attempt(struct jail_spec spec, const struct jail_fd *fds, size_t nfds, size_t step)
{
	struct jail_fd all[JAIL_FDS_MAX];
	siginfo_t info = {0};
	struct err e = {0};
	char order[24];
	int ends[2], raw;
	pid_t pid;

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	snprintf(order, sizeof(order), "%zu", step);
	assert_int_equal(fd_write_all(ends[1], order, strlen(order)), 0);
	memcpy(all, fds, nfds * sizeof(*fds));
	all[0].from = ends[0];
	spec.fds = all;
	spec.nfds = nfds;
	spec.uid = TEST_UID;
	if (jail_spawn(&spec, &pid, &raw, &e) < 0)
		fail_msg("%s", e.text);
	auto_fd int pidfd = raw;
	struct pollfd p = {.fd = pidfd, .events = POLLIN};
	assert_int_equal(poll(&p, 1, DEADLINE_MS), 1);
	assert_int_equal(waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED), 0);
	close(ends[0]);
	close(ends[1]);
	return info;
}

static bool is_refused(const siginfo_t *info, char *how, size_t size)
{
	if (info->si_code == CLD_EXITED) {
		snprintf(how, size, "%s",
			 info->si_status ? strerror(info->si_status) : "IT WORKED");
		return info->si_status != 0 && info->si_status != 255;
	}
	snprintf(how, size, "%s",
		 info->si_status == SIGSYS ? "killed" : strsignal(info->si_status));
	return info->si_status == SIGSYS || info->si_status == SIGSEGV;
}

static void attack(const char *place, const struct jail_spec *spec, const struct jail_fd *fds,
		   size_t nfds)
{
	size_t count = count_steps(), holes = 0;

	assert_true(count >= STEPS_LEAST);
	for (size_t i = 0; i < count; i++) {
		siginfo_t info = attempt(*spec, fds, nfds, i);
		char how[64], name[NAME_MAX_OUT];

		name_of(i, name);
		if (!is_refused(&info, how, sizeof(how)))
			holes++;
		printf("%s: %-45s %s\n", place, name, how);
	}
	printf("%s: %zu steps, %zu worked\n", place, count, holes);
	assert_int_equal(holes, 0);
}

/* A name in the host's network namespace, for what is there to be found. */
static int listen_abstract(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = ABSTRACT};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&a,
			      offsetof(struct sockaddr_un, sun_path) + sizeof(ABSTRACT)),
			 0);
	assert_int_equal(listen(fd, 1), 0);
	return fd;
}

static void need_root(void)
{
	if (geteuid() == 0)
		return;
	print_message("needs root\n");
	skip();
}

static void copy_program(const char *from, const char *to)
{
	const char *const argv[] = {"cp", from, to, NULL};
	struct err e;

	if (proc_run(argv, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(chmod(to, 0755), 0);
}

static void monitor_is_held(void **state)
{
	const char *const argv[] = {QEMU_BINARY, NULL};
	char dir[] = "/tmp/space-hostile-XXXXXX";
	struct qemu_jail jail;
	struct err e = {0};

	(void)state;
	need_root();
	if (access(QEMU_BINARY, X_OK) < 0) {
		print_message("needs QEMU\n");
		skip();
	}
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chmod(dir, 0711), 0);
	assert_int_equal(unshare(CLONE_NEWNS), 0);
	assert_int_equal(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	assert_int_equal(mount(attacker, QEMU_BINARY, NULL, MS_BIND, NULL), 0);
	auto_fd int host = listen_abstract();
	assert_true(host >= 0);
	auto_fd int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	auto_fd int scratch = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (qemu_jail_make(&jail, argv, VMM_TCG, &e) < 0)
		fail_msg("%s", e.text);
	const struct jail_fd fds[] = {{.to = QEMU_FD_CONTROL},
				      {.from = scratch, .to = QEMU_FD_CONSOLE},
				      {.from = dir_fd, .to = QEMU_FD_DIR, .tree = true},
				      {.from = scratch, .to = QEMU_FD_FIRST},
				      {.from = scratch, .to = QEMU_FD_SCRATCH}};
	attack("monitor", &jail.spec, fds, sizeof(fds) / sizeof(fds[0]));
	qemu_jail_done(&jail);
	assert_int_equal(umount2(QEMU_BINARY, MNT_DETACH), 0);
	assert_int_equal(dir_remove_all(dir), 0);
}

static void gateway_is_held(void **state)
{
	char dir[] = "/tmp/space-hostile-XXXXXX";
	struct gateway_jail jail;
	struct paths paths = {.libexec = dir};
	struct err e = {0};

	(void)state;
	need_root();
	assert_non_null(mkdtemp(dir));
	auto_free char *name = str_printf("%s/space-egress", dir),
		       *real = str_printf("%s/space-egress.real", dir);
	copy_program(attacker, name);
	copy_program(egress, real);
	auto_fd int host = listen_abstract();
	assert_true(host >= 0);
	auto_fd int socket_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (gateway_jail_make(&jail, &paths, &e) < 0)
		fail_msg("%s", e.text);
	const struct jail_fd fds[] = {{.to = CONTROL_FD},
				      {.from = socket_fd, .to = CONTROL_FD + 1}};
	attack("gateway", &jail.spec, fds, 2);
	gateway_jail_done(&jail);
	assert_int_equal(dir_remove_all(dir), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(monitor_is_held),
		cmocka_unit_test(gateway_is_held),
	};

	if (argc != 3) {
		fprintf(stderr, "usage: jail_attack_test ATTACKER SPACE-EGRESS\n");
		return 2;
	}
	attacker = argv[1];
	egress = argv[2];
	return cmocka_run_group_tests_name("jail_attack", tests, NULL, NULL);
}
