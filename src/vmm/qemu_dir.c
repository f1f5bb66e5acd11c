/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets are reached by /proc/self/fd/N/NAME, which is short, however long the real path is. */
#include "vmm/qemu_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/sparse.h"

#define BACKLOG 4

int qemu_dir_open(const char *path, struct err *e)
{
	int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? err_sys(e, errno, "%s", path) : fd;
}

static struct sockaddr_un address_of(int dir, const char *name)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/%s", dir, name);
	return a;
}

int qemu_dir_listen(int dir, const char *name, struct err *e)
{
	struct sockaddr_un a = address_of(dir, name);
	/* Without blocking: two of QEMU's threads may go to accept the same connection, and one of
	 * them would wait for good. */
	auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return err_sys(e, errno, "the monitor's %s socket", name);
	qemu_dir_remove(dir, name);
	if (bind(fd, (const struct sockaddr *)&a, sizeof(a)) < 0 ||
	    fchmodat(dir, name, 0600, 0) < 0 || listen(fd, BACKLOG) < 0)
		return err_sys(e, errno, "the monitor's %s socket", name);
	return take_fd(fd);
}

int qemu_dir_connect(int dir, const char *name, struct err *e)
{
	struct sockaddr_un a = address_of(dir, name);
	auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	/* Without blocking: a full backlog is EAGAIN, from a monitor that takes no connections. */
	if (fd < 0 || connect(fd, (const struct sockaddr *)&a, sizeof(a)) < 0)
		return err_sys(e, errno, "the monitor's %s socket", name);
	return take_fd(fd);
}

int qemu_dir_link(int dir, const char *path, const char *name, struct err *e)
{
	qemu_dir_remove(dir, name);
	if (linkat(AT_FDCWD, path, dir, name, AT_SYMLINK_FOLLOW) == 0)
		return 0;
	return errno == EXDEV ? -EXDEV : err_sys(e, errno, "%s for the monitor", path);
}

int qemu_dir_bring(int dir, const char *path, const char *name, struct err *e)
{
	int rc = qemu_dir_link(dir, path, name, e);

	if (rc != -EXDEV)
		return rc;
	auto_fd int from = open(path, O_RDONLY | O_CLOEXEC);
	auto_fd int to = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0400);
	rc = from < 0 || to < 0 ? -errno : sparse_copy(from, to);
	if (rc == 0 && fchmod(to, 0444) < 0)
		rc = -errno;
	return rc < 0 ? err_sys(e, -rc, "a copy of %s for the monitor", path) : 0;
}

int qemu_dir_make_zeroes(int dir, const char *name, uint64_t size, struct err *e)
{
	qemu_dir_remove(dir, name);
	auto_fd int writer = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0400);
	if (writer < 0 || ftruncate(writer, (off_t)size) < 0 || fchmod(writer, 0444) < 0)
		return err_sys(e, errno, "the machine's memory file");
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? err_sys(e, errno, "the machine's memory file") : fd;
}

void qemu_dir_remove(int dir, const char *name)
{
	unlinkat(dir, name, 0);
}
