/* SPDX-License-Identifier: Apache-2.0 */
/* One request: its head, its body, its query. */
#include "h1_properties.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct verdict read_request(const void *arg, const uint8_t *p, size_t n, struct http_head *h)
{
	(void)arg;
	enum h1_fault fault = 0;
	ssize_t r = h1_read_request(p, n, h, &fault);
	require((r == -EBADMSG) == (fault != 0), "a fault is set on refusal, and only then");
	return (struct verdict){r, (int)fault};
}

static void check_request(const struct http_head *h)
{
	check_fields(&h->fields);
	require(h->minor <= 1 && h->status == 0, "it is a request of HTTP/1");
	require(h->framing != HTTP_TO_CLOSE, "a request has an end");
	require(*h->method && strcasecmp(h->method, "CONNECT") != 0 &&
			strcasecmp(h->method, "TRACE") != 0 && strcasecmp(h->method, "TRACK") != 0,
		"the method may be forwarded");
	require(*h->target && !strpbrk(h->target, " \t\r\n#\x7f"), "the target is one word");

	size_t hosts = http_fields_count(&h->fields, "Host");
	require(hosts == 1 || (hosts == 0 && h->minor == 0), "one host");
	if (hosts)
		require(!strpbrk(http_fields_get(&h->fields, "Host"), "@, \t/\\%?#"),
			"a host alone");
	require(http_fields_count(&h->fields, "Content-Length") +
				http_fields_count(&h->fields, "Transfer-Encoding") <=
			1,
		"one framing");
}

static void check_query(const char *target)
{
	char *value = NULL;
	int r = http_query_get(target, "path", &value);
	require(r == 0 || r == -EBADMSG, "a query is read or refused");
	auto_free char *held = value;
	auto_free char *encoded = value ? http_percent_encode(value, true) : NULL;
	if (!encoded)
		return;
	auto_free char *back = malloc(strlen(encoded) + 1);
	ssize_t n = http_percent_decode(encoded, strlen(encoded), true, back);
	require(n == (ssize_t)strlen(held) && strcmp(back, held) == 0, "encoding is reversible");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct reader reader = {read_request, NULL};
	struct http_head h = {0};
	struct verdict whole = read_exact(&reader, data, size, &h);
	check_prefixes(&reader, data, size, &whole);
	if (whole.r < 0)
		return 0;

	check_request(&h);
	check_query(h.target);
	check_body(&h, data + whole.r, size - (size_t)whole.r);
	check_round_trip(&reader, &h, h1_write_request,
			 h.minor == 0 && !http_fields_get(&h.fields, "Host"));
	http_head_done(&h);
	return 0;
}
