/* SPDX-License-Identifier: Apache-2.0 */
/* One response: its head and its body. The first byte says what it answers: 'H' a HEAD, others a
 * GET. */
#include "h1_properties.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct verdict read_response(const void *arg, const uint8_t *p, size_t n,
				    struct http_head *h)
{
	return (struct verdict){h1_read_response(p, n, arg, h), 0};
}

static void check_response(const struct http_head *h, const char *method)
{
	check_fields(&h->fields);
	require(h->minor <= 1 && !h->method && !h->target, "it is a response of HTTP/1");
	require(h->status >= 100 && h->status <= 599, "the status is one");
	bool bodiless = h->status < 200 || h->status == 204 || h->status == 304 ||
			strcmp(method, "HEAD") == 0;
	require(bodiless == (h->framing == HTTP_NO_BODY), "bodies are where they may be");
	require(h->framing != HTTP_TO_CLOSE || !h->keep_alive, "the close ends the connection");
	require(http_fields_count(&h->fields, "Content-Length") +
				http_fields_count(&h->fields, "Transfer-Encoding") <=
			1,
		"one framing");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	const char *method = *data == 'H' ? "HEAD" : "GET";
	data++;
	size--;

	const struct reader reader = {read_response, method};
	struct http_head h = {0};
	struct verdict whole = read_exact(&reader, data, size, &h);
	check_prefixes(&reader, data, size, &whole);
	if (whole.r < 0)
		return 0;

	check_response(&h, method);
	check_body(&h, data + whole.r, size - (size_t)whole.r);
	check_round_trip(&reader, &h, h1_write_response, false);
	http_head_done(&h);
	return 0;
}
