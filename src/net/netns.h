/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work inside a network namespace, or with descriptors apart, done by a thread that ends with it:
 * nothing has to be undone, and none of the caller's threads is ever anywhere else. Sockets keep
 * the namespace in which they were made.
 */
#pragma once

#include "base/err.h"

#define NETNS_NEW -1 /* instead of a namespace: a new one */

/* What is run; 0 or -errno with e set. */
typedef int netns_work_fn(void *arg, struct err *e);

/* Runs work in the namespace behind fd, and returns what it returned. -errno with e set when the
 * thread does not get there; work has not run then. e is not NULL. */
int netns_run(int fd, netns_work_fn *work, void *arg, struct err *e);

/* A descriptor of the namespace that the calling thread is in, or -errno with e set. */
int netns_own(struct err *e);

/* Runs work where only standard input, output and error are open, and what it opens itself: its
 * descriptors have low numbers, and no other thread sees them. As above. */
int netns_run_apart(netns_work_fn *work, void *arg, struct err *e);
