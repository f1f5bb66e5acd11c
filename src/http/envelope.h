/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connect protocol envelopes: one flag byte, a big-endian 32-bit length, the payload.
 * Source: connectrpc.com, "Connect protocol reference", enveloped messages.
 */
#pragma once

#include <sys/types.h>

#include "base/buf.h"

#define ENVELOPE_HEAD 5 /* bytes */
enum envelope_flag {
	ENVELOPE_MESSAGE = 0x00,
	ENVELOPE_END = 0x02, /* the last one: {} or {"error":{"code","message"}} */
};

struct envelope {
	enum envelope_flag flag;
	const uint8_t *payload; /* inside the input */
	size_t len;
};

/* Reads one envelope from p[0 .. n) with a payload of at most max bytes. Returns the bytes
   consumed, -EAGAIN when more are needed, -EMSGSIZE past max, -EBADMSG for other flags (compression
   is never negotiated). */
ssize_t envelope_read(const uint8_t *p, size_t n, size_t max, struct envelope *ret);

/* Appends one. 0, -EMSGSIZE, -ENOMEM. */
int envelope_write(struct buf *out, enum envelope_flag flag, const void *payload, size_t len);
