/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. Each value has a dozen forms: what its spellings are in normal form
 * (normal.h), base64 at three offsets in two alphabets, hexadecimal in two cases. A window as long
 * as the shortest form moves over the text. The last four bytes in it say, by a table, how far it
 * can move on before some form could begin where it begins: mostly its whole length, so that few
 * bytes are looked at (Wu and Manber, "A fast algorithm for multi-pattern searching"). Where it
 * can't move, forms with its first four bytes are compared.
 *
 * A long value is cut into pieces, each looked for by itself. They overlap by three bytes, so that
 * those that share a character of base64 with a neighbour are inside of some piece.
 */
#include "vault/needles.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "vault/value.h"

#define VALUE_MAX    (16UL * 1024) /* bytes of a value; what is behind is not looked for */
#define PIECE        512           /* bytes */
#define PIECE_SHARED 3
#define PIECE_FORMS  13
#define WINDOW_MAX   32
#define PREFIX_MAX   16 /* bytes: of the beginnings that kinds of tokens have in common */
#define SECRET_MIN   20 /* bytes that are behind one, at least */
#define FREE_BITS    32 /* of a value, behind such a beginning, that a text may have by chance */
#define GRAM         4  /* bytes that are looked up */
#define SHIFT_BITS   15 /* of the tables' index, at most */
#define SHIFT_FEW    12 /* at least */
#define HEAD_BITS    12
#define GRAMS_MAX    8192        /* windows are kept so short that the table stays mostly empty */
#define SPELLING_MAX 8           /* source bytes that may spell one byte of a form, on average */
#define FORM_MAX     (6 * PIECE) /* bytes of any spelling of a piece */

/* A value by which its guess is found again: in a set, by several indices, and in the next set. */
struct known {
	uint32_t at, len; /* of its first piece, in the text of the needles */
	unsigned index, guess;
	unsigned secret; /* of which it is a spelling */
};

struct needles {
	unsigned refs;
	bool compiled;
	struct guesses *guesses;
	struct needles *before; /* until this one is compiled */
	struct known *known;
	size_t known_count;
	unsigned secret; /* of the values that are added now */
	struct form *forms;
	size_t count, room;
	uint8_t *text; /* of all forms, in pages of its own */
	size_t used, size;
	size_t longest, window;
	unsigned shift_bits;
	uint32_t *sorted; /* forms in the order of their bytes */
	uint8_t shift[1 << SHIFT_BITS];
	uint32_t heads[1 << HEAD_BITS];
	struct work *work; /* NULL while it is lent */
};

/* -- memory -- */

static void wipe_free(void *p, size_t n)
{
	if (p)
		explicit_bzero(p, n);
	free(p);
}

struct needles *needles_new(struct needles *before)
{
	struct needles *n = calloc(1, sizeof(*n));
	if (!n)
		return NULL;
	n->refs = 1;
	n->guesses = before ? guesses_get(before->guesses) : guesses_new();
	if (!n->guesses) {
		free(n);
		return NULL;
	}
	n->before = before ? needles_get(before) : NULL;
	return n;
}

struct needles *needles_get(struct needles *n)
{
	n->refs++;
	return n;
}

static void work_free(struct work *w)
{
	if (!w)
		return;
	wipe_free(w->source, w->room_bytes);
	wipe_free(w->room.text, w->room_bytes);
	free(w->hidden);
	free(w->room.marks);
	free(w);
}

static struct work *work_new(size_t bytes)
{
	struct work *w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	w->room_bytes = bytes;
	w->source = malloc(bytes);
	w->hidden = calloc(bytes, sizeof(*w->hidden));
	w->room.text = malloc(bytes);
	w->room.marks = reallocarray(NULL, bytes + 1, sizeof(*w->room.marks));
	if (!w->source || !w->hidden || !w->room.text || !w->room.marks) {
		work_free(w);
		return NULL;
	}
	return w;
}

struct work *needles_work(struct needles *n, size_t bytes)
{
	if (n->work && n->work->room_bytes >= bytes)
		return take_ptr(n->work);
	return work_new(bytes);
}

void needles_work_done(struct needles *n, struct work *w)
{
	if (n->work || w->room_bytes != SCAN_BLOCK + needles_hold_max(n))
		work_free(w);
	else
		n->work = w;
}

