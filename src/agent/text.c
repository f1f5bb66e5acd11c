/* SPDX-License-Identifier: Apache-2.0 */
/* Small readers and writers for values in the protocol. */
#include "agent/text.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"

json_t *text_to_json(const char *s)
{
	size_t n = strlen(s);
	if (str_is_utf8(s, n))
		return json_stringn(s, n);

	auto_buf struct buf out;
	buf_init(&out, n * 3 + 1);
	while (n) {
		size_t len = 1;
		while (len < 4 && len < n && !str_is_utf8(s, len))
			len++;
		bool valid = str_is_utf8(s, len);
		int r = valid ? buf_append(&out, s, len) : buf_append(&out, "\xef\xbf\xbd", 3);
		if (r < 0)
			return NULL;
		len = valid ? len : 1;
		s += len;
		n -= len;
	}
	return json_stringn((const char *)out.data, out.len);
}

int text_basic_user(const char *authorization, char **ret)
{
	if (strncasecmp(authorization, "Basic ", 6) != 0)
		return -EINVAL;
	const char *encoded = authorization + 6;
	encoded += strspn(encoded, " ");
	size_t n = strlen(encoded);
	auto_free char *decoded = malloc(n / 4 * 3 + 3 + 1);
	if (!decoded)
		return -ENOMEM;
	ssize_t len = base64_decode(encoded, n, decoded);
	if (len < 0)
		return -EINVAL;
	decoded[len] = '\0';
	char *colon = strchr(decoded, ':');
	if (!colon || colon == decoded)
		return -EINVAL;
	*colon = '\0';
	*ret = take_ptr(decoded);
	return 0;
}

bool text_same_secret(const char *a, const char *b)
{
	size_t n = strlen(a), m = strlen(b);
	volatile unsigned char differs = n != m;
	for (size_t i = 0; i < m; i++)
		differs |= (unsigned char)(a[n ? i % n : 0] ^ b[i]);
	return !differs;
}
