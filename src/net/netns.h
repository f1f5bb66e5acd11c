/* SPDX-License-Identifier: Apache-2.0 */
/* Visits of the calling thread to another network namespace. Sockets keep the one in which they
 * were made. */
#pragma once

#include "base/err.h"

struct netns_visit {
	int home_fd;
};

/* Enters the namespace behind fd. 0 or -errno; after failure the thread is where it was. */
int netns_enter(int fd, struct netns_visit *ret, struct err *e);

/* Makes an empty namespace and enters it; the caller closes ret_fd. As above. */
int netns_enter_new(int *ret_fd, struct netns_visit *ret, struct err *e);

/* Returns home. Aborts when it can't: going on in a sandbox's namespace would be worse. */
void netns_leave(struct netns_visit *v);