void needles_put(struct needles *n)
{
	if (!n || --n->refs)
		return;
	work_free(n->work);
	needles_put(n->before);
	guesses_put(n->guesses);
	free(n->known);
	pages_free(n->text, n->size);
	wipe_free(n->forms, n->room * sizeof(*n->forms));
	free(n->sorted);
	wipe_free(n, sizeof(*n));
}

bool needles_empty(const struct needles *n)
{
	return !n->count;
}

const uint8_t *needles_text(const struct needles *n, const struct form *f)
{
	return n->text + f->at;
}

size_t needles_longest(const struct needles *n)
{
	return n->longest;
}

size_t needles_hold_max(const struct needles *n)
{
	return SPELLING_MAX * n->longest;
}

/* -- forms -- */

struct piece {
	unsigned index, guess;
	uint16_t number; /* of the pieces of a value */
	size_t len;      /* bytes of the value */
	size_t common;   /* the first of them, which many values have */
};

static int text_reserve(struct needles *n, size_t more)
{
	if (n->size - n->used >= more)
		return 0;
	size_t size = n->size ? 2 * n->size : 16384;
	while (size - n->used < more)
		size *= 2;
	if (size > UINT32_MAX)
		return -ENOMEM;
	uint8_t *text = pages_new(size, NULL);
	if (!text)
		return -ENOMEM;
	if (n->used)
		memcpy(text, n->text, n->used);
	pages_free(n->text, n->size);
	n->text = text;
	n->size = size;
	return 0;
}

/* Among the last ones: spellings of one piece are often the same. */
static bool form_known(const struct needles *n, const uint8_t *p, size_t len)
{
	size_t from = n->count < PIECE_FORMS ? 0 : n->count - PIECE_FORMS;
	for (size_t i = from; i < n->count; i++)
		if (n->forms[i].len == len && !memcmp(n->text + n->forms[i].at, p, len))
			return true;
	return false;
}

static int form_add(struct needles *n, const uint8_t *p, size_t len, const struct piece *of)
{
	if (len < NEEDLE_MIN || form_known(n, p, len))
		return 0;
	if (n->count == n->room) {
		size_t room = n->room ? 2 * n->room : 32;
		struct form *forms = calloc(room, sizeof(*forms));
		if (!forms)
			return -ENOMEM;
		if (n->count)
			memcpy(forms, n->forms, n->count * sizeof(*forms));
		wipe_free(n->forms, n->room * sizeof(*forms));
		n->forms = forms;
		n->room = room;
	}
	int r = text_reserve(n, len);
	if (r < 0)
		return r;
	memcpy(n->text + n->used, p, len);
	n->forms[n->count++] = (struct form){.at = (uint32_t)n->used,
					     .len = (uint32_t)len,
					     .index = of->index,
					     .guess = of->guess,
					     .piece = of->number,
					     .bits = (uint16_t)(8 * of->len),
					     .common = (uint16_t)(8 * of->common)};
	n->used += len;
	if (len > n->longest)
		n->longest = len;
	return 0;
}

/* What is written while forms are made; all of it spells the value. */
struct draft {
	uint8_t spelled[FORM_MAX + 1], normal[FORM_MAX + 1]; /* with a NUL */
	struct normal_mark marks[FORM_MAX + 1];
};

/* Adds the normal form of len bytes of d->spelled. */
static int form_add_normal(struct needles *n, struct draft *d, size_t len, const struct piece *of)
{
	struct normal_room room = {.text = d->normal, .marks = d->marks};
	struct normal normal;
	normalise(d->spelled, len, true, &room, &normal);
	return form_add(n, normal.text, normal.len, of);
}

/* As JSON writes it, but for what needs no escape: that is the same in normal form. */
static size_t spell_json(const uint8_t *p, size_t len, uint8_t *out)
{
	size_t n = 0;
	for (size_t i = 0; i < len; i++) {
		bool control = p[i] < 0x20;
		if (p[i] == '"' || p[i] == '\\')
			out[n++] = '\\';
		if (control)
			n += (size_t)snprintf((char *)out + n, 7, "\\u%04x", p[i]);
		else
			out[n++] = p[i];
	}
	return n;
}

