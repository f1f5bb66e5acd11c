/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of a hostile server, in pieces of any size, against a slow search of each place in each
 * way. The first byte says which values are looked for, the second how large the pieces are. What
 * is written in one spelling is hidden, what is hidden is written in some spelling, and neither
 * depends on how the stream is cut.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "vault/scan.h"

#define TEXT_MAX    1024
#define BREAKS_MAX  3
#define SPELLED_MAX 11 /* bytes of a spelling of a byte */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool truth)
{
	if (!truth)
		abort();
}

/* -- the slow search -- */

/* As spelled(), for references of HTML. */
static unsigned referred(uint8_t c, const char *p, size_t n)
{
	static const char *const names[] = {"&&amp;", "'&apos;", "=&equals;", ">&gt;", "_&lowbar;",
					    "<&lt;",  "+&plus;", "\"&quot;",  "/&sol;"};
	char copy[SPELLED_MAX + 1] = "", *end;
	memcpy(copy, p, n < SPELLED_MAX ? n : SPELLED_MAX);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if ((uint8_t)*names[i] == c && str_starts(copy, names[i] + 1))
			return 1U << strlen(names[i] + 1);
	bool hex = copy[2] == 'x' || copy[2] == 'X';
	const char *digits = copy + (hex ? 3 : 2);
	if (!str_starts(copy, "&#") || c >= 0x80 || !isxdigit((uint8_t)*digits) ||
	    strtoul(digits, &end, hex ? 16 : 10) != c || *end != ';' || end - digits > 7)
		return 0;
	return 1U << (end + 1 - copy);
}

/* The lengths, as a set of bits, that a spelling of c can have at p. */
static unsigned spelled(uint8_t c, const char *p, size_t n)
{
	static const char letters[] = "\"\"''\\\\//b\bf\fn\nr\rt\t";
	char percent[4], unicode[7], byte[5];
	unsigned lengths = n && (uint8_t)*p == c ? 1U << 1 : 0;
	snprintf(percent, sizeof(percent), "%%%02x", c);
	snprintf(unicode, sizeof(unicode), "\\u%04x", c);
	snprintf(byte, sizeof(byte), "\\x%02x", c);
	if (n >= 4 && p[1] == 'x' && !strncasecmp(p, byte, 4))
		lengths |= 1U << 4;
	if (n >= 3 && !strncasecmp(p, percent, 3))
		lengths |= 1U << 3;
	if (n >= 6 && c < 0x80 && p[1] == 'u' && !strncasecmp(p, unicode, 6))
		lengths |= 1U << 6;
	for (size_t i = 0; n >= 2 && *p == '\\' && letters[i]; i += 2)
		if (p[1] == letters[i] && (uint8_t)letters[i + 1] == c)
			lengths |= 1U << 2;
	return lengths | referred(c, p, n);
}

/* Marks what any spelling of form at from may cover; whether there is one. Places are a set that
 * moves on with each byte of the form; line breaks may stand between two. */
static bool spelled_at(const char *form, size_t form_len, const char *text, size_t n, size_t from,
		       bool *may)
{
	static bool here[TEXT_MAX + SPELLED_MAX + 1], next[TEXT_MAX + SPELLED_MAX + 1];
	size_t last = from;
	if (!spelled((uint8_t)form[0], text + from, n - from))
		return false;
	memset(here, 0, sizeof(here));
	here[from] = true;
	for (size_t k = 0; k < form_len; k++) {
		bool any = false;
		memset(next, 0, sizeof(next));
		for (size_t at = from; at <= n; at++) {
			unsigned lengths =
				here[at] ? spelled((uint8_t)form[k], text + at, n - at) : 0;
			for (unsigned len = 1; len <= SPELLED_MAX; len++)
				if (lengths >> len & 1) {
					next[at + len] = any = true;
					last = at + len > last ? at + len : last;
				}
		}
		if (!any)
			return false;
		memcpy(here, next, sizeof(here));
		for (unsigned breaks = 0; k + 1 < form_len && breaks < BREAKS_MAX; breaks++)
			for (size_t at = n; at-- > from;) {
				unsigned lengths =
					here[at] ? spelled('\n', text + at, n - at) |
							   spelled('\r', text + at, n - at) |
							   spelled('\0', text + at, n - at)
						 : 0;
				for (unsigned len = 1; len <= SPELLED_MAX; len++)
					if (lengths >> len & 1)
						here[at + len] = true;
			}
	}
	for (size_t i = from; may && i < last; i++)
		may[i] = true;
	return true;
}

struct search {
	const char *text;
	size_t n;
	bool *may, *must; /* be hidden, each byte */
};

static void search_form(const struct search *s, const char *form, size_t len)
{
	if (len < NEEDLE_MIN)
		return;
	for (size_t at = 0; at < s->n; at++) {
		spelled_at(form, len, s->text, s->n, at, s->may);
		if (at + len <= s->n && !memcmp(s->text + at, form, len))
			for (size_t i = at; i < at + len; i++)
				s->must[i] = form[i - at] != '\n' && form[i - at] != '\r';
	}
}

