/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs jail_spawn() for real: the children look at themselves through /proc and print what they
 * see. Needs root and the right to make namespaces; says so and skips without.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "jail/jail.h"
#include "jail/plan.h"

#define TEST_UID    64999
#define DEADLINE_MS 10000
#define OUTPUT_MAX  65536

static void need_root(void)
{
	if (geteuid() == 0)
		return;
	print_message("needs root\n");
	skip();
}

/* Waits for the end of the process behind pidfd; fails the test past the deadline. */
static int end_of(int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};
	siginfo_t info = {0};

	assert_int_equal(poll(&p, 1, DEADLINE_MS), 1);
	assert_int_equal(waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED), 0);
	return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

/* Runs spec with its output collected: a heap string, the caller's. */
static char *output_of(struct jail_spec *spec)
{
	auto_buf struct buf out;
	struct err e = {0};
	pid_t pid;
	int ends[2], raw;
	uint8_t chunk[4096];
	ssize_t n;

	buf_init(&out, OUTPUT_MAX);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	spec->stdout_fd = ends[1];
	if (jail_spawn(spec, &pid, &raw, &e) < 0)
		fail_msg("%s", e.text);
	auto_fd int pidfd = raw, read_end = ends[0];
	close(ends[1]);
	while ((n = read(read_end, chunk, sizeof(chunk))) > 0)
		assert_int_equal(buf_append(&out, chunk, (size_t)n), 0);
	assert_int_equal(end_of(pidfd), 0);
	return buf_take_str(&out);
}

static char *output_of_script(struct jail_spec *spec, const char *script)
{
	const char *argv[] = {"/bin/sh", "-c", script, NULL};

	spec->argv = argv;
	return output_of(spec);
}

static struct jail_spec plain_spec(void)
{
	static const char *const env[] = {"PATH=/usr/bin:/bin", NULL};

	return (struct jail_spec){
		.name = "test",
		.env = env,
		.stdout_fd = -1,
		.uid = TEST_UID,
		.netns_fd = -1,
	};
}

static void assert_line(const char *text, const char *line)
{
	auto_free char *framed = str_printf("\n%s\n", line), *whole = str_printf("\n%s", text);

	if (!strstr(whole, framed))
		fail_msg("no line '%s' in:\n%s", line, text);
}

static void child_keeps_no_privilege(void **state)
{
	struct jail_spec spec = plain_spec();

	(void)state;
	need_root();
	auto_free char *out = output_of_script(
		&spec, "while read -r k v; do echo $k $v; done </proc/self/status");
	assert_line(out, "Uid: 64999 64999 64999 64999");
	assert_line(out, "Gid: 64999 64999 64999 64999");
	assert_line(out, "Groups:");
	assert_line(out, "CapInh: 0000000000000000");
	assert_line(out, "CapPrm: 0000000000000000");
	assert_line(out, "CapEff: 0000000000000000");
	assert_line(out, "CapBnd: 0000000000000000");
	assert_line(out, "CapAmb: 0000000000000000");
	assert_line(out, "NoNewPrivs: 1");
}

static void child_has_limits_and_a_session(void **state)
{
	struct jail_spec spec = plain_spec();

	(void)state;
	need_root();
	auto_free char *out = output_of_script(
		&spec, "ulimit -Hc; umask; pwd; cut -d' ' -f1,6 /proc/$$/stat; echo $$; cat");
	auto_free char *first = NULL;
	char *save = NULL;
	assert_string_equal(strtok_r(out, "\n", &save), "0");
	assert_string_equal(strtok_r(NULL, "\n", &save), "0077");
	assert_string_equal(strtok_r(NULL, "\n", &save), "/");
	char *ids = strtok_r(NULL, "\n", &save), *pid = strtok_r(NULL, "\n", &save);
	first = str_printf("%s %s", pid, pid);
	assert_string_equal(ids, first);
	assert_null(strtok_r(NULL, "\n", &save));
}

static void files_do_not_grow_past_the_limit(void **state)
{
	struct jail_spec spec = plain_spec();
	auto_file FILE *file = tmpfile();
	const struct jail_fd fds[] = {{.from = fileno(file), .to = 3}};
	struct stat st;

	(void)state;
	need_root();
	spec.fds = fds;
	spec.nfds = 1;
	spec.file_bytes_max = 4096;
	auto_free char *out = output_of_script(&spec, "head -c 10000 /dev/zero >&3; echo $?");
	assert_int_equal(fstat(fileno(file), &st), 0);
	assert_int_equal(st.st_size, 4096);
	assert_string_not_equal(out, "0\n");
}

