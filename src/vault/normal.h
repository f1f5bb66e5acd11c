/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text in normal form: percent-encoding, the escapes of strings in JSON and scripts, and character
 * references of HTML decoded, once and in any mixture, line breaks and NULs dropped, with the way
 * back to the bytes that spelled it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NORMAL_BREAKS_MAX 3 /* dropped in a row; a further one is a byte like others */

/* What may stand between the characters of a value: line breaks, and the zeros of UTF-16 and
 * UTF-32.
 */
static inline bool normal_is_break(uint8_t c)
{
	return c == '\n' || c == '\r' || !c;
}

/* The byte at is spelled by span bytes at source, and those behind it, up to the next mark, by one
 * each. */
struct normal_mark {
	uint32_t at, source;
	uint8_t span;
	bool dropped; /* the source has an escape before it that stands for nothing */
};

struct normal {
	const uint8_t *text; /* the source itself where nothing in it is special */
	size_t len;
	struct normal_mark *marks;
	size_t count;
	bool escapes; /* some were decoded */
	size_t done;  /* bytes of the source that text is of; the rest is an unfinished escape */
};

/* Where normalise() may write, for sources of some length: as many bytes, and one mark more. */
struct normal_room {
	uint8_t *text;
	struct normal_mark *marks;
};

/* final: nothing follows, so that what looks unfinished is none. n <= UINT32_MAX. The result
 * borrows source and room. */
void normalise(const uint8_t *source, size_t n, bool final, const struct normal_room *room,
	       struct normal *ret);

/* The bytes of the source that spelled the one at: from, and behind the last of them. */
void normal_source(const struct normal *n, size_t at, size_t *ret_from, size_t *ret_to);

/* The beginning of the escape that the byte of the source is in, or its own place. */
size_t normal_token(const struct normal *n, size_t source);
