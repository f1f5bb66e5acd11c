/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives one end of a socket pair with the bytes of a fuzzer's input. The input begins with a
 * script (its length, its bytes) that decides how the rest is cut and what the user of the code
 * under test does next.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/stream.h"

#define SCRIPT_MAX 16

#define require(cond)                                                                      \
	do {                                                                               \
		if (!(cond)) {                                                             \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #cond); \
			abort();                                                           \
		}                                                                          \
	} while (0)

struct drive {
	uv_loop_t loop;
	const uint8_t *script;
	size_t len, pos;
	const uint8_t *wire;
	size_t left;
	int peer; /* -1 when closed */
	struct stream *s;
};

static inline uint8_t drive_next(struct drive *d)
{
	return d->len ? d->script[d->pos++ % d->len] : 0;
}

static const struct stream_ops drive_no_ops;

static inline void drive_init(struct drive *d, const uint8_t *data, size_t size)
{
	*d = (struct drive){.peer = -1, .wire = (const uint8_t *)""};
	if (size) {
		d->len = data[0] % SCRIPT_MAX;
		if (d->len > size - 1)
			d->len = size - 1;
		d->script = data + 1;
		d->wire = data + 1 + d->len;
		d->left = size - 1 - d->len;
	}
	int fd[2];
	require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) == 0);
	require(uv_loop_init(&d->loop) == 0);
	d->peer = fd[1];
	d->s = stream_adopt(&d->loop, fd[0], &drive_no_ops, NULL, NULL);
	require(d->s);
}

static inline void drive_turns(struct drive *d, int turns)
{
	char heard[65536];
	while (turns--) {
		uv_run(&d->loop, UV_RUN_NOWAIT);
		if (d->peer >= 0)
			while (recv(d->peer, heard, sizeof(heard), 0) > 0)
				;
	}
}

/* Sends the next piece; false when there is none. */
static inline bool drive_piece(struct drive *d)
{
	if (!d->left)
		return false;
	size_t n = 1 + (size_t)drive_next(d) * (drive_next(d) % 64);
	if (n > d->left)
		n = d->left;
	ssize_t r = send(d->peer, d->wire, n, MSG_NOSIGNAL);
	if (r <= 0)
		return false;
	d->wire += r;
	d->left -= (size_t)r;
	return true;
}

static inline void drive_hang_up(struct drive *d)
{
	close(d->peer);
	d->peer = -1;
	drive_turns(d, 4);
}

/* All that was opened must be gone. */
static inline void drive_done(struct drive *d)
{
	uv_run(&d->loop, UV_RUN_DEFAULT);
	require(uv_loop_close(&d->loop) == 0);
}
