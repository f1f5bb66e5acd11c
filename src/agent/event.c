/* SPDX-License-Identifier: Apache-2.0 */
/* Builds event messages. Data goes from the raw bytes to base64 in the output buffer in one pass.
 */
#include "agent/event.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "agent/signals.h"
#include "agent/text.h"
#include "base/cleanup.h"
#include "base/doc.h"
#include "base/str.h"
#include "http/envelope.h"

static int message(struct buf *out, enum envelope_flag flag, const char *text)
{
	return envelope_write(out, flag, text, strlen(text));
}

int event_start(struct buf *out, pid_t pid)
{
	char text[64];
	snprintf(text, sizeof(text), "{\"event\":{\"start\":{\"pid\":%d}}}", pid);
	return message(out, ENVELOPE_MESSAGE, text);
}

int event_keepalive(struct buf *out)
{
	return message(out, ENVELOPE_MESSAGE, "{\"event\":{\"keepalive\":{}}}");
}

static int data_event(struct buf *out, const char *kind, const void *p, size_t n)
{
	char before[48];
	static const char after[] = "\"}}}";
	size_t before_len =
		(size_t)snprintf(before, sizeof(before), "{\"event\":{\"data\":{\"%s\":\"", kind);
	size_t encoded = base64_encoded_len(n);
	size_t len = before_len + encoded + sizeof(after) - 1;
	int r = buf_reserve(out, ENVELOPE_HEAD + len + 1); /* and the encoder's NUL */
	if (r < 0)
		return r;

	uint8_t *o = out->data + out->len;
	*o++ = ENVELOPE_MESSAGE;
	*o++ = (uint8_t)(len >> 24);
	*o++ = (uint8_t)(len >> 16);
	*o++ = (uint8_t)(len >> 8);
	*o++ = (uint8_t)len;
	memcpy(o, before, before_len);
	o += before_len;
	o += base64_encode(p, n, (char *)o);
	memcpy(o, after, sizeof(after) - 1);
	out->len += ENVELOPE_HEAD + len;
	return 0;
}

int event_data(struct buf *out, const char *kind, const void *p, size_t n)
{
	const uint8_t *from = p;
	size_t before = out->len;
	while (n) {
		size_t part = n < EVENT_DATA_MAX ? n : EVENT_DATA_MAX;
		int r = data_event(out, kind, from, part);
		if (r < 0) {
			out->len = before;
			return r;
		}
		from += part;
		n -= part;
	}
	return 0;
}

int event_end(struct buf *out, int status)
{
	char text[256];
	if (WIFSIGNALED(status)) {
		char name[SIGNAL_TEXT_SIZE];
		signal_text(WTERMSIG(status), name);
		const char *core = WCOREDUMP(status) ? " (core dumped)" : "";
		snprintf(text, sizeof(text),
			 "{\"event\":{\"end\":{\"exitCode\":-1,\"exited\":false,"
			 "\"status\":\"signal: %s%s\",\"error\":\"signal: %s%s\",\"signal\":%d}}}",
			 name, core, name, core, WTERMSIG(status));
	} else {
		int code = WEXITSTATUS(status);
		char error[40] = "";
		if (code)
			snprintf(error, sizeof(error), ",\"error\":\"exit status %d\"", code);
		snprintf(text, sizeof(text),
			 "{\"event\":{\"end\":{\"exitCode\":%d,\"exited\":true,"
			 "\"status\":\"exit status %d\"%s}}}",
			 code, code, error);
	}
	return message(out, ENVELOPE_MESSAGE, text);
}

int event_stream_end(struct buf *out, const char *code, const char *text)
{
	if (!code)
		return message(out, ENVELOPE_END, "{}");
	auto_json json_t *error =
		json_pack("{s:{s:s, s:o}}", "error", "code", code, "message", text_to_json(text));
	auto_free char *body = error ? doc_to_text(error) : NULL;
	return body ? message(out, ENVELOPE_END, body) : -ENOMEM;
}
