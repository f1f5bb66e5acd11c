/* SPDX-License-Identifier: Apache-2.0 */
/* What needles.c, which knows what to look for, and scan.c, which knows where, share. */
#pragma once

#include "vault/guess.h"
#include "vault/normal.h"
#include "vault/scan.h"

#define SCAN_BLOCK (16UL * 1024) /* bytes of a stream that are looked at together */

/* One spelling of (a piece of) a value, in normal form. */
struct form {
	uint32_t at; /* in the text of the needles */
	uint32_t len;
	uint32_t next; /* with the same hash of its beginning; counted from 1, 0: none */
	unsigned index;
	unsigned guess;  /* of its value: what is counted for it */
	uint16_t piece;  /* of that */
	uint16_t bits;   /* of the value that it spells */
	uint16_t common; /* the first of them, which many values have */
};

/* Room for one block and what was held before it. */
struct work {
	uint8_t *source;
	bool *hidden; /* for each byte of the source: it is part of a find */
	struct normal_room room;
	size_t room_bytes;
};

const uint8_t *needles_text(const struct needles *n, const struct form *f);
size_t needles_longest(const struct needles *n);  /* form; 0: there is none */
size_t needles_hold_max(const struct needles *n); /* bytes of a source that may be held */

/* Tells of each form that is whole in text and begins in [from, to), false ends the search. The
 * first place in there from which on the rest of text is the beginning of a form; len: none. */
typedef bool (*needles_found)(void *user, size_t at, const struct form *f);
size_t needles_search(const struct needles *n, const uint8_t *text, size_t len, size_t from,
		      size_t to, needles_found found, void *user);

/* Of which values text, all of it, is the beginning, but for what says nothing of them: adds to
 * list (max in all), at is for at. The new count. */
size_t needles_openings(const struct needles *n, const uint8_t *text, size_t len, size_t at,
			struct opening *list, size_t count, size_t max);

struct guesses *needles_guesses(const struct needles *n); /* borrowed */

/* Lends the room of the needles, or a new one while that is in use or too small for so many bytes;
 * NULL: no memory. */
struct work *needles_work(struct needles *n, size_t bytes);
void needles_work_done(struct needles *n, struct work *w);
