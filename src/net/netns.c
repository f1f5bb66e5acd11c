/* SPDX-License-Identifier: Apache-2.0 */
#include "net/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "base/cleanup.h"

#define OWN_NETNS "/proc/thread-self/ns/net"

enum where {
	WHERE_NAMESPACE,
	WHERE_APART,
};

struct errand {
	enum where where;
	int fd;
	netns_work_fn *work;
	void *arg;
	struct err *e;
	int code;
};

static int go_there(const struct errand *a)
{
	if (a->where == WHERE_APART && close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_UNSHARE) < 0)
		return err_sys(a->e, errno, "descriptors apart from others");
	if (a->where == WHERE_NAMESPACE && a->fd == NETNS_NEW && unshare(CLONE_NEWNET) < 0)
		return err_sys(a->e, errno, "make a network namespace (root is needed)");
	if (a->where == WHERE_NAMESPACE && a->fd != NETNS_NEW && setns(a->fd, CLONE_NEWNET) < 0)
		return err_sys(a->e, errno, "enter a network namespace");
	return 0;
}

static void *run(void *arg)
{
	struct errand *a = arg;
	a->code = go_there(a);
	if (a->code == 0)
		a->code = a->work(a->arg, a->e);
	return NULL;
}

/* Signals stay with the caller's threads: their handlers want its descriptors. */
static int send_thread(struct errand *a)
{
	sigset_t all, old;
	pthread_t thread;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int r = pthread_create(&thread, NULL, run, a);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r != 0)
		return err_sys(a->e, r, "start a thread");
	pthread_join(thread, NULL);
	return a->code;
}

int netns_run(int fd, netns_work_fn *work, void *arg, struct err *e)
{
	struct errand a = {.where = WHERE_NAMESPACE, .fd = fd, .work = work, .arg = arg, .e = e};
	return send_thread(&a);
}

int netns_run_apart(netns_work_fn *work, void *arg, struct err *e)
{
	struct errand a = {.where = WHERE_APART, .work = work, .arg = arg, .e = e};
	return send_thread(&a);
}

int netns_own(struct err *e)
{
	int fd = open(OWN_NETNS, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? err_sys(e, errno, "open " OWN_NETNS) : fd;
}
