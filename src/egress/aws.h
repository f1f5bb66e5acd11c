/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What requests need that are signed for AWS besides their head: a signature covers the body, so
 * that is hashed before the head goes, or its chunks are signed one by one, unless the guest's
 * client has said what is signed for it. Pure but for memory.
 */
#pragma once

#include "base/buf.h"
#include "http/msg.h"
#include "vault/inject.h"

#define AWS_HELD_MAX  (1024UL * 1024)      /* bytes of a body that is hashed first */
#define AWS_CHUNK_MAX (1024UL * 1024)      /* bytes of a chunk that is signed */
#define AWS_ROOM      (64UL * 1024 * 1024) /* bytes of all bodies and chunks that are held at once */

enum aws_body {
	AWS_PASSES, /* as it comes: what is signed for it is known */
	AWS_HELD,   /* until it is whole */
	AWS_CHUNKS, /* chunk by chunk, each signed anew */
	AWS_CHUNKS_AND_TRAILERS,
};

/* Of one request. Zero is for those that get no such credential. */
struct aws {
	enum aws_body body;
	const char *payload; /* what is signed for the body; NULL: not known yet, or not for AWS.
				Borrowed from the request's head, or from here */
	char hash[SIGV4_HEX_SIZE];
	struct buf held;
	struct sigv4_stream *stream;
	uint64_t *room; /* what all hold; NULL: nothing is taken of it */
	uint64_t taken;
};

/*
 * Judges a request that is to be signed for s, a secret of the kind SECRET_SIGV4. room: bytes held
 * at the moment by all. 0, or the status to refuse it with and why: a presigned URL, a signature of
 * the guest for another service or region, a form of body that is not known or too long.
 */
unsigned aws_begin(struct aws *a, const struct secret *s, const struct http_head *head,
		   uint64_t *room, struct err *why);
void aws_done(struct aws *a);

/* AWS_HELD: keeps bytes of the body; hashes it, when it is whole. 0; -EMSGSIZE past AWS_HELD_MAX;
 * -ENOMEM. e: why, for the guest. */
int aws_hold(struct aws *a, const uint8_t *p, size_t n, struct err *e);
int aws_hash(struct aws *a, struct err *e);

/* AWS_CHUNKS…: the head was signed, and its chain is the chunks' first. 0, -ENOMEM. */
int aws_follow(struct aws *a, const struct sigv4_chain *chain);
