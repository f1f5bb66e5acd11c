/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool str_eq(const char *a, const char *b)
{
	return a && b && strcmp(a, b) == 0;
}

bool str_starts(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *s, const char *suffix)
{
	size_t n = strlen(s), m = strlen(suffix);
	return n >= m && strcmp(s + n - m, suffix) == 0;
}

void str_lower(char *s)
{
	for (; *s; s++)
		if (*s >= 'A' && *s <= 'Z')
			*s = (char)(*s + ('a' - 'A'));
}

char *str_printf(const char *fmt, ...)
{
	char *s = NULL;
	va_list ap;
	va_start(ap, fmt);
	int n = vasprintf(&s, fmt, ap);
	va_end(ap);
	return n < 0 ? NULL : s;
}

/* Reads the leading digits of s; *ret_rest points behind them. */
static int digits(const char *s, uint64_t *ret_value, const char **ret_rest)
{
	uint64_t v = 0;
	const char *p = s;
	for (; *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(v, 10u, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
			return -ERANGE;
	if (p == s)
		return -EINVAL;
	*ret_value = v;
	*ret_rest = p;
	return 0;
}

int str_to_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret_value)
{
	uint64_t v;
	const char *rest;
	int r = digits(s, &v, &rest);
	if (r < 0)
		return r;
	if (*rest)
		return -EINVAL;
	if (v < min || v > max)
		return -ERANGE;
	*ret_value = v;
	return 0;
}

struct unit {
	const char *suffix;
	uint64_t factor;
};

static int with_unit(const char *s, const struct unit *units, uint64_t *ret_value)
{
	uint64_t v;
	const char *rest;
	int r = digits(s, &v, &rest);
	if (r < 0)
		return r;
	for (const struct unit *u = units; u->suffix; u++) {
		if (strcasecmp(rest, u->suffix) != 0)
			continue;
		return __builtin_mul_overflow(v, u->factor, ret_value) ? -ERANGE : 0;
	}
	return -EINVAL;
}

int str_to_mib(const char *s, uint64_t *ret_mib)
{
	static const struct unit units[] = {
		{"", 1},     {"m", 1},     {"mb", 1},     {"mib", 1},
		{"g", 1024}, {"gb", 1024}, {"gib", 1024}, {NULL, 0},
	};
	return with_unit(s, units, ret_mib);
}

int str_to_bytes(const char *s, uint64_t *ret_bytes)
{
	static const struct unit units[] = {{"kB", 1000}, {"MB", 1000000}, {"GB", 1000000000}};
	uint64_t count;
	const char *rest;
	int r = digits(s, &count, &rest);
	if (r < 0)
		return r;
	rest += strspn(rest, " ");
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (!str_eq(rest, units[i].suffix))
			continue;
		if (!count || count > INT64_MAX / units[i].factor)
			return -ERANGE;
		*ret_bytes = count * units[i].factor;
		return 0;
	}
	return -EINVAL;
}

int str_to_ms(const char *s, uint64_t *ret_ms)
{
	static const struct unit units[] = {
		{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}, {NULL, 0},
	};
	return with_unit(s, units, ret_ms);
}

