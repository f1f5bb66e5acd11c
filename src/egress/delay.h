/* SPDX-License-Identifier: Apache-2.0 */
/* What waits a while, everything for the same time: one timer for all of it. */
#pragma once

#include <uv.h>

#include "base/list.h"

struct delay {
	uv_timer_t timer;
	struct list waiting; /* in the order in which they are due */
	uint64_t ms;
};

/* Zero-initialised: it does not wait. */
struct delayed {
	struct list link;
	uint64_t due_ms;
	void (*due)(struct delayed *w); /* once; w may be gone then, or wait anew */
};

void delay_init(struct delay *d, uv_loop_t *loop, uint64_t ms);
void delay_close(struct delay *d); /* nothing waits any more */

void delay_start(struct delay *d, struct delayed *w); /* harmless when it waits already */
void delay_cancel(struct delayed *w);                 /* harmless when it doesn't */
