/* SPDX-License-Identifier: Apache-2.0 */
/* Writes one JSON object as text, for records and refusals, without a tree behind it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct record {
	struct buf *out; /* the text goes to its end */
	int error;       /* the first failure, -errno; members after it are dropped */
	bool first;      /* the next member is the first of its object */
};

/* Begins an object at the end of out. */
void record_open(struct record *r, struct buf *out);

/* Members. A NULL value is null. Bytes that are not UTF-8 become U+FFFD. */
void record_string(struct record *r, const char *key, const char *value);
void record_number(struct record *r, const char *key, uint64_t value);
void record_bool(struct record *r, const char *key, bool value);

/* Begins an object as the member key; ended by record_close, like the outer one. */
void record_object(struct record *r, const char *key);

/* Ends the innermost open object. 0 or the first failure of the record. */
int record_close(struct record *r);