static void child_starts_with_signals_reset(void **state)
{
	struct jail_spec spec = plain_spec();
	sigset_t blocked, before;

	(void)state;
	need_root();
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	sigprocmask(SIG_BLOCK, &blocked, &before);
	signal(SIGPIPE, SIG_IGN);
	spec.argv = (const char *const[]){"/usr/bin/grep", "^Sig[BI]", "/proc/self/status", NULL};
	auto_free char *out = output_of(&spec);
	signal(SIGPIPE, SIG_DFL);
	assert_string_equal(out, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");

	sigset_t now;
	sigprocmask(SIG_SETMASK, &before, &now);
	assert_true(sigismember(&now, SIGUSR1) && !sigismember(&now, SIGUSR2));
}

static void child_has_just_the_listed_descriptors(void **state)
{
	struct jail_spec spec = plain_spec();
	int a[2], b[2];

	(void)state;
	need_root();
	assert_int_equal(pipe(a), 0); /* without CLOEXEC: must not get through */
	assert_int_equal(pipe(b), 0);
	assert_int_equal(write(a[1], "A\n", 2), 2);
	assert_int_equal(write(b[1], "B\n", 2), 2);
	close(a[1]);
	close(b[1]);
	/* Crossed over: each target is another's source. */
	assert_int_equal(dup2(a[0], 9), 9);
	assert_int_equal(dup2(b[0], 8), 8);
	close(a[0]);
	close(b[0]);
	spec.fds = (const struct jail_fd[]){{.from = 9, .to = 8}, {.from = 8, .to = 9}};
	spec.nfds = 2;
	auto_free char *out = output_of_script(
		&spec,
		"i=0; while [ $i -lt 100 ]; do [ -h /proc/$$/fd/$i ] && echo $i; i=$((i+1)); done; cat <&8; cat <&9");
	close(8);
	close(9);
	assert_string_equal(out, "0\n1\n2\n8\n9\nA\nB\n");
}

static void child_environment_is_the_given_one(void **state)
{
	struct jail_spec spec = plain_spec();

	(void)state;
	need_root();
	setenv("SPACE_TEST_LEAK", "1", 1);
	spec.argv = (const char *const[]){"/usr/bin/env", NULL};
	auto_free char *given = output_of(&spec);
	spec.env = NULL;
	auto_free char *empty = output_of(&spec);
	unsetenv("SPACE_TEST_LEAK");
	assert_string_equal(given, "PATH=/usr/bin:/bin\n");
	assert_string_equal(empty, "");
}

/* A descriptor for a new network namespace. */
static int make_netns(void)
{
	int ready[2], done[2], status;
	char byte;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	assert_int_equal(pipe2(done, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		close(done[1]);
		if (unshare(CLONE_NEWNET) == 0)
			(void)!write(ready[1], "r", 1);
		close(ready[1]);
		(void)!read(done[0], &byte, 1);
		_exit(0);
	}
	close(ready[1]);
	close(done[0]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	auto_free char *path = str_printf("/proc/%d/ns/net", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	close(done[1]);
	close(ready[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return fd;
}

static void own_link(const char *path, char out[static 64])
{
	ssize_t n = readlink(path, out, 63);

	assert_true(n > 0);
	out[n] = '\0';
}

static void child_lives_in_namespaces_of_its_own(void **state)
{
	static const char *const kinds[] = {"pid", "mnt", "ipc", "uts", "net", "cgroup"};
	struct jail_spec spec = plain_spec();
	char mine[64], wanted_net[64], fd_path[64];
	char *save = NULL;

	(void)state;
	need_root();
	auto_fd int netns = make_netns();
	snprintf(fd_path, sizeof(fd_path), "/proc/self/fd/%d", netns);
	own_link(fd_path, wanted_net);
	spec.netns_fd = netns;
	spec.own_pid = true;
	spec.own_mount = true;
	auto_free char *out = output_of_script(
		&spec,
		"for k in pid mnt ipc uts net cgroup; do readlink /proc/self/ns/$k; done; echo $$; "
		"echo /proc/[0-9]*; grep -c shared: /proc/self/mountinfo; :");
	char *line = strtok_r(out, "\n", &save);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		auto_free char *path = str_printf("/proc/self/ns/%s", kinds[i]);

		own_link(path, mine);
		assert_non_null(line);
		assert_string_not_equal(line, mine);
		if (str_eq(kinds[i], "net"))
			assert_string_equal(line, wanted_net);
		line = strtok_r(NULL, "\n", &save);
	}
	assert_string_equal(line, "1");
	assert_string_equal(strtok_r(NULL, "\n", &save), "/proc/1");
	assert_string_equal(strtok_r(NULL, "\n", &save), "0");
}

static void child_cannot_write_any_file_system(void **state)
{
	struct jail_spec spec = plain_spec();
	char dir[] = "/dev/shm/space-jail-XXXXXX";

	(void)state;
	need_root();
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chmod(dir, 0777), 0);
	auto_free char *script =
		str_printf("{ echo >%s/x; } 2>/dev/null && echo wrote; echo end", dir);
	spec.own_mount = true;
	auto_free char *shut = output_of_script(&spec, script);
	spec.own_mount = false;
	auto_free char *open = output_of_script(&spec, script);
	assert_int_equal(dir_remove_all(dir), 0);
	assert_string_equal(shut, "end\n");
	assert_string_equal(open, "wrote\nend\n");
}

static void program_may_be_where_the_new_uid_cannot_look(void **state)
{
	struct jail_spec spec = plain_spec();
	char dir[] = "/tmp/space-jail-XXXXXX"; /* mode 0700, like /root */

	(void)state;
	need_root();
	assert_non_null(mkdtemp(dir));
	auto_free char *bin = str_printf("%s/bin", dir),
		       *program = str_printf("%s/bin/program", dir);
	auto_free char *copy = str_printf("mkdir %s && cp /bin/cat %s && chmod 755 %s %s", bin,
					  program, bin, program);
	assert_int_equal(system(copy), 0);
	spec.argv = (const char *const[]){program, "/proc/self/comm", NULL};
	auto_free char *name = output_of(&spec);
	spec.own_mount = spec.own_pid = true;
	auto_free char *again = output_of(&spec);
	assert_int_equal(dir_remove_all(dir), 0);
	assert_string_equal(name, "program\n");
	assert_string_equal(again, "program\n");
}

static void assert_no_child(void)
{
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
}

static void failed_step_is_named_and_leaves_nothing(void **state)
{
	struct jail_spec spec = plain_spec();
	struct err e = {0};
	pid_t pid = -7;
	int pidfd = -7;

	(void)state;
	need_root();
	spec.argv = (const char *const[]){"/nonexistent/program", NULL};
	assert_int_equal(jail_spawn(&spec, &pid, &pidfd, &e), -ENOENT);
	assert_non_null(strstr(e.text, "exec /nonexistent/program"));
	assert_no_child();

	auto_fd int not_a_netns = open("/dev/null", O_RDONLY | O_CLOEXEC);
	spec.netns_fd = not_a_netns;
	assert_int_equal(jail_spawn(&spec, &pid, &pidfd, &e), -EINVAL);
	assert_non_null(strstr(e.text, "join network namespace"));
	assert_no_child();
	assert_int_equal(pid, -7);
	assert_int_equal(pidfd, -7);
}

static void plan_says_each_step_in_order(void **state)
{
	struct jail_spec spec = plain_spec();
	const struct jail_file files[] = {{"/usr/bin/a", JAIL_FILE_CODE},
					  {"/usr/lib/b", JAIL_FILE_OPTIONAL},
					  {"/dev/null", JAIL_FILE_DEVICE},
					  {"/disk", JAIL_FILE_PLACE}};
	const struct jail_fd fds[] = {{.from = 0, .to = 3, .tree = true}, {.from = 0, .to = 4}};
	struct jail_plan plan;
	struct err e = {0};

	(void)state;
	spec.argv = (const char *const[]){"/usr/bin/a", NULL};
	spec.own_pid = spec.own_mount = true;
	spec.netns_fd = 0;
	spec.file_bytes_max = 4096;
	spec.files = files;
	spec.nfiles = 4;
	spec.fds = fds;
	spec.nfds = 2;
	spec.outlives_parent = true;
	assert_int_equal(jail_plan_make(&spec, &plan, &e), 0);
	auto_free char *text = jail_plan_text(&plan);
	jail_plan_done(&plan);
	assert_string_equal(
		text, "show directory alone as descriptor 3\n"
		      "new process, own processes, own mounts, IPC, host name\n"
		      "reset signals\n"
		      "new session\n"
		      "join network namespace\n"
		      "new cgroup namespace\n"
		      "make mounts private\n"
		      "new root directory\n"
		      "make directory /usr\n"
		      "make directory /usr/bin\n"
		      "show file /usr/bin/a: read-only, nosuid, nodev\n"
		      "make directory /usr/lib\n"
		      "show file /usr/lib/b: read-only, nosuid, nodev, noexec; if it is there\n"
		      "make directory /dev\n"
		      "show file /dev/null: read-only, nosuid, noexec\n"
		      "make empty file /disk\n"
		      "make directory /proc\n"
		      "mount proc /proc\n"
		      "enter the root directory\n"
		      "working directory /\n"
		      "place descriptors: 2 and standard ones, no others\n"
		      "find /usr/bin/a\n"
		      "resource limit core: 0\n"
		      "resource limit open files: 8192\n"
		      "resource limit processes: 256\n"
		      "resource limit bytes of a file: 4096\n"
		      "capability bounding set\n"
		      "change uid and gid: 64999\n"
		      "drop capabilities\n"
		      "tie to parent: it lives at the start\n"
		      "no new privileges\n"
		      "exec /usr/bin/a\n");
}

/* What sh and what the scripts call need, and more. */
static struct jail_file *files_for(const char *const *programs, size_t n,
				   const struct jail_file *more, size_t nmore, size_t *ret_count)
{
	struct err e = {0};
	struct jail_file *all = NULL;
	size_t count = 0;

	for (size_t i = 0; i < n; i++) {
		const struct jail_program *p = jail_program(programs[i], &e);
		size_t now;

		if (!p)
			fail_msg("%s", e.text);
		struct jail_file *files = jail_program_files(p, NULL, 0, &now);
		for (size_t k = 0; k < now; k++) {
			bool there = false;

			for (size_t j = 0; j < count; j++)
				there = there || str_eq(all[j].path, files[k].path);
			if (there)
				continue;
			all = reallocarray(all, count + 1, sizeof(*all));
			assert_non_null(all);
			all[count++] = files[k];
		}
		free(files);
	}
	all = reallocarray(all, count + nmore, sizeof(*all));
	assert_non_null(all);
	memcpy(all + count, more, nmore * sizeof(*all));
	*ret_count = count + nmore;
	return all;
}

static const char *const shell_programs[] = {"/bin/sh", "/usr/bin/find", "/usr/bin/cat"};
static const struct jail_file shell_more[] = {{"/dev/null", JAIL_FILE_DEVICE},
					      {"/place", JAIL_FILE_PLACE}};

static struct jail_spec rooted_spec(struct jail_file **ret_files)
{
	struct jail_spec spec = plain_spec();

	*ret_files = files_for(shell_programs, 3, shell_more, 2, &spec.nfiles);
	spec.files = *ret_files;
	spec.own_pid = spec.own_mount = true;
	return spec;
}

/* Every file there is one that the list names, and nothing can be made. */
static void root_directory_holds_the_listed_files(void **state)
{
	auto_free struct jail_file *files = NULL;

	(void)state;
	need_root();
	struct jail_spec spec = rooted_spec(&files);
	auto_free char *out =
		output_of_script(&spec, "find / -path /proc -prune -o ! -type d -print");
	char *save = NULL;
	size_t count = 0;
	for (char *line = strtok_r(out, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		bool listed = false;

		for (size_t i = 0; i < spec.nfiles; i++)
			listed = listed || str_eq(files[i].path, line);
		if (!listed)
			fail_msg("%s is there", line);
		count++;
	}
	assert_int_equal(count, spec.nfiles);
	auto_free char *shut = output_of_script(
		&spec,
		"for d in / /dev /usr /proc /place; do { echo >$d/x; } 2>/dev/null && echo $d; "
		"done; { echo >/place; } 2>/dev/null && echo /place; "
		"echo x >/dev/null && cat /dev/null; cat /proc/sys/kernel/ostype 2>&1; "
		"cd ..; cd ..; [ -e proc/1 ] && [ ! -e etc/passwd ] && echo end");
	assert_string_equal(shut, "cat: /proc/sys/kernel/ostype: No such file or directory\nend\n");
}

static void missing_file_is_named(void **state)
{
	static const struct jail_file files[] = {{"/bin/sh", JAIL_FILE_CODE},
						 {"/nonexistent/firmware", 0}};
	struct jail_spec spec = plain_spec();
	struct err e = {0};
	pid_t pid;
	int pidfd;

	(void)state;
	need_root();
	spec.argv = (const char *const[]){"/bin/sh", NULL};
	spec.own_pid = spec.own_mount = true;
	spec.files = files;
	spec.nfiles = 2;
	assert_int_equal(jail_spawn(&spec, &pid, &pidfd, &e), -ENOENT);
	assert_non_null(strstr(e.text, "show file /nonexistent/firmware"));
	assert_null(jail_program("/nonexistent/program", &e));
	assert_non_null(strstr(e.text, "/nonexistent/program"));
}

/* From a directory that it is given no way leads up, and nothing in it can be written. */
static void given_directory_is_all_it_gets(void **state)
{
	auto_free struct jail_file *files = NULL;
	char dir[] = "/tmp/space-jail-XXXXXX";

	(void)state;
	need_root();
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chmod(dir, 0777), 0);
	auto_fd int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	const struct jail_fd fds[] = {{.from = dir_fd, .to = 5, .tree = true}};
	struct jail_spec spec = rooted_spec(&files);
	spec.fds = fds;
	spec.nfds = 1;
	auto_free char *file = str_printf("%s/file", dir);
	assert_int_equal(file_write_atomic(file, "here\n", 5, 0444), 0);
	auto_free char *out = output_of_script(
		&spec,
		"cat /proc/self/fd/5/file; { echo >/proc/self/fd/5/x; } 2>/dev/null && echo wrote; "
		"[ -e /proc/self/fd/5/../etc ] && echo up; "
		"[ -e /proc/self/fd/5/../../etc ] && echo up; [ -e /proc/self/fd/5/../file ] && echo end");
	assert_int_equal(dir_remove_all(dir), 0);
	assert_string_equal(out, "here\nend\n");
}

static void file_is_shown_to_one_that_runs(void **state)
{
	auto_free struct jail_file *files = NULL;
	char dir[] = "/tmp/space-jail-XXXXXX";
	struct err e = {0};
	int to[2], from[2], raw;
	pid_t pid;
	char said[8] = "";

	(void)state;
	need_root();
	assert_non_null(mkdtemp(dir));
	auto_free char *file = str_printf("%s/file", dir);
	assert_int_equal(file_write_atomic(file, "here\n", 5, 0444), 0);
	assert_int_equal(pipe2(to, O_CLOEXEC), 0);
	assert_int_equal(pipe2(from, O_CLOEXEC), 0);
	const struct jail_fd fds[] = {{.from = to[0], .to = 3}};
	struct jail_spec spec = rooted_spec(&files);
	spec.argv = (const char *const[]){"/bin/sh", "-c", "read -r x <&3; cat /place", NULL};
	spec.fds = fds;
	spec.nfds = 1;
	spec.stdout_fd = from[1];
	if (jail_spawn(&spec, &pid, &raw, &e) < 0)
		fail_msg("%s", e.text);
	auto_fd int pidfd = raw;
	close(from[1]);
	close(to[0]);
	if (jail_show(pidfd, file, "/place", &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(jail_show(pidfd, "/nonexistent", "/place", &e), -ENOENT);
	assert_int_equal(write(to[1], "\n", 1), 1);
	close(to[1]);
	assert_int_equal(fd_read_all(from[0], said, sizeof(said) - 1), 5);
	close(from[0]);
	assert_int_equal(end_of(pidfd), 0);
	assert_string_equal(said, "here\n");
	assert_int_equal(dir_remove_all(dir), 0);
}

static void bad_specs_are_refused(void **state)
{
	struct jail_spec spec = plain_spec();
	struct err e = {0};
	pid_t pid;
	int pidfd;

	(void)state;
	spec.argv = (const char *const[]){"/bin/true", NULL};
	spec.uid = 0;
	assert_int_equal(jail_spawn(&spec, &pid, &pidfd, &e), -EINVAL);
	spec.uid = (uid_t)-1;
	assert_int_equal(jail_spawn(&spec, &pid, &pidfd, &e), -EINVAL);
	spec.uid = TEST_UID;
	spec.fds = (const struct jail_fd[]){{.from = 1, .to = 5}, {.from = 1, .to = 4}};
	spec.nfds = 2;
	assert_int_equal(jail_spawn(&spec, &pid, &pidfd, &e), -EINVAL);
	spec.fds = (const struct jail_fd[]){{.from = 1, .to = 2}};
	spec.nfds = 1;
	assert_int_equal(jail_spawn(&spec, &pid, &pidfd, &e), -EINVAL);
	spec.nfds = 0;
	spec.own_mount = spec.own_pid = true;
	spec.nfiles = 1;
	spec.files = (const struct jail_file[]){{"/a/../b", 0}};
	assert_int_equal(jail_spawn(&spec, &pid, &pidfd, &e), -EINVAL);
	spec.files = (const struct jail_file[]){{"relative", 0}};
	assert_int_equal(jail_spawn(&spec, &pid, &pidfd, &e), -EINVAL);
	spec.files = (const struct jail_file[]){{"/a", 0}};
	spec.own_pid = false;
	assert_int_equal(jail_spawn(&spec, &pid, &pidfd, &e), -EINVAL);
}

/* Has spec started by a process between us and the jailed one, which is then killed: the jailed
 * one, which ends when *ret_end is closed. */
static int orphan_of(struct jail_spec spec, int *ret_end)
{
	int pids[2], forever[2], status;
	pid_t jailed;

	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	assert_int_equal(pipe2(pids, O_CLOEXEC), 0);
	assert_int_equal(pipe2(forever, O_CLOEXEC), 0);
	spec.argv = (const char *const[]){"/bin/sh", "-c", "read -r x <&3", NULL};
	spec.fds = (const struct jail_fd[]){{.from = forever[0], .to = 3}};
	spec.nfds = 1;
	pid_t middle = fork();
	if (middle == 0) {
		struct err e;
		int pidfd;

		if (jail_spawn(&spec, &jailed, &pidfd, &e) == 0)
			(void)!write(pids[1], &jailed, sizeof(jailed));
		close(pids[1]);
		pause();
		_exit(0);
	}
	close(pids[1]);
	assert_int_equal(fd_read_all(pids[0], &jailed, sizeof(jailed)), sizeof(jailed));
	int pidfd = (int)syscall(SYS_pidfd_open, jailed, 0);
	assert_true(pidfd >= 0);
	kill(middle, SIGKILL);
	assert_int_equal(waitpid(middle, &status, 0), middle);
	close(pids[0]);
	close(forever[0]);
	*ret_end = forever[1];
	return pidfd;
}

static void dies_with_parent(bool own_namespaces)
{
	struct jail_spec spec = plain_spec();
	int end;

	need_root();
	spec.own_pid = own_namespaces;
	spec.own_mount = own_namespaces;
	auto_fd int pidfd = orphan_of(spec, &end);
	assert_int_equal(end_of(pidfd), 128 + SIGKILL);
	close(end);
}

static void child_dies_with_its_parent(void **state)
{
	(void)state;
	dies_with_parent(false);
}

static void init_of_own_namespace_dies_with_its_parent(void **state)
{
	(void)state;
	dies_with_parent(true);
}

static void child_may_outlive_its_parent(void **state)
{
	struct jail_spec spec = plain_spec();
	int end;

	(void)state;
	need_root();
	spec.own_pid = spec.own_mount = true;
	spec.outlives_parent = true;
	auto_fd int pidfd = orphan_of(spec, &end);
	close(end);
	assert_int_not_equal(end_of(pidfd), 128 + SIGKILL); /* by itself */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(child_keeps_no_privilege),
		cmocka_unit_test(child_has_limits_and_a_session),
		cmocka_unit_test(files_do_not_grow_past_the_limit),
		cmocka_unit_test(child_starts_with_signals_reset),
		cmocka_unit_test(child_has_just_the_listed_descriptors),
		cmocka_unit_test(child_environment_is_the_given_one),
		cmocka_unit_test(child_lives_in_namespaces_of_its_own),
		cmocka_unit_test(child_cannot_write_any_file_system),
		cmocka_unit_test(program_may_be_where_the_new_uid_cannot_look),
		cmocka_unit_test(failed_step_is_named_and_leaves_nothing),
		cmocka_unit_test(plan_says_each_step_in_order),
		cmocka_unit_test(root_directory_holds_the_listed_files),
		cmocka_unit_test(missing_file_is_named),
		cmocka_unit_test(given_directory_is_all_it_gets),
		cmocka_unit_test(file_is_shown_to_one_that_runs),
		cmocka_unit_test(bad_specs_are_refused),
		cmocka_unit_test(child_dies_with_its_parent),
		cmocka_unit_test(init_of_own_namespace_dies_with_its_parent),
		cmocka_unit_test(child_may_outlive_its_parent),
	};

	return cmocka_run_group_tests_name("jail", tests, NULL, NULL);
}
