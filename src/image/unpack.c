/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decompression through libarchive. Just the one filter that the magic names is enabled: its "all"
 * set would also start external programs for formats that it can't do itself.
 */
#include "image/unpack.h"

#include <archive.h>
#include <errno.h>
#include <string.h>

struct packing {
	const char *magic;
	size_t magic_len;
	int (*support)(struct archive *);
};

static const struct packing packings[] = {
	{"\x1f\x8b\x08", 3, archive_read_support_filter_gzip},
	{"\xfd\x37\x7a\x58\x5a\x00", 6, archive_read_support_filter_xz},
	{"\x28\xb5\x2f\xfd", 4, archive_read_support_filter_zstd},
	{"\x04\x22\x4d\x18", 4, archive_read_support_filter_lz4},
	{"\x02\x21\x4c\x18", 4, archive_read_support_filter_lz4},
};

static const struct packing *packing_of(const void *p, size_t n)
{
	for (size_t i = 0; i < sizeof(packings) / sizeof(packings[0]); i++)
		if (n >= packings[i].magic_len &&
		    memcmp(p, packings[i].magic, packings[i].magic_len) == 0)
			return &packings[i];
	return NULL;
}

bool unpack_knows(const void *p, size_t n)
{
	return packing_of(p, n) != NULL;
}

static int damaged(struct archive *a, struct err *e)
{
	const char *why = archive_error_string(a);
	return err_set(e, EINVAL, "damaged compressed data: %s", why ? why : "unknown reason");
}

static int read_stream(struct archive *a, const void *p, size_t n, struct buf *out, struct err *e)
{
	struct archive_entry *entry;
	if (archive_read_open_memory(a, p, n) != ARCHIVE_OK ||
	    archive_read_next_header(a, &entry) != ARCHIVE_OK)
		return damaged(a, e);
	for (;;) {
		const void *block;
		size_t len;
		la_int64_t offset;
		int r = archive_read_data_block(a, &block, &len, &offset);
		if (r == ARCHIVE_EOF)
			return 0;
		if (r != ARCHIVE_OK)
			return damaged(a, e);
		r = buf_append(out, block, len);
		if (r == -EMSGSIZE)
			return err_set(e, EMSGSIZE, "unpacks to more than %zu MiB", out->max >> 20);
		if (r < 0)
			return err_set(e, ENOMEM, "not enough memory to unpack");
	}
}

int unpack(const void *p, size_t n, struct buf *out, struct err *e)
{
	const struct packing *packing = packing_of(p, n);
	if (!packing)
		return err_set(e, EINVAL, "compressed in an unknown way");
	struct archive *a = archive_read_new();
	if (!a)
		return err_set(e, ENOMEM, "not enough memory to unpack");
	archive_read_support_format_raw(a);
	int r;
	if (packing->support(a) != ARCHIVE_OK)
		r = err_set(e, EINVAL, "libarchive lacks this compression");
	else
		r = read_stream(a, p, n, out, e);
	archive_read_free(a);
	return r;
}
