/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heads and their fields. Name and value of a field share one heap block that starts at the name.
 * The list has no stored capacity: it is a function of the count (8, then the next power of two),
 * and the block is never smaller than that.
 */
#include "http/msg.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "http/syntax.h"

#define LIST_MIN 8 /* fields in the first block of a list */

void http_head_done(struct http_head *h)
{
	free(h->method);
	free(h->target);
	http_fields_done(&h->fields);
	*h = (struct http_head){0};
}

static int list_reserve(struct http_fields *f)
{
	size_t n = f->count;
	bool full = n == 0 || (n >= LIST_MIN && (n & (n - 1)) == 0);
	if (!full)
		return 0;
	size_t room = n < LIST_MIN ? LIST_MIN : n * 2;
	struct http_field *list = reallocarray(f->list, room, sizeof(*list));
	if (!list)
		return -ENOMEM;
	f->list = list;
	return 0;
}

int http_fields_append(struct http_fields *f, const char *name, size_t n, const char *value,
		       size_t len)
{
	if (f->count >= HTTP_FIELDS_MAX)
		return -E2BIG;
	int r = list_reserve(f);
	if (r < 0)
		return r;
	char *block = malloc(n + len + 2);
	if (!block)
		return -ENOMEM;
	memcpy(block, name, n);
	block[n] = '\0';
	memcpy(block + n + 1, value, len);
	block[n + 1 + len] = '\0';
	f->list[f->count++] = (struct http_field){block, block + n + 1};
	return 0;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

int http_fields_add(struct http_fields *f, const char *name, const char *value)
{
	size_t n = strlen(name), len = strlen(value);
	if (!http_is_token(name, n) || !http_all(value, len, HTTP_CHAR_VALUE))
		return -EINVAL;
	while (len && is_blank(value[len - 1]))
		len--;
	while (len && is_blank(*value)) {
		value++;
		len--;
	}
	return http_fields_append(f, name, n, value, len);
}

int http_fields_addf(struct http_fields *f, const char *name, const char *fmt, ...)
{
	auto_free char *value = NULL;
	va_list ap;
	va_start(ap, fmt);
	int n = vasprintf(&value, fmt, ap);
	va_end(ap);
	if (n < 0) {
		value = NULL;
		return -ENOMEM;
	}
	return http_fields_add(f, name, value);
}

static bool same_name(const char *a, const char *b)
{
	for (; *a && *b; a++, b++) {
		uint8_t x = (uint8_t)*a, y = (uint8_t)*b;
		if (x == y)
			continue;
		x |= 0x20;
		if (x != (y | 0x20) || x < 'a' || x > 'z')
			return false;
	}
	return *a == *b;
}

const char *http_fields_get(const struct http_fields *f, const char *name)
{
	for (size_t i = 0; i < f->count; i++)
		if (same_name(f->list[i].name, name))
			return f->list[i].value;
	return NULL;
}

size_t http_fields_count(const struct http_fields *f, const char *name)
{
	size_t n = 0;
	for (size_t i = 0; i < f->count; i++)
		n += same_name(f->list[i].name, name);
	return n;
}

static void field_free(struct http_field *field)
{
	free((char *)field->name);
}

void http_fields_remove(struct http_fields *f, const char *name)
{
	size_t kept = 0;
	for (size_t i = 0; i < f->count; i++) {
		if (same_name(f->list[i].name, name))
			field_free(&f->list[i]);
		else
			f->list[kept++] = f->list[i];
	}
	f->count = kept;
}

void http_fields_done(struct http_fields *f)
{
	for (size_t i = 0; i < f->count; i++)
		field_free(&f->list[i]);
	free(f->list);
	*f = (struct http_fields){0};
}

struct reason {
	unsigned status;
	const char *text;
};

/* Source: IANA, HTTP Status Code Registry. */
static const struct reason reasons[] = {
	{100, "Continue"},
	{101, "Switching Protocols"},
	{103, "Early Hints"},
	{200, "OK"},
	{201, "Created"},
	{202, "Accepted"},
	{203, "Non-Authoritative Information"},
	{204, "No Content"},
	{205, "Reset Content"},
	{206, "Partial Content"},
	{207, "Multi-Status"},
	{300, "Multiple Choices"},
	{301, "Moved Permanently"},
	{302, "Found"},
	{303, "See Other"},
	{304, "Not Modified"},
	{307, "Temporary Redirect"},
	{308, "Permanent Redirect"},
	{400, "Bad Request"},
	{401, "Unauthorized"},
	{402, "Payment Required"},
	{403, "Forbidden"},
	{404, "Not Found"},
	{405, "Method Not Allowed"},
	{406, "Not Acceptable"},
	{407, "Proxy Authentication Required"},
	{408, "Request Timeout"},
	{409, "Conflict"},
	{410, "Gone"},
	{411, "Length Required"},
	{412, "Precondition Failed"},
	{413, "Content Too Large"},
	{414, "URI Too Long"},
	{415, "Unsupported Media Type"},
	{416, "Range Not Satisfiable"},
	{417, "Expectation Failed"},
	{421, "Misdirected Request"},
	{422, "Unprocessable Content"},
	{423, "Locked"},
	{424, "Failed Dependency"},
	{425, "Too Early"},
	{426, "Upgrade Required"},
	{428, "Precondition Required"},
	{429, "Too Many Requests"},
	{431, "Request Header Fields Too Large"},
	{451, "Unavailable For Legal Reasons"},
	{500, "Internal Server Error"},
	{501, "Not Implemented"},
	{502, "Bad Gateway"},
	{503, "Service Unavailable"},
	{504, "Gateway Timeout"},
	{505, "HTTP Version Not Supported"},
	{507, "Insufficient Storage"},
	{508, "Loop Detected"},
	{511, "Network Authentication Required"},
};

const char *http_reason(unsigned status)
{
	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		if (reasons[i].status == status)
			return reasons[i].text;
	return "Unknown";
}
