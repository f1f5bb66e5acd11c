/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream is looked at in blocks, each behind what was held of the one before. The search runs
 * over the normal form of a block, and once more over its bytes as they are where escapes were
 * decoded: there a value may begin or end in the middle of what only looks like an escape. What is
 * held begins with a whole escape, so that it is read again as it was, wherever the stream is cut.
 */
#include "vault/scan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vault/needles.h"

#define OPEN_MIN     4 /* bytes that really look like the beginning of a value */
#define OPENINGS_MAX 8 /* of one block that are watched */

struct scan {
	struct needles *needles;
	bool redact, ended; /* ended: something was found and not redacted */
	uint64_t finds;
	uint8_t *held; /* size bytes, needles_hold_max() at least */
	bool *hidden;  /* of those, whether each is part of a find */
	size_t size;
	size_t held_len, passed;               /* of which the first were passed on already */
	bool held_hides;                       /* any is hidden */
	bool weak;                             /* what is held hardly looks like a beginning */
	struct opening openings[OPENINGS_MAX]; /* what is held may be; at: from its beginning */
	size_t opening_count;
};

/* One block while it is looked at. */
struct block {
	const struct needles *needles;
	bool redact;
	const uint8_t *source;
	size_t len;
	bool *hidden;
	bool hides; /* hidden is not all false */
	struct normal normal;
	bool weak; /* nothing at its end is the beginning of a value for OPEN_MIN bytes */
	uint64_t finds;
	unsigned index;          /* of the last one */
	struct opening *awaited; /* of the block before; whole when they are found */
	size_t awaited_count;
	struct opening openings[OPENINGS_MAX];
	size_t opening_count;
};

static void held_free(struct scan *s)
{
	if (s->held)
		explicit_bzero(s->held, s->size);
	free(s->held);
	free(s->hidden);
}

/* What was awaited is not looked for any more: that tells nothing. */
static void scan_await_nothing(struct scan *s)
{
	for (size_t i = 0; i < s->opening_count; i++)
		guesses_await_end(needles_guesses(s->needles), &s->openings[i], false);
	s->opening_count = 0;
}

int scan_change(struct scan *s, struct needles *n)
{
	size_t size = needles_hold_max(n) + 1;
	if (n == s->needles)
		return 0;
	if (size > s->size) {
		uint8_t *held = malloc(size);
		bool *hidden = calloc(size, sizeof(*hidden));
		if (!held || !hidden) {
			free(held);
			free(hidden);
			return -ENOMEM;
		}
		if (s->held_len) {
			memcpy(held, s->held, s->held_len);
			memcpy(hidden, s->hidden, s->held_len * sizeof(*hidden));
		}
		held_free(s);
		s->held = held;
		s->hidden = hidden;
		s->size = size;
	}
	if (s->needles && needles_guesses(n) != needles_guesses(s->needles))
		scan_await_nothing(s);
	needles_put(s->needles);
	s->needles = needles_get(n);
	return 0;
}

struct scan *scan_new(struct needles *n, bool redact)
{
	struct scan *s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->redact = redact;
	if (scan_change(s, n) == 0)
		return s;
	free(s);
	return NULL;
}

void scan_free(struct scan *s)
{
	if (!s)
		return;
	/* A stream that is cut may have told already. */
	for (size_t i = 0; i < s->opening_count; i++)
		guesses_await_end(needles_guesses(s->needles), &s->openings[i], true);
	held_free(s);
	needles_put(s->needles);
	free(s);
}

size_t scan_held(const struct scan *s)
{
	return s->held_len - s->passed;
}

uint64_t scan_finds(const struct scan *s)
{
	return s->finds;
}

/* -- finds -- */

/* The first find is enough where nothing is redacted. */
static bool block_caught(const struct block *b)
{
	return b->finds && !b->redact;
}

/* Hides bytes of the source, but for breaks in between: they are no part of a value, and what is
 * written in lines, or in UTF-16, stays so. */
static bool block_found(struct block *b, size_t from, size_t to, const struct form *f)
{
	bool fresh = !b->redact;
	for (size_t i = 0; i < b->awaited_count; i++)
		if (b->awaited[i].at == from && b->awaited[i].guess == f->guess &&
		    b->awaited[i].piece == f->piece)
			b->awaited[i].whole = true;
	b->index = f->index;
	for (size_t i = from; b->redact && i < to; i++) {
		bool is_break = normal_is_break(b->source[i]);
		fresh |= !is_break && !b->hidden[i];
		b->hidden[i] |= !is_break;
	}
	b->hides = b->redact;
	b->finds += fresh;
	return b->redact;
}

static bool found_normal(void *user, size_t at, const struct form *f)
{
	struct block *b = user;
	size_t from, to, unused;
	normal_source(&b->normal, at, &from, &unused);
	normal_source(&b->normal, at + f->len - 1, &unused, &to);
	return block_found(b, from, to, f);
}

static bool found_plain(void *user, size_t at, const struct form *f)
{
	return block_found(user, at, at + f->len, f);
}

