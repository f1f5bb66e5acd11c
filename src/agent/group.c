/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup.freeze needs no controller: the bare hierarchy that boot.c has mounted is enough.
 * Source: Linux, Documentation/admin-guide/cgroup-v2.rst, "Core Interface Files". */
#include "agent/group.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

#define GROUP_PATH "/sys/fs/cgroup/tasks"
#define EVENTS_MAX 256 /* bytes of cgroup.events */

int group_open(struct group *ret, struct err *e)
{
	*ret = GROUP_NONE;
	if (mkdir(GROUP_PATH, 0755) < 0 && errno != EEXIST)
		return err_sys(e, errno, "%s", GROUP_PATH);
	auto_fd int dir = open(GROUP_PATH, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(e, errno, "%s", GROUP_PATH);
	auto_fd int procs = openat(dir, "cgroup.procs", O_WRONLY | O_CLOEXEC);
	auto_fd int freeze = openat(dir, "cgroup.freeze", O_WRONLY | O_CLOEXEC);
	auto_fd int events = openat(dir, "cgroup.events", O_RDONLY | O_CLOEXEC);
	if (procs < 0 || freeze < 0 || events < 0)
		return err_sys(e, errno, "the files in %s", GROUP_PATH);
	*ret = (struct group){take_fd(procs), take_fd(freeze), take_fd(events)};
	return 0;
}

void group_close(struct group *g)
{
	if (g->procs >= 0) {
		close(g->procs);
		close(g->freeze);
		close(g->events);
	}
	*g = GROUP_NONE;
}

int group_freeze(const struct group *g, bool on)
{
	if (g->freeze < 0)
		return 0;
	return pwrite(g->freeze, on ? "1" : "0", 1, 0) < 0 ? -errno : 0;
}

bool group_is_frozen(const struct group *g)
{
	char text[EVENTS_MAX];
	if (g->events < 0)
		return true;
	ssize_t n = pread(g->events, text, sizeof(text) - 1, 0);
	if (n < 0)
		return true; /* removed by root in the guest */
	text[n] = '\0';
	return strstr(text, "frozen 1");
}
