/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Request heads of HTTP/2. nghttp2 refuses what is malformed by HTTP/2's own rules (order and
 * number of pseudo-headers, upper case, fields of a connection, lengths that differ from the DATA);
 * what the reader of HTTP/1.1 refuses is refused here, by the same grammar, so that a request means
 * the same by either. Source: RFC 9113, section 8.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "http/h1.h"
#include "http/h2_fields.h"
#include "http/h2_state.h"
#include "http/syntax.h"

static bool is_request(const nghttp2_frame *frame)
{
	return frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST;
}

int h2_on_begin_headers(nghttp2_session *s, const nghttp2_frame *frame, void *user)
{
	(void)s;
	struct h2_conn *c = user;
	if (c->dead || c->last)
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	if (frame->hd.type != NGHTTP2_HEADERS)
		return 0;
	c->head_since = h2_now(c);
	if (!is_request(frame))
		return 0;
	return h2_exchange_new(c, frame->hd.stream_id) ? 0 : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static bool set_once(char **where, const uint8_t *value, size_t len)
{
	if (*where || memchr(value, '\0', len))
		return false;
	*where = strndup((const char *)value, len);
	return *where;
}

static bool take_pseudo(struct h2_exchange *x, const char *name, size_t n, const uint8_t *value,
			size_t len)
{
	if (http_same_word(name, n, ":method"))
		return http_is_token((const char *)value, len) && set_once(&x->method, value, len);
	if (http_same_word(name, n, ":scheme"))
		return set_once(&x->scheme, value, len);
	if (http_same_word(name, n, ":authority"))
		return set_once(&x->authority, value, len);
	if (http_same_word(name, n, ":path")) {
		if (len > HTTP_START_MAX)
			x->fault = H1_URI_TOO_LONG;
		return set_once(&x->target, value, len);
	}
	return false;
}

/* Crumbs of a cookie are one field again. Source: RFC 9113, section 8.2.3. */
static int take_cookie(struct h2_exchange *x, const uint8_t *value, size_t len)
{
	int r = x->cookie.len ? buf_append(&x->cookie, "; ", 2) : 0;
	return r < 0 ? r : buf_append(&x->cookie, value, len);
}

static bool take_field(struct h2_exchange *x, struct http_fields *to, const char *name, size_t n,
		       const uint8_t *value, size_t len)
{
	if (!h2_field_ok(name, n, &value, &len))
		return false;
	int r = to == &x->fields && http_same_word(name, n, "cookie")
			? take_cookie(x, value, len)
			: http_fields_append(to, name, n, (const char *)value, len);
	if (r < 0)
		x->fault = H1_FIELDS_TOO_LARGE;
	return true;
}

int h2_on_invalid_header(nghttp2_session *s, const nghttp2_frame *frame, const uint8_t *name,
			 size_t n, const uint8_t *value, size_t len, uint8_t flags, void *user)
{
	(void)s, (void)frame, (void)name, (void)n, (void)value, (void)len, (void)flags, (void)user;
	return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* the stream is reset */
}

int h2_on_header(nghttp2_session *s, const nghttp2_frame *frame, const uint8_t *name, size_t n,
		 const uint8_t *value, size_t len, uint8_t flags, void *user)
{
	(void)s, (void)flags;
	struct h2_conn *c = user;
	if (c->dead || c->last)
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	struct h2_exchange *x = h2_exchange_find(c, frame->hd.stream_id);
	if (!x)
		return 0;
	bool head = is_request(frame);
	x->head_bytes += n + len + H2_FIELD_OVERHEAD;
	if (x->head_bytes > H2_HEAD_LIMIT) {
		h2_conn_calm(c);
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	}
	if (x->head_bytes > HTTP_HEAD_MAX)
		x->fault = H1_FIELDS_TOO_LARGE;
	if (x->fault)
		return 0; /* no byte of it is kept */
	bool ok = n && name[0] == ':' ? head && take_pseudo(x, (const char *)name, n, value, len)
				      : take_field(x, head ? &x->fields : &x->trailers,
						   (const char *)name, n, value, len);
	return ok ? 0 : h2_on_invalid_header(s, frame, name, n, value, len, flags, user);
}

/* -- judging -- */

/* The one name of the host, and nowhere another. */
static bool judge_authority(struct h2_exchange *x)
{
	size_t hosts = http_fields_count(&x->fields, "host");
	const char *host = http_fields_get(&x->fields, "host");
	if (hosts > 1 || (!host && !x->authority))
		return false;
	if (host && x->authority && strcasecmp(host, x->authority) != 0)
		return false;
	if (!x->authority)
		x->authority = strdup(host);
	http_fields_remove(&x->fields, "host");
	return x->authority;
}

static unsigned judge_expect(const struct h2_exchange *x, struct http_head *head)
{
	size_t expects = http_fields_count(&x->fields, "expect");
	const char *expect = http_fields_get(&x->fields, "expect");
	if (expects > 1 || (expects && !http_same_word(expect, strlen(expect), "100-continue")))
		return H1_EXPECTATION_FAILED;
	head->expect_continue = expects && !x->ended_in;
	return 0;
}

static unsigned judge_framing(struct h2_exchange *x, struct http_head *head)
{
	const char *length = http_fields_get(&x->fields, "content-length");
	head->framing = x->ended_in ? HTTP_NO_BODY : HTTP_CHUNKED;
	if (http_fields_count(&x->fields, "content-length") > 1)
		return H1_BAD_REQUEST;
	if (!length)
		return 0;
	head->framing = HTTP_LENGTH;
	if (str_to_u64(length, 0, INT64_MAX, &head->length) < 0)
		return H1_BAD_REQUEST;
	x->brief = head->length <= H2_BRIEF;
	return 0;
}

/* The status of the refusal, 0 for none. */
static unsigned judge(struct h2_exchange *x, struct http_head *head)
{
	if (x->fault)
		return x->fault;
	if (http_method_barred(x->method))
		return H1_METHOD_NOT_ALLOWED;
	bool rooted = x->target[0] == '/' || strcmp(x->target, "*") == 0;
	if (!rooted ||
	    !http_destination_ok(x->method, x->target, x->authority, strlen(x->authority)))
		return H1_BAD_REQUEST;
	unsigned status = judge_framing(x, head);
	return status ? status : judge_expect(x, head);
}

/* Whether it says what every request must; else it is malformed, and its stream an error. */
static bool has_shape(struct h2_exchange *x)
{
	if (x->fault)
		return true;
	if (!x->method)
		return false;
	if (http_method_barred(x->method))
		return true;
	return x->scheme && x->target && strcmp(x->scheme, "https") == 0 && judge_authority(x);
}

/* Gives head what x has gathered. 0, -ENOMEM, -E2BIG. */
static int fill(struct h2_exchange *x, struct http_head *head)
{
	struct http_fields all = {0};
	head->method = take_ptr(x->method);
	head->target = take_ptr(x->target);
	int r = http_fields_append(&all, "host", 4, x->authority, strlen(x->authority));
	if (r == 0 && x->cookie.len)
		r = http_fields_append(&all, "cookie", 6, (const char *)x->cookie.data,
				       x->cookie.len);
	for (size_t i = 0; r == 0 && i < x->fields.count; i++) {
		const struct http_field *f = &x->fields.list[i];
		r = http_fields_append(&all, f->name, strlen(f->name), f->value, strlen(f->value));
	}
	http_fields_done(&x->fields);
	buf_done(&x->cookie);
	head->fields = all;
	return r;
}

static void refuse(struct h2_exchange *x, unsigned status)
{
	struct h2_conn *c = h2_conn_of(x);
	x->stage = H2_OPEN;
	http_exchange_reply_error(&x->base, status, "%s", http_refusal_text(status));
	h2_charge_reset(c);
	if (c->ops->refused)
		c->ops->refused(c->user, status);
}

void h2_request_complete(struct h2_exchange *x)
{
	struct h2_conn *c = h2_conn_of(x);
	struct http_head head = {.minor = 1, .keep_alive = true};
	x->head_bytes = 0; /* from here on: of trailers */
	if (!has_shape(x)) {
		h2_exchange_reset(x, NGHTTP2_PROTOCOL_ERROR);
		h2_charge_reset(c);
		if (c->ops->refused)
			c->ops->refused(c->user, H1_BAD_REQUEST);
		return;
	}
	unsigned status = judge(x, &head);
	if (status) {
		refuse(x, status);
		return;
	}
	int r = fill(x, &head);
	if (r < 0) {
		http_head_done(&head);
		if (r == -E2BIG)
			refuse(x, H1_FIELDS_TOO_LARGE);
		else
			h2_exchange_reset(x, NGHTTP2_INTERNAL_ERROR);
		return;
	}
	http_exchange_init(&x->base, &h2_kind, &c->base, &head);
	x->continued = !x->base.head.expect_continue;
	x->stage = H2_OPEN;
	c->current = x;
	c->ops->request(c->user, &x->base);
	if (c->current == x && x->stage == H2_OPEN && x->base.ops == &http_exchange_untaken)
		http_exchange_abort(&x->base);
	c->current = NULL;
}
