/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static uint64_t clock_us(clockid_t id)
{
	struct timespec ts;
	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

uint64_t clock_mono_us(void)
{
	return clock_us(CLOCK_MONOTONIC);
}

uint64_t clock_mono_ms(void)
{
	return clock_mono_us() / 1000u;
}

uint64_t clock_wall_ms(void)
{
	return clock_us(CLOCK_REALTIME) / 1000u;
}

void clock_rfc3339(uint64_t wall_ms, char out[CLOCK_RFC3339_SIZE])
{
	time_t s = (time_t)(wall_ms / 1000u);
	struct tm tm;
	gmtime_r(&s, &tm);
	size_t n = strftime(out, CLOCK_RFC3339_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out + n, CLOCK_RFC3339_SIZE - n, ".%03uZ", (unsigned)(wall_ms % 1000u));
}
