/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tmpfs with directories and empty files, over which single files of the host are mounted: so
 * what a package's update replaces is seen by those that start after it, nothing is copied, and
 * each file has flags of its own. Paths of the host are followed where we still see the host, links
 * and all.
 */
#include "jail/root.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"

/* Where the new root is attached while it is made: a directory that every host has, and from which
 * nothing is shown. */
#define ATTACH_AT "/proc"

#define ROOT_SIZE  "1m" /* of directories and empty files */
#define ROOT_FILES "4096"

/* An own mount of a filesystem that has been described. */
static int mount_new(const char *type, const char *const (*options)[2], unsigned attr)
{
	auto_fd int fs = fsopen(type, FSOPEN_CLOEXEC);

	if (fs < 0)
		return -errno;
	for (; (*options)[0]; options++)
		if (fsconfig(fs, FSCONFIG_SET_STRING, (*options)[0], (*options)[1], 0) < 0)
			return -errno;
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	int fd = fsmount(fs, FSMOUNT_CLOEXEC, attr);
	return fd < 0 ? -errno : fd;
}

int root_new(int *ret_root)
{
	static const char *const options[][2] = {
		{"size", ROOT_SIZE}, {"nr_inodes", ROOT_FILES}, {"mode", "0755"}, {NULL, NULL}};
	int fd = mount_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);

	if (fd < 0)
		return fd;
	umask(022); /* what is made there is for another uid */
	*ret_root = fd;
	return move_mount(fd, "", AT_FDCWD, ATTACH_AT, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

int root_tree(int dir_fd, const char *path, unsigned flags)
{
	struct mount_attr attr = {
		.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
			    (flags & JAIL_FILE_CODE ? 0 : MOUNT_ATTR_NOEXEC) |
			    (flags & JAIL_FILE_DEVICE ? 0 : MOUNT_ATTR_NODEV),
		.propagation = MS_PRIVATE,
	};
	auto_fd int fd = open_tree(
		dir_fd, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (path[0] ? 0 : AT_EMPTY_PATH));

	if (fd < 0 || mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return -errno;
	return take_fd(fd);
}

static int make_empty(int root, const char *name)
{
	int fd = openat(root, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static int put_file(int root, const struct jail_step *step)
{
	const char *name = step->path + 1;
	struct stat st;
	auto_fd int tree = root_tree(AT_FDCWD, step->path, (unsigned)step->value);
	int rc;

	if (tree == -ENOENT && step->value & JAIL_FILE_OPTIONAL)
		return 0;
	if (tree < 0)
		return tree;
	if (fstat(tree, &st) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		rc = mkdirat(root, name, 0755) < 0 ? -errno : 0;
	else
		rc = make_empty(root, name);
	if (rc < 0)
		return rc;
	return move_mount(tree, "", root, name, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

/* Of a namespace of its own: this process's, and nothing of the kernel's (subset=pid). */
static int put_proc(int root, const char *name)
{
	static const char *const options[][2] = {{"subset", "pid"}, {NULL, NULL}};
	auto_fd int fd = mount_new("proc", options,
				   MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
					   MOUNT_ATTR_NOEXEC);

	if (fd < 0)
		return fd;
	return move_mount(fd, "", root, name, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

int root_put(int root, const struct jail_step *step)
{
	const char *name = step->path + 1;

	if (step->op == JAIL_DIR)
		return mkdirat(root, name, 0755) < 0 ? -errno : 0;
	if (step->op == JAIL_EMPTY)
		return make_empty(root, name);
	return step->op == JAIL_PROC ? put_proc(root, name) : put_file(root, step);
}

/* First the root of the namespace's mount tree becomes our root directory: in a chroot "/" is no
   mount, and the kernel exchanges mounts only. */
int root_enter(int root)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC};
	auto_fd int self = (int)syscall(SYS_pidfd_open, getpid(), 0);

	if (self < 0 || setns(self, CLONE_NEWNS) < 0)
		return -errno;
	if (mount_setattr(root, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 || fchdir(root) < 0)
		return -errno;
	if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0)
		return -errno;
	return chdir("/") < 0 ? -errno : 0;
}

/* -- a file for one that runs -- */

/* In a process of its own, for a namespace of mounts can't be joined by one that has threads. */
static int attach_in(int pidfd, int tree, const char *place)
{
	if (setns(pidfd, CLONE_NEWNS) < 0)
		return -errno;
	return move_mount(tree, "", AT_FDCWD, place, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

int jail_show(int pidfd, const char *path, const char *place, struct err *e)
{
	auto_fd int tree = root_tree(AT_FDCWD, path, 0);
	int status;

	if (tree < 0)
		return err_sys(e, -tree, "%s", path);
	pid_t pid = fork();
	if (pid < 0)
		return err_sys(e, errno, "fork");
	if (pid == 0)
		_exit(-attach_in(pidfd, tree, place));
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_sys(e, errno, "waiting for a process");
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return err_sys(e, WIFEXITED(status) ? WEXITSTATUS(status) : EIO,
			       "showing %s to a process", path);
	return 0;
}