/* Where what shares a byte with an escape of this mark may begin. False: it has none. */
static bool mark_reach(const struct normal_mark *m, size_t longest, size_t *ret_from,
		       size_t *ret_to)
{
	size_t to = m->source + m->span, back = longest + m->span;
	if (m->span == 1 && !m->dropped)
		return false;
	*ret_from = to < back ? 0 : to - back;
	*ret_to = to;
	return true;
}

/* Searches the source for what shares a byte with an escape. As needles_search(). */
static size_t search_around_escapes(struct block *b)
{
	const struct normal_mark *marks = b->normal.marks;
	size_t longest = needles_longest(b->needles), count = b->normal.count;
	size_t searched = 0, from, to, next_from, next_to;
	for (size_t i = 0; i < count && !block_caught(b);) {
		if (!mark_reach(&marks[i++], longest, &from, &to))
			continue;
		for (; i < count; i++) {
			bool reaches = mark_reach(&marks[i], longest, &next_from, &next_to);
			if (reaches && next_from > to)
				break;
			to = reaches ? next_to : to;
		}
		from = from < searched ? searched : from;
		size_t open =
			needles_search(b->needles, b->source, b->len, from, to, found_plain, b);
		if (open < b->len)
			return open;
		searched = to;
	}
	return b->len;
}

/* Notes what the end of the text, from there on, may be the beginning of. */
static void block_note_openings(struct block *b, const uint8_t *text, size_t len, size_t from,
				bool is_normal)
{
	for (size_t p = from, at, unused; p + OPEN_MIN < len; p++) {
		at = p;
		if (is_normal)
			normal_source(&b->normal, p, &at, &unused);
		b->opening_count = needles_openings(b->needles, text + p, len - p, at, b->openings,
						    b->opening_count, OPENINGS_MAX);
	}
}

/* Looks at all of it; how many bytes are clear. */
static size_t block_search(struct block *b, bool final, const struct normal_room *room)
{
	const struct needles *n = b->needles;
	size_t clear, open, unused, max = needles_hold_max(n);
	normalise(b->source, b->len, final, room, &b->normal);
	clear = b->normal.done;
	open = needles_search(n, b->normal.text, b->normal.len, 0, b->normal.len, found_normal, b);
	b->weak = b->normal.len - open < OPEN_MIN;
	if (!final)
		block_note_openings(b, b->normal.text, b->normal.len, open, true);
	if (open < b->normal.len)
		normal_source(&b->normal, open, &clear, &unused);
	if (b->normal.escapes && !block_caught(b)) {
		open = search_around_escapes(b);
		b->weak &= b->len - open < OPEN_MIN;
		if (!final)
			block_note_openings(b, b->source, b->len, open, false);
		if (open < clear)
			clear = normal_token(&b->normal, open);
	}
	if (final)
		return b->len;
	return b->len - clear > max ? b->len - max : clear; /* nobody spells anything so */
}

/* -- passing on -- */

static void pass_stars(size_t n, scan_sink sink, void *user)
{
	static const uint8_t stars[] =
		"****************************************************************";
	while (n) {
		size_t part = n < sizeof(stars) - 1 ? n : sizeof(stars) - 1;
		sink(user, stars, part);
		n -= part;
	}
}

/* Passes on the bytes in [from, to). */
static void block_pass(const struct block *b, size_t from, size_t to, scan_sink sink, void *user)
{
	if (!b->hides && from < to) {
		sink(user, b->source + from, to - from);
		return;
	}
	for (size_t i = from, end; i < to; i = end) {
		bool hidden = b->hidden[i];
		for (end = i + 1; end < to && b->hidden[end] == hidden; end++)
			;
		if (hidden)
			pass_stars(end - i, sink, user);
		else
			sink(user, b->source + i, end - i);
	}
}

/* Whether it ends with a line, which somebody may wait for: it is passed on though its last bytes,
 * hardly, look like the beginning of a value. */
static bool block_ends_line(const struct block *b)
{
	uint8_t last = b->len ? b->source[b->len - 1] : 0;
	return b->redact && b->weak && b->normal.done == b->len && (last == '\n' || last == '\r');
}

/* Keeps what is behind the first len bytes. */
static void scan_hold(struct scan *s, const struct block *b, size_t len)
{
	s->held_len = b->len - len;
	memmove(s->held, b->source + len, s->held_len);
	s->held_hides = false;
	for (size_t i = 0; b->hides && i < s->held_len; i++) {
		s->hidden[i] = b->hidden[len + i];
		s->held_hides |= s->hidden[i];
	}
}

/* What is held and n bytes behind it, together. */
static void scan_join(struct scan *s, struct work *w, const uint8_t *p, size_t n, struct block *ret)
{
	*ret = (struct block){.needles = s->needles,
			      .redact = s->redact,
			      .source = p,
			      .len = n,
			      .hidden = w->hidden};
	if (!s->held_len)
		return;
	memcpy(w->source, s->held, s->held_len);
	if (n)
		memcpy(w->source + s->held_len, p, n);
	ret->source = w->source;
	ret->len = s->held_len + n;
	ret->hides = s->held_hides;
	if (ret->hides)
		memcpy(w->hidden, s->hidden, s->held_len * sizeof(*s->hidden));
}

