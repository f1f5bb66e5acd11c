/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What counts is how many lengths there are, not how often: a right guess is longer than what was
 * known, while a server that shows the first bytes of a key as a hint always shows as many.
 */
#include "vault/guess.h"

#include <errno.h>
#include <stdlib.h>

/* A beginning of this length is held, or was and came to nothing. */
struct level {
	uint16_t piece, bits;
	bool failed;
	unsigned awaited; /* streams that hold it */
};

/* More levels than these are not told apart: they are too many. */
struct guess {
	struct level levels[AWAITED_MAX + 1];
	size_t count;
};

struct guesses {
	unsigned refs;
	bool changed;
	struct guess *list;
	size_t count;
};

struct guesses *guesses_new(void)
{
	struct guesses *g = calloc(1, sizeof(*g));
	if (g)
		g->refs = 1;
	return g;
}

struct guesses *guesses_get(struct guesses *g)
{
	g->refs++;
	return g;
}

void guesses_put(struct guesses *g)
{
	if (!g || --g->refs)
		return;
	free(g->list);
	free(g);
}

int guesses_add(struct guesses *g, unsigned *ret_guess)
{
	struct guess *list = reallocarray(g->list, g->count + 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	g->list = list;
	list[g->count] = (struct guess){0};
	*ret_guess = (unsigned)g->count++;
	return 0;
}

static struct level *find_level(struct guess *g, const struct opening *o)
{
	for (size_t i = 0; i < g->count; i++)
		if (g->levels[i].piece == o->piece && g->levels[i].bits == o->bits)
			return &g->levels[i];
	return NULL;
}

void guesses_await(struct guesses *g, const struct opening *o)
{
	struct guess *guess = &g->list[o->guess];
	struct level *level = find_level(guess, o);
	if (!level && guess->count < sizeof(guess->levels) / sizeof(guess->levels[0])) {
		level = &guess->levels[guess->count++];
		*level = (struct level){.piece = o->piece, .bits = o->bits};
	}
	if (level)
		level->awaited++;
	g->changed = true;
}

void guesses_await_end(struct guesses *g, const struct opening *o, bool failed)
{
	struct guess *guess = &g->list[o->guess];
	struct level *level = find_level(guess, o);
	if (!level || !level->awaited) /* it was forgotten meanwhile */
		return;
	level->awaited--;
	level->failed |= failed;
	if (!level->awaited && !level->failed)
		*level = guess->levels[--guess->count];
	g->changed = true;
}

void guesses_sum(const struct guesses *g, unsigned guess, size_t *failed, size_t *all)
{
	const struct guess *of = &g->list[guess];
	*all += of->count;
	for (size_t i = 0; i < of->count; i++)
		*failed += of->levels[i].failed;
}

void guesses_forget(struct guesses *g, unsigned guess)
{
	g->list[guess].count = 0;
}

bool guesses_changed(const struct guesses *g)
{
	return g->changed;
}

void guesses_seen(struct guesses *g)
{
	g->changed = false;
}
