/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding values in a stream of bytes in whatever spelling: raw, percent-encoded, escaped as in
 * JSON, scripts or HTML, base64 (both alphabets, at any of the three offsets), hexadecimal; split
 * over reads at any place. Percent-encoding and escapes may be mixed, in parts only, and lie over
 * base64 and hex; line breaks in between don't matter, nor do the zeros of UTF-16 and UTF-32.
 *
 * Characters of base64 that neighbours have bits in are left alone. A value is looked for in pieces
 * of 512 bytes, of which any is a find; what is behind its first 16 KiB is not looked for.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define NEEDLE_MIN 8 /* bytes; what is shorter is not looked for, it would be everywhere */

struct needles; /* a compiled set; counted references */

/* before: the set that this one takes the place of, whose indices mean the same, or NULL. NULL: no
 * memory. */
struct needles *needles_new(struct needles *before);

/* value (copied) is reported by index. What is too short is left out. 0 or -ENOMEM. */
int needles_add(struct needles *n, const void *value, size_t len, unsigned index);

/* What is added from now on are spellings of another value: what is guessed of them (below) is
 * counted by itself. */
void needles_next(struct needles *n);

/* After the last needles_add(), before the first scan. 0 or -ENOMEM. */
int needles_compile(struct needles *n);

bool needles_empty(const struct needles *n);    /* nothing is looked for */
struct needles *needles_get(struct needles *n); /* one more reference */
void needles_put(struct needles *n);            /* NULL is fine; wipes with the last */

/* Whether any is in this text as a whole; *ret_index (may be NULL) says which. True also without
 * memory. */
bool needles_in(struct needles *n, const void *text, size_t len, unsigned *ret_index);

/* Overwrites each byte of what is found with '*' (of everything, without memory); the count of
 * finds.
 */
size_t needles_redact(struct needles *n, void *text, size_t len);

/* One stream. What may be the beginning of a value is held back until it is clear. */
struct scan;
/* Does not free the scan. */
typedef void (*scan_sink)(void *user, const uint8_t *p, size_t n);

/* redact: finds are passed on as '*'; else the first find ends the stream, and nothing of it is
   passed on. NULL: no memory. Holds a reference. */
struct scan *scan_new(struct needles *n, bool redact);
void scan_free(struct scan *s); /* NULL is fine; wipes what is held */

/* Looks for others from now on, also in what is held. 0, -ENOMEM. */
int scan_change(struct scan *s, struct needles *n);

/* Passes on what is clear, in any number of calls of sink, in order, each byte once. 0; -EACCES: a
   value was found in a stream that is not redacted (*ret_index, may be NULL); -ENOMEM, when called
   from within a sink of the same needles. */
int scan_push(struct scan *s, const uint8_t *p, size_t n, scan_sink sink, void *user,
	      unsigned *ret_index);

/* The stream is at its end: passes on what was held. As scan_push(). */
int scan_end(struct scan *s, scan_sink sink, void *user, unsigned *ret_index);

size_t scan_held(const struct scan *s); /* bytes */

/*
 * What is held tells who waits for it that it is the beginning of a value, and somebody who has a
 * server echo what he sends can find a value so, piece by piece. But each right guess is a
 * beginning of a length that there was not before, and comes to nothing, or stays held in a stream
 * that he leaves open. Past a few of them a value counts as guessed. What begins many values (a
 * token's prefix, the head of a JWT) is no guess; nor is anything of up to four bytes behind that.
 * The same value under several indices is guessed for all of them, and what was guessed of it is
 * still known in a set that takes the place of this one.
 */

/* The first index from *index on of which a value counts as guessed: *index is that then. False:
 * there is none, or nothing has changed since that was said last. */
bool needles_guessed(struct needles *n, unsigned *index);

/* Somebody who may know what was guessed of the values of this index grants them: counts anew. */
void needles_forget_guesses(struct needles *n, unsigned index);

/*
 * Somebody may wait for what is held. Where that is weak, that is, less than four bytes of a
 * value's spelling, relenting passes it on when nothing has come for a while, and remembers it:
 * should the rest come, that is hidden, or found. The end of a line is passed on at once in a
 * redacted stream.
 */
bool scan_is_weak(const struct scan *s);
void scan_relent(struct scan *s, scan_sink sink, void *user);

uint64_t scan_finds(const struct scan *s);
