/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes heads in one canonical form, and chunks. A head is measured and checked in a first pass,
 * so that it goes out whole or not at all; what h1_read would refuse is never written.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "http/h1.h"
#include "http/syntax.h"

#define STATUS_NO_CONTENT 204
#define VERSION           "HTTP/1.1"

/* The lines that are made from framing, length and keep_alive. */
struct closing {
	char text[128];
	size_t n;
	size_t lines;
};

static void closing_add(struct closing *c, const char *line)
{
	size_t n = strlen(line);
	assert(c->n + n <= sizeof(c->text));
	memcpy(c->text + c->n, line, n);
	c->n += n;
	c->lines++;
}

/* Fields that only framing, length and keep_alive may set. */
static bool is_ours(const char *name, size_t n)
{
	return http_same_word(name, n, "connection") || http_same_word(name, n, "content-length") ||
	       http_same_word(name, n, "transfer-encoding");
}

static bool framing_ok(const struct http_head *head)
{
	return head->framing != HTTP_LENGTH || head->length <= INT64_MAX;
}

static void close_head(struct closing *c, const struct http_head *head, bool framed, bool interim)
{
	*c = (struct closing){.n = 0};
	if (framed && head->framing == HTTP_CHUNKED) {
		closing_add(c, "Transfer-Encoding: chunked\r\n");
	} else if (framed && head->framing == HTTP_LENGTH) {
		char line[64];
		snprintf(line, sizeof(line), "Content-Length: %llu\r\n",
			 (unsigned long long)head->length);
		closing_add(c, line);
	}
	if (head->upgrade)
		closing_add(c, "Connection: Upgrade\r\n");
	if (interim || head->upgrade)
		return;
	if (!head->keep_alive || head->framing == HTTP_TO_CLOSE)
		closing_add(c, "Connection: close\r\n");
	else if (head->minor == 0)
		closing_add(c, "Connection: keep-alive\r\n");
}

/* Bytes of the field lines that will be written; -EINVAL for what must not be, -EMSGSIZE past the
 * caps. */
static ssize_t measure_fields(const struct http_fields *fields, size_t more_lines)
{
	size_t bytes = 0, lines = more_lines;
	for (size_t i = 0; i < fields->count; i++) {
		const struct http_field *f = &fields->list[i];
		size_t n = strlen(f->name), len = strlen(f->value);
		if (!http_is_token(f->name, n) || !http_all(f->value, len, HTTP_CHAR_VALUE))
			return -EINVAL;
		if (is_ours(f->name, n))
			continue;
		bytes += n + len + strlen(": \r\n");
		lines++;
	}
	return lines > HTTP_FIELDS_MAX ? -EMSGSIZE : (ssize_t)bytes;
}

/* Into room that was reserved. */
static void put(struct buf *out, const void *s, size_t n)
{
	memcpy(out->data + out->len, s, n);
	out->len += n;
}

/* start: the strings that make up the start line. */
static int write_head(struct buf *out, const char *const start[static 4],
		      const struct http_fields *fields, const struct closing *closing)
{
	size_t start_len = 0;
	for (int i = 0; i < 4; i++)
		start_len += strlen(start[i]);
	ssize_t bytes = measure_fields(fields, closing->lines);
	if (bytes < 0)
		return (int)bytes;
	size_t total = start_len + (size_t)bytes + closing->n + strlen("\r\n");
	if (start_len > HTTP_START_MAX || total > HTTP_HEAD_MAX)
		return -EMSGSIZE;
	int r = buf_reserve(out, total);
	if (r < 0)
		return r;

	for (int i = 0; i < 4; i++)
		put(out, start[i], strlen(start[i]));
	for (size_t i = 0; i < fields->count; i++) {
		const struct http_field *f = &fields->list[i];
		size_t n = strlen(f->name);
		if (is_ours(f->name, n))
			continue;
		put(out, f->name, n);
		put(out, ": ", 2);
		put(out, f->value, strlen(f->value));
		put(out, "\r\n", 2);
	}
	put(out, closing->text, closing->n);
	put(out, "\r\n", 2);
	return 0;
}

static bool request_ok(const struct http_head *head)
{
	if (!head->method || !head->target || head->framing == HTTP_TO_CLOSE ||
	    !http_is_token(head->method, strlen(head->method)) || http_method_barred(head->method))
		return false;

	const char *host = http_fields_get(&head->fields, "Host");
	if (!host || http_fields_count(&head->fields, "Host") != 1 ||
	    !http_destination_ok(head->method, head->target, host, strlen(host)))
		return false;

	const char *expect = http_fields_get(&head->fields, "Expect");
	return !expect || (http_fields_count(&head->fields, "Expect") == 1 &&
			   http_same_word(expect, strlen(expect), "100-continue"));
}

int h1_write_request(struct buf *out, const struct http_head *head)
{
	if (!request_ok(head) || !framing_ok(head))
		return -EINVAL;
	struct closing closing;
	close_head(&closing, head, true, false);
	const char *const start[4] = {head->method, " ", head->target, " " VERSION "\r\n"};
	return write_head(out, start, &head->fields, &closing);
}

int h1_write_response(struct buf *out, const struct http_head *head)
{
	if (head->status < 100 || head->status > 599 || !framing_ok(head))
		return -EINVAL;
	bool interim = head->status < 200;
	struct closing closing;
	close_head(&closing, head, !interim && head->status != STATUS_NO_CONTENT, interim);

	char status[8];
	snprintf(status, sizeof(status), "%u ", head->status);
	const char *const start[4] = {VERSION " ", status, http_reason(head->status), "\r\n"};
	return write_head(out, start, &head->fields, &closing);
}

int h1_write_chunk(struct buf *out, const void *p, size_t n)
{
	assert(n > 0);
	char line[24];
	int len = snprintf(line, sizeof(line), "%zx\r\n", n);
	size_t total;
	if (__builtin_add_overflow(n, (size_t)len + strlen("\r\n"), &total))
		return -EMSGSIZE;
	int r = buf_reserve(out, total);
	if (r < 0)
		return r;
	put(out, line, (size_t)len);
	put(out, p, n);
	put(out, "\r\n", 2);
	return 0;
}

int h1_write_last_chunk(struct buf *out)
{
	return buf_append_str(out, "0\r\n\r\n");
}
