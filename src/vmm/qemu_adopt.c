/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Monitors that another process of ours started. Each is known for what it is by one descriptor, at
 * a number of its own: its directory's, without access. The jail has put that there before it looks
 * for the last time whether its parent lives, so that no orphan without it goes on to become QEMU.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/proc.h"
#include "base/str.h"
#include "vmm/qemu_args.h"
#include "vmm/qemu_dir.h"
#include "vmm/qemu_setup.h"
#include "vmm/qemu_state.h"

#define ADOPT_DEADLINE_MS 10000
#define DEATH_DEADLINE_MS 5000  /* for a killed process to be gone */
#define SWEEPS_MAX        10    /* until one finds nothing */
#define DIRECTORIES_DEPTH 4     /* of a monitor's below what is swept */
#define STATUS_MAX        65536 /* of /proc/PID/status */

static void cleanup_dir(DIR **d)
{
	if (*d)
		closedir(*d);
}
#define auto_dir __attribute__((cleanup(cleanup_dir)))

/* The file of its memory lies in its directory as long as it lives. A machine without can run, but
   not be frozen. */
static int open_base(struct vmm *v, struct err *e)
{
	struct stat st;

	auto_fd int fd = openat(v->dir_fd, QEMU_NAME_MEMORY, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : err_sys(e, errno, "the machine's memory file");
	if (fstat(fd, &st) < 0)
		return err_sys(e, errno, "the machine's memory file");
	if (!S_ISREG(st.st_mode))
		return err_set(e, EBADMSG, "the machine's memory file is no file");
	v->base_fd = take_fd(fd);
	v->ram_bytes = (uint64_t)st.st_size;
	return 0;
}

static bool is_alive(int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	return poll(&p, 1, 0) == 0;
}

static int take_process(struct vmm *v, uid_t uid, struct err *e)
{
	v->pidfd = proc_find(v->who.pid, v->who.started, uid);
	if (v->pidfd == -ESRCH)
		return err_set(e, ESRCH, "the monitor is gone");
	if (v->pidfd < 0)
		return err_sys(e, -v->pidfd, "the monitor (pid %d)", (int)v->who.pid);
	if (qemu_open_proc(v, e) < 0 || !is_alive(v->pidfd))
		return err_set(e, ESRCH, "the monitor is gone");
	return 0;
}

static int adopt(struct vmm *v, const char *dir, uid_t uid, struct err *e)
{
	int rc;

	v->dir_fd = qemu_dir_open(dir, e);
	if (v->dir_fd < 0)
		return v->dir_fd;
	rc = take_process(v, uid, e);
	if (rc == 0)
		rc = open_base(v, e);
	return rc;
}

struct vmm *vmm_adopt(uv_loop_t *loop, const char *id, const char *dir, uid_t uid,
		      const struct vmm_identity *who, bool *ret_running, vmm_done_fn done,
		      const struct vmm_events *events, void *user, struct err *e)
{
	struct vmm *v = qemu_new(loop, id, events, user);
	int rc, control = -1;

	if (!v) {
		err_sys(e, ENOMEM, "QEMU");
		return NULL;
	}
	v->who = *who;
	v->phase = QEMU_MACHINE;
	rc = adopt(v, dir, uid, e);
	if (rc == 0)
		control = qemu_dir_connect(v->dir_fd, QEMU_NAME_CONTROL, e);
	if (rc < 0 || control < 0) {
		qemu_free(v);
		return NULL;
	}
	rc = qemu_watch(v, control, e);
	if (rc == 0) {
		qemu_call_begin(v, CALL_ADOPT, done, user, ADOPT_DEADLINE_MS);
		v->call.ret_running = ret_running;
		rc = qemu_call_send(v, "query-status", NULL, -1);
		if (rc < 0)
			err_sys(e, -rc, "QEMU does not take commands");
	}
	if (rc < 0) {
		qemu_unwatch(v);
		return NULL;
	}
	return v;
}

/* Not root's: the jailed ones are, until they have changed their uid, but not for long. */
static bool is_of_a_user(int proc_fd)
{
	auto_free char *text = NULL;
	unsigned uid;
	const char *line;

	if (file_read_at(proc_fd, "status", STATUS_MAX, &text, NULL) < 0)
		return false;
	line = strstr(text, "\nUid:");
	return line && sscanf(line, "\nUid: %u", &uid) == 1 && uid != 0;
}

static bool is_path_only(int proc_fd)
{
	auto_free char *text = NULL;
	char name[32];
	unsigned flags;
	const char *line;

	snprintf(name, sizeof(name), "fdinfo/%d", QEMU_FD_DIR);
	if (file_read_at(proc_fd, name, STATUS_MAX, &text, NULL) < 0)
		return false;
	line = strstr(text, "\nflags:");
	return line && sscanf(line, "\nflags: %o", &flags) == 1 && (flags & O_PATH);
}

/* The directories of monitors: theirs is a mount of its own, which has no path of ours. */
struct directories {
	struct {
		dev_t dev;
		ino_t inode;
	} * ids;
	size_t count, room;
	const char *below; /* a path with a slash at its end, for those that were started with a
			      directory of ours */
};

static int directories_add(struct directories *d, const struct stat *st)
{
	if (d->count == d->room) {
		size_t room = d->room ? 2 * d->room : 64;
		void *more = reallocarray(d->ids, room, sizeof(*d->ids));

		if (!more)
			return -ENOMEM;
		d->ids = more;
		d->room = room;
	}
	d->ids[d->count].dev = st->st_dev;
	d->ids[d->count].inode = st->st_ino;
	d->count++;
	return 0;
}

/* All below fd, which is taken over. What vanishes meanwhile is nobody's. */
static int directories_find(struct directories *d, int fd, int depth)
{
	auto_dir DIR *dir = fdopendir(fd);
	const struct dirent *entry;
	int rc = 0;

	if (!dir) {
		rc = -errno;
		close(fd);
		return rc;
	}
	while (rc == 0 && (entry = readdir(dir))) {
		struct stat st;

		if (str_eq(entry->d_name, ".") || str_eq(entry->d_name, "..") ||
		    fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISDIR(st.st_mode))
			continue;
		rc = directories_add(d, &st);
		if (rc < 0 || depth == 1)
			continue;
		int sub = openat(dirfd(dir), entry->d_name,
				 O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (sub >= 0)
			rc = directories_find(d, sub, depth - 1);
	}
	return rc;
}

static bool directories_have(const struct directories *d, const struct stat *st)
{
	for (size_t i = 0; i < d->count; i++)
		if (d->ids[i].dev == st->st_dev && d->ids[i].inode == st->st_ino)
			return true;
	return false;
}

static bool is_monitor(int proc_fd, const struct directories *d)
{
	char name[32], path[PATH_MAX];
	struct stat st;
	ssize_t n;

	snprintf(name, sizeof(name), "fd/%d", QEMU_FD_DIR);
	n = readlinkat(proc_fd, name, path, sizeof(path) - 1);
	if (n <= 0 || !is_path_only(proc_fd) || !is_of_a_user(proc_fd))
		return false;
	path[n] = '\0';
	return str_starts(path, d->below) ||
	       (fstatat(proc_fd, name, &st, 0) == 0 && directories_have(d, &st));
}

/* 1 when it was one and is gone now. */
static int end_monitor(int proc, const char *pid_text, const struct directories *d)
{
	pid_t pid = (pid_t)strtol(pid_text, NULL, 10);
	struct pollfd p = {.events = POLLIN};

	auto_fd int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	auto_fd int dir = openat(proc, pid_text, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (pidfd < 0 || dir < 0 || !is_monitor(dir, d))
		return 0;
	if (syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) < 0)
		return errno == ESRCH ? 0 : -errno;
	p.fd = pidfd;
	return poll(&p, 1, DEATH_DEADLINE_MS) == 1 ? 1 : -ETIMEDOUT;
}

static bool is_kept(const char *pid_text, const pid_t *keep, size_t nkeep)
{
	pid_t pid = (pid_t)strtol(pid_text, NULL, 10);

	for (size_t i = 0; i < nkeep; i++)
		if (keep[i] == pid)
			return true;
	return pid == getpid();
}

/* How many were ended. */
static int sweep_once(const struct directories *dirs, const pid_t *keep, size_t nkeep)
{
	auto_dir DIR *proc = opendir("/proc");
	const struct dirent *d;
	int count = 0;

	if (!proc)
		return -errno;
	while ((d = readdir(proc))) {
		if (!isdigit((unsigned char)d->d_name[0]) || is_kept(d->d_name, keep, nkeep))
			continue;
		int rc = end_monitor(dirfd(proc), d->d_name, dirs);
		if (rc < 0)
			return rc;
		count += rc;
	}
	return count;
}

int vmm_sweep(const char *parent, const pid_t *keep, size_t nkeep, struct err *e)
{
	auto_free char *real = realpath(parent, NULL);
	auto_free char *below = real ? str_printf("%s/", real) : NULL;
	int total = 0, rc = 1;

	if (!real && errno == ENOENT)
		return 0;
	if (!below)
		return err_sys(e, errno, "%s", parent);
	struct directories dirs = {.below = below};
	int fd = open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || directories_find(&dirs, fd, DIRECTORIES_DEPTH) < 0)
		rc = fd < 0 ? -errno : -EIO;
	/* One that was being started when its starter died may show only now. */
	for (int i = 0; rc > 0 && i < SWEEPS_MAX; i++) {
		rc = sweep_once(&dirs, keep, nkeep);
		total += rc > 0 ? rc : 0;
	}
	free(dirs.ids);
	return rc < 0 ? err_sys(e, -rc, "ending monitors without an owner") : total;
}
