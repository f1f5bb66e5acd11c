/* SPDX-License-Identifier: Apache-2.0 */
/* Finding values in streams: whatever the spelling, wherever the stream is cut, all of it and
 * nothing else. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "vault/scan.h"

#define TEXT_MAX (1UL << 20)
#define TOKEN    "ghp_0123456789ABCDEFabcdef/+xyz~!"

static struct needles *needles_of(const char *const *values, size_t count)
{
	struct needles *n = needles_new(NULL);
	assert_non_null(n);
	for (size_t i = 0; i < count; i++) {
		needles_next(n);
		assert_int_equal(needles_add(n, values[i], strlen(values[i]), (unsigned)i), 0);
	}
	assert_int_equal(needles_compile(n), 0);
	return n;
}

static struct needles *needles_of_one(const char *value)
{
	return needles_of(&value, 1);
}

static void sink(void *user, const uint8_t *p, size_t n)
{
	assert_int_equal(buf_append(user, p, n), 0);
}

/* All of text, redacted, in pieces: the first ends at cut, the others are of piece bytes. */
static void redact_cut(struct needles *n, const void *text, size_t len, size_t cut, size_t piece,
		       struct buf *out)
{
	struct scan *s = scan_new(n, true);
	const uint8_t *p = text;
	assert_non_null(s);
	buf_init(out, TEXT_MAX);
	assert_int_equal(scan_push(s, p, cut, sink, out, NULL), 0);
	for (size_t at = cut; at < len; at += piece) {
		size_t part = len - at < piece ? len - at : piece;
		assert_int_equal(scan_push(s, p + at, part, sink, out, NULL), 0);
	}
	assert_int_equal(scan_end(s, sink, out, NULL), 0);
	scan_free(s);
}

static void check_cut(struct needles *n, const void *text, const void *want, size_t len, size_t cut,
		      size_t piece)
{
	auto_buf struct buf out;
	redact_cut(n, text, len, cut, piece, &out);
	assert_int_equal(out.len, len);
	if (len)
		assert_memory_equal(out.data, want, len);
}

/* That text becomes want, cut anywhere, and cut everywhere; and that what is not redacted is
 * refused with nothing of a find passed on. */
static void check_redacts(struct needles *n, const void *text, const void *want, size_t len)
{
	for (size_t cut = 0; cut <= len; cut++)
		check_cut(n, text, want, len, cut, len);
	check_cut(n, text, want, len, 0, 1);
	auto_free char *copy = malloc(len + 1);
	bool changes = memcmp(text, want, len) != 0;
	memcpy(copy, text, len);
	assert_int_equal(needles_redact(n, copy, len) > 0, changes);
	assert_memory_equal(copy, want, len);
	assert_int_equal(needles_in(n, text, len, NULL), changes);
}

/* How many bytes a stream passes on that is not redacted. -1: all, nothing is found. */
static ssize_t detect(struct needles *n, const void *text, size_t len, size_t cut,
		      unsigned *ret_index)
{
	auto_buf struct buf out;
	buf_init(&out, TEXT_MAX);
	struct scan *s = scan_new(n, false);
	int r = scan_push(s, text, cut, sink, &out, ret_index);
	if (r == 0)
		r = scan_push(s, (const uint8_t *)text + cut, len - cut, sink, &out, ret_index);
	if (r == 0)
		r = scan_end(s, sink, &out, ret_index);
	ssize_t passed = r == 0 ? -1 : (ssize_t)out.len;
	if (r == 0)
		assert_int_equal(out.len, len);
	else
		assert_int_equal(r, -EACCES);
	if (out.len)
		assert_memory_equal(out.data, text, out.len);
	/* What was found stays so. */
	if (r < 0)
		assert_int_equal(scan_push(s, (const uint8_t *)"x", 1, sink, &out, NULL), -EACCES);
	scan_free(s);
	return passed;
}

/* -- spellings -- */

/* In text, '[' and ']' stand around what is to be hidden, and are left out. */
static void check_marked(struct needles *n, const char *marked)
{
	size_t len = 0, first = SIZE_MAX;
	bool hidden = false;
	auto_free char *text = malloc(strlen(marked) + 1), *want = malloc(strlen(marked) + 1);
	for (const char *c = marked; *c; c++) {
		if (*c == '[' || *c == ']') {
			hidden = *c == '[';
			first = hidden && first == SIZE_MAX ? len : first;
			continue;
		}
		bool line_break = *c == '\n' || *c == '\r';
		text[len] = *c;
		want[len++] = hidden && !line_break ? '*' : *c;
	}
	check_redacts(n, text, want, len);
	for (size_t cut = 0; cut <= len; cut++) {
		ssize_t passed = detect(n, text, len, cut, NULL);
		assert_true(first == SIZE_MAX ? passed == -1
					      : passed >= 0 && passed <= (ssize_t)first);
	}
}

