/* SPDX-License-Identifier: Apache-2.0 */
/* Small readers and writers for values in the protocol. */
#include "agent/text.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"

json_t *text_to_json(const char *s)
{
	size_t n = strlen(s);
	if (str_is_utf8(s, n))
		return json_stringn(s, n);

	auto_buf struct buf out;
	buf_init(&out, n * 3 + 1);
	while (n) {
		size_t len = 1;
		while (len < 4 && len < n && !str_is_utf8(s, len))
			len++;
		bool valid = str_is_utf8(s, len);
		int r = valid ? buf_append(&out, s, len) : buf_append(&out, "\xef\xbf\xbd", 3);
		if (r < 0)
			return NULL;
		len = valid ? len : 1;
		s += len;
		n -= len;
	}
	return json_stringn((const char *)out.data, out.len);
}

int text_basic_user(const char *authorization, char **ret)
{
	if (strncasecmp(authorization, "Basic ", 6) != 0)
		return -EINVAL;
	const char *encoded = authorization + 6;
	encoded += strspn(encoded, " ");
	size_t n = strlen(encoded);
	auto_free char *decoded = malloc(n / 4 * 3 + 3 + 1);
	if (!decoded)
		return -ENOMEM;
	ssize_t len = base64_decode(encoded, n, decoded);
	if (len < 0)
		return -EINVAL;
	decoded[len] = '\0';
	char *colon = strchr(decoded, ':');
	if (!colon || colon == decoded)
		return -EINVAL;
	*colon = '\0';
	*ret = take_ptr(decoded);
	return 0;
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

int text_timestamp(const char *s, int64_t *ret_ns)
{
	struct tm tm = {0};
	int64_t ns;
	int zone;
	if (!take_number(&s, 4, '-', &tm.tm_year) || !take_number(&s, 2, '-', &tm.tm_mon) ||
	    !take_number(&s, 2, 'T', &tm.tm_mday) || !take_number(&s, 2, ':', &tm.tm_hour) ||
	    !take_number(&s, 2, ':', &tm.tm_min) || !take_number(&s, 2, '\0', &tm.tm_sec) ||
	    !take_fraction(&s, &ns) || !take_zone(&s, &zone) || *s)
		return -EINVAL;
	if (tm.tm_year < 1970 || tm.tm_year > 2200 || tm.tm_mon < 1 || tm.tm_mon > 12 ||
	    tm.tm_mday < 1 || tm.tm_mday > 31 || tm.tm_hour > 23 || tm.tm_min > 59 ||
	    tm.tm_sec > 60)
		return -EINVAL;
	tm.tm_year -= 1900;
	tm.tm_mon -= 1;
	*ret_ns = ((int64_t)timegm(&tm) - zone) * 1000000000 + ns;
	return *ret_ns < 0 ? -EINVAL : 0;
}

bool text_same_secret(const char *a, const char *b)
{
	size_t n = strlen(a), m = strlen(b);
	volatile unsigned char differs = n != m;
	for (size_t i = 0; i < m; i++)
		differs |= (unsigned char)(a[n ? i % n : 0] ^ b[i]);
	return !differs;
}
