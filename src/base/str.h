/* SPDX-License-Identifier: Apache-2.0 */
/* Strings, numbers as people write them, base64 and hex. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

bool str_eq(const char *a, const char *b); /* false when either is NULL */
bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);

/* Lower-cases ASCII in place. */
void str_lower(char *s);

/* printf to the heap; NULL when there is no memory. */
char *str_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A whole decimal number, digits alone, within [min, max]. 0, -EINVAL, -ERANGE. */
int str_to_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret_value);

/* "512", "512M", "1G", "8g": MiB; a bare number is MiB. 0, -EINVAL, -ERANGE. */
int str_to_mib(const char *s, uint64_t *ret_mib);

/* "64kB", "5 MB", "1GB" (powers of 1000): bytes, from 1 to what JSON holds. 0, -EINVAL, -ERANGE. */
int str_to_bytes(const char *s, uint64_t *ret_bytes);

/* "90", "90s", "5m", "2h": milliseconds; a bare number is seconds. 0, -EINVAL, -ERANGE. */
int str_to_ms(const char *s, uint64_t *ret_ms);

/* True for [a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}: names of sandboxes and images. */
bool str_is_name(const char *s);

/* True for [A-Za-z_][A-Za-z0-9_]*, at most 255 bytes: names of environment variables. */
bool str_is_env_name(const char *s);

/* True when p[0 .. n) is valid UTF-8 (no surrogates, no overlong forms). */
bool str_is_utf8(const void *p, size_t n);

/* Drops an unfinished UTF-8 sequence at the end of s, as cutting it to a size leaves one. */
void str_drop_partial(char *s);

/* True for names of HTTP fields that are one name to servers in the way of CGI, to which '_' is '-'
   and case nothing. Source: RFC 3875, section 4.1.18. */
bool str_same_field(const char *a, const char *b);

/* Lower-case hex of n bytes into out[2n + 1]. */
void hex_encode(const void *p, size_t n, char *out);

/* Standard alphabet, padded. out needs base64_encoded_len(n) + 1 bytes; a NUL is written. Returns
 * the length. */
size_t base64_encoded_len(size_t n);
size_t base64_encode(const void *p, size_t n, char *out);

/* Takes the standard and the URL-safe alphabet, padded or not, nothing else. out needs n / 4 * 3 +
   3 bytes. Returns the count of bytes, or -EBADMSG. */
ssize_t base64_decode(const char *s, size_t n, void *out);
