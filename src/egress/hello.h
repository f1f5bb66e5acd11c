/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ClientHello of TLS that is passed on unread: which server it asks for. Sans-I/O, and stricter
 * than any server, so that nobody reads another name in it than we do. Source: RFC 8446 sections
 * 4.1.2, 4.2 and 5.1, RFC 6066 section 3, RFC 9849 for the encrypted one.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "policy/policy.h"

#define HELLO_MAX \
	(16UL * 1024) /* bytes of the message; with post-quantum keys they have some 2 KiB */
#define HELLO_WIRE_MAX (24UL * 1024) /* bytes of the records that bring it */

struct hello {
	bool named;
	char sni[POLICY_HOST_MAX]; /* canonical */
	bool ech; /* another hello is encrypted in it, or what looks like one; sni is the outer name
		   */
};

/* Puts it together from records and segments of any size. Private members. */
struct hello_reader {
	struct buf message;
	size_t wire; /* bytes of the records begun */
	uint8_t head[5];
	size_t head_len;
	size_t left; /* bytes of the record that are still to come */
};

void hello_init(struct hello_reader *r);
void hello_done(struct hello_reader *r); /* may be called twice */

/*
 * Takes the next n bytes as they came. 0: it is whole, in ret (what came behind its last record is
 * not looked at); -EAGAIN: go on. Else it must not be passed on, with e saying why: -EBADMSG, or
 * -EMSGSIZE past a limit, -ENOMEM.
 */
int hello_feed(struct hello_reader *r, const uint8_t *p, size_t n, struct hello *ret,
	       struct err *e);
