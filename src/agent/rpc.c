/* SPDX-License-Identifier: Apache-2.0 */
/* Answers in Connect's terms: every error has a code in words and the HTTP status that goes with
 * it. */
#include "agent/rpc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "agent/text.h"
#include "base/cleanup.h"
#include "base/str.h"

struct rpc_code_row {
	const char *name;
	unsigned status;
};

static const struct rpc_code_row codes[] = {
	[RPC_INVALID_ARGUMENT] = {"invalid_argument", 400},
	[RPC_DEADLINE_EXCEEDED] = {"deadline_exceeded", 504},
	[RPC_NOT_FOUND] = {"not_found", 404},
	[RPC_RESOURCE_EXHAUSTED] = {"resource_exhausted", 429},
	[RPC_INTERNAL] = {"internal", 500},
	[RPC_UNIMPLEMENTED] = {"unimplemented", 501},
	[RPC_UNAVAILABLE] = {"unavailable", 503},
	[RPC_UNAUTHENTICATED] = {"unauthenticated", 401},
};

const char *rpc_code_name(enum rpc_code code)
{
	return codes[code].name;
}

unsigned rpc_code_status(enum rpc_code code)
{
	return codes[code].status;
}

static void reply_text(struct http_exchange *x, unsigned status, const char *text)
{
	http_exchange_reply(x, status, "application/json", text, strlen(text));
}

void rpc_fail(struct http_exchange *x, enum rpc_code code, const char *fmt, ...)
{
	char message[ERR_TEXT_MAX];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);

	auto_json json_t *body = json_pack("{s:s, s:o}", "code", rpc_code_name(code), "message",
					   text_to_json(message));
	auto_free char *text = body ? doc_to_text(body) : NULL;
	reply_text(x, rpc_code_status(code), text ? text : "{\"code\":\"internal\"}");
}

void rpc_reply(struct http_exchange *x, json_t *message)
{
	auto_json json_t *owned = message;
	auto_free char *text = owned ? doc_to_text(owned) : NULL;
	if (text)
		reply_text(x, 200, text);
	else
		rpc_fail(x, RPC_INTERNAL, "out of memory");
}

bool rpc_has_type(struct http_exchange *x, const char *type)
{
	const char *value = http_fields_get(&http_exchange_head(x)->fields, "content-type");
	size_t n = strlen(type);
	return value && strncasecmp(value, type, n) == 0 && strchr(" \t;", value[n]);
}

uint64_t rpc_number(struct http_exchange *x, const char *field, uint64_t max, uint64_t otherwise)
{
	const char *value = http_fields_get(&http_exchange_head(x)->fields, field);
	uint64_t v;
	return value && str_to_u64(value, 1, max, &v) == 0 ? v : otherwise;
}
