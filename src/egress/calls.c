/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Besides what every program does: an event loop, connections over IP, memory for values that is
 * never swapped out. No socket of another kind but one to ask for addresses, for it lives in the
 * host's network namespace.
 */
#include "egress/calls.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <linux/netlink.h>
#include <linux/sockios.h>

static const struct calls_rule rules[] = {
	CALL(epoll_create1),
	CALL(epoll_ctl),
	CALL(epoll_wait),
	CALL(epoll_pwait),
	CALL_IF(socket, 0, CALLS_INT, AF_INET),
	CALL_IF(socket, 0, CALLS_INT, AF_INET6),
	/* Which addresses this machine has: no name may lead to one. Changes take a capability. */
	{.call = SYS_socket, .where = {{CALLS_INT, AF_NETLINK, 0}, {CALLS_INT, NETLINK_ROUTE, 2}}},
	CALL_IF_FAILS(socket, 0, CALLS_INT, AF_UNIX, EAFNOSUPPORT),
	CALL(bind),
	CALL(connect),
	CALL(sendmmsg),
	CALL(recvmmsg),
	CALL_IF(ioctl, 1, CALLS_INT, FIONBIO),
	CALL_IF(ioctl, 1, CALLS_INT, FIOCLEX),
	CALL_IF(ioctl, 1, CALLS_INT, FIONREAD),
	CALL_IF(ioctl, 1, CALLS_INT, SIOCOUTQ), /* what has not left yet: relay.c */
	CALL_IF(ioctl, 1, CALLS_INT, TCGETS),
	CALL(mlock),
	CALL(mlock2),
	CALL(munlock),
	CALL(umask),
	CALL_IF(prctl, 0, CALLS_INT, PR_SET_DUMPABLE),
	CALL_IF(prctl, 0, CALLS_INT, PR_SET_NO_NEW_PRIVS),
};

int egress_calls(struct calls_filter *ret, struct err *e)
{
	const struct calls_rule *lists[] = {calls_common, rules};
	const size_t counts[] = {calls_common_count, sizeof(rules) / sizeof(rules[0])};

	return calls_compile(lists, counts, 2, ret, e);
}
