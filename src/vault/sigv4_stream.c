/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The aws-chunked form of a body:
 *
 *     SIZE;chunk-signature=64HEX CRLF  DATA CRLF   (any number)
 *     0;chunk-signature=64HEX CRLF                 (SIZE is hex)
 *     name:value CRLF … x-amz-trailer-signature:64HEX CRLF   (where trailers are signed)
 *     CRLF
 *
 * Clients differ in the trailers' ends of lines and in how many empty lines are around them, and
 * servers take them all; none of these bytes is signed, so they pass as they came.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "vault/sigv4.h"

#define SIZE_DIGITS_MAX 8
#define SIGNATURE_LEN   (SIGV4_HEX_SIZE - 1)
#define HEAD_MAX        128         /* bytes of a chunk's head */
#define TRAILERS_MAX    (16 * 1024) /* bytes of all trailers with their empty lines */
#define TRAILER_COUNT   16

static const char chunk_signature[] = ";chunk-signature=";
static const char trailer_signature[] = "x-amz-trailer-signature";

enum state {
	HEAD,     /* held is less than a line */
	DATA,     /* held is a head and less than its data with the line's end */
	TRAILERS, /* held is less than a line */
	TAIL,     /* all is signed, the last line's end is to come */
	END,
	BROKEN,
};

struct sigv4_stream {
	struct sigv4_chain chain;
	bool trailers;
	size_t max; /* bytes of a chunk's data */
	enum state state;
	struct buf held;
	size_t head, size; /* of the chunk, bytes */
	struct buf lines;  /* trailers, each "name:value\n", name in lower case */
	size_t trailer_bytes;
};

struct sigv4_stream *sigv4_stream_new(const struct sigv4_chain *chain, bool trailers, size_t max)
{
	struct sigv4_stream *s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->chain = *chain;
	s->trailers = trailers;
	s->max = max;
	buf_init(&s->held, max + HEAD_MAX + 2 > TRAILERS_MAX ? max + HEAD_MAX + 2 : TRAILERS_MAX);
	buf_init(&s->lines, TRAILERS_MAX);
	return s;
}

void sigv4_stream_free(struct sigv4_stream *s)
{
	if (!s)
		return;
	buf_done(&s->held);
	buf_done(&s->lines);
	explicit_bzero(s, sizeof(*s));
	free(s);
}

static int bad(struct err *e, const char *what)
{
	return err_set(e, EBADMSG, "the aws-chunked body %s", what);
}

/* -- lines -- */

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

static bool is_signature(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (hex_value(p[i]) < 0)
			return false;
	return n == SIGNATURE_LEN;
}

/* Reads the held line of a chunk's head. */
static int read_head(struct sigv4_stream *s, struct err *e)
{
	const uint8_t *p = s->held.data;
	size_t digits = 0, size = 0, n = s->held.len, fixed = sizeof(chunk_signature) - 1;
	for (; digits < n && hex_value(p[digits]) >= 0; digits++) {
		if (digits == SIZE_DIGITS_MAX)
			return bad(e, "has a chunk whose size is too long");
		size = size << 4 | (size_t)hex_value(p[digits]);
	}
	bool ok = digits && n == digits + fixed + SIGNATURE_LEN + 2 && p[n - 2] == '\r' &&
		  !memcmp(p + digits, chunk_signature, fixed) &&
		  is_signature(p + digits + fixed, SIGNATURE_LEN);
	if (!ok)
		return bad(e, "has a chunk without size;chunk-signature=signature before it");
	if (size > s->max)
		return err_set(e, EBADMSG,
			       "the aws-chunked body has a chunk of %zu bytes; the most is %zu, so "
			       "sign smaller ones",
			       size, s->max);
	s->head = n;
	s->size = size;
	return 0;
}

/* The first bytes of a line end that are no part of it. */
static size_t line_end(const uint8_t *p, size_t n)
{
	return n > 1 && p[n - 2] == '\r' ? 2 : 1;
}

static int pass(struct sigv4_stream *s, sigv4_sink sink, void *user)
{
	int r = sink(user, s->held.data, s->held.len);
	buf_consume(&s->held, s->held.len);
	return r;
}

/* -- chunks -- */

static int sign_chunk(struct sigv4_stream *s, sigv4_sink sink, void *user)
{
	int r = sigv4_chain_chunk(&s->chain, s->held.data + s->head, s->size);
	if (r < 0)
		return r;
	memcpy(s->held.data + s->head - 2 - SIGNATURE_LEN, s->chain.previous, SIGNATURE_LEN);
	return pass(s, sink, user);
}

static int chunk_head(struct sigv4_stream *s, sigv4_sink sink, void *user, struct err *e)
{
	int r = read_head(s, e);
	if (r < 0)
		return r;
	if (s->size) {
		s->state = DATA;
		return 0;
	}
	s->state = s->trailers ? TRAILERS : TAIL;
	return sign_chunk(s, sink, user);
}

static int chunk_data(struct sigv4_stream *s, sigv4_sink sink, void *user, struct err *e)
{
	const uint8_t *end = s->held.data + s->head + s->size;
	if (end[0] != '\r' || end[1] != '\n')
		return bad(e, "has a chunk that is longer than its size says");
	s->state = HEAD;
	return sign_chunk(s, sink, user);
}

/* -- trailers -- */

