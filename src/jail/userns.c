/* SPDX-License-Identifier: Apache-2.0 */
#include "jail/userns.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/nsfs.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/proc.h"
#include "base/str.h"

#define OWN_USERNS  "/proc/self/ns/user"
#define IDS_MIN     1024  /* subordinate ids below which nothing is begun */
#define TEXT_MAX    65536 /* bytes of a list of ids */
#define NOTE_MAX    64
#define FIRST_ID    1 /* inside; 0 is the caller */
#define DECIMAL_MAX 24

/* -- which ids there are -- */

/* The first range of getsubids' answer, "0: NAME START COUNT" a line, that is large enough. */
static int parse_ranges(const char *text, unsigned long *ret_start, unsigned long *ret_count)
{
	for (const char *line = text; line && *line; line = strchr(line, '\n')) {
		unsigned long start, count;
		line += *line == '\n';
		if (sscanf(line, "%*u: %*s %lu %lu", &start, &count) == 2 && count >= IDS_MIN) {
			*ret_start = start;
			*ret_count = count;
			return 0;
		}
	}
	return -ENOENT;
}

struct range {
	char start[DECIMAL_MAX];
	char count[DECIMAL_MAX];
};

static int subordinate_ids(const char *owner, bool groups, struct range *ret, struct err *e)
{
	const char *file = groups ? "/etc/subgid" : "/etc/subuid";
	const char *const argv[] = {"getsubids", groups ? "-g" : owner, groups ? owner : NULL,
				    NULL};
	auto_free char *text = NULL;
	unsigned long start, count;
	int r = proc_output(argv, TEXT_MAX, &text, e);
	if (r == -ENOENT)
		return err_set(e, ENOENT,
			       "getsubids is missing: to run SPACE without root, install uidmap");
	if (r < 0 || parse_ranges(text, &start, &count) < 0)
		return err_set(e, ENOENT,
			       "%s has no %d subordinate ids in %s: as root, give some: usermod "
			       "--add-sub%ss 100000-165535 %s",
			       owner, IDS_MIN, file, groups ? "gid" : "uid", owner);
	snprintf(ret->start, sizeof(ret->start), "%lu", start);
	snprintf(ret->count, sizeof(ret->count), "%lu", count);
	return 0;
}

/* -- a new namespace -- */

static int map(const char *program, const char *pid, unsigned own, const struct range *r,
	       struct err *e)
{
	char id[DECIMAL_MAX];
	snprintf(id, sizeof(id), "%u", own);
	const char *const argv[] = {program, pid, "0", id, "1", "1", r->start, r->count, NULL};
	return proc_run(argv, e);
}

/* In a child that has stayed outside: maps the ids of its parent once that is inside. */
static int map_parent(int inside_fd, const struct range *uids, const struct range *gids)
{
	char byte, pid[DECIMAL_MAX];
	struct err e;
	snprintf(pid, sizeof(pid), "%d", (int)getppid());
	if (fd_read_all(inside_fd, &byte, 1) != 1)
		return 1; /* it did not get there */
	if (map("newuidmap", pid, getuid(), uids, &e) < 0 ||
	    map("newgidmap", pid, getgid(), gids, &e) < 0) {
		dprintf(STDERR_FILENO, "%s\n", e.text);
		return 1;
	}
	return 0;
}

static int wait_for(pid_t child, struct err *e)
{
	int status;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return err_sys(e, errno, "waiting for newuidmap");
	return status == 0 ? 0
			   : err_set(e, EPERM,
				     "newuidmap or newgidmap failed (above): is uidmap installed, "
				     "and may this process use setuid programs?");
}

/* In the namespace, with ids mapped. The groups of the caller stay: one of them may be allowed to
 * use a device. */
static int become_root(struct err *e)
{
	if (unshare(CLONE_NEWNS) < 0)
		return err_sys(e, errno, "make a mount namespace");
	if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
		return err_sys(e, errno, "become root in a user namespace");
	return 0;
}

static int enter_new(struct err *e)
{
	struct range uids, gids;
	const struct passwd *pw = getpwuid(getuid());
	auto_free char *owner = pw ? strdup(pw->pw_name) : str_printf("%u", getuid());
	int ends[2];
	if (!owner)
		return err_set(e, ENOMEM, "no memory");
	int r = subordinate_ids(owner, false, &uids, e);
	if (r == 0)
		r = subordinate_ids(owner, true, &gids, e);
	if (r < 0)
		return r;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(e, errno, "pipe");
	auto_fd int read_end = ends[0], write_end = ends[1];
	pid_t child = fork();
	if (child < 0)
		return err_sys(e, errno, "fork");
	if (child == 0) {
		close(take_fd(write_end));
		_exit(map_parent(read_end, &uids, &gids));
	}
	if (unshare(CLONE_NEWUSER) == 0)
		r = fd_write_all(write_end, "1", 1);
	else
		r = err_sys(e, errno, "make a user namespace (does the kernel allow it to users?)");
	close(take_fd(write_end));
	int waited = wait_for(child, r < 0 ? NULL : e);
	if (r == 0)
		r = waited;
	return r < 0 ? r : become_root(e);
}

