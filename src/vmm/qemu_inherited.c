/* SPDX-License-Identifier: Apache-2.0 */
/* What an adopted monitor holds and its new owner needs too, taken from the process itself. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "vmm/qemu_state.h"
#include "vmm/vmm.h"

int vmm_netns(const struct vmm *v, struct err *e)
{
	int fd = openat(v->proc_fd, "ns/net", O_RDONLY | O_CLOEXEC);
	return fd < 0 ? err_sys(e, errno, "the monitor's network namespace") : fd;
}

/* QEMU gives the descriptors that it is handed numbers of its own, and its guest may have taken it
   over: only the file itself says that it is the one. */
int vmm_scratch(const struct vmm *v, dev_t dev, ino_t inode, struct err *e)
{
	int fd = openat(v->proc_fd, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		if (fd >= 0)
			close(fd);
		return err_sys(e, errno, "the monitor's descriptors");
	}
	int found = -ENOENT;
	for (struct dirent *entry; found < 0 && (entry = readdir(d));) {
		struct stat st;
		if (entry->d_name[0] == '.' || fstatat(dirfd(d), entry->d_name, &st, 0) < 0 ||
		    !S_ISREG(st.st_mode) || st.st_dev != dev || st.st_ino != inode)
			continue;
		found = openat(dirfd(d), entry->d_name, O_RDWR | O_CLOEXEC);
		struct stat now;
		if (found >= 0 &&
		    (fstat(found, &now) < 0 || now.st_dev != dev || now.st_ino != inode)) {
			close(found);
			found = -ENOENT;
		}
	}
	closedir(d);
	return found < 0 ? err_set(e, ENOENT, "the monitor has not its disk any more") : found;
}
