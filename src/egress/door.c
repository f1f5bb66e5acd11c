/* SPDX-License-Identifier: Apache-2.0 */
/* Its directory lets only root in already; who called is looked at all the same. */
#include "egress/door.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"

bool door_listens(int fd)
{
	int on = 0;
	socklen_t n = sizeof(on);
	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &n) == 0 && on;
}

int door_accept(int fd)
{
	struct ucred peer;
	socklen_t n = sizeof(peer);
	auto_fd int caller = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	if (caller < 0 || getsockopt(caller, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0)
		return -errno;
	if (peer.uid != 0 && peer.uid != geteuid())
		return -EACCES;
	return take_fd(caller);
}