/* -- the one that a daemon before had -- */

static void note_text(const struct stat *st, char out[NOTE_MAX])
{
	snprintf(out, NOTE_MAX, "%ju:%ju\n", (uintmax_t)st->st_dev, (uintmax_t)st->st_ino);
}

/* What the note says; "": nothing. */
static void read_note(const char *note, char out[NOTE_MAX])
{
	auto_fd int fd = open(note, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : fd_read_all(fd, out, NOTE_MAX - 1);
	out[n < 0 ? 0 : n] = '\0';
}

int userns_write_note(const char *note, struct err *e)
{
	struct stat st;
	char text[NOTE_MAX];
	if (stat(OWN_USERNS, &st) < 0)
		return err_sys(e, errno, OWN_USERNS);
	note_text(&st, text);
	auto_fd int fd = open(note, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r = fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
	return r < 0 ? err_sys(e, -r, "%s", note) : 0;
}

/* A descriptor of the noted namespace when a process is in it; -ENOENT otherwise. A number may be
 * another's by now, but not one that is the caller's and not the caller's current one. */
static int find_noted(const char *note)
{
	char noted[NOTE_MAX], text[NOTE_MAX];
	int found = -ENOENT;
	struct dirent *d;
	read_note(note, noted);
	if (!noted[0])
		return found;
	DIR *proc = opendir("/proc");
	while (proc && found < 0 && (d = readdir(proc))) {
		char path[sizeof(d->d_name) + 32];
		struct stat st;
		uid_t owner;
		if (d->d_name[0] < '1' || d->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/ns/user", d->d_name);
		if (stat(path, &st) < 0)
			continue;
		note_text(&st, text);
		if (!str_eq(text, noted))
			continue;
		auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0 && ioctl(fd, NS_GET_OWNER_UID, &owner) == 0 && owner == getuid())
			found = take_fd(fd);
	}
	if (proc)
		closedir(proc);
	return found;
}

int userns_enter(const char *note, struct err *e)
{
	auto_fd int noted = find_noted(note);
	if (noted < 0)
		return enter_new(e);
	if (setns(noted, CLONE_NEWUSER) < 0)
		return err_sys(e, errno, "join the user namespace of the sandboxes that are alive");
	return become_root(e);
}

/* -- which ids are mapped -- */

bool userns_is_other(uid_t *ret_outside)
{
	FILE *f = fopen("/proc/self/uid_map", "re");
	uint32_t inside, outside, count;
	bool other =
		f &&
		fscanf(f, "%" SCNu32 " %" SCNu32 " %" SCNu32, &inside, &outside, &count) == 3 &&
		inside == 0 && outside != 0;
	if (f)
		fclose(f);
	if (other)
		*ret_outside = outside;
	return other;
}

struct extent {
	uint32_t first, count;
};

static bool covers(const struct extent *x, uint32_t first, uint32_t count)
{
	return x->count >= count && first >= x->first && first - x->first <= x->count - count;
}

/* Calls it for each extent of a map until it says true. */
static bool any_extent(const char *path, bool (*is)(const struct extent *x, void *user), void *user)
{
	FILE *f = fopen(path, "re");
	struct extent x;
	bool found = false;
	while (f && !found && fscanf(f, "%" SCNu32 " %*u %" SCNu32, &x.first, &x.count) == 2)
		found = is(&x, user);
	if (f)
		fclose(f);
	return found;
}

struct wanted {
	uint32_t first, count;
};

static bool has_wanted(const struct extent *x, void *user)
{
	const struct wanted *w = user;
	return covers(x, w->first, w->count);
}

static bool both_have(struct wanted *w)
{
	return any_extent("/proc/self/uid_map", has_wanted, w) &&
	       any_extent("/proc/self/gid_map", has_wanted, w);
}

static bool ends_with_wanted(const struct extent *x, void *user)
{
	struct wanted *w = user;
	if (x->count < w->count || x->first + (x->count - w->count) < FIRST_ID)
		return false;
	w->first = x->first + (x->count - w->count);
	return any_extent("/proc/self/gid_map", has_wanted, w);
}

int userns_ids(uint32_t count, uid_t preferred, uid_t *ret, struct err *e)
{
	struct wanted w = {preferred, count};
	if (!both_have(&w) && !any_extent("/proc/self/uid_map", ends_with_wanted, &w))
		return err_set(e, ENOENT,
			       "this user namespace has no %" PRIu32
			       " successive uids and gids for sandboxes: map more",
			       count);
	*ret = w.first;
	return 0;
}
