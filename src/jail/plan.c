/* SPDX-License-Identifier: Apache-2.0 */
#include "jail/plan.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <linux/sched.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"

/* Open files that a jailed process may have: enough for a gateway with some thousand connections.
 */
#define JAIL_NOFILE 8192

/* Threads and processes of its uid: more than QEMU's disk workers, fewer than hurt the host. */
#define JAIL_NPROC 256

#define STEPS_BASE   32 /* besides files, their directories, descriptors */
#define PLAN_TEXT    (1u << 20)
#define STEP_TEXT    1200
#define DEPTH_MAX    16 /* directories above a file */
#define PATH_MAX_OUR 1024

struct maker {
	struct jail_plan plan;
	size_t room;
	size_t text_len;
	size_t text_room;
	size_t first_dir; /* steps before it make no directory */
	int rc;           /* the first failure */
};

static void put(struct maker *m, enum jail_op op, const char *path, uint64_t value, uint64_t most)
{
	if (m->rc < 0)
		return;
	if (m->plan.count == m->room) {
		m->rc = -ENOMEM;
		return;
	}
	m->plan.steps[m->plan.count++] = (struct jail_step){op, path, value, most};
}

static bool has_dir(const struct maker *m, const char *path, size_t n)
{
	for (size_t i = m->first_dir; i < m->plan.count; i++) {
		const struct jail_step *s = &m->plan.steps[i];

		if (s->op == JAIL_DIR && strlen(s->path) == n && memcmp(s->path, path, n) == 0)
			return true;
	}
	return false;
}

/* The directories above path that are not there yet, from the top. */
static void put_dirs_above(struct maker *m, const char *path)
{
	if (m->rc < 0)
		return;
	for (const char *end = strchr(path + 1, '/'); end; end = strchr(end + 1, '/')) {
		size_t n = (size_t)(end - path);
		char *copy = m->plan.text + m->text_len;

		if (has_dir(m, path, n))
			continue;
		if (m->text_len + n + 1 > m->text_room) {
			m->rc = -ENOMEM;
			return;
		}
		memcpy(copy, path, n);
		copy[n] = '\0';
		m->text_len += n + 1;
		put(m, JAIL_DIR, copy, 0, 0);
	}
}

static void put_root(struct maker *m, const struct jail_spec *spec)
{
	put(m, JAIL_ROOT, NULL, 0, 0);
	m->first_dir = m->plan.count;
	for (size_t i = 0; i < spec->nfiles; i++) {
		const struct jail_file *f = &spec->files[i];

		put_dirs_above(m, f->path);
		put(m, f->flags & JAIL_FILE_PLACE ? JAIL_EMPTY : JAIL_FILE, f->path, f->flags, 0);
	}
	put(m, JAIL_DIR, "/proc", 0, 0);
	put(m, JAIL_PROC, "/proc", 0, 0);
	put(m, JAIL_PIVOT, NULL, 0, 0);
}

static void put_mounts(struct maker *m, const struct jail_spec *spec)
{
	if (!spec->own_mount)
		return;
	put(m, JAIL_PRIVATE, NULL, 0, 0);
	if (spec->files) {
		put_root(m, spec);
		return;
	}
	put(m, JAIL_LOCK, NULL, 0, 0);
	if (spec->own_pid)
		put(m, JAIL_PROC, "/proc", 0, 0);
}

static void put_parents(struct maker *m, const struct jail_spec *spec)
{
	for (size_t i = 0; i < spec->nfds; i++)
		if (spec->fds[i].tree)
			put(m, JAIL_TREE, NULL, (uint64_t)spec->fds[i].to, i);
	put(m, JAIL_CLONE, NULL,
	    CLONE_PIDFD | (spec->own_pid ? CLONE_NEWPID : 0) |
		    (spec->own_mount ? CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS : 0),
	    0);
}

