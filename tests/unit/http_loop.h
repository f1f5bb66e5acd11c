/* SPDX-License-Identifier: Apache-2.0 */
/* For tests on a real loop: wait for a condition with a deadline, never by sleeping; end with
 * nothing left on the loop. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <uv.h>

#include <cmocka.h>

#define WAIT_MS 20000

static inline void wait_over(uv_timer_t *t)
{
	*(bool *)t->data = true;
}

/* Runs the loop until *done. Fails the test after WAIT_MS. */
static inline void wait_for(uv_loop_t *loop, const bool *done)
{
	bool late = false;
	uv_timer_t deadline = {.data = &late};
	uv_timer_init(loop, &deadline);
	uv_timer_start(&deadline, wait_over, WAIT_MS, 0);
	while (!*done && !late)
		uv_run(loop, UV_RUN_ONCE);
	bool ok = *done;
	uv_close((uv_handle_t *)&deadline, NULL);
	uv_run(loop, UV_RUN_NOWAIT);
	assert_true(ok);
}

/* Runs the loop for as many turns: for what must not happen. */
static inline void spin(uv_loop_t *loop, int turns)
{
	while (turns--)
		uv_run(loop, UV_RUN_NOWAIT);
}

/* All that was opened must have been closed. */
static inline void loop_done(uv_loop_t *loop)
{
	bool late = false;
	uv_timer_t deadline = {.data = &late};
	uv_timer_init(loop, &deadline);
	uv_timer_start(&deadline, wait_over, WAIT_MS, 0);
	uv_unref((uv_handle_t *)&deadline);
	while (!late && uv_run(loop, UV_RUN_ONCE))
		;
	uv_close((uv_handle_t *)&deadline, NULL);
	uv_run(loop, UV_RUN_NOWAIT);
	assert_false(late);
	assert_int_equal(uv_loop_close(loop), 0);
}

static inline void make_pair(int fd[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
}
