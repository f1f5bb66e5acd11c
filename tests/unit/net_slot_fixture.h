/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of slots share: opening one, or saying why it can't be. */
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "net/slot.h"

#define DEADLINE_MS 5000
#define VNET_HEADER 10 /* bytes before each frame at a tap device with IFF_VNET_HDR */

static inline bool readable(int fd, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, timeout_ms) == 1;
}

static inline void assert_nothing_delivered(const struct slot *s)
{
	assert_false(readable(s->tcp_fd, 0));
	assert_false(readable(s->dns_udp_fd, 0));
	assert_false(readable(s->dns_tcp_fd, 0));
}

static inline int own_netns(void)
{
	return open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
}

/* A test, which has one thread, goes there and comes back. */
static inline int visit(int netns_fd)
{
	int home = own_netns();
	assert_true(home >= 0);
	assert_int_equal(setns(netns_fd, CLONE_NEWNET), 0);
	return home;
}

static inline void leave(int home)
{
	assert_int_equal(setns(home, CLONE_NEWNET), 0);
	close(home);
}

/* A new, empty namespace; -1 when there can be none. */
static inline int make_netns(void)
{
	int home = own_netns();
	assert_true(home >= 0);
	int fd = unshare(CLONE_NEWNET) == 0 ? own_netns() : -1;
	leave(home);
	return fd;
}

static inline const char *unable(void)
{
	if (geteuid() != 0)
		return "not root";
	if (access("/dev/net/tun", R_OK | W_OK) < 0)
		return "no /dev/net/tun";
	int fd = make_netns();
	if (fd < 0)
		return "no network namespaces";
	close(fd);
	return NULL;
}

static inline void need_root(void)
{
	const char *why = unable();
	if (!why)
		return;
	print_message("skipped: %s\n", why);
	skip();
}

static inline void open_slot(struct slot *s)
{
	struct err e = {0};
	if (slot_open(s, &e) < 0)
		fail_msg("%s", e.text);
}