static void put_rest(struct maker *m, const struct jail_spec *spec)
{
	put(m, JAIL_CHDIR, "/", 0, 0);
	put(m, JAIL_DESCRIPTORS, NULL, spec->nfds, 0);
	put(m, JAIL_PROGRAM, spec->argv[0], 0, 0);
	put(m, JAIL_LIMIT, "core", RLIMIT_CORE, 0);
	put(m, JAIL_LIMIT, "open files", RLIMIT_NOFILE, JAIL_NOFILE);
	put(m, JAIL_LIMIT, "processes", RLIMIT_NPROC, JAIL_NPROC);
	if (spec->file_bytes_max > 0)
		put(m, JAIL_LIMIT, "bytes of a file", RLIMIT_FSIZE, spec->file_bytes_max);
	put(m, JAIL_BOUNDING, NULL, 0, 0);
	put(m, JAIL_IDENTITY, NULL, spec->uid, 0);
	put(m, JAIL_CAPABILITIES, NULL, 0, 0);
	/* After the change of identity, which clears the signal of the parent's death. */
	put(m, JAIL_PARENT, NULL, spec->outlives_parent ? 0 : 1, 0);
	put(m, JAIL_PRIVILEGES, NULL, 0, 0);
	if (spec->filter)
		put(m, JAIL_FILTER, NULL, spec->filter->count, 0);
	put(m, JAIL_EXEC, spec->argv[0], 0, 0);
}

static int check_files(const struct jail_spec *spec, struct err *e)
{
	if (spec->files && (!spec->own_mount || !spec->own_pid))
		return err_set(e, EINVAL,
			       "%s: a root directory takes namespaces for mounts and processes",
			       spec->name);
	for (size_t i = 0; i < spec->nfiles; i++) {
		const char *path = spec->files[i].path;
		size_t n = strlen(path);

		if (path[0] != '/' || n < 2 || n >= PATH_MAX_OUR || path[n - 1] == '/' ||
		    strstr(path, "/../") || strstr(path, "//") || str_starts(path, "/proc/"))
			return err_set(e, EINVAL, "%s: '%s' is no path for a root directory",
				       spec->name, path);
	}
	return 0;
}

static int check(const struct jail_spec *spec, struct err *e)
{
	int last = STDERR_FILENO;

	assert(spec->argv && spec->argv[0] && spec->name);
	if (spec->uid == 0 || spec->uid == (uid_t)-1)
		return err_set(e, EINVAL, "%s: a jailed process can't have uid %d", spec->name,
			       (int)spec->uid);
	if (spec->nfds > JAIL_FDS_MAX)
		return err_set(e, EINVAL, "%s: more than %d descriptors", spec->name, JAIL_FDS_MAX);
	for (size_t i = 0; i < spec->nfds; i++) {
		if (spec->fds[i].to <= last)
			return err_set(e, EINVAL, "%s: descriptor list is not in order",
				       spec->name);
		last = spec->fds[i].to;
	}
	return check_files(spec, e);
}

static size_t text_needed(const struct jail_spec *spec)
{
	size_t sum = 1;

	for (size_t i = 0; i < spec->nfiles; i++)
		sum += (strlen(spec->files[i].path) + 1) * DEPTH_MAX;
	return sum;
}

int jail_plan_make(const struct jail_spec *spec, struct jail_plan *ret, struct err *e)
{
	struct maker m = {.room = STEPS_BASE + spec->nfds + spec->nfiles * DEPTH_MAX};
	int rc = check(spec, e);

	if (rc < 0)
		return rc;
	m.text_room = text_needed(spec);
	m.plan.steps = calloc(m.room, sizeof(*m.plan.steps));
	m.plan.text = malloc(m.text_room);
	if (!m.plan.steps || !m.plan.text)
		m.rc = -ENOMEM;
	put_parents(&m, spec);
	put(&m, JAIL_SIGNALS, NULL, 0, 0);
	put(&m, JAIL_SESSION, NULL, 0, 0);
	if (spec->netns_fd >= 0)
		put(&m, JAIL_NETNS, NULL, 0, 0);
	if (spec->own_mount)
		put(&m, JAIL_CGROUPNS, NULL, 0, 0);
	put_mounts(&m, spec);
	put_rest(&m, spec);
	if (m.rc < 0) {
		jail_plan_done(&m.plan);
		return err_sys(e, -m.rc, "%s: jail: plan", spec->name);
	}
	*ret = m.plan;
	return 0;
}

void jail_plan_done(struct jail_plan *plan)
{
	free(plan->steps);
	free(plan->text);
	memset(plan, 0, sizeof(*plan));
}

/* -- as text -- */

