/* SPDX-License-Identifier: Apache-2.0 */
/* A server that does not understand WebSocket can't make the right Accept, so nothing that a guest
 * sends afterwards is ever read as HTTP. */
#include "egress/websocket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <openssl/evp.h>

#include "base/str.h"
#include "egress/fields.h"

#define KEY_BYTES 16
#define KEY_CHARS 24 /* in base64 */
#define GUID      "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

bool websocket_wanted(const struct http_head *request)
{
	return fields_have_token(&request->fields, "Upgrade", "websocket") &&
	       fields_have_token(&request->fields, "Connection", "upgrade");
}

/* The one value of a field, or NULL. */
static const char *only(const struct http_fields *f, const char *name)
{
	return http_fields_count(f, name) == 1 ? http_fields_get(f, name) : NULL;
}

/* The last character's spare bits are zero: no two keys mean the same. */
static bool key_ok(const char *key)
{
	uint8_t bytes[KEY_CHARS];
	char again[KEY_CHARS + 1];
	if (!key || strlen(key) != KEY_CHARS || base64_decode(key, KEY_CHARS, bytes) != KEY_BYTES)
		return false;
	base64_encode(bytes, KEY_BYTES, again);
	return str_eq(again, key);
}

int websocket_check_request(const struct http_head *request, struct err *e)
{
	if (!str_eq(request->method, "GET") || request->minor != 1)
		return err_set(e, EBADMSG, "a WebSocket begins with a GET of HTTP/1.1");
	if (request->framing != HTTP_NO_BODY)
		return err_set(e, EBADMSG, "the request for a WebSocket has a body");
	if (!str_eq(only(&request->fields, "Sec-WebSocket-Version"), "13"))
		return err_set(e, EBADMSG, "Sec-WebSocket-Version is not 13");
	if (!key_ok(only(&request->fields, "Sec-WebSocket-Key")))
		return err_set(e, EBADMSG, "Sec-WebSocket-Key is not 16 bytes in base64");
	return 0;
}

int websocket_accept(const char *key, char out[WEBSOCKET_ACCEPT_SIZE])
{
	char text[KEY_CHARS + sizeof(GUID)];
	uint8_t digest[EVP_MAX_MD_SIZE];
	unsigned n = 0;
	int len = snprintf(text, sizeof(text), "%.*s" GUID, KEY_CHARS, key);
	if (EVP_Digest(text, (size_t)len, digest, &n, EVP_sha1(), NULL) != 1 || n != 20)
		return -ENOMEM;
	base64_encode(digest, n, out);
	return 0;
}

int websocket_check_answer(const struct http_head *request, const struct http_head *answer,
			   struct err *e)
{
	char want[WEBSOCKET_ACCEPT_SIZE];
	const char *upgrade = only(&answer->fields, "Upgrade");
	const char *protocol = http_fields_get(&answer->fields, "Sec-WebSocket-Protocol");
	if (!upgrade || !fields_have_token(&answer->fields, "Upgrade", "websocket") ||
	    strchr(upgrade, ',') || !fields_have_token(&answer->fields, "Connection", "upgrade"))
		return err_set(e, EBADMSG, "the server switched to something else than WebSocket");
	if (websocket_accept(http_fields_get(&request->fields, "Sec-WebSocket-Key"), want) < 0)
		return err_set(e, ENOMEM, "the gateway has no memory");
	if (!str_eq(only(&answer->fields, "Sec-WebSocket-Accept"), want))
		return err_set(e, EBADMSG,
			       "the server's Sec-WebSocket-Accept is not the right one");
	if (protocol &&
	    (!only(&answer->fields, "Sec-WebSocket-Protocol") || strchr(protocol, ',') ||
	     !fields_have_token(&request->fields, "Sec-WebSocket-Protocol", protocol)))
		return err_set(e, EBADMSG, "the server chose a subprotocol that was not offered");
	return 0;
}
