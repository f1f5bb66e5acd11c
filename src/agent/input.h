/* SPDX-License-Identifier: Apache-2.0 */
/* The standard input of a process: a pipe, and the blocks that wait to be written to it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/list.h"

struct input {
	int fd; /* -1: closed */
	bool finishing;
	bool polling;
	size_t queued; /* bytes */
	struct list blocks;
	uv_poll_t poll;
	void (*released)(void *user);
	void *user;
};

typedef void input_written_fn(void *user, int result);

/* Takes fd over (-1: an input that is closed from the start). released is called when libuv has let
   go of an input that was open; its memory must stay until then. */
void input_init(struct input *in, uv_loop_t *loop, int fd, void (*released)(void *user),
		void *user);

/* As process_write(). */
int input_write(struct input *in, uint8_t *data, size_t n, input_written_fn *written, void *user);

/* Closes after what is queued. */
void input_finish(struct input *in);

/* Closes now; queued blocks are told why. */
void input_close(struct input *in, int why);
