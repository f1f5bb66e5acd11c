/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The alphabets and small grammars of HTTP/1.1 that reader and writer share, so that neither can
 * let through what the other refuses. Private to this room.
 * Source: RFC 9110, sections 5.5 and 5.6.2; RFC 9112, section 3.2; RFC 3986, section 3.2.2.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_fields;

enum http_char {
	HTTP_CHAR_TOKEN = 1, /* methods, field names */
	HTTP_CHAR_VALUE = 2, /* field values, reason phrases: HT, SP, visible ASCII, 0x80 .. 0xff */
	HTTP_CHAR_TARGET = 4, /* request targets: visible ASCII but '#' */
	HTTP_CHAR_NAME = 8,   /* host names: letters, digits, '-', '.', '_' */
};

/* The classes (enum http_char, or-ed) of each byte. */
extern const uint8_t http_chars[256];

static inline bool http_char_is(uint8_t c, enum http_char class)
{
	return http_chars[c] & class;
}

/* True when s[0 .. n) has only bytes of that class. */
bool http_all(const char *s, size_t n, enum http_char class);

bool http_is_token(const char *s, size_t n); /* not empty */

/* True when s[0 .. n) is word, which is in lower case, in any case of ASCII. */
bool http_same_word(const char *s, size_t n, const char *word);

/*
 * True for a host as Host and an authority may name it: a name, an IPv4 address or an IPv6 address
 * in brackets, then perhaps ":port" (1 .. 65535, no leading zero). Narrower than RFC 3986:
 * neither percent-encoding nor sub-delims, which resolvers and peers read in different ways.
 */
bool http_is_host(const char *s, size_t n);

/*
 * Checks where a request goes: the target (NUL-terminated) is origin-form, absolute-form with http
 * or https, or "*" for OPTIONS, without '\' in the path; host[0 .. n), NULL where there is none, is
 * a host, and equal to the authority of an absolute-form but for case.
 */
bool http_destination_ok(const char *method, const char *target, const char *host, size_t n);

/* CONNECT, TRACE, TRACK in any case: never read, never written. */
bool http_method_barred(const char *method);

/*
 * Appends copies of spans that were checked already: n bytes of name and len of value, without
 * leading or trailing white space. 0, -E2BIG, -ENOMEM.
 */
int http_fields_append(struct http_fields *f, const char *name, size_t n, const char *value,
		       size_t len);