static void each_spelling_is_found(void **state)
{
	(void)state;
	static const char *const cases[] = {
		"[" TOKEN "]",
		"token=[" TOKEN "]&x=1",
		"\"[" TOKEN "]\"",
		/* percent: what encodeURIComponent leaves, everything, both cases of hex, some */
		"?t=[ghp_0123456789ABCDEFabcdef%2F%2Bxyz~!]&",
		"?t=[ghp_0123456789ABCDEFabcdef%2f%2bxyz%7e%21]&",
		"[%67%68%70%5F%30%31%32%33%34%35%36%37%38%39%41%42%43%44%45%46%61%62%63%64%65%66%2F"
		"%2B%78%79%7A%7E%21]%67",
		"[g%68p_0123456789ABCDEF%61bcdef/%2bxyz~!]",
		/* JSON */
		"{\"t\":\"[ghp_0123456789ABCDEFabcdef\\/+xyz~!]\"}",
		"{\"t\":\"[ghp_0123456789ABCDEFabcdef\\/\\u002Bxyz~!]\"}",
		"{\"t\":\"[\\u0067h\\u0070_0123456789ABCDEFabcdef\\u002f+xyz\\u007E!]\"}",
		"{\"a\":\"{\\\"t\\\":\\\"[" TOKEN "]\\\"}\"}",
		/* both */
		"{\"u\":\"https:\\/\\/h\\/?t=[ghp_0123456789ABCDEFabcdef%2F\\u002bxyz~%21]\"}",
		/* scripts */
		"'[ghp_0123456789ABCDEFabcdef\\x2F\\x2bxyz~!]'",
		/* HTML, by number, in either base and case, and by name */
		"<p>[ghp_0123456789ABCDEFabcdef&#47;&#43;xyz~!]</p>",
		"<p>[ghp_0123456789ABCDEFabcdef&#x2F;&#X2b;xyz&#x0007e;&#0033;]</p>",
		"<p>[ghp&lowbar;0123456789ABCDEFabcdef&sol;&plus;xyz~!]&amp;</p>",
		"?a=1&[" TOKEN "]&b",
		"&#x6[" TOKEN "]&#;&#x;&am",
		/* in lines */
		"[ghp_0123456789AB\nCDEFabcdef/+xy\r\nz~!]\n",
		"[ghp_0123456789AB\\nCDEFabcdef/+xyz~!]\\n",
		/* behind what looks like the beginning of an escape */
		"100%[" TOKEN "]",
		"a\\[" TOKEN "]",
		"\\u00[" TOKEN "]",
		/* none */
		"ghp_0123456789ABCDEFabcdef/+xyz~",
		"hp_0123456789ABCDEFabcdef/+xyz~!",
		"ghp_0123456789ABCDEFabcdeF/+xyz~!",
		"ghp_0123456789ABCDEF abcdef/+xyz~!",
		"",
	};
	struct needles *n = needles_of_one(TOKEN);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		check_marked(n, cases[i]);
	needles_put(n);
}

static void url_alphabet(char *s)
{
	for (; *s; s++)
		*s = *s == '+' ? '-' : *s == '/' ? '_' : *s;
}

/* Of base64, all characters are hidden that say something of the value alone. */
static void base64_is_found_at_each_offset(void **state)
{
	(void)state;
	struct needles *n = needles_of_one(TOKEN);
	for (size_t before = 0; before < 9; before++) {
		for (size_t after = 0; after < 4; after++) {
			auto_free char *plain = str_printf("%.*s" TOKEN "%.*s", (int)before,
							   "a?>user:b", (int)after, "?~z>");
			size_t len = strlen(plain), bits = 8 * strlen(TOKEN);
			auto_free char *text = malloc(base64_encoded_len(len) + 1);
			size_t encoded = base64_encode(plain, len, text);
			auto_free char *want = strdup(text);
			size_t from = (8 * before + 5) / 6, to = (8 * before + bits) / 6;
			memset(want + from, '*', to - from);
			check_redacts(n, text, want, encoded);
			url_alphabet(text);
			url_alphabet(want);
			check_redacts(n, text, want, encoded);
		}
	}
	needles_put(n);
}

static void base64_is_found_in_lines_and_escaped(void **state)
{
	(void)state;
	struct needles *n = needles_of_one(">>>~~~?ab>>>~?~c");
	/* Pj4+fn5+P2FiPj4+fj9+Yw== */
	check_marked(n, "[Pj4+fn5+P2FiPj4+fj9+Y]w==");
	check_marked(n, "[Pj4+fn5+\nP2FiPj4+\nfj9+Y]w==\n");
	check_marked(n, "{\"content\":\"[Pj4+fn5+P2FiPj4+\\nfj9+Y]w==\\n\"}");
	check_marked(n, "b=[Pj4%2Bfn5%2BP2FiPj4%2Bfj9%2BY]w%3D%3D");
	check_marked(n, "[Pj4-fn5-P2FiPj4-fj9-Y]w");
	needles_put(n);
}

static void hex_is_found_in_both_cases(void **state)
{
	(void)state;
	struct needles *n = needles_of_one("jklmnopz");
	check_marked(n, "x[6a6b6c6d6e6f707a]y");
	check_marked(n, "0x[6A6B6C6D6E6F707A]0");
	check_marked(n, "6a6b6c6d6e6f707");
	needles_put(n);
}

