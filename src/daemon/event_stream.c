/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/event_stream.h"

#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/doc.h"
#include "http/envelope.h"

#define END_MAX 4096 /* bytes of the last envelope */

int event_stream_open(struct http_exchange *x)
{
	struct http_fields fields = {0};
	int r = http_fields_add(&fields, "Content-Type", "application/connect+json");
	if (r == 0)
		r = http_exchange_start(x, 200, &fields, HTTP_CHUNKED, 0);
	http_fields_done(&fields);
	return r;
}

void event_stream_send(struct http_exchange *x, json_t *event)
{
	auto_json json_t *j = event;
	auto_free char *text = j ? doc_to_text(j) : NULL;
	struct buf b;
	buf_init(&b, EVENT_MAX + ENVELOPE_HEAD);
	if (text && envelope_write(&b, ENVELOPE_MESSAGE, text, strlen(text)) == 0)
		http_exchange_write(x, b.data, b.len);
	buf_done(&b);
}

void event_stream_end(struct http_exchange *x, const char *code, const char *message)
{
	auto_json json_t *j =
		code ? json_pack("{s:{s:s, s:s}}", "error", "code", code, "message", message)
		     : json_object();
	auto_free char *text = j ? doc_to_text(j) : NULL;
	struct buf b;
	buf_init(&b, END_MAX);
	if (text && envelope_write(&b, ENVELOPE_END, text, strlen(text)) == 0)
		http_exchange_write(x, b.data, b.len);
	buf_done(&b);
	http_exchange_end(x);
}
