/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of HTTP/2 as nghttp2 takes and gives them, on either side of a connection. */
#pragma once

#include <nghttp2/nghttp2.h>

#include "base/buf.h"
#include "http/msg.h"

/* With the pseudo-fields and content-length, and some that a gateway puts in. */
#define H2_FIELDS_MAX     (HTTP_FIELDS_MAX + 13)
#define H2_FIELD_OVERHEAD 4 /* bytes: what a line of HTTP/1.1 has besides name and value */

struct h2_fields {
	nghttp2_nv nv[H2_FIELDS_MAX]; /* the first count of them */
	size_t count;
	struct buf names; /* of those that were added */
};

void h2_fields_init(struct h2_fields *f);
void h2_fields_done(struct h2_fields *f);

/* One more, in front of those that are added; at most five. Both are borrowed. secret: no table of
   the peer is to remember the value. */
void h2_fields_put(struct h2_fields *f, const char *name, const char *value, bool secret);

/* Adds those of in, whose values are borrowed, but what is of one connection and what framing and
   pseudo-fields say. Names go in lower case; the last so many as secrets says, and what may be one
   by its name, go so that no table of the peer remembers them. Once for each f. 0, -EINVAL,
   -ENOMEM, -E2BIG. */
int h2_fields_add(struct h2_fields *f, const struct http_fields *in, size_t secrets);

/* Whether a field that has come is one by HTTP/1.1's grammar too; strips the value's blanks. */
bool h2_field_ok(const char *name, size_t n, const uint8_t **value, size_t *len);
