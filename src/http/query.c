/* SPDX-License-Identifier: Apache-2.0 */
/* Percent-encoding and the parameters of a query. Source: RFC 3986, section 2; URL Standard, 5.1.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "http/msg.h"

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

ssize_t http_percent_decode(const char *s, size_t n, bool plus_is_space, char *out)
{
	size_t len = 0;
	for (size_t i = 0; i < n; i++) {
		char c = s[i];
		if (c == '+' && plus_is_space) {
			c = ' ';
		} else if (c == '%') {
			int high = n - i > 2 ? hex_value(s[i + 1]) : -1;
			int low = n - i > 2 ? hex_value(s[i + 2]) : -1;
			if (high < 0 || low < 0 || (high | low) == 0)
				return -EBADMSG;
			c = (char)(high << 4 | low);
			i += 2;
		}
		out[len++] = c;
	}
	out[len] = '\0';
	return (ssize_t)len;
}

static bool is_unreserved(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '-' || c == '.' || c == '_' || c == '~';
}

char *http_percent_encode(const char *s, bool keep_slash)
{
	static const char digit[] = "0123456789ABCDEF";
	size_t n = strlen(s), size;
	if (__builtin_mul_overflow(n, 3u, &size) || __builtin_add_overflow(size, 1u, &size))
		return NULL;
	char *out = malloc(size);
	if (!out)
		return NULL;
	char *o = out;
	for (; *s; s++) {
		if (is_unreserved(*s) || (*s == '/' && keep_slash)) {
			*o++ = *s;
		} else {
			*o++ = '%';
			*o++ = digit[(uint8_t)*s >> 4];
			*o++ = digit[(uint8_t)*s & 15];
		}
	}
	*o = '\0';
	return out;
}

/* Decodes s[0 .. n) as a form does, to the heap. */
static int decode(const char *s, size_t n, char **ret)
{
	auto_free char *out = malloc(n + 1);
	if (!out)
		return -ENOMEM;
	ssize_t len = http_percent_decode(s, n, true, out);
	if (len < 0)
		return (int)len;
	*ret = take_ptr(out);
	return 0;
}

int http_query_get(const char *target, const char *name, char **ret)
{
	const char *p = strchr(target, '?');
	while (p) {
		const char *pair = p + 1;
		size_t n = strcspn(pair, "&");
		p = pair[n] ? pair + n : NULL;

		const char *equals = memchr(pair, '=', n);
		size_t name_len = equals ? (size_t)(equals - pair) : n;
		auto_free char *key = NULL;
		int r = decode(pair, name_len, &key);
		if (r < 0)
			return r;
		if (strcmp(key, name) != 0)
			continue;
		return equals ? decode(equals + 1, n - name_len - 1, ret) : decode("", 0, ret);
	}
	*ret = NULL;
	return 0;
}
