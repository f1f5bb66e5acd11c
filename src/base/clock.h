/* SPDX-License-Identifier: Apache-2.0 */
/* Time: monotonic for deadlines, wall clock for records. */
#pragma once

#include <stddef.h>
#include <stdint.h>

uint64_t clock_mono_ms(void); /* milliseconds since an arbitrary start, never backwards */
uint64_t clock_mono_us(void);
uint64_t clock_wall_ms(void); /* milliseconds since 1970 UTC */

/* RFC 3339 in UTC with milliseconds, "2026-11-30T17:12:06.886Z". */
#define CLOCK_RFC3339_SIZE 32
void clock_rfc3339(uint64_t wall_ms, char out[CLOCK_RFC3339_SIZE]);

/* An RFC 3339 time stamp of the years 1970 to 2200 as nanoseconds since 1970 UTC. 0 or -EINVAL. */
int clock_from_rfc3339(const char *s, int64_t *ret_ns);
