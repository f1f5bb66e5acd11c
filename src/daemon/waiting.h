/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers for an exchange that waits for its answer: what its client still sends is dropped. */
#pragma once

#include "http/server.h"

void waiting_body(void *user, const uint8_t *p, size_t n);
void waiting_event(void *user);

/* All of them but the one that notices the client's leaving. */
#define WAITING_OPS(gone_fn)                                                               \
	{                                                                                  \
		.body = waiting_body, .body_end = waiting_event, .drained = waiting_event, \
		.gone = (gone_fn),                                                         \
	}