static void block_done(struct block *b)
{
	if (b->hides)
		memset(b->hidden, 0, b->len * sizeof(*b->hidden));
}

/* Whether the end of the block may still be what was awaited. */
static bool block_awaits(const struct block *b, const struct opening *o)
{
	for (size_t i = 0; i < b->opening_count; i++)
		if (b->openings[i].guess == o->guess && b->openings[i].piece == o->piece &&
		    b->openings[i].at == o->at)
			return true;
	return false;
}

/* Awaits what is held now, and no more what was before: that has come, or not, or is longer. */
static void scan_await(struct scan *s, const struct block *b, size_t clear)
{
	struct opening before[OPENINGS_MAX];
	size_t count = s->opening_count;
	memcpy(before, s->openings, sizeof(before));
	s->opening_count = 0;
	for (size_t i = 0; i < b->opening_count; i++) {
		struct opening o = b->openings[i];
		guesses_await(needles_guesses(s->needles), &o);
		if (o.at < clear) { /* so long that it is held no more */
			guesses_await_end(needles_guesses(s->needles), &o, true);
			continue;
		}
		o.at -= clear;
		s->openings[s->opening_count++] = o;
	}
	for (size_t i = 0; i < count; i++)
		guesses_await_end(needles_guesses(s->needles), &before[i],
				  !before[i].whole && !block_awaits(b, &before[i]));
}

/* n <= SCAN_BLOCK. As scan_push(). */
static int scan_block(struct scan *s, const uint8_t *p, size_t n, bool final, scan_sink sink,
		      void *user, unsigned *ret_index)
{
	struct block b;
	struct work *w = needles_work(s->needles, s->held_len + n);
	if (!w)
		return -ENOMEM;
	scan_join(s, w, p, n, &b);
	b.awaited = s->openings;
	b.awaited_count = s->opening_count;
	size_t passed = s->passed, clear = block_search(&b, final, &w->room);
	size_t to = block_ends_line(&b) ? b.len : clear;
	s->finds += b.finds;
	s->ended = block_caught(&b);
	if (s->ended) {
		s->held_len = s->passed = 0;
		scan_await_nothing(s);
		if (ret_index)
			*ret_index = b.index;
	} else {
		s->weak = b.weak && !final;
		scan_await(s, &b, clear);
		scan_hold(s, &b, clear);
		s->passed = (to > passed ? to : passed) - clear;
		block_pass(&b, passed, to, sink, user);
	}
	block_done(&b);
	needles_work_done(s->needles, w);
	return s->ended ? -EACCES : 0;
}

int scan_push(struct scan *s, const uint8_t *p, size_t n, scan_sink sink, void *user,
	      unsigned *ret_index)
{
	while (n && !s->ended) {
		size_t part = n < SCAN_BLOCK ? n : SCAN_BLOCK;
		int r = scan_block(s, p, part, false, sink, user, ret_index);
		if (r < 0)
			return r;
		p += part;
		n -= part;
	}
	return s->ended ? -EACCES : 0;
}

int scan_end(struct scan *s, scan_sink sink, void *user, unsigned *ret_index)
{
	if (s->ended)
		return -EACCES;
	return s->held_len ? scan_block(s, NULL, 0, true, sink, user, ret_index) : 0;
}

bool scan_is_weak(const struct scan *s)
{
	return s->weak && scan_held(s);
}

void scan_relent(struct scan *s, scan_sink sink, void *user)
{
	struct block b = {.source = s->held, .hidden = s->hidden, .hides = s->held_hides};
	size_t passed = s->passed;
	if (!scan_is_weak(s))
		return;
	s->passed = s->held_len;
	block_pass(&b, passed, s->held_len, sink, user);
}

/* -- whole texts -- */

bool needles_in(struct needles *n, const void *text, size_t len, unsigned *ret_index)
{
	if (len < NEEDLE_MIN)
		return false;
	struct block b = {.needles = n, .source = text, .len = len};
	struct work *w = needles_work(n, len);
	if (w) {
		block_search(&b, true, &w->room);
		needles_work_done(n, w);
	}
	if (ret_index && (b.finds || !w))
		*ret_index = b.index;
	return b.finds || !w;
}

size_t needles_redact(struct needles *n, void *text, size_t len)
{
	uint8_t *bytes = text;
	if (len < NEEDLE_MIN)
		return 0;
	struct work *w = needles_work(n, len);
	if (!w) {
		memset(text, '*', len);
		return 1;
	}
	struct block b = {
		.needles = n, .redact = true, .source = bytes, .len = len, .hidden = w->hidden};
	block_search(&b, true, &w->room);
	for (size_t i = 0; b.hides && i < len; i++)
		if (b.hidden[i])
			bytes[i] = '*';
	block_done(&b);
	needles_work_done(n, w);
	return b.finds;
}
