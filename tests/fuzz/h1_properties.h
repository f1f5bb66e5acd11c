/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must hold for every input of the HTTP/1.1 codec: the verdict and the body do not depend on
 * how the bytes were cut, and what was accepted serialises to a head that reads back as the same.
 * Each view of the input is copied to a block of its exact size, so that AddressSanitizer sees a
 * read past it.
 */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "http/h1.h"

#define PREFIXES_MAX 512 /* prefixes tried; of longer inputs a sample */

static inline void require(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "property violated: %s\n", what);
	abort();
}

static inline uint8_t *exact_copy(const uint8_t *p, size_t n)
{
	uint8_t *copy = calloc(n, 1);
	require(copy || !n, "there is memory");
	if (n)
		memcpy(copy, p, n);
	return copy;
}

struct verdict {
	ssize_t r;
	int fault;
};

/* Reads a head; arg is the reader's own. */
struct reader {
	struct verdict (*read)(const void *arg, const uint8_t *p, size_t n, struct http_head *h);
	const void *arg;
};

static inline struct verdict read_exact(const struct reader *reader, const uint8_t *p, size_t n,
					struct http_head *h)
{
	auto_free uint8_t *copy = exact_copy(p, n);
	return reader->read(reader->arg, copy, n, h);
}

static inline void check_prefix(const struct reader *reader, const uint8_t *p, size_t k,
				const struct verdict *whole)
{
	struct http_head h = {0};
	struct verdict v = read_exact(reader, p, k, &h);
	if (v.r >= 0)
		http_head_done(&h);
	if (v.r == -EAGAIN) {
		require(whole->r < 0 || k < (size_t)whole->r, "a whole head is seen as whole");
		return;
	}
	require(v.r == whole->r && v.fault == whole->fault, "the verdict is that of the prefix");
}

static inline void check_prefixes(const struct reader *reader, const uint8_t *p, size_t n,
				  const struct verdict *whole)
{
	size_t step = n / PREFIXES_MAX + 1;
	for (size_t k = 0; k < n; k += step)
		check_prefix(reader, p, k, whole);
	if (whole->r > 0) {
		check_prefix(reader, p, (size_t)whole->r - 1, whole);
		check_prefix(reader, p, (size_t)whole->r, whole);
	}
}

static inline void check_fields(const struct http_fields *fields)
{
	require(fields->count <= HTTP_FIELDS_MAX, "the count of fields is capped");
	for (size_t i = 0; i < fields->count; i++) {
		const struct http_field *f = &fields->list[i];
		size_t len = strlen(f->value);
		require(*f->name && !strpbrk(f->name, " \t\r\n:,;()<>@\"/[]?={}\\"),
			"a name is a token");
		require(!strpbrk(f->value, "\r\n\x7f"), "a value is one line");
		require(!len || (!strchr(" \t", f->value[0]) && !strchr(" \t", f->value[len - 1])),
			"a value is trimmed");
	}
}

struct body_result {
	size_t consumed;
	size_t len;
	bool done;
	int error;
	uint8_t *data; /* room for the whole input */
};

/* Feeds the body in pieces of the given size, 0: whole. */
static inline struct body_result read_body(const struct http_head *h, const uint8_t *p, size_t n,
					   size_t piece)
{
	struct body_result out = {.data = malloc(n + 1)};
	struct h1_body b;
	h1_body_init(&b, h);
	require(out.data != NULL, "there is memory");
	while (!out.error && !h1_body_done(&b) && out.consumed < n) {
		size_t left = n - out.consumed;
		size_t k = piece && piece < left ? piece : left;
		auto_free uint8_t *copy = exact_copy(p + out.consumed, k);
		const uint8_t *run;
		size_t len;
		ssize_t used = h1_body_read(&b, copy, k, &run, &len);
		if (used < 0) {
			out.error = (int)used;
			break;
		}
		require(used > 0 && (size_t)used <= k, "an unfinished body takes bytes");
		require(len <= (size_t)used, "data are part of what was consumed");
		require(!len || (run >= copy && run + len <= copy + used), "data are in the input");
		memcpy(out.data + out.len, run, len);
		out.len += len;
		out.consumed += (size_t)used;
	}
	out.done = h1_body_done(&b);
	return out;
}

static inline void check_body(const struct http_head *h, const uint8_t *p, size_t n)
{
	static const size_t pieces[] = {1, 2, 7, 1000};
	struct body_result whole = read_body(h, p, n, 0);
	require(!whole.error || !whole.done, "a bad body is never done");
	require(h->framing != HTTP_LENGTH || whole.len <= h->length, "a length is kept");
	require(h->framing != HTTP_TO_CLOSE || !whole.done, "a body to the close has no other end");
	for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
		struct body_result cut = read_body(h, p, n, pieces[i]);
		require(cut.len == whole.len && cut.done == whole.done && cut.error == whole.error,
			"a body is the same in pieces");
		require(cut.error || cut.consumed == whole.consumed,
			"a body ends at the same byte");
		require(!whole.len || memcmp(cut.data, whole.data, whole.len) == 0,
			"a body has the same bytes in pieces");
		free(cut.data);
	}
	free(whole.data);
}

static inline bool is_made_by_writer(const char *name)
{
	return strcasecmp(name, "Connection") == 0 || strcasecmp(name, "Content-Length") == 0 ||
	       strcasecmp(name, "Transfer-Encoding") == 0;
}

static inline void check_same_fields(const struct http_fields *a, const struct http_fields *b)
{
	size_t i = 0, j = 0;
	for (;;) {
		while (i < a->count && is_made_by_writer(a->list[i].name))
			i++;
		while (j < b->count && is_made_by_writer(b->list[j].name))
			j++;
		if (i == a->count || j == b->count)
			break;
		require(strcmp(a->list[i].name, b->list[j].name) == 0 &&
				strcmp(a->list[i].value, b->list[j].value) == 0,
			"a field survives the round trip");
		i++;
		j++;
	}
	require(i == a->count && j == b->count, "all fields survive the round trip");
}

/* Writes h, reads it back and writes that again. may_refuse: -EINVAL is a right answer. */
static inline void check_round_trip(const struct reader *reader, const struct http_head *h,
				    int (*write)(struct buf *, const struct http_head *),
				    bool may_refuse)
{
	auto_buf struct buf first, second;
	buf_init(&first, 1u << 20);
	buf_init(&second, 1u << 20);
	int r = write(&first, h);
	if ((r == -EINVAL && may_refuse) || r == -EMSGSIZE)
		return;
	require(r == 0, "what was accepted can be written");

	struct http_head back = {0};
	struct verdict v = read_exact(reader, first.data, first.len, &back);
	require(v.r == (ssize_t)first.len, "what was written is accepted, to its end");
	require(back.framing == h->framing && back.length == h->length && back.status == h->status,
		"framing survives the round trip");
	require(back.keep_alive == h->keep_alive, "keep-alive survives the round trip");
	require(h->minor == 0 || back.expect_continue == h->expect_continue,
		"the expectation survives the round trip");
	require(!h->method == !back.method && (!h->method || strcmp(h->method, back.method) == 0) &&
			(!h->target || strcmp(h->target, back.target) == 0),
		"the request line survives the round trip");
	check_same_fields(&h->fields, &back.fields);

	back.minor = h->minor;
	require(write(&second, &back) == 0 && first.len == second.len &&
			memcmp(first.data, second.data, first.len) == 0,
		"the canonical form is stable");
	http_head_done(&back);
}
