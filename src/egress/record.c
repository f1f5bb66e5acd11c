/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text is what jansson would write, compact; here because records are on the way of every
 * request. What the guest sent reaches this file: all of it is escaped, none of it is trusted to be
 * UTF-8.
 */
#include "egress/record.h"

#include <stdio.h>
#include <string.h>

static void put(struct record *r, const void *p, size_t n)
{
	if (!r->error)
		r->error = buf_append(r->out, p, n);
}

static void put_str(struct record *r, const char *s)
{
	put(r, s, strlen(s));
}

/* The length of the UTF-8 sequence at s, 0 when there is none. */
static size_t utf8_len(const unsigned char *s)
{
	size_t n = s[0] < 0x80 ? 1 : s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
	if (s[0] >= 0x80 && (s[0] < 0xc2 || s[0] > 0xf4))
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

static bool is_plain(unsigned char c)
{
	return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

static void put_quoted(struct record *r, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	put(r, "\"", 1);
	while (*s) {
		size_t run = 0;
		while (is_plain(s[run]))
			run++;
		put(r, s, run);
		s += run;
		if (!*s)
			break;
		size_t n = utf8_len(s);
		if (*s == '"' || *s == '\\') {
			char escaped[2] = {'\\', (char)*s};
			put(r, escaped, sizeof(escaped));
		} else if (n == 1) {
			char escaped[8];
			put(r, escaped, (size_t)snprintf(escaped, sizeof(escaped), "\\u%04x", *s));
		} else if (n) {
			put(r, s, n);
		} else {
			put_str(r, "\xef\xbf\xbd");
		}
		s += n ? n : 1;
	}
	put(r, "\"", 1);
}

static void put_key(struct record *r, const char *key)
{
	if (!r->first)
		put(r, ",", 1);
	r->first = false;
	put(r, "\"", 1);
	put_str(r, key);
	put(r, "\":", 2);
}

void record_open(struct record *r, struct buf *out)
{
	*r = (struct record){.out = out, .first = true};
	put(r, "{", 1);
}

void record_string(struct record *r, const char *key, const char *value)
{
	put_key(r, key);
	if (value)
		put_quoted(r, value);
	else
		put_str(r, "null");
}

void record_number(struct record *r, const char *key, uint64_t value)
{
	char digits[20]; /* of UINT64_MAX */
	size_t at = sizeof(digits);
	do
		digits[--at] = (char)('0' + value % 10);
	while (value /= 10);
	put_key(r, key);
	put(r, digits + at, sizeof(digits) - at);
}

void record_bool(struct record *r, const char *key, bool value)
{
	put_key(r, key);
	put_str(r, value ? "true" : "false");
}

void record_object(struct record *r, const char *key)
{
	put_key(r, key);
	put(r, "{", 1);
	r->first = true;
}

int record_close(struct record *r)
{
	put(r, "}", 1);
	r->first = false;
	return r->error;
}
