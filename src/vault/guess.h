/* SPDX-License-Identifier: Apache-2.0 */
/* What was guessed of values (scan.h): beginnings that are held in a stream, and such that were and
 * came to nothing. Counted for each value, however many sets of needles and streams know it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GUESSES_MAX 2 /* beginnings of different lengths that came to nothing */
#define AWAITED_MAX 4 /* of these and of those that are held, together */

/* The beginning of a value, at the end of a text. */
struct opening {
	unsigned guess; /* of the value: what is counted for it */
	uint16_t piece;
	uint16_t bits; /* so much of the piece */
	size_t at;     /* where it begins in the source */
	bool whole;    /* the rest has come */
};

struct guesses; /* of many values, by number; counted references */

struct guesses *guesses_new(void); /* NULL: no memory */
struct guesses *guesses_get(struct guesses *g);
void guesses_put(struct guesses *g); /* NULL is fine */

int guesses_add(struct guesses *g, unsigned *ret_guess); /* another value; 0 or -ENOMEM */

/* It is held; and no more, for its rest has come, or not (failed). */
void guesses_await(struct guesses *g, const struct opening *o);
void guesses_await_end(struct guesses *g, const struct opening *o, bool failed);

/* Adds what there is of one value: how many beginnings failed, and all. */
void guesses_sum(const struct guesses *g, unsigned guess, size_t *failed, size_t *all);
void guesses_forget(struct guesses *g, unsigned guess);

/* Whether any sum may be another since this was set to false. */
bool guesses_changed(const struct guesses *g);
void guesses_seen(struct guesses *g);
