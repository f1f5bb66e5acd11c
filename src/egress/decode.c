/* SPDX-License-Identifier: Apache-2.0 */
/* A gzip body may be several in a row, and what servers call deflate is with or without the frame
 * of zlib: the first two bytes tell. */
#include "egress/decode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#include "base/buf.h"

#define GZIP_BITS (MAX_WBITS + 16)
#define RAW_BITS  (-MAX_WBITS)

struct decode {
	z_stream z;
	struct buf input;
	bool gzip;
	bool open;  /* z is initialised */
	bool ended; /* the end of (one of) its streams was reached, no other has begun */
	bool junk;  /* what follows is none, and is dropped */
};

bool decode_knows(const char *coding)
{
	return !strcasecmp(coding, "gzip") || !strcasecmp(coding, "x-gzip") ||
	       !strcasecmp(coding, "deflate");
}

struct decode *decode_new(const char *coding)
{
	struct decode *d = calloc(1, sizeof(*d));
	if (!d)
		return NULL;
	d->gzip = strcasecmp(coding, "deflate") != 0;
	buf_init(&d->input, DECODE_INPUT_MAX);
	return d;
}

void decode_free(struct decode *d)
{
	if (!d)
		return;
	if (d->open)
		inflateEnd(&d->z);
	if (d->input.len)
		explicit_bzero(d->input.data, d->input.len);
	buf_done(&d->input);
	free(d);
}

int decode_push(struct decode *d, const void *p, size_t n)
{
	return d->junk ? 0 : buf_append(&d->input, p, n);
}

bool decode_whole(const struct decode *d)
{
	return d->ended || (!d->open && !d->input.len);
}

static int window_bits(const struct decode *d)
{
	const uint8_t *p = d->input.data;
	if (d->gzip)
		return GZIP_BITS;
	bool framed = (p[0] & 0x0f) == Z_DEFLATED && (p[0] << 8 | p[1]) % 31 == 0;
	return framed ? MAX_WBITS : RAW_BITS;
}

/* A stream begins, or another one. 1; 0: it takes more input to know; -ENOMEM. */
static int decode_begin(struct decode *d)
{
	const uint8_t *p = d->input.data;
	if (d->input.len < 2)
		return 0;
	if (d->ended && !(d->gzip && p[0] == 0x1f && p[1] == 0x8b)) {
		d->junk = true;
		buf_done(&d->input);
		return 0;
	}
	int r = d->open ? inflateReset(&d->z) : inflateInit2(&d->z, window_bits(d));
	if (r != Z_OK)
		return -ENOMEM;
	d->open = true;
	d->ended = false;
	return 1;
}

/* One step. 1; 0 when it takes more input; -EBADMSG; -ENOMEM. */
static int decode_step(struct decode *d)
{
	if (!d->open || d->ended) {
		int r = decode_begin(d);
		if (r <= 0)
			return r;
	}
	d->z.next_in = d->input.data;
	d->z.avail_in = (unsigned)d->input.len;
	int r = inflate(&d->z, Z_NO_FLUSH);
	buf_consume(&d->input, d->input.len - d->z.avail_in);
	if (r == Z_STREAM_END)
		d->ended = true;
	else if (r == Z_MEM_ERROR)
		return -ENOMEM;
	else if (r != Z_OK && r != Z_BUF_ERROR)
		return -EBADMSG;
	return r != Z_BUF_ERROR;
}

ssize_t decode_pull(struct decode *d, uint8_t *out, size_t size)
{
	d->z.next_out = out;
	d->z.avail_out = (unsigned)size;
	while (d->z.avail_out == size) {
		int r = decode_step(d);
		if (r <= 0)
			return r;
	}
	return (ssize_t)(size - d->z.avail_out);
}