/* form: as forms do, with '+' for a space. */
static size_t spell_percent(const uint8_t *p, size_t len, bool form, uint8_t *out)
{
	size_t n = 0;
	for (size_t i = 0; i < len; i++) {
		if (form && p[i] == ' ')
			out[n++] = '+';
		else
			n += (size_t)snprintf((char *)out + n, 4, "%%%02x", p[i]);
	}
	return n;
}

/* Each way to write it that can be a normal form of its own. Most values have but one. */
static int forms_add_text(struct needles *n, struct draft *d, const uint8_t *p, size_t len,
			  const struct piece *of)
{
	int r = form_add(n, p, len, of);
	memcpy(d->spelled, p, len);
	if (r == 0)
		r = form_add_normal(n, d, len, of);
	if (r == 0)
		r = form_add_normal(n, d, spell_json(p, len, d->spelled), of);
	if (r == 0)
		r = form_add_normal(n, d, spell_percent(p, len, false, d->spelled), of);
	if (r == 0)
		r = form_add_normal(n, d, spell_percent(p, len, true, d->spelled), of);
	return r;
}

/* Characters that depend on the bytes around are left out: those with bits before or behind. */
static int forms_add_base64(struct needles *n, struct draft *d, const uint8_t *p, size_t len,
			    const struct piece *of)
{
	int r = 0;
	for (size_t before = 0; before < 3 && r == 0; before++) {
		size_t from = (8 * before + 5) / 6, to = 8 * (before + len) / 6;
		memset(d->spelled, 0, before);
		memcpy(d->spelled + before, p, len);
		base64_encode(d->spelled, before + len, (char *)d->normal);
		r = form_add(n, d->normal + from, to - from, of);
		for (size_t i = from; i < to; i++)
			d->normal[i] = d->normal[i] == '+'   ? '-'
				       : d->normal[i] == '/' ? '_'
							     : d->normal[i];
		if (r == 0)
			r = form_add(n, d->normal + from, to - from, of);
	}
	return r;
}

static int forms_add_hex(struct needles *n, struct draft *d, const uint8_t *p, size_t len,
			 const struct piece *of)
{
	hex_encode(p, len, (char *)d->normal);
	int r = form_add(n, d->normal, 2 * len, of);
	for (size_t i = 0; i < 2 * len; i++)
		if (d->normal[i] >= 'a')
			d->normal[i] = (uint8_t)(d->normal[i] - 'a' + 'A');
	return r == 0 ? form_add(n, d->normal, 2 * len, of) : r;
}

static int piece_add(struct needles *n, struct draft *d, const uint8_t *p, const struct piece *of)
{
	size_t len = of->len;
	int r = forms_add_text(n, d, p, len, of);
	if (r == 0)
		r = forms_add_base64(n, d, p, len, of);
	return r == 0 ? forms_add_hex(n, d, p, len, of) : r;
}

/* How many of the first bytes others have too: the prefix of a kind of tokens (sk-ant-api03-,
 * ghp_), or what a JWT says; its signature makes it a secret. */
static size_t common_bytes(const uint8_t *p, size_t len)
{
	const uint8_t *dot = memrchr(p, '.', len);
	if (len > 3 && !memcmp(p, "eyJ", 3) && dot && memchr(p, '.', len) != dot)
		return (size_t)(dot - p) + 1;
	for (size_t n = len < PREFIX_MAX ? len : PREFIX_MAX; n; n--)
		if (strchr("-_.:", p[n - 1]) && len - n >= SECRET_MIN)
			return n;
	return 0;
}

static const struct known *find_known(const struct needles *n, const uint8_t *p, size_t len)
{
	for (size_t i = 0; n && i < n->known_count; i++)
		if (n->known[i].len == len && !memcmp(n->text + n->known[i].at, p, len))
			return &n->known[i];
	return NULL;
}