/* Its zeros stay. */
static void utf16_and_utf32_are_found(void **state)
{
	(void)state;
	static const char text[] = "<" TOKEN ">";
	struct needles *n = needles_of_one(TOKEN);
	for (size_t width = 2; width <= 4; width += 2) {
		for (size_t at = 0; at < width; at += width - 1) {
			char wide[4 * sizeof(text)] = {0}, want[4 * sizeof(text)] = {0};
			for (size_t i = 0; i < strlen(text); i++) {
				bool hidden = i && i + 1 < strlen(text);
				wide[width * i + at] = text[i];
				want[width * i + at] = hidden ? '*' : text[i];
			}
			check_redacts(n, wide, want, width * strlen(text));
		}
	}
	needles_put(n);
}

/* What has escapes, quotes, spaces in itself. */
static void odd_values_are_found(void **state)
{
	(void)state;
	static const struct {
		const char *value, *marked;
	} cases[] = {
		{"sig=ab%2Fcd%3D&x", "[sig=ab%2Fcd%3D&x]"},
		{"sig=ab%2Fcd%3D&x", "\"[sig=ab%2Fcd%3D\\u0026x]\""},
		{"sig=ab%2Fcd%3D&x", "?u=[sig%3Dab%252Fcd%253D%26x]"},
		{"pass\\nword\"7", "[pass\\nword\"7]"},
		{"pass\\nword\"7", "{\"p\":\"[pass\\\\nword\\\"7]\"}"},
		{"pass\\nword\"7", "[pass%5Cnword%227]"},
		{"correct horse", "q=[correct+horse]&"},
		{"correct horse", "q=[correct%20horse]&"},
		{"npm_abcdefgh", "C:\\[npm_abcdefgh]"},
		{"npm_abcdefgh", "\\n[npm_abcdefgh]\\n"},
		{"abcdef0123456789", "%[abcdef0123456789]"},
		{"100%100%", "[100%100%]41"},
		{"it's <7&8>", "[it&#39;s &lt;7&amp;8&gt;]"},
		{"it's <7&8>", "'[it\\'s <7&8>]'"},
		{"key&amp;sol", "[key&amp;sol]"},
		{"key&amp;sol", "[key&amp;amp;sol]"},
		{"caf\xc3\xa9-\xe2\x82\xac-cr\xc3\xa8me", "\"[caf\\u00e9-\\u20AC-cr\\u00e8me]\""},
		{"caf\xc3\xa9-\xe2\x82\xac-cr\xc3\xa8me", "[caf%C3%A9-%e2%82%ac-cr%C3%A8me]"},
		{"-----BEGIN KEY-----\nMIIEvQIB\nADANBgkq\n",
		 "[-----BEGIN KEY-----\nMIIEvQIB\nADANBgkq]\n"},
		{"-----BEGIN KEY-----\nMIIEvQIB\nADANBgkq\n",
		 "\"[-----BEGIN KEY-----\\nMIIEvQIB\\nADANBgkq]\\n\""},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct needles *n = needles_of_one(cases[i].value);
		check_marked(n, cases[i].marked);
		needles_put(n);
	}
}

static void short_values_are_left_out(void **state)
{
	(void)state;
	static const char *const values[] = {"1234567", "%41%42%43"};
	struct needles *n = needles_of(values, 2);
	check_marked(n, "1234567 ABC MTIzNDU2Nw== 31323334353637");
	needles_put(n);
	n = needles_of(NULL, 0);
	check_marked(n, "anything % \\ \n");
	needles_put(n);
}

/* -- several values -- */

static void each_value_is_told_by_its_index(void **state)
{
	(void)state;
	static const char *const values[] = {"first-value-1", "second-value-2", "third-value-3"};
	struct needles *n = needles_of(values, 3);
	for (unsigned i = 0; i < 3; i++) {
		unsigned in = 99, found = 99;
		size_t len = strlen(values[i]);
		assert_true(needles_in(n, values[i], len, &in));
		assert_int_equal(detect(n, values[i], len, 3, &found), 0);
		assert_int_equal(in, i);
		assert_int_equal(found, i);
	}
	needles_put(n);
}

static void one_value_may_begin_like_another(void **state)
{
	(void)state;
	static const char *const values[] = {"abcdefgh", "abcdefghijklmnop", "ghijkl-q-r-s"};
	struct needles *n = needles_of(values, 3);
	check_marked(n, "<[abcdefgh]>");
	check_marked(n, "<[abcdefgh]ijklmno>");
	check_marked(n, "<[abcdefghijklmnop]>");
	check_marked(n, "<[abcdefgh][abcdefghijklmnop]>");
	check_marked(n, "<[abcdefghijkl-q-r-s]>");
	check_marked(n, "[abcdefgh]\\nijklmn[abcdefgh]");
	needles_put(n);
}

static void a_value_may_overlap_itself(void **state)
{
	(void)state;
	struct needles *n = needles_of_one("aabaabaabaab");
	check_marked(n, "b[aabaabaabaabaab]aa");
	check_marked(n, "aabaabaabaa[aabaabaabaab]");
	check_marked(n, "[aabaab%61abaabaab]");
	needles_put(n);
}

