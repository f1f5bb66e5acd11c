/* SPDX-License-Identifier: Apache-2.0 */
#include "http/h2_out.h"

#include <errno.h>
#include <string.h>

#include "http/h2_fields.h"

void h2_out_init(struct h2_out *o, size_t max)
{
	buf_init(&o->queue, max);
}

void h2_out_done(struct h2_out *o)
{
	buf_done(&o->queue);
	http_fields_done(&o->trailers);
}

ssize_t h2_out_write(struct h2_out *o, const void *p, size_t n)
{
	if (o->whole || (o->framing == HTTP_NO_BODY && n) ||
	    (o->framing == HTTP_LENGTH && n > o->left))
		return -EPIPE;
	if (n && !o->drop) {
		int r = buf_append(&o->queue, p, n);
		if (r < 0)
			return r;
		o->owes = true;
	}
	if (o->framing == HTTP_LENGTH)
		o->left -= n;
	return (ssize_t)o->queue.len;
}

int h2_out_trailers(struct h2_out *o, const struct http_fields *fields)
{
	for (size_t i = 0; i < fields->count; i++) {
		int r = http_fields_add(&o->trailers, fields->list[i].name, fields->list[i].value);
		if (r < 0)
			return r;
	}
	return 0;
}

bool h2_out_is_complete(const struct h2_out *o)
{
	return o->drop || o->framing != HTTP_LENGTH || !o->left;
}

/* The body ends, and the stream with it or with its trailers. */
static void end(const struct h2_out *o, nghttp2_session *s, int32_t id, uint32_t *flags)
{
	struct h2_fields f;
	*flags |= NGHTTP2_DATA_FLAG_EOF;
	if (!o->trailers.count)
		return;
	h2_fields_init(&f);
	if (h2_fields_add(&f, &o->trailers, 0) == 0 && f.count &&
	    nghttp2_submit_trailer(s, id, f.nv, f.count) == 0)
		*flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
	h2_fields_done(&f);
}

ssize_t h2_out_pull(struct h2_out *o, nghttp2_session *s, int32_t id, uint8_t *to, size_t room,
		    uint32_t *flags)
{
	size_t n = o->queue.len < room ? o->queue.len : room;
	if (n) {
		memcpy(to, o->queue.data, n);
		buf_consume(&o->queue, n);
	}
	if (o->queue.len)
		return (ssize_t)n;
	buf_done(&o->queue);
	if (o->whole) {
		end(o, s, id, flags);
	} else if (!n) {
		o->deferred = true;
		return NGHTTP2_ERR_DEFERRED;
	}
	return (ssize_t)n;
}

void h2_out_resume(struct h2_out *o, nghttp2_session *s, int32_t id)
{
	if (!o->deferred || !id)
		return;
	o->deferred = false;
	nghttp2_session_resume_data(s, id);
}
