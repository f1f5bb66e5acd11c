/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that are event streams (docs/api.md): JSON messages in envelopes, and a last one. */
#pragma once

#include <jansson.h>

#include "http/server.h"

#define EVENT_MAX (1u << 20) /* bytes of one event */

/* Begins the answer. 0 or -errno, with x not answered. */
int event_stream_open(struct http_exchange *x);

/* Sends an event, which it takes over. */
void event_stream_send(struct http_exchange *x, json_t *event);

/* Ends it, with an error unless code is NULL; x is dead. */
void event_stream_end(struct http_exchange *x, const char *code, const char *message);