static void each_find_is_counted_once(void **state)
{
	(void)state;
	struct needles *n = needles_of_one(TOKEN);
	struct scan *s = scan_new(n, true);
	auto_buf struct buf out;
	buf_init(&out, TEXT_MAX);
	static const char text[] = TOKEN " \\n" TOKEN "%41 " TOKEN;
	assert_int_equal(scan_push(s, (const uint8_t *)text, strlen(text), sink, &out, NULL), 0);
	assert_int_equal(scan_finds(s), 3);
	scan_free(s);
	needles_put(n);
}

/* -- what is held -- */

/* Nothing waits that can't be the beginning of a value: events arrive when they are sent. */
static void only_beginnings_are_held(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		size_t held;
	} cases[] = {
		{"data: {\"x\":1}\n\n", 0},
		{"data: g\n\n", 0},
		{"data: ghp\r\n", 0},
		{"data: ghp_\n", 5},
		{"data: ghp_x", 0},
		{"data: ghp_012", 7},
		{"ghp_012\n\n\n\n\n\n\nghp_0", 5},
		{"50%", 1},
		{"g%6", 3},
		{"50%g", 1},
		{"50% ", 0},
		{"%67%68", 6},
		{TOKEN, 0},
		{"\\u00", 4},
		{"\\x", 2},
		{"\\y", 0},
		{"a=1&b", 0},
		{"a=1&g", 2},
		{"&#x67;hp", 8},
	};
	struct needles *n = needles_of_one(TOKEN);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct scan *s = scan_new(n, true);
		auto_buf struct buf out;
		size_t len = strlen(cases[i].text);
		buf_init(&out, TEXT_MAX);
		scan_push(s, (const uint8_t *)cases[i].text, len, sink, &out, NULL);
		assert_int_equal(scan_held(s), cases[i].held);
		assert_int_equal(out.len, len - cases[i].held);
		scan_free(s);
	}
	needles_put(n);
}

/* The end of a line is passed on, but remembered: what follows is hidden all the same. */
static void a_value_that_goes_on_in_the_next_line_is_found(void **state)
{
	(void)state;
	static const char text[] = "x gh\np_0123456789ABCDEFabcdef/+xyz~!.";
	static const char whole[] = "x **\n*******************************.";
	static const char cut[] = "x gh\n*******************************.";
	struct needles *n = needles_of_one(TOKEN);
	assert_int_equal(strlen(text), strlen(whole));
	for (size_t at = 0; at <= strlen(text); at++)
		check_cut(n, text, at == 5 ? cut : whole, strlen(text), at, strlen(text));
	assert_int_equal(detect(n, text, strlen(text), 5, NULL), 2);
	needles_put(n);
}

/* What is held was never passed on, so it counts for whom is looked for from then on. */
static void what_is_looked_for_may_change_in_between(void **state)
{
	(void)state;
	static const char *const longer[] = {TOKEN,
					     "another-value-that-is-longer-than-the-first-one"};
	struct needles *a = needles_of_one(TOKEN), *b = needles_of(longer, 2),
		       *c = needles_of(NULL, 0);
	struct scan *s = scan_new(a, true);
	auto_buf struct buf out;
	buf_init(&out, TEXT_MAX);
	scan_push(s, (const uint8_t *)TOKEN " ghp_01", strlen(TOKEN) + 7, sink, &out, NULL);
	assert_int_equal(scan_change(s, b), 0);
	scan_push(s, (const uint8_t *)TOKEN + 6, strlen(TOKEN) - 6, sink, &out, NULL);
	scan_push(s, (const uint8_t *)longer[1], 20, sink, &out, NULL);
	assert_int_equal(scan_held(s), 20);
	assert_int_equal(scan_change(s, c), 0);
	scan_push(s, (const uint8_t *)TOKEN, strlen(TOKEN), sink, &out, NULL);
	assert_int_equal(scan_held(s), 0);
	char want[256];
	memset(want, '*', sizeof(want));
	size_t len = 2 * strlen(TOKEN) + 1;
	want[strlen(TOKEN)] = ' ';
	snprintf(want + len, sizeof(want) - len, "%.20s" TOKEN, longer[1]);
	assert_int_equal(out.len, strlen(want));
	assert_memory_equal(out.data, want, out.len);
	scan_free(s);
	needles_put(a);
	needles_put(b);
	needles_put(c);
}