static int line_order(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The lines, which lines holds one behind the other, in the order of their names. */
static int sign_trailers(struct sigv4_stream *s, struct err *e)
{
	auto_free char *text = NULL, *sorted = NULL;
	char *line[TRAILER_COUNT];
	size_t count = 0, n = s->lines.len, at = 0;
	if (buf_append(&s->lines, "", 1) < 0 || !(text = buf_take_str(&s->lines)) ||
	    !(sorted = malloc(n + 1)))
		return err_set(e, ENOMEM, "no memory");
	for (char *p = text, *end; (end = strchr(p, '\n')); p = end + 1) {
		if (count == TRAILER_COUNT)
			return bad(e, "has too many trailers");
		*end = '\0';
		line[count++] = p;
	}
	qsort(line, count, sizeof(line[0]), line_order);
	for (size_t i = 0; i < count; i++) {
		size_t len = strlen(line[i]);
		memcpy(sorted + at, line[i], len);
		sorted[at + len] = '\n';
		at += len + 1;
	}
	int r = sigv4_chain_trailers(&s->chain, sorted, at);
	return r < 0 ? err_set(e, -r, "no memory") : 0;
}

/* Adds a line without its end; colon is within. */
static int keep_trailer(struct sigv4_stream *s, const uint8_t *p, size_t n, size_t colon)
{
	for (size_t i = 0; i < colon; i++) {
		char c = (char)(p[i] >= 'A' && p[i] <= 'Z' ? p[i] + ('a' - 'A') : p[i]);
		if (buf_append(&s->lines, &c, 1) < 0)
			return -ENOMEM;
	}
	size_t value = colon + 1;
	while (value < n && (p[value] == ' ' || p[value] == '\t'))
		value++;
	while (n > value && (p[n - 1] == ' ' || p[n - 1] == '\t'))
		n--;
	if (buf_append(&s->lines, ":", 1) < 0 || buf_append(&s->lines, p + value, n - value) < 0 ||
	    buf_append(&s->lines, "\n", 1) < 0)
		return -ENOMEM;
	return 0;
}

static int trailer_line(struct sigv4_stream *s, sigv4_sink sink, void *user, struct err *e)
{
	uint8_t *p = s->held.data;
	size_t n = s->held.len - line_end(p, s->held.len);
	if (!n)
		return pass(s, sink, user);
	const uint8_t *colon = memchr(p, ':', n);
	if (!colon || colon == p || memchr(p, '\0', n))
		return bad(e, "has a trailer that is no name:value");
	size_t name = (size_t)(colon - p);
	int r;
	if (name == sizeof(trailer_signature) - 1 &&
	    !strncasecmp((char *)p, trailer_signature, name)) {
		if (!is_signature(colon + 1, n - name - 1))
			return bad(e, "has a trailer signature that is none");
		r = sign_trailers(s, e);
		memcpy(p + name + 1, s->chain.previous, SIGNATURE_LEN);
		s->state = TAIL;
	} else {
		r = keep_trailer(s, p, n, name);
	}
	return r < 0 ? r : pass(s, sink, user);
}

/* What may follow when all is signed: the end of a line, in trailers more than one. */
static int tail_line(struct sigv4_stream *s, sigv4_sink sink, void *user, struct err *e)
{
	size_t n = s->held.len;
	if (n != line_end(s->held.data, n) || (!s->trailers && n != 2))
		return bad(e, "goes on behind its end");
	if (!s->trailers)
		s->state = END;
	return pass(s, sink, user);
}

/* -- the stream -- */

/* How many of the n bytes at p belong to what is held; *ret_whole: it is whole with them. */
static int take(struct sigv4_stream *s, const uint8_t *p, size_t n, bool *ret_whole, size_t *ret_n,
		struct err *e)
{
	size_t used;
	if (s->state == DATA) {
		size_t lacking = s->head + s->size + 2 - s->held.len;
		used = n < lacking ? n : lacking;
		*ret_whole = used == lacking;
	} else {
		const uint8_t *end = memchr(p, '\n', n);
		used = end ? (size_t)(end - p) + 1 : n;
		*ret_whole = end;
		size_t most = s->state == HEAD ? HEAD_MAX : TRAILERS_MAX - s->trailer_bytes;
		if (s->held.len + used > most)
			return bad(e, "has a line that is too long");
		if (*ret_whole && s->state != HEAD)
			s->trailer_bytes += s->held.len + used;
	}
	*ret_n = used;
	return buf_append(&s->held, p, used) < 0 ? err_set(e, ENOMEM, "no memory") : 0;
}

static int step(struct sigv4_stream *s, sigv4_sink sink, void *user, struct err *e)
{
	switch (s->state) {
	case HEAD:
		return chunk_head(s, sink, user, e);
	case DATA:
		return chunk_data(s, sink, user, e);
	case TRAILERS:
		return trailer_line(s, sink, user, e);
	case TAIL:
		return tail_line(s, sink, user, e);
	case END:
	case BROKEN:
		break;
	}
	return bad(e, "goes on behind its end");
}

static int push(struct sigv4_stream *s, const uint8_t *p, size_t n, sigv4_sink sink, void *user,
		struct err *e)
{
	while (n) {
		bool whole;
		size_t used = 0;
		if (s->state == END || s->state == BROKEN)
			return bad(e, "goes on behind its end");
		int r = take(s, p, n, &whole, &used, e);
		if (r == 0 && whole)
			r = step(s, sink, user, e);
		if (r < 0)
			return r;
		p += used;
		n -= used;
	}
	return 0;
}

int sigv4_stream_push(struct sigv4_stream *s, const uint8_t *p, size_t n, sigv4_sink sink,
		      void *user, struct err *e)
{
	int r = push(s, p, n, sink, user, e);
	if (r < 0)
		s->state = BROKEN;
	return r;
}

int sigv4_stream_end(struct sigv4_stream *s, struct err *e)
{
	bool whole = s->state == END || (s->trailers && s->state == TAIL && !s->held.len);
	return whole ? 0 : bad(e, "was cut short");
}
