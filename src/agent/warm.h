/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the first calls would find cold: pages of this program that were never touched, users that
 * were never read, a program that was never loaded. A machine that is frozen when it is ready is
 * thawed many times, each time with somebody waiting.
 */
#pragma once

#include <uv.h>

/* Calls the agent that listens on this port of the loopback as a host would, with an /init that
 * changes nothing and a Start of /bin/true, and runs the loop until it has answered (or failed, or
 * some seconds have passed: no harm). */
void warm(uv_loop_t *loop, unsigned port);
