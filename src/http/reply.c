/* SPDX-License-Identifier: Apache-2.0 */
/* Whole bodies: small responses in one call, request bodies collected up to a limit. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "http/exchange.h"

#define ERROR_TEXT_MAX   1024 /* bytes of a message, cut past that */
#define STATUS_TOO_LARGE 413
#define STATUS_INTERNAL  500

void http_exchange_reply(struct http_exchange *x, unsigned status, const char *content_type,
			 const void *body, size_t n)
{
	struct http_field type = {.name = "Content-Type", .value = content_type};
	struct http_fields fields = {.list = &type, .count = content_type ? 1 : 0};
	http_exchange_whole(x);
	if (http_exchange_start(x, status, &fields, HTTP_LENGTH, n) < 0 ||
	    http_exchange_write(x, body, n) < 0)
		http_exchange_abort(x);
	else
		http_exchange_end(x);
}

/* Writes s as the inside of a JSON string; bytes that are not UTF-8 become question marks. */
static void json_escape(struct buf *out, const char *s)
{
	bool utf8 = str_is_utf8(s, strlen(s));
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;
		if (c == '"' || c == '\\')
			buf_printf(out, "\\%c", c);
		else if (c < 0x20)
			buf_printf(out, "\\u%04x", c);
		else
			buf_append(out, c >= 0x80 && !utf8 ? "?" : s, 1);
	}
}

void http_exchange_reply_error(struct http_exchange *x, unsigned status, const char *fmt, ...)
{
	char text[ERROR_TEXT_MAX];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);

	auto_buf struct buf body;
	buf_init(&body, ERROR_TEXT_MAX * 6 + 64);
	buf_printf(&body, "{\"code\":%u,\"message\":\"", status);
	json_escape(&body, text);
	if (buf_append_str(&body, "\"}\n") < 0) /* for a person with curl */
		http_exchange_abort(x);
	else
		http_exchange_reply(x, status, "application/json", body.data, body.len);
}

struct collect {
	struct http_exchange *x;
	struct buf body;
	size_t max;
	void (*done)(void *user, struct http_exchange *x, const char *body, size_t n);
	void (*gone)(void *user);
	void *user;
};

static void collect_free(void *owned)
{
	struct collect *c = owned;
	buf_done(&c->body);
	free(c);
}

static void collect_gone(void *user)
{
	struct collect *c = user;
	if (c->gone)
		c->gone(c->user);
}

/* Answers; the user hears of it as of a peer that left. */
static void collect_refuse(struct collect *c, unsigned status, const char *text)
{
	void (*gone)(void *) = c->gone;
	void *user = c->user;
	http_exchange_reply_error(c->x, status, "%s", text);
	if (gone)
		gone(user);
}

static void collect_too_large(struct collect *c)
{
	char text[80];
	snprintf(text, sizeof(text), "the request body is larger than %zu bytes", c->max);
	collect_refuse(c, STATUS_TOO_LARGE, text);
}

static void collect_body(void *user, const uint8_t *p, size_t n)
{
	struct collect *c = user;
	const struct http_head *head = http_exchange_head(c->x);
	bool declared = head->framing == HTTP_LENGTH && head->length > c->max;
	if (declared || n > c->max - c->body.len)
		collect_too_large(c);
	else if (buf_append(&c->body, p, n) < 0)
		collect_refuse(c, STATUS_INTERNAL, "no memory for the request body");
}

static void collect_end(void *user)
{
	struct collect *c = user;
	size_t n = c->body.len;
	char *body = buf_take_str(&c->body);
	if (!body) {
		collect_refuse(c, STATUS_INTERNAL, "no memory for the request body");
		return;
	}
	c->done(c->user, c->x, body, n);
	explicit_bzero(body, n);
	free(body);
}

static const struct http_exchange_ops collect_ops = {
	.body = collect_body,
	.body_end = collect_end,
	.gone = collect_gone,
};

void http_exchange_collect(struct http_exchange *x, size_t max,
			   void (*done)(void *user, struct http_exchange *x, const char *body,
					size_t n),
			   void (*gone)(void *user), void *user)
{
	struct collect *c = calloc(1, sizeof(*c));
	if (!c) {
		http_exchange_reply_error(x, STATUS_INTERNAL, "no memory for the request body");
		if (gone)
			gone(user);
		return;
	}
	*c = (struct collect){.x = x, .max = max, .done = done, .gone = gone, .user = user};
	buf_init_secret(&c->body, max);
	http_exchange_own(x, c, collect_free);
	http_exchange_on(x, &collect_ops, c);
	http_exchange_read(x, true);
}
