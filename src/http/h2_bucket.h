/* SPDX-License-Identifier: Apache-2.0 */
/* How often a peer of HTTP/2 may do what costs it nothing: so many at once, and so many a second
 * (CVE-2023-44487 and its kin). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct h2_bucket { /* zero-initialised is empty */
	unsigned level;
	uint64_t at_ms; /* when it last leaked */
};

/* One more. False: that is too often. rate: a second. */
static inline bool h2_bucket_charge(struct h2_bucket *b, uint64_t now_ms, unsigned burst,
				    unsigned rate)
{
	uint64_t leaked = (now_ms - b->at_ms) * rate / 1000;
	if (leaked) {
		b->level = leaked < b->level ? b->level - (unsigned)leaked : 0;
		b->at_ms = now_ms;
	}
	return ++b->level <= burst;
}