/* A peer that waits for the last bytes gets them; the rest is hidden, or refused, all the same. */
static void what_is_weak_can_be_let_go(void **state)
{
	(void)state;
	static const struct {
		const char *text, *passed, *rest, *redacted;
	} cases[] = {
		{"ask gh", "ask gh", "p_0123456789ABCDEFabcdef/+xyz~!.",
		 "*******************************."},
		{"ask gh", "ask gh", "o.", "o."},
		{"50%", "50%", "67hp_0123456789ABCDEFabcdef/+xyz~!",
		 "**********************************"},
		{"%6", "%6", "", ""},
		{"ask ghp_", "ask ", "", "ghp_"},
		{"ask", "ask", "", ""},
	};
	struct needles *n = needles_of_one(TOKEN);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (unsigned redact = 0; redact < 2; redact++) {
			struct scan *s = scan_new(n, redact);
			auto_buf struct buf out;
			size_t len = strlen(cases[i].text), passed = strlen(cases[i].passed);
			const uint8_t *rest = (const uint8_t *)cases[i].rest;
			bool finds = strchr(cases[i].redacted, '*');
			buf_init(&out, TEXT_MAX);
			scan_push(s, (const uint8_t *)cases[i].text, len, sink, &out, NULL);
			assert_int_equal(scan_is_weak(s), out.len < passed);
			scan_relent(s, sink, &out);
			scan_relent(s, sink, &out);
			assert_int_equal(out.len, passed);
			assert_memory_equal(out.data, cases[i].passed, passed);
			int r = scan_push(s, rest, strlen(cases[i].rest), sink, &out, NULL);
			r = r ? r : scan_end(s, sink, &out, NULL);
			assert_int_equal(r, finds && !redact ? -EACCES : 0);
			assert_int_equal(out.len, r ? passed : passed + strlen(cases[i].redacted));
			if (!r)
				assert_memory_equal(out.data + passed, cases[i].redacted,
						    out.len - passed);
			scan_free(s);
		}
	}
	needles_put(n);
}

/* However long somebody goes on with the beginning of a value. */
/* A stream in which text comes, then nothing for a while, then rest. */
static void echo(struct needles *n, const char *text, const char *rest)
{
	auto_buf struct buf out;
	struct scan *s = scan_new(n, true);
	buf_init(&out, TEXT_MAX);
	assert_int_equal(scan_push(s, (const uint8_t *)text, strlen(text), sink, &out, NULL), 0);
	if (rest) {
		assert_int_equal(
			scan_push(s, (const uint8_t *)rest, strlen(rest), sink, &out, NULL), 0);
		assert_int_equal(scan_end(s, sink, &out, NULL), 0);
	}
	scan_free(s);
}

/* As above, with the first len bytes of a value in hexadecimal or not. */
static void echo_beginning(struct needles *n, const char *value, size_t len, bool hex,
			   const char *rest)
{
	char text[256] = "said: ", part[128];
	snprintf(part, sizeof(part), "%.*s", (int)len, value);
	if (hex)
		hex_encode(value, len, text + strlen(text));
	else
		strcat(text, part);
	echo(n, text, rest);
}

#define SECRET_TOKEN "sk-ant-api03-hR5tYu8iOp2aSdFgH3jKlZxCvBnM"

static void who_guesses_a_value_is_found_out(void **state)
{
	static const char *const rests[] = {"?\n", "", NULL}; /* NULL: he cuts the stream */
	static const char *const values[] = {"qwErtYuiOp4aSdFgH", SECRET_TOKEN};
	(void)state;
	for (size_t v = 0; v < 2; v++)
		for (size_t i = 0; i < 6; i++) {
			struct needles *n = needles_of_one(values[v]);
			size_t known = v ? strlen("sk-ant-api03-") : 0, len = known + 1;
			unsigned index = 0;
			while (!needles_guessed(n, &index)) {
				assert_in_range(++len, 0, known + 8);
				echo_beginning(n, values[v], len, i % 2, rests[i / 2]);
			}
			assert_int_equal(index, 0);
			assert_true(needles_guessed(n, &index)); /* until somebody has seen all */
			index++;
			assert_false(needles_guessed(n, &index));
			index = 0;
			assert_false(needles_guessed(n, &index));
			needles_put(n);
		}
}

static void wrong_guesses_beside_a_value_that_comes_count(void **state)
{
	(void)state;
	const char *value = "qwErtYuiOp4aSdFgH";
	struct needles *n = needles_of_one(value);
	unsigned index = 0;
	for (size_t len = 5; len < 8; len++) {
		auto_free char *rest = str_printf("? and %s\n", value);
		echo_beginning(n, value, len, false, rest);
	}
	assert_true(needles_guessed(n, &index));
	needles_put(n);
}

/* Everything that an honest server may say. */
static void nobody_is_suspected_for_less(void **state)
{
	(void)state;
	static const char *const jwts[] = {
		"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.QmFzZTY0VXJsU2lnbmF0dXJl",
		"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJiIn0.T3RoZXJTaWduYXR1cmU"};
	const char *const values[] = {SECRET_TOKEN, "qwErtYuiOp4aSdFgH", jwts[0]};
	struct needles *n = needles_of(values, 3);
	unsigned index = 0;
	for (size_t v = 0; v < 2; v++)
		for (size_t len = 1; len < strlen(values[v]); len++)
			for (size_t i = 0; i < 2; i++) /* it comes whole, in two parts */
				echo_beginning(n, values[v], len, false, values[v] + len);
	for (size_t len = 1; len <= strlen("sk-ant-api03-") + 4; len++)
		echo_beginning(n, SECRET_TOKEN, len, false, "...\n"); /* which kind it is */
	for (size_t i = 0; i < 100; i++)
		echo_beginning(n, values[1], 8, false, "*********\n"); /* a hint at it */
	for (size_t len = 1; len < strlen(jwts[1]); len++)
		echo_beginning(n, jwts[1], len, false, jwts[1] + len);
	assert_false(needles_guessed(n, &index));
	needles_put(n);
}

