/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths in the one form that is matched and sent: unreserved characters stand for themselves, all
 * others that are no path characters are %XX in upper case. What servers are known to read in two
 * ways is refused. Source: RFC 3986, sections 2.3, 3.3 and 6.2.2.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "policy/policy.h"

static bool is_alnum(uint8_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool is_unreserved(uint8_t c)
{
	return is_alnum(c) || (c && strchr("-._~", c));
}

static bool is_path_char(uint8_t c)
{
	return is_unreserved(c) || (c && strchr("!$&'()*+,;=:@/", c));
}

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

/* The byte of the escape at s (at "%"), or -1. */
static int escape_value(const char *s, size_t n)
{
	int high = n > 1 ? hex_value(s[1]) : -1;
	int low = n > 2 ? hex_value(s[2]) : -1;
	return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static int check_escape(const char *s, size_t n, struct err *e)
{
	int c = escape_value(s, n);
	if (c < 0)
		return err_set(e, EINVAL, "the path has a '%%' without two hex digits behind it");
	if (c < 0x20 || c == 0x7f)
		return err_set(e, EINVAL, "the path has an encoded NUL or control character");
	if (c == '\\')
		return err_set(e, EINVAL, "the path has an encoded backslash (%%5C)");
	return c;
}

struct path_writer {
	char *canonical; /* what is sent */
	size_t n;
	char *plain; /* every escape decoded, for the checks */
	size_t plain_n;
};

static void put(struct path_writer *w, uint8_t c, bool escaped)
{
	static const char digit[] = "0123456789ABCDEF";
	w->plain[w->plain_n++] = (char)c;
	/* An escaped delimiter (%3B) means something else than the bare one: it stays as it is. */
	if (escaped ? is_unreserved(c) : is_path_char(c)) {
		w->canonical[w->n++] = (char)c;
		return;
	}
	w->canonical[w->n++] = '%';
	w->canonical[w->n++] = digit[c >> 4];
	w->canonical[w->n++] = digit[c & 15];
}

static int write_path(struct path_writer *w, const char *s, size_t n, struct err *e)
{
	for (size_t i = 0; i < n; i++) {
		uint8_t c = (uint8_t)s[i];
		if (c == '\\')
			return err_set(e, EINVAL, "the path has a backslash");
		if (c <= 0x20 || c == 0x7f)
			return err_set(e, EINVAL, "the path has a space or control character");
		if (c != '%') {
			put(w, c, false);
			continue;
		}
		int r = check_escape(s + i, n - i, e);
		if (r < 0)
			return r;
		put(w, (uint8_t)r, true);
		i += 2;
	}
	return 0;
}

/* "." and "..", also with parameters behind: some servers drop ";x" before they resolve the dots.
 */
static bool is_dots(const char *segment, size_t n)
{
	const char *semicolon = memchr(segment, ';', n);
	size_t bare = semicolon ? (size_t)(semicolon - segment) : n;
	return (bare == 1 || bare == 2) && segment[0] == '.' && segment[bare - 1] == '.';
}

/* Judges what a server sees that decodes once. */
static int check_plain(const char *plain, size_t n, struct err *e)
{
	for (size_t at = 1; at < n;) {
		const char *slash = memchr(plain + at, '/', n - at);
		size_t len = slash ? (size_t)(slash - plain) - at : n - at;
		if (len == 0)
			return err_set(e, EINVAL, "the path has \"//\"");
		if (is_dots(plain + at, len))
			return err_set(e, EINVAL, "the path has a \".\" or \"..\" segment");
		at += len + 1;
	}
	for (size_t i = 0; i < n; i++)
		if (plain[i] == '%' && escape_value(plain + i, n - i) >= 0)
			return err_set(e, EINVAL, "the path is percent-encoded twice");
	if (!str_is_utf8(plain, n))
		return err_set(e, EINVAL, "the path is not UTF-8");
	return 0;
}

int policy_path_canonical(const char *target, char **ret_path, const char **ret_query,
			  struct err *e)
{
	if (target[0] != '/')
		return err_set(e, EINVAL, "the request target is no path");
	if (strchr(target, '#'))
		return err_set(e, EINVAL, "the request target has a fragment");
	const char *query = strchr(target, '?');
	size_t n = query ? (size_t)(query - target) : strlen(target);

	auto_free char *canonical = malloc(3 * n + 1);
	auto_free char *plain = malloc(n);
	if (!canonical || !plain)
		return err_set(e, ENOMEM, "no memory");
	struct path_writer w = {.canonical = canonical, .plain = plain};
	int r = write_path(&w, target, n, e);
	if (r == 0)
		r = check_plain(w.plain, w.plain_n, e);
	if (r < 0)
		return r;
	canonical[w.n] = '\0';
	*ret_path = take_ptr(canonical);
	*ret_query = query ? query + 1 : NULL;
	return 0;
}