static void search_value(const struct search *s, const char *value)
{
	char plain[64], form[128];
	size_t len = strlen(value);
	search_form(s, value, len);
	for (size_t before = 0; before < 3; before++) {
		memset(plain, 0, sizeof(plain));
		memcpy(plain + before, value, len);
		base64_encode(plain, before + len, form);
		size_t from = (8 * before + 5) / 6, to = 8 * (before + len) / 6;
		search_form(s, form + from, to - from);
		for (char *c = form; *c; c++)
			*c = *c == '+' ? '-' : *c == '/' ? '_' : *c;
		search_form(s, form + from, to - from);
	}
	hex_encode(value, len, form);
	search_form(s, form, 2 * len);
	for (char *c = form; *c; c++)
		*c = *c >= 'a' ? (char)(*c - 'a' + 'A') : *c;
	search_form(s, form, 2 * len);
}

/* May be hidden, but need not. */
static void search_undone(const struct search *s, const char *form)
{
	for (size_t at = 0; form && at < s->n; at++)
		spelled_at(form, strlen(form), s->text, s->n, at, s->may);
}

/* -- ours -- */

struct output {
	uint8_t bytes[TEXT_MAX];
	size_t n;
};

static void collect(void *user, const uint8_t *p, size_t n)
{
	struct output *out = user;
	require(n && n <= sizeof(out->bytes) - out->n);
	memcpy(out->bytes + out->n, p, n);
	out->n += n;
}

/* 0 or what scan_push() said. */
static int run(struct needles *n, bool redact, const uint8_t *p, size_t len, size_t piece,
	       struct output *out)
{
	struct scan *s = scan_new(n, redact);
	int r = 0;
	require(s);
	out->n = 0;
	for (size_t at = 0; at < len && r == 0; at += piece) {
		size_t part = len - at < piece ? len - at : piece;
		uint8_t *exact = malloc(part); /* so that a read past its end is seen */
		require(exact);
		memcpy(exact, p + at, part);
		r = scan_push(s, exact, part, collect, out, NULL);
		free(exact);
	}
	if (r == 0)
		r = scan_end(s, collect, out, NULL);
	require(r == 0 ? out->n == len : r == -EACCES && !redact);
	scan_free(s);
	return r;
}

/* Values in pairs, and what they are when escapes and line breaks in themselves are undone. */
static const struct {
	const char *value, *undone[2];
} values[][2] = {
	{{.value = "abcdefgh12"}, {.value = "abcdefgh"}},
	{{.value = "aabaabaab"}, {.value = "baabaaba"}},
	{{"a/+b\"c\\nd%41e", {"a/+b\"cdAe", "a/+b\"c\\ndAe"}},
	 {"x%2f\\u0041yzab", {"x/\\u0041yzab"}}},
	{{.value = "0a1b2c3d4e"}, {"line\nbreak\n", {"linebreak"}}},
};
#define PAIRS (sizeof(values) / sizeof(values[0]))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct output whole, cut;
	static bool may[TEXT_MAX], must[TEXT_MAX];
	if (size < 2 || size > TEXT_MAX)
		return 0;
	size_t piece = data[1] % 64 + 1, len = size - 2, first = len;
	const uint8_t *text = data + 2;
	struct needles *n = needles_new(NULL);
	memset(may, 0, sizeof(may));
	memset(must, 0, sizeof(must));
	struct search search = {.text = (const char *)text, .n = len, .may = may, .must = must};
	require(n);
	for (unsigned i = 0; i < 2; i++) {
		const char *value = values[data[0] % PAIRS][i].value;
		require(needles_add(n, value, strlen(value), i) == 0);
		search_value(&search, value);
		for (unsigned k = 0; k < 2; k++)
			search_undone(&search, values[data[0] % PAIRS][i].undone[k]);
	}
	require(needles_compile(n) == 0);

	require(run(n, true, text, len, len ? len : 1, &whole) == 0);
	require(run(n, true, text, len, piece, &cut) == 0);
	bool lines =
		memchr(data, '\n', size) || memchr(data, '\r', size); /* whose ends don't wait */
	require(!len || lines || !memcmp(whole.bytes, cut.bytes, len));
	for (size_t i = 0; i < len; i++) {
		bool hidden = whole.bytes[i] != text[i];
		require(!hidden || (whole.bytes[i] == '*' && may[i]));
		require(!must[i] || whole.bytes[i] == '*');
		if (hidden && i < first)
			first = i;
	}
	int found = run(n, false, text, len, piece, &cut);
	require(found == -EACCES ? cut.n <= first && first < len : first == len);
	require(!cut.n || !memcmp(cut.bytes, text, cut.n));
	require(needles_in(n, text, len, NULL) == (found == -EACCES));
	needles_put(n);
	return 0;
}
