/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Response heads and trailers of HTTP/2. nghttp2 refuses what is malformed by HTTP/2's own rules
 * (pseudo-headers, upper case, fields of a connection, lengths that differ from the DATA); what the
 * reader of HTTP/1.1 refuses is refused here. Source: RFC 9113, section 8.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "http/h2_client_state.h"
#include "http/h2_fields.h"
#include "http/syntax.h"

#define STATUS_FINAL        200
#define STATUS_SWITCHING    101
#define STATUS_MAX          599
#define STATUS_NO_CONTENT   204
#define STATUS_NOT_MODIFIED 304

int h2_response_begin(nghttp2_session *s, const nghttp2_frame *frame, void *user)
{
	(void)s;
	struct h2_session *h = user;
	struct h2_client *c = h2_client_find(h, frame->hd.stream_id);
	if (!c)
		return 0;
	http_fields_done(&c->fields);
	c->head_bytes = 0;
	if (!c->head_seen)
		c->status = 0;
	return 0;
}

int h2_response_invalid(nghttp2_session *s, const nghttp2_frame *frame, const uint8_t *name,
			size_t n, const uint8_t *value, size_t len, uint8_t flags, void *user)
{
	(void)s, (void)name, (void)n, (void)value, (void)len, (void)flags;
	struct h2_client *c = h2_client_find(user, frame->hd.stream_id);
	if (c)
		h2_client_fail(c, EBADMSG, "the response head is malformed");
	return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* the stream is reset */
}

static bool take_status(struct h2_client *c, const uint8_t *value, size_t len)
{
	if (len != 3)
		return false;
	c->status = 0;
	for (size_t i = 0; i < len; i++) {
		if (value[i] < '0' || value[i] > '9')
			return false;
		c->status = c->status * 10 + (unsigned)(value[i] - '0');
	}
	return c->status >= 100 && c->status <= STATUS_MAX;
}

static bool take_field(struct h2_client *c, const char *name, size_t n, const uint8_t *value,
		       size_t len)
{
	if (n && name[0] == ':')
		return !c->head_seen && http_same_word(name, n, ":status") &&
		       take_status(c, value, len);
	if (!h2_field_ok(name, n, &value, &len))
		return false;
	return http_fields_append(&c->fields, name, n, (const char *)value, len) == 0;
}

int h2_response_field(nghttp2_session *s, const nghttp2_frame *frame, const uint8_t *name, size_t n,
		      const uint8_t *value, size_t len, uint8_t flags, void *user)
{
	struct h2_session *h = user;
	struct h2_client *c = h2_client_find(h, frame->hd.stream_id);
	if (h->dead || h->why.code)
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	if (!c)
		return 0;
	c->head_bytes += n + len + H2_FIELD_OVERHEAD;
	if (c->head_bytes > H2C_HEAD_LIMIT) {
		h2_session_fail(h, EPROTO, "the server inflates a response head");
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	}
	size_t most = c->head_seen ? HTTP_TRAILERS_MAX : HTTP_HEAD_MAX;
	if (c->head_bytes > most)
		h2_client_fail(c, EBADMSG, "the response head is too large");
	if (c->why.code)
		return 0; /* no byte of it is kept */
	if (!take_field(c, (const char *)name, n, value, len))
		return h2_response_invalid(s, frame, name, n, value, len, flags, user);
	return 0;
}

/* How the body ends, as HTTP/1.1 would say it. False: not at all. */
static bool judge_framing(const struct h2_client *c, struct http_head *head)
{
	const char *length = http_fields_get(&c->fields, "content-length");
	bool none =
		c->is_head || c->status == STATUS_NO_CONTENT || c->status == STATUS_NOT_MODIFIED;
	uint64_t n = 0;
	if (http_fields_count(&c->fields, "content-length") > 1 ||
	    (length && str_to_u64(length, 0, INT64_MAX, &n) < 0))
		return false;
	head->framing = none ? HTTP_NO_BODY : HTTP_CHUNKED;
	if (!none && (length || c->ended_in)) {
		head->framing = HTTP_LENGTH;
		head->length = n;
	}
	return true;
}

static void final_head(struct h2_client *c)
{
	struct http_head head = {.status = c->status, .minor = 1, .keep_alive = true};
	if (!judge_framing(c, &head)) {
		h2_client_reset(c, NGHTTP2_PROTOCOL_ERROR, "the response head is malformed");
		return;
	}
	c->head_seen = true;
	c->deadline_ms = 0;
	head.fields = c->fields;
	c->fields = (struct http_fields){0};
	c->ops->head(c->user, &head);
	http_head_done(&head);
}

void h2_response_block(struct h2_client *c)
{
	if (!c->active || c->why.code || c->head_seen) /* seen: trailers, told at the end */
		return;
	if (!c->status || c->status == STATUS_SWITCHING)
		h2_client_reset(c, NGHTTP2_PROTOCOL_ERROR, "the response has no valid status");
	else if (c->status >= STATUS_FINAL)
		final_head(c);
	else if (++c->interim > H2C_INTERIM_MAX)
		h2_client_reset(c, NGHTTP2_ENHANCE_YOUR_CALM, "too many interim responses");
}
