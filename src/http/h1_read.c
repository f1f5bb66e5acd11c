/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads HTTP/1.1 heads.
 *
 * head_span() first finds, with memchr() and without judging content, where the head ends: at the
 * empty line, at a line that ends in a bare LF (which is then refused), or at a cap. Nothing is
 * allocated before that, so a peer that dribbles costs no memory. The span is then read once,
 * field by field, never past its end. What it says about host, framing and connection is noted on
 * the way (struct notes) and judged when all is known.
 *
 * A verdict depends on the bytes alone, not on how they were cut: every proper prefix of a head
 * that is accepted is -EAGAIN, and a refusal stays the same whatever follows.
 */
#include <errno.h>
#include <string.h>

#include "http/h1.h"
#include "http/syntax.h"

#define STATUS_NO_CONTENT   204
#define STATUS_NOT_MODIFIED 304

struct cursor {
	const char *p;
	const char *end;
};

struct span {
	const char *s;
	size_t n;
};

/* What the fields say that decide about framing and connection. Values point into the input. */
struct notes {
	unsigned hosts, lengths, encodings, expects; /* how many fields of that name */
	struct span host, length, encoding, expect;  /* the value of the last */
	bool close, keep_alive;                      /* named in Connection */
};

static int refuse(enum h1_fault *ret_fault, enum h1_fault fault)
{
	*ret_fault = fault;
	return -EBADMSG;
}

/* Bytes up to the end of the head, or up to where it can only be refused; -EAGAIN; -EBADMSG. */
static ssize_t head_span(const uint8_t *p, size_t n, enum h1_fault *ret_fault)
{
	if (!n)
		return -EAGAIN;
	if (!http_char_is(p[0], HTTP_CHAR_TOKEN))
		return refuse(ret_fault, H1_BAD_REQUEST);

	size_t pos = 0;
	for (size_t line = 0;; line++) {
		size_t cap = line ? HTTP_HEAD_MAX : HTTP_START_MAX;
		const uint8_t *lf = memchr(p + pos, '\n', (n < cap ? n : cap) - pos);
		if (!lf) {
			enum h1_fault fault = line ? H1_FIELDS_TOO_LARGE : H1_URI_TOO_LONG;
			return n < cap ? -EAGAIN : refuse(ret_fault, fault);
		}
		size_t next = (size_t)(lf - p) + 1;
		bool crlf = next - pos >= 2 && lf[-1] == '\r';
		if (!crlf || next - pos == 2)
			return (ssize_t)next;
		if (line > HTTP_FIELDS_MAX)
			return refuse(ret_fault, H1_FIELDS_TOO_LARGE);
		pos = next;
	}
}

static bool take(struct cursor *c, char expected)
{
	if (c->p == c->end || *c->p != expected)
		return false;
	c->p++;
	return true;
}

static bool take_crlf(struct cursor *c)
{
	return take(c, '\r') && take(c, '\n');
}

static struct span take_run(struct cursor *c, enum http_char class)
{
	const char *start = c->p;
	while (c->p < c->end && http_char_is((uint8_t)*c->p, class))
		c->p++;
	return (struct span){start, (size_t)(c->p - start)};
}

/* "HTTP/" DIGIT "." DIGIT. -EBADMSG with a fault for other text and for versions that we don't
 * speak. */
