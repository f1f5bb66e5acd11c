/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stretches without anything special, found 16 bytes at a time, are copied as they are, so that
 * only escapes and line breaks cost. Each of those leaves a mark, which is the way back.
 */
#include "vault/normal.h"

#include <string.h>

#define REFERENCE_DIGITS 7

typedef uint8_t vec __attribute__((vector_size(16)));

/* Which bytes of v are special: the place of the first, 16 for none. */
static size_t first_special(vec v)
{
	uint64_t hit[2];
	vec any = (vec)((v == '%') | (v == '\\') | (v == '&') | (v == '\n') | (v == '\r') |
			(v == '\0'));
	memcpy(hit, &any, sizeof(hit));
	if (hit[0])
		return (size_t)__builtin_ctzll(hit[0]) / 8;
	return hit[1] ? 8 + (size_t)__builtin_ctzll(hit[1]) / 8 : 16;
}

static bool is_special(uint8_t c)
{
	return c == '%' || c == '\\' || c == '&' || c == '\n' || c == '\r' || !c;
}

/* How many bytes at the beginning of p are not special. */
static size_t plain_length(const uint8_t *p, size_t n)
{
	size_t i = 0, plain = 16;
	vec v;
	for (; i + sizeof(v) <= n && plain == 16; i += plain) {
		memcpy(&v, p + i, sizeof(v));
		plain = first_special(v);
	}
	while (plain == 16 && i < n && !is_special(p[i]))
		i++;
	return i;
}

/* As above, and copies them; out has room for n bytes, of which those behind may be written too. */
static size_t plain_copy(const uint8_t *p, size_t n, uint8_t *out)
{
	size_t i = 0, plain = 16;
	vec v;
	for (; i + sizeof(v) <= n && plain == 16; i += plain) {
		memcpy(&v, p + i, sizeof(v));
		memcpy(out + i, &v, sizeof(v));
		plain = first_special(v);
	}
	for (; plain == 16 && i < n && !is_special(p[i]); i++)
		out[i] = p[i];
	return i;
}

/* As above, for zeros, of which files have many, or what else there is. */
static size_t zeros_copy(const uint8_t *p, size_t n, uint8_t *out)
{
	size_t i = 0;
	while (i < n && !p[i])
		i++;
	memset(out, 0, i);
	return i ? i : plain_copy(p, n, out);
}