static bool is_alnum(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool str_is_name(const char *s)
{
	if (!is_alnum(*s))
		return false;
	size_t n = 0;
	for (; s[n]; n++)
		if (!is_alnum(s[n]) && !strchr("_.-", s[n]))
			return false;
	return n <= 63;
}

bool str_is_env_name(const char *s)
{
	if (!*s || (*s >= '0' && *s <= '9'))
		return false;
	size_t n = 0;
	for (; s[n]; n++)
		if (!is_alnum(s[n]) && s[n] != '_')
			return false;
	return n <= 255;
}

/* Length of the UTF-8 sequence at p, 0 when it is none. Source: RFC 3629, section 4. */
static size_t utf8_sequence(const uint8_t *p, size_t n)
{
	if (p[0] < 0x80)
		return 1;
	size_t len = p[0] >= 0xc2 && p[0] <= 0xdf   ? 2
		     : (p[0] & 0xf0) == 0xe0        ? 3
		     : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4
						    : 0;
	if (!len || len > n)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
	    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
		return 0;
	return len;
}

bool str_is_utf8(const void *data, size_t n)
{
	const uint8_t *p = data;
	while (n) {
		size_t len = utf8_sequence(p, n);
		if (!len)
			return false;
		p += len;
		n -= len;
	}
	return true;
}

void str_drop_partial(char *s)
{
	size_t n = strlen(s), back = 1;
	while (back < n && back < 4 && ((uint8_t)s[n - back] & 0xc0) == 0x80)
		back++;
	if (back > n)
		return;
	uint8_t lead = (uint8_t)s[n - back];
	size_t want = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
	if (back < want)
		s[n - back] = '\0';
}

bool str_same_field(const char *a, const char *b)
{
	for (;; a++, b++) {
		int x = *a == '_' ? '-' : tolower((unsigned char)*a);
		int y = *b == '_' ? '-' : tolower((unsigned char)*b);
		if (x != y)
			return false;
		if (!x)
			return true;
	}
}

void hex_encode(const void *data, size_t n, char *out)
{
	static const char digit[] = "0123456789abcdef";
	const uint8_t *p = data;
	for (size_t i = 0; i < n; i++) {
		out[2 * i] = digit[p[i] >> 4];
		out[2 * i + 1] = digit[p[i] & 15];
	}
	out[2 * n] = '\0';
}

size_t base64_encoded_len(size_t n)
{
	return (n + 2) / 3 * 4;
}

/* Each byte of the result is c. */
static uint64_t lanes(uint8_t c)
{
	return c * 0x0101010101010101u;
}

/* 1 in each byte of x that is >= c; all are < 64. */
static uint64_t lanes_from(uint64_t x, uint8_t c)
{
	return (x + lanes((uint8_t)(128 - c))) >> 7 & lanes(1);
}

/* Six bytes to eight characters, all at once in the bytes of a word: the agent of an emulated guest
   has this to do for all output, and memory is what emulation makes slow. */
static void base64_encode_six(const uint8_t *p, char *out)
{
	uint64_t x = (uint64_t)p[0] << 40 | (uint64_t)p[1] << 32 | (uint64_t)p[2] << 24 |
		     (uint64_t)p[3] << 16 | (uint64_t)p[4] << 8 | p[5];
	x = (x & 0xffffff000000) << 8 | (x & 0xffffff);
	x = (x & 0x00fff00000fff000) << 4 | (x & 0x00000fff00000fff);
	x = (x & 0x0fc00fc00fc00fc0) << 2 | (x & 0x003f003f003f003f);
	/* "A" + x; the alphabet breaks before "a", "0", "+" and "/". */
	x = x + lanes('A') + lanes_from(x, 26) * 6 + lanes_from(x, 63) * 3 -
	    lanes_from(x, 52) * 75 - lanes_from(x, 62) * 15;
	x = htobe64(x);
	memcpy(out, &x, sizeof(x));
}

size_t base64_encode(const void *data, size_t n, char *out)
{
	static const char alphabet[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const uint8_t *p = data;
	char *o = out;
	for (; n >= 6; n -= 6, p += 6, o += 8)
		base64_encode_six(p, o);
	for (; n >= 3; n -= 3, p += 3) {
		uint32_t v = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
		*o++ = alphabet[v >> 18];
		*o++ = alphabet[v >> 12 & 63];
		*o++ = alphabet[v >> 6 & 63];
		*o++ = alphabet[v & 63];
	}
	if (n) {
		uint32_t v = (uint32_t)p[0] << 16 | (n > 1 ? (uint32_t)p[1] << 8 : 0);
		*o++ = alphabet[v >> 18];
		*o++ = alphabet[v >> 12 & 63];
		*o++ = n > 1 ? alphabet[v >> 6 & 63] : '=';
		*o++ = '=';
	}
	*o = '\0';
	return (size_t)(o - out);
}

static int base64_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+' || c == '-')
		return 62;
	if (c == '/' || c == '_')
		return 63;
	return -1;
}

/* 1 in each byte of x that is >= c; all are < 128. */
static uint64_t ascii_from(uint64_t x, uint8_t c)
{
	return ((x | lanes(128)) - lanes(c)) >> 7 & lanes(1);
}

/* All bits in each byte of x that is within [from, to]. */
static uint64_t ascii_within(uint64_t x, uint8_t from, uint8_t to)
{
	return (ascii_from(x, from) - ascii_from(x, (uint8_t)(to + 1))) * 255;
}

/* Eight characters to six bytes; false when one is not of the alphabets. */
static bool base64_decode_eight(const char *s, uint8_t *out)
{
	uint64_t x;
	memcpy(&x, s, sizeof(x));
	x = be64toh(x);
	if (x & lanes(128))
		return false;
	uint64_t upper = ascii_within(x, 'A', 'Z'), lower = ascii_within(x, 'a', 'z');
	uint64_t digit = ascii_within(x, '0', '9');
	uint64_t plus = ascii_within(x, '+', '+') | ascii_within(x, '-', '-');
	uint64_t slash = ascii_within(x, '/', '/') | ascii_within(x, '_', '_');
	if (~(upper | lower | digit | plus | slash))
		return false;
	/* Where a byte is of no use, what it yields is masked out; 128 keeps it from borrowing. */
	uint64_t high = x | lanes(128);
	x = ((high - lanes('A')) & upper) | ((high - lanes('a' - 26)) & lower) |
	    ((x + lanes(52 - '0')) & digit) | (lanes(62) & plus) | (lanes(63) & slash);
	x &= lanes(63);
	x = (x & 0x3f003f003f003f00) >> 2 | (x & 0x003f003f003f003f);
	x = (x & 0x0fff00000fff0000) >> 4 | (x & 0x00000fff00000fff);
	x = (x & 0x00ffffff00000000) >> 8 | (x & 0x0000000000ffffff);
	for (int i = 0; i < 6; i++)
		out[i] = (uint8_t)(x >> (40 - 8 * i));
	return true;
}

ssize_t base64_decode(const char *s, size_t n, void *out)
{
	if (n % 4 == 0 && n && s[n - 1] == '=')
		n -= s[n - 2] == '=' ? 2 : 1;
	if (n % 4 == 1)
		return -EBADMSG;

	uint8_t *o = out;
	for (; n >= 8; n -= 8, s += 8, o += 6)
		if (!base64_decode_eight(s, o))
			return -EBADMSG;
	uint32_t acc = 0;
	for (size_t i = 0; i < n; i++) {
		int v = base64_value(s[i]);
		if (v < 0)
			return -EBADMSG;
		acc = acc << 6 | (uint32_t)v;
		if (i % 4 == 3) {
			*o++ = (uint8_t)(acc >> 16);
			*o++ = (uint8_t)(acc >> 8);
			*o++ = (uint8_t)acc;
			acc = 0;
		}
	}
	if (n % 4 == 2) {
		*o++ = (uint8_t)(acc >> 4);
	} else if (n % 4 == 3) {
		*o++ = (uint8_t)(acc >> 10);
		*o++ = (uint8_t)(acc >> 2);
	}
	return o - (uint8_t *)out;
}
