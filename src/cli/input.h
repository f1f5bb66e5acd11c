/* SPDX-License-Identifier: Apache-2.0 */
/* Standard input to a process in a sandbox: a piece is read when the one before has been taken, so
 * nothing piles up here. */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "cli/api.h"
#include "cli/watch.h"

#define INPUT_PIECE (64 * 1024) /* bytes of one SendInput */

struct input {
	struct cli *cli;
	const char *sandbox_id; /* borrowed */
	uint64_t pid;
	struct watch watch;
	bool watching;              /* watch is initialised */
	struct http_client *client; /* kept between pieces; NULL: none */
	unsigned status;
	const char *target; /* of the call that is under way, with body */
	struct buf body;
	uv_timer_t again;
	bool closing; /* CloseStdin is on its way */
	bool over;
	void (*failed)(void *user, const struct err *why);
	void *user;
};

/* Starts pumping. failed() is called from the loop when input can no longer be delivered though the
 * process lives. 0 or -errno. */
int input_start(struct input *in, struct cli *cli, const char *sandbox_id, uint64_t pid,
		void (*failed)(void *user, const struct err *why), void *user);
void input_done(struct input *in);
