/* SPDX-License-Identifier: Apache-2.0 */
/* AWS Signature Version 4: signing, and signing streams of chunks anew. Source: AWS General
 * Reference, "Signature Version 4 signing process"; S3 API Reference, "Signature calculations". */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define SIGV4_HEX_SIZE   65  /* a SHA-256 in hex, with the NUL */
#define SIGV4_STAMP_SIZE 17  /* YYYYMMDDTHHMMSSZ, with the NUL */
#define SIGV4_SCOPE_MAX  160 /* bytes */

/* What is signed. All borrowed. */
struct sigv4_field {
	const char *name, *value; /* any case; whitespace is folded as AWS wants it */
};
struct sigv4_request {
	const char *method;
	const char *path;                 /* as sent */
	const char *query;                /* as sent, without '?'; NULL: none */
	const struct sigv4_field *fields; /* all that are to be signed; Host must be among them */
	size_t count;
	const char *payload; /* hex SHA-256, "UNSIGNED-PAYLOAD", "STREAMING-…" */
	const char *service, *region;
	bool encode_once; /* S3: the path is not encoded a second time */
	int64_t now_s;
};
struct sigv4_key {
	const char *id, *secret;
};

/* What the next chunk's signature depends on. Wipe it when done. */
struct sigv4_chain {
	uint8_t key[32];
	char stamp[SIGV4_STAMP_SIZE];
	char scope[SIGV4_SCOPE_MAX];
	char previous[SIGV4_HEX_SIZE];
};

/* Whether a service is of the family of S3, which encodes paths once and is told of the payload in
 * the field X-Amz-Content-Sha256. */
bool sigv4_is_s3(const char *service);

/* The SHA-256 of a payload, in hex. 0, -ENOMEM. */
int sigv4_hash(const void *p, size_t n, char out[SIGV4_HEX_SIZE]);

/* The value of Authorization: a heap string, wiped and freed by the caller. chain may be NULL. 0,
 * -EINVAL, -ENOMEM. */
int sigv4_sign(const struct sigv4_request *q, const struct sigv4_key *key, char **ret,
	       struct sigv4_chain *chain, struct err *e);

/* now_s: Unix time. Empty when that has no four-digit year. */
void sigv4_stamp(int64_t now_s, char out[SIGV4_STAMP_SIZE]);

/* Signs a chunk's data, or the trailers ("name:value\n" each, in order): the signature is in
 * previous then. 0 or -ENOMEM. */
int sigv4_chain_chunk(struct sigv4_chain *c, const void *p, size_t n);
int sigv4_chain_trailers(struct sigv4_chain *c, const char *p, size_t n);

/* A body in aws-chunked form whose chunk signatures are made anew: bytes in, bytes out, of the same
   length, as each chunk head has the same size. What does not parse, or whose chunk is longer than
   AWS allows, is -EBADMSG. A chunk's head is sent when its data is there, so a chunk is held: at
   most max bytes. trailers: the stream ends with signed trailers (STREAMING-…-PAYLOAD-TRAILER). */
struct sigv4_stream;
typedef int (*sigv4_sink)(void *user, const uint8_t *p, size_t n);
struct sigv4_stream *sigv4_stream_new(const struct sigv4_chain *chain, bool trailers, size_t max);

/* 0; -EBADMSG; -ENOMEM; what sink returned when that is < 0. The stream is unusable after one. */
int sigv4_stream_push(struct sigv4_stream *s, const uint8_t *p, size_t n, sigv4_sink sink,
		      void *user, struct err *e);
int sigv4_stream_end(struct sigv4_stream *s, struct err *e); /* -EBADMSG: it was cut short */
void sigv4_stream_free(struct sigv4_stream *s);              /* NULL is fine */