/* The guess of a value: that which it has already, or a new one. */
static int value_know(struct needles *n, const uint8_t *p, size_t len, unsigned index,
		      unsigned *ret_guess)
{
	const struct known *same = find_known(n, p, len);
	if (!same)
		same = find_known(n->before, p, len);
	if (same)
		*ret_guess = same->guess;
	else if (guesses_add(n->guesses, ret_guess) < 0)
		return -ENOMEM;
	struct known *list = reallocarray(n->known, n->known_count + 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	n->known = list;
	if (text_reserve(n, len) < 0)
		return -ENOMEM;
	memcpy(n->text + n->used, p, len);
	list[n->known_count++] = (struct known){.at = (uint32_t)n->used,
						.len = (uint32_t)len,
						.index = index,
						.guess = *ret_guess,
						.secret = n->secret};
	n->used += len;
	return 0;
}

void needles_next(struct needles *n)
{
	n->secret++;
}

int needles_add(struct needles *n, const void *value, size_t len, unsigned index)
{
	const uint8_t *p = value;
	int r = 0;
	assert(!n->compiled);
	if (len < NEEDLE_MIN)
		return 0;
	if (len > VALUE_MAX)
		len = VALUE_MAX;
	struct piece piece = {.index = index, .len = len < PIECE ? len : PIECE};
	if (value_know(n, p, piece.len, index, &piece.guess) < 0)
		return -ENOMEM;
	struct draft *d = malloc(sizeof(*d));
	if (!d)
		return -ENOMEM;
	size_t common = common_bytes(p, len);
	for (size_t at = 0; r == 0; at += PIECE - PIECE_SHARED) {
		if (len <= PIECE)
			at = 0;
		else if (at > len - PIECE)
			at = len - PIECE; /* the last is as long as the others */
		size_t left = common > at ? common - at : 0;
		piece.common = left < piece.len ? left : piece.len;
		r = piece_add(n, d, p + at, &piece);
		piece.number++;
		if (at + PIECE >= len)
			break;
	}
	wipe_free(d, sizeof(*d));
	return r;
}

/* -- the tables -- */

static uint32_t gram(const uint8_t *p)
{
	uint32_t x;
	memcpy(&x, p, sizeof(x));
	return x;
}

static unsigned hash(const uint8_t *p, unsigned bits)
{
	return gram(p) * 0x9e3779b1U >> (32 - bits);
}

static void form_enter(struct needles *n, size_t i)
{
	struct form *f = &n->forms[i];
	const uint8_t *p = needles_text(n, f);
	uint32_t *head = &n->heads[hash(p, HEAD_BITS)];
	f->next = *head;
	*head = (uint32_t)i + 1;
	for (size_t at = 0; at + GRAM <= n->window; at++) {
		uint8_t *shift = &n->shift[hash(p + at, n->shift_bits)];
		size_t away = n->window - GRAM - at;
		if (away < *shift)
			*shift = (uint8_t)away;
	}
}

static int compare(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
	int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
	return order ? order : (a_len > b_len) - (a_len < b_len);
}

static int compare_forms(const void *a, const void *b, void *user)
{
	const struct needles *n = user;
	const struct form *x = &n->forms[*(const uint32_t *)a],
			  *y = &n->forms[*(const uint32_t *)b];
	return compare(needles_text(n, x), x->len, needles_text(n, y), y->len);
}

static size_t window_length(const struct needles *n)
{
	size_t window = WINDOW_MAX;
	for (size_t i = 0; i < n->count; i++)
		if (n->forms[i].len < window)
			window = n->forms[i].len;
	while (window > NEEDLE_MIN && n->count * (window - GRAM) > GRAMS_MAX)
		window--;
	return window;
}

int needles_compile(struct needles *n)
{
	assert(!n->compiled);
	n->sorted = reallocarray(NULL, n->count + 1, sizeof(*n->sorted));
	n->work = work_new(SCAN_BLOCK + needles_hold_max(n));
	if (!n->sorted || !n->work)
		return -ENOMEM;
	for (size_t i = 0; i < n->count; i++)
		n->sorted[i] = (uint32_t)i;
	qsort_r(n->sorted, n->count, sizeof(*n->sorted), compare_forms, n);
	n->window = window_length(n);
	n->shift_bits = SHIFT_FEW;
	while (n->shift_bits < SHIFT_BITS && n->count * n->window * 16 > 1UL << n->shift_bits)
		n->shift_bits++;
	memset(n->shift, (int)(n->window - GRAM + 1), sizeof(n->shift));
	for (size_t i = 0; i < n->count; i++)
		form_enter(n, i);
	n->compiled = true;
	needles_put(take_ptr(n->before));
	return 0;
}

/* -- the search -- */

/* The first in the order of forms that p, all of it, may be the beginning of. */
static size_t first_begun(const struct needles *n, const uint8_t *p, size_t len)
{
	size_t low = 0, high = n->count;
	while (low < high) {
		size_t mid = (low + high) / 2;
		const struct form *f = &n->forms[n->sorted[mid]];
		if (compare(needles_text(n, f), f->len, p, len) <= 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static bool begins_this(const struct needles *n, size_t i, const uint8_t *p, size_t len)
{
	const struct form *f = i < n->count ? &n->forms[n->sorted[i]] : NULL;
	return f && f->len > len && !memcmp(needles_text(n, f), p, len);
}

/* Whether p, all of it, is the beginning of a form. */
static bool begins_form(const struct needles *n, const uint8_t *p, size_t len)
{
	return begins_this(n, first_begun(n, p, len), p, len);
}

/* Compares the forms that may be at p. *ret_open: one of them goes on behind. False: enough. */
static bool compare_here(const struct needles *n, const uint8_t *text, size_t len, size_t at,
			 needles_found found, void *user, bool *ret_open)
{
	const uint8_t *p = text + at;
	size_t here = len - at;
	for (uint32_t i = n->heads[hash(p, HEAD_BITS)]; i;) {
		const struct form *f = &n->forms[i - 1];
		size_t common = f->len < here ? f->len : here;
		if (!memcmp(needles_text(n, f), p, common)) {
			if (common < f->len)
				*ret_open = true;
			else if (!found(user, at, f))
				return false;
		}
		i = f->next;
	}
	return true;
}

size_t needles_search(const struct needles *n, const uint8_t *text, size_t len, size_t from,
		      size_t to, needles_found found, void *user)
{
	size_t at = from, first_open = len;
	if (!n->count)
		return len;
	while (at < to && at + n->window <= len) {
		size_t away = n->shift[hash(text + at + n->window - GRAM, n->shift_bits)];
		if (away) {
			at += away;
			continue;
		}
		bool open = false;
		if (!compare_here(n, text, len, at, found, user, &open))
			return first_open;
		if (open && first_open == len)
			first_open = at;
		at++;
	}
	for (; at < to && at < len && first_open == len; at++)
		if (begins_form(n, text + at, len - at))
			first_open = at;
	return first_open;
}

/* -- guesses -- */

static struct opening *find_opening(struct opening *list, size_t count, const struct opening *o)
{
	for (size_t i = 0; i < count; i++)
		if (list[i].guess == o->guess && list[i].piece == o->piece && list[i].at == o->at)
			return &list[i];
	return NULL;
}

size_t needles_openings(const struct needles *n, const uint8_t *text, size_t len, size_t at,
			struct opening *list, size_t count, size_t max)
{
	for (size_t i = first_begun(n, text, len); begins_this(n, i, text, len); i++) {
		const struct form *f = &n->forms[n->sorted[i]];
		struct opening o = {.guess = f->guess,
				    .piece = f->piece,
				    .bits = (uint16_t)(len * f->bits / f->len),
				    .at = at};
		if (o.bits <= f->common + FREE_BITS)
			continue;
		struct opening *known = find_opening(list, count, &o);
		if (known && o.bits > known->bits)
			known->bits = o.bits;
		else if (!known && count < max)
			list[count++] = o;
	}
	return count;
}

struct guesses *needles_guesses(const struct needles *n)
{
	return n->guesses;
}

/* All spellings of it together, for they tell of each other. */
static bool is_guessed(const struct needles *n, unsigned secret)
{
	size_t failed = 0, all = 0;
	for (size_t i = 0; i < n->known_count; i++)
		if (n->known[i].secret == secret)
			guesses_sum(n->guesses, n->known[i].guess, &failed, &all);
	return failed > GUESSES_MAX || all > AWAITED_MAX;
}

bool needles_guessed(struct needles *n, unsigned *index)
{
	if (!guesses_changed(n->guesses))
		return false;
	for (size_t i = 0; i < n->known_count; i++) {
		if (n->known[i].index < *index || !is_guessed(n, n->known[i].secret))
			continue;
		*index = n->known[i].index;
		return true;
	}
	guesses_seen(n->guesses);
	return false;
}

void needles_forget_guesses(struct needles *n, unsigned index)
{
	for (size_t i = 0; i < n->known_count; i++)
		if (n->known[i].index == index)
			guesses_forget(n->guesses, n->known[i].guess);
}
