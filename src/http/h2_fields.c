/* SPDX-License-Identifier: Apache-2.0 */
#include "http/h2_fields.h"

#include <errno.h>
#include <string.h>

#include "http/syntax.h"

void h2_fields_init(struct h2_fields *f)
{
	f->count = 0;
	buf_init(&f->names, 2 * HTTP_HEAD_MAX);
}

void h2_fields_done(struct h2_fields *f)
{
	buf_done(&f->names);
}

void h2_fields_put(struct h2_fields *f, const char *name, const char *value, bool secret)
{
	f->nv[f->count++] = (nghttp2_nv){
		.name = (uint8_t *)(uintptr_t)name,
		.value = (uint8_t *)(uintptr_t)value,
		.namelen = strlen(name),
		.valuelen = strlen(value),
		.flags = secret ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE,
	};
}

static bool may_be_secret(const char *name)
{
	static const char *const parts[] = {"auth", "cookie", "key", "token", "secret", "password"};
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (strstr(name, parts[i]))
			return true;
	return false;
}

static bool is_of_hop(const char *name, const char *value)
{
	static const char *const known[] = {"connection", "content-length",   "host",
					    "keep-alive", "proxy-connection", "transfer-encoding",
					    "upgrade",    "http2-settings",   "proxy-authenticate"};
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(name, known[i]) == 0)
			return true;
	return strcmp(name, "te") == 0 && !http_same_word(value, strlen(value), "trailers");
}

static void lower(char *to, const char *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = (char)(from[i] >= 'A' && from[i] <= 'Z' ? from[i] | 0x20 : from[i]);
}

int h2_fields_add(struct h2_fields *f, const struct http_fields *in, size_t secrets)
{
	size_t total = 0;
	for (size_t i = 0; i < in->count; i++)
		total += strlen(in->list[i].name) + 1;
	int r = buf_reserve(&f->names, total + 1);
	if (r < 0)
		return r;
	for (size_t i = 0; i < in->count; i++) {
		const char *value = in->list[i].value;
		size_t n = strlen(in->list[i].name);
		if (!http_is_token(in->list[i].name, n) ||
		    !http_all(value, strlen(value), HTTP_CHAR_VALUE))
			return -EINVAL;
		if (f->count == H2_FIELDS_MAX)
			return -E2BIG;
		char *name = (char *)f->names.data + f->names.len;
		lower(name, in->list[i].name, n + 1);
		if (is_of_hop(name, value))
			continue;
		f->names.len += n + 1;
		h2_fields_put(f, name, value, i + secrets >= in->count || may_be_secret(name));
	}
	return 0;
}

static bool is_blank(uint8_t c)
{
	return c == ' ' || c == '\t';
}

bool h2_field_ok(const char *name, size_t n, const uint8_t **value, size_t *len)
{
	if (!http_is_token(name, n) || !http_all((const char *)*value, *len, HTTP_CHAR_VALUE))
		return false;
	while (*len && is_blank((*value)[*len - 1]))
		--*len;
	while (*len && is_blank(**value)) {
		++*value;
		--*len;
	}
	return true;
}
