/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frames of one side of a WebSocket, whose payload is looked through: of messages as a whole,
 * whatever fragments they come in, and of control frames one by one. Source: RFC 6455, section 5.
 */
#pragma once

#include "vault/scan.h"

#define FRAMES_MAX 256 /* frames that begin before what is held ends; more is an error */

struct frames;

/* As scan_new(). Extended frames (which are compressed, mostly) are an error where strict, else
 * they pass unread. */
struct frames *frames_new(struct needles *n, bool redact, bool strict);
void frames_free(struct frames *f); /* NULL is fine */

int frames_change(struct frames *f, struct needles *n); /* as scan_change() */

/* As scan_push(); -EBADMSG: it is no frame, or there are too many. */
int frames_push(struct frames *f, const uint8_t *p, size_t n, scan_sink sink, void *user,
		unsigned *ret_index);

/* As scan_is_weak() and scan_relent(). Each message is looked through to its end, so there is
 * nothing else to end. */
bool frames_is_weak(const struct frames *f);
void frames_relent(struct frames *f, scan_sink sink, void *user);
