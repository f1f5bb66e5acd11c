/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multipart/form-data, sans-I/O: bytes of the body in, parts out, their data as runs inside the
 * input. Nothing but part heads is ever stored.
 * Source: RFC 7578, RFC 2046 section 5.1; file names as browsers write them (HTML, "multipart form
 * data").
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"

#define MULTIPART_BOUNDARY_MAX 70          /* bytes. Source: RFC 2046 */
#define MULTIPART_HEAD_MAX     (16 * 1024) /* bytes of one part's head */

enum multipart_event {
	MULTIPART_MORE, /* everything given was used; feed more */
	MULTIPART_PART, /* a part begins: name and filename are valid until the next one */
	MULTIPART_DATA, /* data, len: some of its bytes */
	MULTIPART_PART_END,
	MULTIPART_END, /* the closing boundary was read; what follows is ignored */
};

struct multipart {
	const uint8_t *data; /* for MULTIPART_DATA, valid until the next call */
	size_t len;
	char *name;     /* NULL: the part has none */
	char *filename; /* NULL: none */

	char delimiter[MULTIPART_BOUNDARY_MAX + 5]; /* private, all below: CR LF -- boundary */
	size_t delimiter_len;
	size_t matched; /* bytes of the delimiter seen at the end of the input so far */
	unsigned state;
	struct buf head;
};

/* Starts with the boundary in a Content-Type's value. 0, -EINVAL when it has none that is valid, or
 * names another type. */
int multipart_init(struct multipart *m, const char *content_type);
void multipart_done(struct multipart *m);

/*
 * Takes bytes of p[0 .. n) and reports one event in *ret. Returns the bytes used: call again with
 * the rest until the event is MULTIPART_MORE or MULTIPART_END. -EBADMSG, -ENOMEM.
 */
ssize_t multipart_read(struct multipart *m, const uint8_t *p, size_t n, enum multipart_event *ret);

/* Whether the closing boundary was read. */
bool multipart_complete(const struct multipart *m);
