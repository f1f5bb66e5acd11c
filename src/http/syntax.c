/* SPDX-License-Identifier: Apache-2.0 */
/* The character table and the grammars of hosts and request targets. */
#include "http/syntax.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

#define V  HTTP_CHAR_VALUE
#define VT (HTTP_CHAR_VALUE | HTTP_CHAR_TARGET)
#define VK (HTTP_CHAR_VALUE | HTTP_CHAR_TOKEN)
#define TK (HTTP_CHAR_VALUE | HTTP_CHAR_TARGET | HTTP_CHAR_TOKEN)
#define NM (HTTP_CHAR_VALUE | HTTP_CHAR_TARGET | HTTP_CHAR_TOKEN | HTTP_CHAR_NAME)

/* clang-format off */
const uint8_t http_chars[256] = {
	['\t'] = V,		[' '] = V,		['!'] = TK,		['"'] = VT,
	['#'] = VK,		['$' ... '\''] = TK,	['(' ... ')'] = VT,	['*' ... '+'] = TK,
	[','] = VT,		['-' ... '.'] = NM,	['/'] = VT,		['0' ... '9'] = NM,
	[':' ... '@'] = VT,	['A' ... 'Z'] = NM,	['[' ... ']'] = VT,	['^'] = TK,
	['_'] = NM,		['`'] = TK,		['a' ... 'z'] = NM,	['{'] = VT,
	['|'] = TK,		['}'] = VT,		['~'] = TK,		[0x80 ... 0xff] = V,
};
/* clang-format on */

bool http_all(const char *s, size_t n, enum http_char class)
{
	for (size_t i = 0; i < n; i++)
		if (!http_char_is((uint8_t)s[i], class))
			return false;
	return true;
}

bool http_is_token(const char *s, size_t n)
{
	return n && http_all(s, n, HTTP_CHAR_TOKEN);
}

bool http_same_word(const char *s, size_t n, const char *word)
{
	for (size_t i = 0; i < n; i++) {
		uint8_t c = (uint8_t)s[i];
		if (c >= 'A' && c <= 'Z')
			c |= 0x20;
		if (!c || c != (uint8_t)word[i])
			return false;
	}
	return word[n] == '\0';
}

static bool is_port(const char *s, size_t n)
{
	if (!n || n > 5 || s[0] == '0')
		return false;
	unsigned port = 0;
	for (size_t i = 0; i < n; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		port = port * 10 + (unsigned)(s[i] - '0');
	}
	return port <= UINT16_MAX;
}

static bool is_ipv6(const char *s, size_t n)
{
	char text[INET6_ADDRSTRLEN];
	if (n >= sizeof(text))
		return false;
	memcpy(text, s, n);
	text[n] = '\0';
	struct in6_addr addr;
	return strlen(text) == n && inet_pton(AF_INET6, text, &addr) == 1;
}

bool http_is_host(const char *s, size_t n)
{
	size_t end;
	if (n && s[0] == '[') {
		const char *bracket = memchr(s, ']', n);
		if (!bracket || !is_ipv6(s + 1, (size_t)(bracket - s) - 1))
			return false;
		end = (size_t)(bracket - s) + 1;
	} else {
		const char *colon = n ? memchr(s, ':', n) : NULL;
		end = colon ? (size_t)(colon - s) : n;
		if (!end || !http_all(s, end, HTTP_CHAR_NAME))
			return false;
	}
	return end == n || (s[end] == ':' && is_port(s + end + 1, n - end - 1));
}

/* The length of "http://" or "https://" at the beginning of target; 0 when there is neither. */
static size_t scheme_len(const char *target)
{
	const char *colon = strstr(target, "://");
	if (!colon)
		return 0;
	size_t n = (size_t)(colon - target);
	return http_same_word(target, n, "http") || http_same_word(target, n, "https") ? n + 3 : 0;
}

bool http_destination_ok(const char *method, const char *target, const char *host, size_t n)
{
	if (host && !http_is_host(host, n))
		return false;
	if (!*target || !http_all(target, strlen(target), HTTP_CHAR_TARGET))
		return false;
	if (strcmp(target, "*") == 0)
		return strcmp(method, "OPTIONS") == 0;

	const char *path = target;
	if (*target != '/') {
		size_t skip = scheme_len(target);
		const char *authority = target + skip;
		size_t len = strcspn(authority, "/?");
		if (!skip || !http_is_host(authority, len))
			return false;
		if (host && (len != n || strncasecmp(authority, host, n) != 0))
			return false;
		path = authority + len;
	}
	return !memchr(path, '\\', strcspn(path, "?"));
}

bool http_method_barred(const char *method)
{
	size_t n = strlen(method);
	return http_same_word(method, n, "connect") || http_same_word(method, n, "trace") ||
	       http_same_word(method, n, "track");
}
