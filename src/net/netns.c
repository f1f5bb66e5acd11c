/* SPDX-License-Identifier: Apache-2.0 */
/* A visit holds a descriptor of the namespace that it came from, and nothing else. */
#include "net/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>

#include "base/cleanup.h"

#define OWN_NETNS "/proc/thread-self/ns/net"

static int own_netns(struct err *e)
{
	int fd = open(OWN_NETNS, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? err_sys(e, errno, "open " OWN_NETNS) : fd;
}

int netns_enter(int fd, struct netns_visit *ret, struct err *e)
{
	int home = own_netns(e);
	if (home < 0)
		return home;
	if (setns(fd, CLONE_NEWNET) < 0) {
		int r = err_sys(e, errno, "enter a network namespace");
		close(home);
		return r;
	}
	ret->home_fd = home;
	return 0;
}

int netns_enter_new(int *ret_fd, struct netns_visit *ret, struct err *e)
{
	auto_fd int home = own_netns(e);
	if (home < 0)
		return home;
	if (unshare(CLONE_NEWNET) < 0)
		return err_sys(e, errno, "make a network namespace (root is needed)");
	struct netns_visit visit = {.home_fd = take_fd(home)};
	int fd = own_netns(e);
	if (fd < 0) {
		netns_leave(&visit);
		return fd;
	}
	*ret_fd = fd;
	*ret = visit;
	return 0;
}

void netns_leave(struct netns_visit *v)
{
	if (setns(v->home_fd, CLONE_NEWNET) < 0)
		abort();
	close(v->home_fd);
	v->home_fd = -1;
}