static const char *const names[] = {
	[JAIL_TREE] = "show directory alone",
	[JAIL_CLONE] = "new process",
	[JAIL_SIGNALS] = "reset signals",
	[JAIL_SESSION] = "new session",
	[JAIL_NETNS] = "join network namespace",
	[JAIL_CGROUPNS] = "new cgroup namespace",
	[JAIL_PRIVATE] = "make mounts private",
	[JAIL_LOCK] = "make mounts read-only",
	[JAIL_ROOT] = "new root directory",
	[JAIL_DIR] = "make directory",
	[JAIL_FILE] = "show file",
	[JAIL_EMPTY] = "make empty file",
	[JAIL_PROC] = "mount proc",
	[JAIL_PIVOT] = "enter the root directory",
	[JAIL_CHDIR] = "working directory",
	[JAIL_DESCRIPTORS] = "place descriptors",
	[JAIL_PROGRAM] = "find",
	[JAIL_LIMIT] = "resource limit",
	[JAIL_BOUNDING] = "capability bounding set",
	[JAIL_IDENTITY] = "change uid and gid",
	[JAIL_CAPABILITIES] = "drop capabilities",
	[JAIL_PARENT] = "tie to parent",
	[JAIL_PRIVILEGES] = "no new privileges",
	[JAIL_FILTER] = "filter of system calls",
	[JAIL_EXEC] = "exec",
};

static void clone_text(uint64_t flags, char *out, size_t size)
{
	snprintf(out, size, "%s%s%s", names[JAIL_CLONE],
		 flags & CLONE_NEWPID ? ", own processes" : "",
		 flags & CLONE_NEWNS ? ", own mounts, IPC, host name" : "");
}

static void file_text(const struct jail_step *s, char *out, size_t size)
{
	snprintf(out, size, "%s %s: read-only, nosuid%s%s%s", names[s->op], s->path,
		 s->value & JAIL_FILE_DEVICE ? "" : ", nodev",
		 s->value & JAIL_FILE_CODE ? "" : ", noexec",
		 s->value & JAIL_FILE_OPTIONAL ? "; if it is there" : "");
}

static void limit_text(const struct jail_step *s, char *out, size_t size)
{
	snprintf(out, size, "%s %s: %" PRIu64, names[s->op], s->path, s->most);
}

void jail_step_text(const struct jail_step *s, char *out, size_t size)
{
	switch (s->op) {
	case JAIL_CLONE:
		clone_text(s->value, out, size);
		break;
	case JAIL_FILE:
		file_text(s, out, size);
		break;
	case JAIL_LIMIT:
		limit_text(s, out, size);
		break;
	case JAIL_TREE:
		snprintf(out, size, "%s as descriptor %" PRIu64, names[s->op], s->value);
		break;
	case JAIL_IDENTITY:
		snprintf(out, size, "%s: %" PRIu64, names[s->op], s->value);
		break;
	case JAIL_DESCRIPTORS:
		snprintf(out, size, "%s: %" PRIu64 " and standard ones, no others", names[s->op],
			 s->value);
		break;
	case JAIL_PARENT:
		snprintf(out, size, "%s: %s", names[s->op],
			 s->value ? "dies with it" : "it lives at the start");
		break;
	case JAIL_FILTER:
		snprintf(out, size, "%s: %" PRIu64 " instructions", names[s->op], s->value);
		break;
	case JAIL_SIGNALS:
	case JAIL_SESSION:
	case JAIL_NETNS:
	case JAIL_CGROUPNS:
	case JAIL_PRIVATE:
	case JAIL_LOCK:
	case JAIL_ROOT:
	case JAIL_DIR:
	case JAIL_EMPTY:
	case JAIL_PROC:
	case JAIL_PIVOT:
	case JAIL_CHDIR:
	case JAIL_PROGRAM:
	case JAIL_BOUNDING:
	case JAIL_CAPABILITIES:
	case JAIL_PRIVILEGES:
	case JAIL_EXEC:
		snprintf(out, size, "%s%s%s", names[s->op], s->path ? " " : "",
			 s->path ? s->path : "");
		break;
	}
}

char *jail_plan_text(const struct jail_plan *plan)
{
	auto_buf struct buf out;
	char line[STEP_TEXT];
	int rc = 0;

	buf_init(&out, PLAN_TEXT);
	for (size_t i = 0; rc == 0 && i < plan->count; i++) {
		jail_step_text(&plan->steps[i], line, sizeof(line));
		rc = buf_printf(&out, "%s\n", line);
	}
	return rc < 0 ? NULL : buf_take_str(&out);
}