/* He who leaves each stream open in which he was right, so that none of them comes to nothing. */
static void who_guesses_in_streams_that_stay_open_is_found_out(void **state)
{
	(void)state;
	static const char value[] = "qwErtYuiOp4aSdFgH";
	struct scan *open[sizeof(value)];
	struct needles *n = needles_of_one(value);
	size_t count = 0;
	unsigned index = 0;
	auto_buf struct buf out;
	buf_init(&out, TEXT_MAX);
	while (!needles_guessed(n, &index)) {
		size_t len = 5 + count;
		assert_in_range(len, 0, 10);
		open[count] = scan_new(n, true);
		assert_int_equal(
			scan_push(open[count++], (const uint8_t *)value, len, sink, &out, NULL), 0);
	}
	assert_int_equal(index, 0);
	while (count)
		scan_free(open[--count]);
	needles_put(n);
}

static void guesses_outlast_the_set_but_not_the_value(void **state)
{
	(void)state;
	const char *value = "qwErtYuiOp4aSdFgH";
	struct needles *n = needles_of_one(value), *next;
	unsigned index = 0;
	echo_beginning(n, value, 5, false, "?");
	echo_beginning(n, value, 6, false, "?");
	next = needles_new(n);
	needles_put(n);
	assert_int_equal(needles_add(next, value, strlen(value), 0), 0);
	assert_int_equal(needles_compile(next), 0);
	needles_forget_guesses(next, 1); /* another's */
	echo_beginning(next, value, 7, false, "?");
	assert_true(needles_guessed(next, &index));
	needles_forget_guesses(next, 0);
	echo_beginning(next, value, 8, false, "?");
	assert_false(needles_guessed(next, &index));
	needles_put(next);
}

static void what_is_held_is_bounded(void **state)
{
	(void)state;
	struct needles *n = needles_of_one(TOKEN);
	struct scan *s = scan_new(n, true);
	size_t most = 0;
	auto_buf struct buf out;
	buf_init(&out, TEXT_MAX);
	for (const char *c = "ghp_0123456789ABCDEFabcdef/+xyz~"; *c; c++) {
		char spelled[64];
		int len = snprintf(spelled, sizeof(spelled), "\\u%04x\\u000a\\u000D", *c);
		scan_push(s, (const uint8_t *)spelled, (size_t)len, sink, &out, NULL);
		most = scan_held(s) > most ? scan_held(s) : most;
	}
	assert_true(most > strlen(TOKEN) && most <= 16 * strlen(TOKEN));
	scan_free(s);
	needles_put(n);
}

/* -- long values -- */

