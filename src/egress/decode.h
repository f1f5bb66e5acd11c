/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies in the codings gzip and deflate, decoded slice by slice: what nobody has asked for yet
 * stays as small as it came. Source: RFC 9110, section 8.4.1; RFC 1952.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define DECODE_INPUT_MAX (1024UL * 1024) /* bytes that wait to be decoded */

struct decode;

/* Whether this value of Content-Encoding names one coding that is known here. */
bool decode_knows(const char *coding);

struct decode *decode_new(const char *coding); /* which is known; NULL: no memory */
void decode_free(struct decode *d);            /* NULL is fine; wipes */

/* Takes bytes (copied). 0, -EMSGSIZE past DECODE_INPUT_MAX, -ENOMEM. */
int decode_push(struct decode *d, const void *p, size_t n);

/* The next bytes, at most size. Their count; 0: none without more input; -EBADMSG: it is not what
 * its coding says; -ENOMEM. */
ssize_t decode_pull(struct decode *d, uint8_t *out, size_t size);

/* No byte is missing: the end was reached, or nothing has come at all. */
bool decode_whole(const struct decode *d);
