/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <errno.h>
#include <stdbool.h>
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

/* Exactly n digits at *s, then the character after; moves on. */
static bool take_number(const char **s, size_t n, char after, int *ret)
{
	int v = 0;
	for (size_t i = 0; i < n; i++, (*s)++) {
		if (**s < '0' || **s > '9')
			return false;
		v = v * 10 + (**s - '0');
	}
	*ret = v;
	if (after == '\0')
		return true;
	return (**s | 0x20) == (after | 0x20) && *(*s)++;
}

/* ".5", ".123456789" or nothing. */
static bool take_fraction(const char **s, int64_t *ret_ns)
{
	*ret_ns = 0;
	if (**s != '.')
		return true;
	(*s)++;
	int64_t unit = 100000000;
	const char *from = *s;
	for (; **s >= '0' && **s <= '9'; (*s)++, unit /= 10)
		*ret_ns += unit * (**s - '0');
	return *s > from && *s - from <= 9;
}

static bool take_zone(const char **s, int *ret_seconds)
{
	int hours, minutes, sign = **s == '-' ? -1 : 1;
	if (**s == 'Z' || **s == 'z') {
		(*s)++;
		*ret_seconds = 0;
		return true;
	}
	if (**s != '+' && **s != '-')
		return false;
	(*s)++;
	if (!take_number(s, 2, ':', &hours) || !take_number(s, 2, '\0', &minutes))
		return false;
	*ret_seconds = sign * (hours * 3600 + minutes * 60);
	return hours < 24 && minutes < 60;
}

/* Days from 1970-01-01 to a date of the Gregorian calendar. libc's timegm() would read the
   time zone file of a guest's image for it. */
static int64_t days_since_1970(int year, int month, int day)
{
	static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
	int past = year - 1; /* whole years */
	bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
	int64_t days = past * 365LL + past / 4 - past / 100 + past / 400;
	days += before[month - 1] + (leap && month > 2) + day - 1;
	return days - 719162; /* the same for 1970-01-01 */
}

struct civil {
	int year, month, day, hour, minute, second;
};

int clock_from_rfc3339(const char *s, int64_t *ret_ns)
{
	struct civil t;
	int64_t ns;
	int zone;
	if (!take_number(&s, 4, '-', &t.year) || !take_number(&s, 2, '-', &t.month) ||
	    !take_number(&s, 2, 'T', &t.day) || !take_number(&s, 2, ':', &t.hour) ||
	    !take_number(&s, 2, ':', &t.minute) || !take_number(&s, 2, '\0', &t.second) ||
	    !take_fraction(&s, &ns) || !take_zone(&s, &zone) || *s)
		return -EINVAL;
	if (t.year < 1970 || t.year > 2200 || t.month < 1 || t.month > 12 || t.day < 1 ||
	    t.day > 31 || t.hour > 23 || t.minute > 59 || t.second > 60)
		return -EINVAL;
	int64_t seconds = days_since_1970(t.year, t.month, t.day) * 86400 + t.hour * 3600 +
			  t.minute * 60 + t.second - zone;
	*ret_ns = seconds * 1000000000 + ns;
	return *ret_ns < 0 ? -EINVAL : 0;
}