static void fill_random(char *p, size_t n, unsigned *seed)
{
	static const char alphabet[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~+/=";
	for (size_t i = 0; i < n; i++)
		p[i] = alphabet[(size_t)rand_r(seed) % (sizeof(alphabet) - 1)];
}

/* A line as of a log or of JSON, with a token of a kind that ours are of. *ret_cut: behind a few
 * bytes of it, where it is most like ours; or anywhere. */
static size_t honest_line(char *line, size_t room, unsigned *seed, size_t *ret_cut)
{
	static const char *const kinds[] = {"sk-ant-api03-", "key_", "eyJhbGciOiJSUzI1NiJ9.", ""};
	size_t k = (size_t)rand_r(seed) % (sizeof(kinds) / sizeof(kinds[0]));
	size_t len = 16 + (size_t)rand_r(seed) % 16, at;
	char token[128], spelled[256], random[64] = "";
	fill_random(random, len, seed);
	if (rand_r(seed) %
	    2) { /* keys are often of 16 digits: few, so that more is alike by chance */
		hex_encode(random, len / 2, spelled);
		memcpy(random, spelled, len / 2 * 2 + 1);
	}
	snprintf(token, sizeof(token), "%s%s", kinds[k], random);
	snprintf(spelled, sizeof(spelled), "%s", token);
	if (rand_r(seed) % 4 == 0)
		base64_encode(token, strlen(token), spelled);
	else if (rand_r(seed) % 4 == 0)
		hex_encode(token, strlen(token), spelled);
	snprintf(line, room, "{\"at\":%d,\"token\":\"", rand_r(seed));
	at = strlen(line);
	snprintf(line + at, room - at, "%s\"}\n", spelled);
	*ret_cut =
		at + strlen(kinds[k]) * strlen(spelled) / strlen(token) + (size_t)rand_r(seed) % 8;
	if (rand_r(seed) % 4 == 0)
		*ret_cut = (size_t)rand_r(seed) % strlen(line);
	return strlen(line);
}

/* Many streams at once, cut where it is most like a guess, and some of them cut short. The values
 * themselves come whole in between. */
static void honest_text_stops_no_grant(void **state)
{
	(void)state;
	static const char *const values[] = {
		"sk-ant-api03-hR5tYu8iOp2aSdFgH3jKlZxCvBnM", "key_93ab5e10c77f42d8a06b1e95f3c4d287",
		"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.QmFzZTY0VXJsU2lnbmF0dXJl", "correct horse"};
	enum { VALUES = sizeof(values) / sizeof(values[0]), STREAMS = 16, LINES = 300000 };
	struct needles *n = needles_of(values, VALUES);
	struct scan *streams[STREAMS] = {NULL};
	unsigned seed = 11, index = 0;
	auto_buf struct buf out;
	char line[512];
	buf_init(&out, TEXT_MAX);
	for (size_t i = 0; i < LINES; i++) {
		struct scan **s = &streams[(size_t)rand_r(&seed) % STREAMS];
		size_t cut, len = honest_line(line, sizeof(line), &seed, &cut);
		const char *text = i % 50 ? line : values[i / 50 % VALUES];
		if (text != line) {
			len = strlen(text);
			cut = (size_t)rand_r(&seed) % len;
		}
		if (!*s)
			assert_non_null(*s = scan_new(n, true));
		assert_int_equal(scan_push(*s, (const uint8_t *)text, cut, sink, &out, NULL), 0);
		assert_false(needles_guessed(n, &index));
		if (text == line && rand_r(&seed) % 20 == 0)
			scan_free(take_ptr(*s));
		else
			assert_int_equal(scan_push(*s, (const uint8_t *)text + cut, len - cut, sink,
						   &out, NULL),
					 0);
		assert_false(needles_guessed(n, &index));
		buf_consume(&out, out.len);
	}
	for (size_t i = 0; i < STREAMS; i++)
		scan_free(streams[i]);
	assert_false(needles_guessed(n, &index));
	needles_put(n);
}

/* From the first to the last byte, though it is looked for in pieces. */
static void long_value_is_hidden_whole(void **state)
{
	(void)state;
	static const size_t lengths[] = {511, 512, 513, 520, 1021, 1022, 3300, 16384};
	unsigned seed = 7;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		size_t len = lengths[i], cut = len / 3;
		auto_free char *value = calloc(1, len + 1), *want = malloc(len + 2);
		fill_random(value, len, &seed);
		struct needles *n = needles_of_one(value);
		auto_free char *text = str_printf("<%s>", value);
		memset(want, '*', len + 2);
		want[0] = '<';
		want[len + 1] = '>';
		check_cut(n, text, want, len + 2, cut, 700);
		check_cut(n, text, want, len + 2, 0, len + 2);

		auto_free char *encoded = malloc(base64_encoded_len(len + 1) + 1);
		size_t chars = base64_encode(text, len + 1, encoded);
		auto_free char *hidden = malloc(chars);
		memcpy(hidden, encoded, chars);
		size_t to = 8 * (len + 1) / 6;
		memset(hidden + 2, '*', to - 2);
		check_cut(n, encoded, hidden, chars, cut, 700);
		needles_put(n);
	}
}

static void many_long_values_are_held_in_bounds(void **state)
{
	(void)state;
	unsigned seed = 3;
	auto_free char *value = calloc(1, 65536);
	struct needles *n = needles_new(NULL);
	char last[600];
	for (unsigned i = 0; i < 128; i++) {
		fill_random(value, 65535, &seed);
		assert_int_equal(needles_add(n, value, 65535, i), 0);
	}
	assert_int_equal(needles_compile(n), 0);
	snprintf(last, sizeof(last), "%.599s", value);
	unsigned index = 0;
	assert_true(needles_in(n, last, strlen(last), &index));
	assert_int_equal(index, 127);
	last[300]++;
	assert_false(needles_in(n, last, strlen(last), &index));
	needles_put(n);
}

/* -- any value, any spelling -- */

enum mode { RAW, PERCENT, JSON, MIXED, BASE64, BASE64_URL, HEX, HEX_UPPER, MODES };

static bool must_escape(enum mode mode, char c)
{
	if (mode == PERCENT)
		return c == '%' || c == '\\';
	return c == '"' || c == '\\' || (mode == MIXED && c == '%');
}

static size_t spell_escape(enum mode mode, char c, unsigned *seed, char *out)
{
	bool percent = mode == PERCENT || (mode == MIXED && rand_r(seed) % 2);
	if (percent)
		return (size_t)sprintf(out, rand_r(seed) % 2 ? "%%%02x" : "%%%02X", c);
	if (strchr("\"\\/", c) && rand_r(seed) % 2)
		return (size_t)sprintf(out, "\\%c", c);
	return (size_t)sprintf(out, rand_r(seed) % 2 ? "\\u%04x" : "\\u%04X", c);
}

static size_t spell_chars(enum mode mode, const char *value, unsigned *seed, char *out)
{
	size_t n = 0, after_percent = 9;
	unsigned share = (unsigned)rand_r(seed) % 5; /* quarters that are escaped without need */
	for (const char *c = value; *c; c++) {
		/* Nobody escapes the digits behind a '%', but who escapes everything. */
		bool wants =
			(unsigned)rand_r(seed) % 4 < share && (after_percent > 2 || share == 4);
		if (mode != RAW && (wants || must_escape(mode, *c))) {
			n += spell_escape(mode, *c, seed, out + n);
			after_percent = 9;
		} else {
			out[n++] = *c;
			after_percent = *c == '%' ? 1 : after_percent + 1;
		}
	}
	out[n] = '\0';
	return n;
}

