/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What leaves for a request of a hostile guest: whatever its head says, the one that is written
 * anew is read back as meant, with one Host, the one credential, and nothing that belongs to
 * another hop. Behind the head may stand a response head, which is judged as the answer to a
 * WebSocket and written anew for the guest.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "egress/fields.h"
#include "egress/target.h"
#include "egress/websocket.h"
#include "http/h1.h"
#include "vault/secret.h"

#define HOST "api.example.com"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool truth)
{
	if (!truth)
		abort();
}

static bool is_hop(const char *name)
{
	static const char *const names[] = {
		"Connection",     "Keep-Alive",          "Trailer",
		"HTTP2-Settings", "Proxy-Authorization", "Proxy-Connection"};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (str_same_field(name, names[i]))
			return true;
	return false;
}

/* Judges what was written for in. upgrade: as a WebSocket's. */
static void check_request(const struct buf *text, const struct http_head *in, const char *path,
			  bool upgrade)
{
	struct http_head out;
	enum h1_fault fault;
	require(h1_read_request(text->data, text->len, &out, &fault) == (ssize_t)text->len);
	require(str_eq(out.method, in->method) && str_eq(out.target, path));
	require(out.framing == in->framing && out.length == in->length);
	require(str_eq(http_fields_get(&out.fields, "Host"), HOST));
	require(http_fields_count(&out.fields, "Authorization") == 1);
	require(str_eq(http_fields_get(&out.fields, "Authorization"), "Bearer real"));
	for (size_t i = 0; i < out.fields.count; i++) {
		const char *name = out.fields.list[i].name;
		require(str_same_field(name, "Authorization") || !secret_is_credential_field(name));
		require(!is_hop(name) || (upgrade && str_same_field(name, "Connection")));
	}
	require(http_fields_count(&out.fields, "Upgrade") == upgrade);
	http_head_done(&out);
}

static void forward(const struct http_head *in)
{
	struct policy_dest origin = {.scheme = POLICY_HTTPS, .host = HOST, .port = 443};
	char *path = NULL;
	const char *query;
	struct err why = {0};
	unsigned status = target_judge(in, &origin, &path, &query, &why);
	require(!status == (path != NULL) && (!status || why.text[0]));
	if (path) {
		bool upgrade = websocket_wanted(in) && websocket_check_request(in, &why) == 0;
		struct fields f;
		struct buf text;
		buf_init(&text, HTTP_HEAD_MAX);
		struct inject_field put = {"Authorization", "Bearer real"};
		struct fields_credential credential = {.list = &put, .count = 1};
		fields_for_upstream(&f, &in->fields, HOST, &credential,
				    upgrade ? FIELDS_WEBSOCKET : 0);
		struct http_head out = {
			.method = in->method,
			.target = path,
			.minor = 1,
			.fields = f.list,
			.framing = in->framing,
			.length = in->length,
			.keep_alive = true,
			.upgrade = upgrade,
		};
		int r = h1_write_request(&text, &out);
		require(r == 0 || r == -EMSGSIZE || r == -EINVAL);
		if (r == 0)
			check_request(&text, in, path, upgrade);
		buf_done(&text);
	}
	free(path);
}

static void answer(const struct http_head *in, const uint8_t *p, size_t n)
{
	struct http_head head, again;
	struct fields f;
	struct buf text;
	struct err why;
	if (h1_read_response(p, n, in->method, &head) <= 0)
		return;
	buf_init(&text, 2UL * HTTP_HEAD_MAX);
	bool agreed = websocket_wanted(in) && websocket_check_request(in, &why) == 0 &&
		      head.status == 101 && websocket_check_answer(in, &head, &why) == 0;
	fields_for_guest(&f, &head.fields, agreed ? FIELDS_WEBSOCKET : 0);
	struct http_head out = {.status = head.status,
				.minor = 1,
				.fields = f.list,
				.keep_alive = true,
				.upgrade = agreed};
	if (h1_write_response(&text, &out) == 0) {
		require(h1_read_response(text.data, text.len, "HEAD", &again) == (ssize_t)text.len);
		require(http_fields_count(&again.fields, "Upgrade") == agreed);
		http_head_done(&again);
	}
	fields_for_trailers(&f, &head.fields);
	require(f.list.count <= head.fields.count);
	buf_done(&text);
	http_head_done(&head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct http_head head;
	enum h1_fault fault;
	ssize_t n = h1_read_request(data, size, &head, &fault);
	if (n <= 0)
		return 0;
	forward(&head);
	answer(&head, data + n, size - (size_t)n);
	http_head_done(&head);
	return 0;
}
