/* SPDX-License-Identifier: Apache-2.0 */
/* Writing to standard output or error, whole and in order, without blocking the loop: a slow reader
 * makes its writer wait. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "cli/watch.h"

struct sink {
	struct watch watch;
	int fd;
	size_t piece; /* bytes that a ready descriptor surely takes; 0: any number */
	bool socket;
	uint8_t *data; /* what is being written; NULL: nothing */
	size_t len, done;
	void (*drained)(void *user, int r); /* after sink_put() returned 1: 0, or -errno */
	void *user;
};

int sink_init(struct sink *s, uv_loop_t *loop, int fd, void (*drained)(void *user, int r),
	      void *user);

/* Writes a heap block, which it takes over; none may be on the way. 0: written. 1: drained()
   follows. -errno: -EPIPE when nobody reads any more. */
int sink_put(struct sink *s, uint8_t *data, size_t n);

/* Drops what is not written. */
void sink_done(struct sink *s);