/* Appends a spelling; where it is hidden. */
static void spell(enum mode mode, const char *value, unsigned *seed, char *text, size_t *ret_from,
		  size_t *ret_to)
{
	size_t len = strlen(value), at = strlen(text), before = (size_t)rand_r(seed) % 3;
	char *out = text + at;
	char plain[128] = "!!";
	*ret_from = at;
	if (mode <= MIXED) {
		*ret_to = at + spell_chars(mode, value, seed, out);
	} else if (mode <= BASE64_URL) {
		snprintf(plain + before, sizeof(plain) - before, "%s!!", value);
		base64_encode(plain, strlen(plain), out);
		if (mode == BASE64_URL)
			url_alphabet(out);
		*ret_from = at + (8 * before + 5) / 6;
		*ret_to = at + 8 * (before + len) / 6;
	} else {
		hex_encode(value, len, out);
		for (char *c = out; mode == HEX_UPPER && *c; c++)
			*c = *c >= 'a' ? (char)(*c - 'a' + 'A') : *c;
		*ret_to = at + 2 * len;
	}
}

/* One text with some values in some spellings, between words that are none of their beginnings. */
static void check_random(unsigned seed)
{
	char values[3][48], text[4096] = "";
	const char *list[3];
	bool hide[4096] = {false};
	size_t from, to;
	for (size_t i = 0; i < 3; i++) {
		size_t len = 10 + (size_t)rand_r(&seed) % 30;
		for (size_t k = 0; k < len; k++)
			values[i][k] = (char)(0x21 + rand_r(&seed) % 94);
		values[i][0] = (char)('a' + rand_r(&seed) % 26);
		values[i][len - 1] = (char)('a' + rand_r(&seed) % 26);
		values[i][len] = '\0';
		list[i] = values[i];
	}
	struct needles *n = needles_of(list, 3);
	for (unsigned i = 0; i < 4; i++) {
		unsigned filler = (unsigned)rand_r(&seed) % 20;
		for (unsigned k = 0; k < filler; k++)
			sprintf(text + strlen(text), "%c", " \n\"%<\t"[rand_r(&seed) % 6]);
		strcat(text, " ");
		spell((enum mode)(rand_r(&seed) % MODES), values[rand_r(&seed) % 3], &seed, text,
		      &from, &to);
		memset(hide + from, true, to - from);
		strcat(text, " ");
	}
	char want[4096];
	size_t len = strlen(text);
	for (size_t i = 0; i <= len; i++)
		want[i] = hide[i] ? '*' : text[i];
	check_redacts(n, text, want, len);
	needles_put(n);
}

static void any_value_in_any_spelling_is_hidden_at_any_cut(void **state)
{
	(void)state;
	for (unsigned seed = 1; seed <= 400; seed++)
		check_random(seed);
}

/* Not a beginning in sight: what comes goes on as it is, in whatever amounts. */
static void nothing_is_changed_without_a_value(void **state)
{
	(void)state;
	unsigned seed = 11;
	struct needles *n = needles_of_one(TOKEN);
	size_t len = 100000;
	auto_free uint8_t *bytes = malloc(len);
	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)rand_r(&seed);
	for (size_t piece = 1; piece < 70000; piece = piece * 3 + 1)
		check_cut(n, bytes, bytes, len, 17, piece);
	needles_put(n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_spelling_is_found),
		cmocka_unit_test(base64_is_found_at_each_offset),
		cmocka_unit_test(base64_is_found_in_lines_and_escaped),
		cmocka_unit_test(hex_is_found_in_both_cases),
		cmocka_unit_test(utf16_and_utf32_are_found),
		cmocka_unit_test(odd_values_are_found),
		cmocka_unit_test(short_values_are_left_out),
		cmocka_unit_test(each_value_is_told_by_its_index),
		cmocka_unit_test(one_value_may_begin_like_another),
		cmocka_unit_test(a_value_may_overlap_itself),
		cmocka_unit_test(each_find_is_counted_once),
		cmocka_unit_test(only_beginnings_are_held),
		cmocka_unit_test(a_value_that_goes_on_in_the_next_line_is_found),
		cmocka_unit_test(what_is_looked_for_may_change_in_between),
		cmocka_unit_test(what_is_weak_can_be_let_go),
		cmocka_unit_test(who_guesses_a_value_is_found_out),
		cmocka_unit_test(who_guesses_in_streams_that_stay_open_is_found_out),
		cmocka_unit_test(wrong_guesses_beside_a_value_that_comes_count),
		cmocka_unit_test(nobody_is_suspected_for_less),
		cmocka_unit_test(honest_text_stops_no_grant),
		cmocka_unit_test(guesses_outlast_the_set_but_not_the_value),
		cmocka_unit_test(what_is_held_is_bounded),
		cmocka_unit_test(long_value_is_hidden_whole),
		cmocka_unit_test(many_long_values_are_held_in_bounds),
		cmocka_unit_test(any_value_in_any_spelling_is_hidden_at_any_cut),
		cmocka_unit_test(nothing_is_changed_without_a_value),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
