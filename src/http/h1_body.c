/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Delimits bodies. Data pass by in runs, uncopied; the lines between chunks go byte by byte through
 * one state machine, so that they can be cut anywhere and are never stored. Extensions and trailers
 * must be well formed within their caps, and are dropped.
 * Source: RFC 9112, section 7.1. Stricter: no white space in a chunk-size line.
 */
#include <assert.h>
#include <errno.h>

#include "http/h1.h"
#include "http/syntax.h"

#define SIZE_DIGITS_MAX 16 /* hexadecimal digits that a chunk size may have */

enum chunk_state {
	CHUNK_SIZE, /* the beginning of a chunk-size line; the state of an unread body */
	EXT_NAME_START,
	EXT_NAME,
	EXT_VALUE_START,
	EXT_TOKEN,
	EXT_QUOTED,
	EXT_ESCAPED,
	EXT_QUOTE_END,
	SIZE_LF,
	CHUNK_DATA,
	DATA_CR,
	DATA_LF,
	TRAILER_START,
	TRAILER_NAME,
	TRAILER_VALUE,
	TRAILER_LF,
	LAST_LF,
	CHUNKS_DONE,
	CHUNKS_BAD,
};

void h1_body_init(struct h1_body *b, const struct http_head *head)
{
	*b = (struct h1_body){
		.framing = head->framing,
		.left = head->framing == HTTP_LENGTH ? head->length : 0,
		.state = CHUNK_SIZE,
	};
}

static int hex_value(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

static enum chunk_state after_size_or_extension(uint8_t c)
{
	return c == ';' ? EXT_NAME_START : c == '\r' ? SIZE_LF : CHUNKS_BAD;
}

static enum chunk_state size_step(struct h1_body *b, uint8_t c)
{
	int digit = hex_value(c);
	if (digit < 0)
		return b->line > 1 ? after_size_or_extension(c) : CHUNKS_BAD;
	b->left = b->left << 4 | (unsigned)digit;
	return b->line <= SIZE_DIGITS_MAX && b->left <= INT64_MAX ? CHUNK_SIZE : CHUNKS_BAD;
}

static enum chunk_state extension_step(enum chunk_state state, uint8_t c)
{
	bool token = http_char_is(c, HTTP_CHAR_TOKEN);
	switch ((unsigned)state) {
	case EXT_NAME_START:
		return token ? EXT_NAME : CHUNKS_BAD;
	case EXT_NAME:
		if (c == '=')
			return EXT_VALUE_START;
		return token ? EXT_NAME : after_size_or_extension(c);
	case EXT_VALUE_START:
		if (c == '"')
			return EXT_QUOTED;
		return token ? EXT_TOKEN : CHUNKS_BAD;
	case EXT_TOKEN:
		return token ? EXT_TOKEN : after_size_or_extension(c);
	case EXT_QUOTED:
		if (c == '"')
			return EXT_QUOTE_END;
		if (c == '\\')
			return EXT_ESCAPED;
		return http_char_is(c, HTTP_CHAR_VALUE) ? EXT_QUOTED : CHUNKS_BAD;
	case EXT_ESCAPED:
		return http_char_is(c, HTTP_CHAR_VALUE) ? EXT_QUOTED : CHUNKS_BAD;
	default:
		return after_size_or_extension(c);
	}
}

static enum chunk_state trailer_step(enum chunk_state state, uint8_t c)
{
	switch ((unsigned)state) {
	case TRAILER_START:
		if (c == '\r')
			return LAST_LF;
		return http_char_is(c, HTTP_CHAR_TOKEN) ? TRAILER_NAME : CHUNKS_BAD;
	case TRAILER_NAME:
		if (c == ':')
			return TRAILER_VALUE;
		return http_char_is(c, HTTP_CHAR_TOKEN) ? TRAILER_NAME : CHUNKS_BAD;
	case TRAILER_VALUE:
		if (c == '\r')
			return TRAILER_LF;
		return http_char_is(c, HTTP_CHAR_VALUE) ? TRAILER_VALUE : CHUNKS_BAD;
	case TRAILER_LF:
		return c == '\n' ? TRAILER_START : CHUNKS_BAD;
	default:
		return c == '\n' ? CHUNKS_DONE : CHUNKS_BAD;
	}
}

/* One byte that is no data. b->line counts it. */
static enum chunk_state chunk_step(struct h1_body *b, uint8_t c)
{
	enum chunk_state state = b->state;
	if (++b->line > (state < CHUNK_DATA ? HTTP_CHUNKLINE_MAX : HTTP_TRAILERS_MAX))
		return CHUNKS_BAD;

	switch (state) {
	case CHUNK_SIZE:
		return size_step(b, c);
	case SIZE_LF:
		b->line = 0;
		if (c != '\n')
			return CHUNKS_BAD;
		return b->left ? CHUNK_DATA : TRAILER_START;
	case DATA_CR:
		return c == '\r' ? DATA_LF : CHUNKS_BAD;
	case DATA_LF:
		b->line = 0;
		return c == '\n' ? CHUNK_SIZE : CHUNKS_BAD;
	case EXT_NAME_START:
	case EXT_NAME:
	case EXT_VALUE_START:
	case EXT_TOKEN:
	case EXT_QUOTED:
	case EXT_ESCAPED:
	case EXT_QUOTE_END:
		return extension_step(state, c);
	case TRAILER_START:
	case TRAILER_NAME:
	case TRAILER_VALUE:
	case TRAILER_LF:
	case LAST_LF:
		return trailer_step(state, c);
	case CHUNK_DATA:
	case CHUNKS_DONE:
	case CHUNKS_BAD:
		break;
	}
	return CHUNKS_BAD;
}

/* Eats bytes until data, the end, or the end of input. The count, or -EBADMSG. */
static ssize_t skip_to_data(struct h1_body *b, const uint8_t *p, size_t n)
{
	size_t used = 0;
	while (b->state != CHUNK_DATA && b->state != CHUNKS_DONE) {
		if (b->state == CHUNKS_BAD)
			return -EBADMSG;
		if (used == n)
			break;
		b->state = chunk_step(b, p[used++]);
	}
	return (ssize_t)used;
}

ssize_t h1_body_read(struct h1_body *b, const uint8_t *p, size_t n, const uint8_t **ret_data,
		     size_t *ret_len)
{
	size_t skipped = 0;
	*ret_data = p;
	*ret_len = 0;
	if (b->framing == HTTP_CHUNKED) {
		ssize_t r = skip_to_data(b, p, n);
		if (r < 0 || b->state != CHUNK_DATA)
			return r;
		skipped = (size_t)r;
	}

	size_t run = n - skipped;
	if (b->framing != HTTP_TO_CLOSE) {
		if (run > b->left)
			run = (size_t)b->left;
		b->left -= run;
		if (b->framing == HTTP_CHUNKED && !b->left)
			b->state = DATA_CR;
	}
	*ret_data = run ? p + skipped : p;
	*ret_len = run;
	return (ssize_t)(skipped + run);
}

bool h1_body_done(const struct h1_body *b)
{
	switch (b->framing) {
	case HTTP_NO_BODY:
		return true;
	case HTTP_LENGTH:
		return b->left == 0;
	case HTTP_CHUNKED:
		return b->state == CHUNKS_DONE;
	case HTTP_TO_CLOSE:
		break;
	}
	return false;
}