static int take_version(struct cursor *c, unsigned *ret_minor, enum h1_fault *ret_fault)
{
	static const char prefix[] = "HTTP/";
	size_t n = sizeof(prefix) - 1;
	if ((size_t)(c->end - c->p) < n + 3 || memcmp(c->p, prefix, n) != 0)
		return refuse(ret_fault, H1_BAD_REQUEST);
	char major = c->p[n], dot = c->p[n + 1], minor = c->p[n + 2];
	if (major < '0' || major > '9' || dot != '.' || minor < '0' || minor > '9')
		return refuse(ret_fault, H1_BAD_REQUEST);
	if (major != '1' || minor > '1')
		return refuse(ret_fault, H1_VERSION);
	c->p += n + 3;
	*ret_minor = (unsigned)(minor - '0');
	return 0;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static struct span trim(const char *s, size_t n)
{
	while (n && is_blank(s[n - 1]))
		n--;
	while (n && is_blank(*s)) {
		s++;
		n--;
	}
	return (struct span){s, n};
}

static void note_connection(struct notes *notes, struct span list)
{
	const char *end = list.s + list.n;
	for (const char *p = list.s; p < end; p++) {
		const char *comma = memchr(p, ',', (size_t)(end - p));
		const char *stop = comma ? comma : end;
		struct span option = trim(p, (size_t)(stop - p));
		notes->close |= http_same_word(option.s, option.n, "close");
		notes->keep_alive |= http_same_word(option.s, option.n, "keep-alive");
		p = stop;
	}
}

static void note_field(struct notes *notes, struct span name, struct span value)
{
	switch (name.n) {
	case sizeof("Host") - 1:
		if (http_same_word(name.s, name.n, "host")) {
			notes->hosts++;
			notes->host = value;
		}
		break;
	case sizeof("Expect") - 1:
		if (http_same_word(name.s, name.n, "expect")) {
			notes->expects++;
			notes->expect = value;
		}
		break;
	case sizeof("Connection") - 1:
		if (http_same_word(name.s, name.n, "connection"))
			note_connection(notes, value);
		break;
	case sizeof("Content-Length") - 1:
		if (http_same_word(name.s, name.n, "content-length")) {
			notes->lengths++;
			notes->length = value;
		}
		break;
	case sizeof("Transfer-Encoding") - 1:
		if (http_same_word(name.s, name.n, "transfer-encoding")) {
			notes->encodings++;
			notes->encoding = value;
		}
		break;
	default:
		break;
	}
}

/* The field lines and the empty line, which must be the end of the span. */
static int take_fields(struct cursor *c, struct http_fields *fields, struct notes *notes,
		       enum h1_fault *ret_fault)
{
	while (!take(c, '\r')) {
		struct span name = take_run(c, HTTP_CHAR_TOKEN);
		if (!name.n || !take(c, ':'))
			return refuse(ret_fault, H1_BAD_REQUEST);
		struct span line = take_run(c, HTTP_CHAR_VALUE);
		if (!take_crlf(c))
			return refuse(ret_fault, H1_BAD_REQUEST);

		struct span value = trim(line.s, line.n);
		note_field(notes, name, value);
		int r = http_fields_append(fields, name.s, name.n, value.s, value.n);
		if (r == -E2BIG)
			return refuse(ret_fault, H1_FIELDS_TOO_LARGE);
		if (r < 0)
			return r;
	}
	if (!take(c, '\n') || c->p != c->end)
		return refuse(ret_fault, H1_BAD_REQUEST);
	return 0;
}

/* Digits alone, no leading zero, at most INT64_MAX (many readers hold it in a signed type). */
static bool is_length(struct span text, uint64_t *ret_length)
{
	if (!text.n || (text.s[0] == '0' && text.n > 1))
		return false;
	uint64_t v = 0;
	for (size_t i = 0; i < text.n; i++) {
		if (text.s[i] < '0' || text.s[i] > '9')
			return false;
		if (__builtin_mul_overflow(v, 10u, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(text.s[i] - '0'), &v))
			return false;
	}
	*ret_length = v;
	return v <= INT64_MAX;
}

/* Framing as the fields declare it, HTTP_NO_BODY where they declare none. Source: RFC 9112, 6.3. */
static bool declared_framing(const struct notes *notes, struct http_head *h)
{
	if (notes->lengths + notes->encodings > 1)
		return false;
	if (notes->encodings) {
		static const char chunked[] = "chunked";
		h->framing = HTTP_CHUNKED;
		return h->minor == 1 && notes->encoding.n == sizeof(chunked) - 1 &&
		       memcmp(notes->encoding.s, chunked, sizeof(chunked) - 1) == 0;
	}
	if (notes->lengths) {
		h->framing = HTTP_LENGTH;
		return is_length(notes->length, &h->length);
	}
	h->framing = HTTP_NO_BODY;
	return true;
}

static bool stays_open(const struct notes *notes, unsigned minor)
{
	return !notes->close && (minor == 1 || notes->keep_alive);
}

static int take_request_line(struct cursor *c, struct http_head *h, enum h1_fault *ret_fault)
{
	struct span method = take_run(c, HTTP_CHAR_TOKEN);
	if (!method.n || !take(c, ' '))
		return refuse(ret_fault, H1_BAD_REQUEST);
	struct span target = take_run(c, HTTP_CHAR_TARGET);
	if (!target.n || !take(c, ' '))
		return refuse(ret_fault, H1_BAD_REQUEST);
	int r = take_version(c, &h->minor, ret_fault);
	if (r < 0)
		return r;
	if (!take_crlf(c))
		return refuse(ret_fault, H1_BAD_REQUEST);

	h->method = strndup(method.s, method.n);
	h->target = strndup(target.s, target.n);
	return h->method && h->target ? 0 : -ENOMEM;
}

static int judge_request(struct http_head *h, const struct notes *notes, enum h1_fault *ret_fault)
{
	if (http_method_barred(h->method))
		return refuse(ret_fault, H1_METHOD_NOT_ALLOWED);

	if (notes->hosts > 1 || (!notes->hosts && h->minor == 1) ||
	    !http_destination_ok(h->method, h->target, notes->host.s, notes->host.n))
		return refuse(ret_fault, H1_BAD_REQUEST);

	if (!declared_framing(notes, h))
		return refuse(ret_fault, H1_BAD_REQUEST);
	h->keep_alive = stays_open(notes, h->minor);

	if (notes->expects > 1 ||
	    (notes->expects && !http_same_word(notes->expect.s, notes->expect.n, "100-continue")))
		return refuse(ret_fault, H1_EXPECTATION_FAILED);
	h->expect_continue = notes->expects && h->minor == 1 && h->framing != HTTP_NO_BODY;
	return 0;
}

ssize_t h1_read_request(const uint8_t *p, size_t n, struct http_head *head,
			enum h1_fault *ret_fault)
{
	ssize_t span = head_span(p, n, ret_fault);
	if (span < 0)
		return span;

	struct cursor c = {(const char *)p, (const char *)p + span};
	struct http_head h = {0};
	struct notes notes = {0};
	int r = take_request_line(&c, &h, ret_fault);
	if (r == 0)
		r = take_fields(&c, &h.fields, &notes, ret_fault);
	if (r == 0)
		r = judge_request(&h, &notes, ret_fault);
	if (r < 0) {
		http_head_done(&h);
		return r;
	}
	*head = h;
	return span;
}

/* "HTTP/1.1 200 OK"; the reason is dropped, and the space before it may miss where it is empty. */
static int take_status_line(struct cursor *c, struct http_head *h, enum h1_fault *ret_fault)
{
	int r = take_version(c, &h->minor, ret_fault);
	if (r < 0)
		return r;
	if (!take(c, ' ') || c->end - c->p < 3)
		return refuse(ret_fault, H1_BAD_REQUEST);
	for (int i = 0; i < 3; i++, c->p++) {
		if (*c->p < '0' || *c->p > '9')
			return refuse(ret_fault, H1_BAD_REQUEST);
		h->status = h->status * 10 + (unsigned)(*c->p - '0');
	}
	if (h->status < 100 || h->status > 599)
		return refuse(ret_fault, H1_BAD_REQUEST);
	if (take(c, ' '))
		take_run(c, HTTP_CHAR_VALUE);
	return take_crlf(c) ? 0 : refuse(ret_fault, H1_BAD_REQUEST);
}

/* Source: RFC 9112, section 6.3. */
static int judge_response(struct http_head *h, const struct notes *notes,
			  const char *request_method, enum h1_fault *ret_fault)
{
	if (!declared_framing(notes, h))
		return refuse(ret_fault, H1_BAD_REQUEST);
	h->keep_alive = stays_open(notes, h->minor);

	if (h->status < 200) {
		if (h->framing != HTTP_NO_BODY)
			return refuse(ret_fault, H1_BAD_REQUEST);
		h->keep_alive = true;
		return 0;
	}
	if (h->status == STATUS_NO_CONTENT) {
		/* A peer that declares a body here may send one: nothing after it is to be trusted.
		 */
		if (h->framing == HTTP_CHUNKED || h->length)
			h->keep_alive = false;
		h->framing = HTTP_NO_BODY;
	} else if (h->status == STATUS_NOT_MODIFIED || strcmp(request_method, "HEAD") == 0) {
		h->framing = HTTP_NO_BODY;
	} else if (h->framing == HTTP_NO_BODY) {
		h->framing = HTTP_TO_CLOSE;
		h->keep_alive = false;
	}
	if (h->framing != HTTP_LENGTH)
		h->length = 0;
	return 0;
}

ssize_t h1_read_response(const uint8_t *p, size_t n, const char *request_method,
			 struct http_head *head)
{
	enum h1_fault fault;
	ssize_t span = head_span(p, n, &fault);
	if (span < 0)
		return span;

	struct cursor c = {(const char *)p, (const char *)p + span};
	struct http_head h = {0};
	struct notes notes = {0};
	int r = take_status_line(&c, &h, &fault);
	if (r == 0)
		r = take_fields(&c, &h.fields, &notes, &fault);
	if (r == 0)
		r = judge_response(&h, &notes, request_method, &fault);
	if (r < 0) {
		http_head_done(&h);
		return r;
	}
	*head = h;
	return span;
}