/* One more than the value of a hexadecimal digit; 0: it is none. */
static const uint8_t hex_digits[256] = {
	['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,
	['6'] = 7,  ['7'] = 8,  ['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12,
	['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16, ['A'] = 11, ['B'] = 12,
	['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16,
};

/* What stands at p: its length there, 0 when more is needed to know; what it means, the first byte
 * lowest. */
struct token {
	uint32_t len, count, bytes;
};

static struct token literal(uint8_t c)
{
	return (struct token){.len = 1, .count = 1, .bytes = c};
}

/* Reads count hex digits. 1; 0: they are none; -1: they may be, but end too soon. */
static int hex_number(const uint8_t *p, size_t n, unsigned count, unsigned *ret_value)
{
	unsigned value = 0;
	for (unsigned i = 0; i < count; i++) {
		if (i == n)
			return -1;
		unsigned digit = hex_digits[p[i]];
		if (!digit)
			return 0;
		value = value << 4 | (digit - 1);
	}
	*ret_value = value;
	return 1;
}

static struct token token_percent(const uint8_t *p, size_t n)
{
	unsigned value = 0;
	int read = hex_number(p + 1, n - 1, 2, &value);
	if (read < 0)
		return (struct token){0};
	return read ? (struct token){.len = 3, .count = 1, .bytes = value} : literal(*p);
}

/* A character that len bytes at p spell. A surrogate stays as it is spelled, as does what is beyond
 * the basic plane: there are no credentials. */
static struct token character(const uint8_t *p, size_t len, unsigned c)
{
	if (c > 0xffff || (c >= 0xd800 && c < 0xe000))
		return literal(*p);
	struct token t = {.len = (uint32_t)len, .count = 1, .bytes = c};
	if (c >= 0x800) {
		t.count = 3;
		t.bytes = 0x8080e0 | c >> 12 | (c >> 6 & 0x3f) << 8 | (c & 0x3f) << 16;
	} else if (c >= 0x80) {
		t.count = 2;
		t.bytes = 0x80c0 | c >> 6 | (c & 0x3f) << 8;
	}
	return t;
}

static struct token token_unicode(const uint8_t *p, size_t n)
{
	unsigned c = 0;
	int read = hex_number(p + 2, n - 2, 4, &c);
	if (read < 0)
		return (struct token){0};
	return read ? character(p, 6, c) : literal(*p);
}

/* As a script writes it. */
static struct token token_byte(const uint8_t *p, size_t n)
{
	unsigned value = 0;
	int read = hex_number(p + 2, n - 2, 2, &value);
	if (read < 0)
		return (struct token){0};
	return read ? (struct token){.len = 4, .count = 1, .bytes = value} : literal(*p);
}

/* What a letter behind a backslash stands for; 0: nothing. */
static const uint8_t letters[256] = {
	['"'] = '"',  ['\''] = '\'', ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
	['f'] = '\f', ['n'] = '\n',  ['r'] = '\r',  ['t'] = '\t',
};

static struct token token_backslash(const uint8_t *p, size_t n)
{
	if (n < 2)
		return (struct token){0};
	if (p[1] == 'u')
		return token_unicode(p, n);
	if (p[1] == 'x')
		return token_byte(p, n);
	if (!letters[p[1]])
		return literal(*p);
	return (struct token){.len = 2, .count = 1, .bytes = letters[p[1]]};
}

/* Names of what credentials are made of, and of what must be written so. */
static const struct {
	const char *name;
	uint8_t c;
} references[] = {
	{"amp;", '&'}, {"apos;", '\''}, {"equals;", '='}, {"gt;", '>'},  {"lowbar;", '_'},
	{"lt;", '<'},  {"plus;", '+'},  {"quot;", '"'},   {"sol;", '/'},
};

static struct token token_name(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < sizeof(references) / sizeof(references[0]); i++) {
		size_t len = strlen(references[i].name), here = n - 1 < len ? n - 1 : len;
		if (memcmp(p + 1, references[i].name, here) != 0)
			continue;
		if (here < len)
			return (struct token){0};
		return (struct token){
			.len = (uint32_t)len + 1, .count = 1, .bytes = references[i].c};
	}
	return literal(*p);
}

/* A character reference of HTML. */
static struct token token_reference(const uint8_t *p, size_t n)
{
	unsigned value = 0;
	if (n < 2 || p[1] != '#')
		return token_name(p, n);
	bool hex = n > 2 && (p[2] | 0x20) == 'x';
	size_t from = hex ? 3 : 2, at = from;
	for (; at < n && at - from < REFERENCE_DIGITS; at++) {
		unsigned digit = hex_digits[p[at]];
		if (!digit || (!hex && digit > 10))
			break;
		value = value * (hex ? 16 : 10) + digit - 1;
	}
	if (at == n)
		return (struct token){0};
	return at > from && p[at] == ';' ? character(p, at + 1, value) : literal(*p);
}

static struct token token_read(const uint8_t *p, size_t n, bool final)
{
	struct token t = literal(*p);
	if (*p == '%')
		t = token_percent(p, n);
	else if (*p == '\\')
		t = token_backslash(p, n);
	else if (*p == '&')
		t = token_reference(p, n);
	return t.len || !final ? t : literal(*p);
}

/* The next byte of the text is spelled by span bytes at source. */
static void mark(struct normal *ret, size_t source, size_t span, bool dropped)
{
	size_t i = ret->count;
	if (!i || ret->marks[i - 1].at != ret->len)
		ret->count++;
	else
		dropped |= ret->marks[--i].dropped; /* more was dropped before this byte */
	ret->marks[i] = (struct normal_mark){.at = (uint32_t)ret->len,
					     .source = (uint32_t)source,
					     .span = (uint8_t)span,
					     .dropped = dropped};
}

/* Adds what a token means. */
static void token_add(struct normal *ret, uint8_t *text, size_t source, const struct token *t,
		      unsigned *breaks)
{
	bool is_break = t->count == 1 && normal_is_break((uint8_t)t->bytes);
	if (t->len > 1)
		ret->escapes = true;
	if (is_break && *breaks < NORMAL_BREAKS_MAX) {
		++*breaks;
		mark(ret, source + t->len, 1, t->len > 1);
		return;
	}
	if (!is_break)
		*breaks = 0;
	for (unsigned i = 0; i < t->count; i++) {
		if (t->len > 1)
			mark(ret, source, t->len, false);
		text[ret->len++] = (uint8_t)(t->bytes >> 8 * i);
	}
	if (t->len > 1)
		mark(ret, source + t->len, 1, false);
}

void normalise(const uint8_t *source, size_t n, bool final, const struct normal_room *room,
	       struct normal *ret)
{
	size_t plain = plain_length(source, n), r = 0;
	unsigned breaks = 0;
	*ret = (struct normal){.text = source, .len = plain, .marks = room->marks, .done = plain};
	if (plain == n)
		return;
	ret->text = room->text;
	ret->len = 0;
	memcpy(room->text, source, plain);
	for (;;) {
		ret->len += plain;
		r += plain;
		if (plain && source[r - 1])
			breaks = 0;
		if (r == n)
			break;
		struct token t = token_read(source + r, n - r, final);
		if (!t.len)
			break;
		token_add(ret, room->text, r, &t, &breaks);
		r += t.len;
		plain = breaks == NORMAL_BREAKS_MAX
				? zeros_copy(source + r, n - r, room->text + ret->len)
				: plain_copy(source + r, n - r, room->text + ret->len);
	}
	ret->done = r;
}

/* The last mark that is not behind, by its place in the text or in the source; NULL: none. */
static const struct normal_mark *mark_before(const struct normal *n, size_t place, bool source)
{
	size_t low = 0, high = n->count;
	while (low < high) {
		size_t mid = (low + high) / 2;
		const struct normal_mark *m = &n->marks[mid];
		if ((source ? m->source : m->at) <= place)
			low = mid + 1;
		else
			high = mid;
	}
	return low ? &n->marks[low - 1] : NULL;
}

void normal_source(const struct normal *n, size_t at, size_t *ret_from, size_t *ret_to)
{
	const struct normal_mark *m = mark_before(n, at, false);
	size_t from = at, span = 1;
	if (m && m->at == at) {
		from = m->source;
		span = m->span;
	} else if (m) {
		from = m->source + m->span + (at - m->at - 1);
	}
	*ret_from = from;
	*ret_to = from + span;
}

size_t normal_token(const struct normal *n, size_t source)
{
	const struct normal_mark *m = mark_before(n, source, true);
	return m && source < (size_t)m->source + m->span ? m->source : source;
}
