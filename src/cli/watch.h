/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readiness of our standard streams. They are shared with whoever started us, so they are never
 * made non-blocking: the descriptor sits in an epoll set of its own, and the loop watches that set.
 */
#pragma once

#include <stdbool.h>
#include <uv.h>

struct watch {
	uv_poll_t poll;
	int epoll_fd; /* -1: always ready (a regular file, /dev/null) */
	int fd;
	uint32_t events; /* EPOLLIN or EPOLLOUT */
	void (*ready)(void *user);
	void *user;
};

/* Prepares; nothing is reported yet. 0 or -errno. */
int watch_init(struct watch *w, uv_loop_t *loop, int fd, uint32_t events, void (*ready)(void *user),
	       void *user);

/* True when the descriptor can't block, so that there is nothing to wait for. */
bool watch_is_direct(const struct watch *w);

/* One call of ready() follows when the descriptor is ready, from the loop. Not for direct ones. */
int watch_once(struct watch *w);
void watch_done(struct watch *w);
