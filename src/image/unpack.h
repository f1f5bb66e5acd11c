/* SPDX-License-Identifier: Apache-2.0 */
/* One compressed stream in memory, by its magic: gzip, xz, zstd, lz4 (also the legacy frames of
 * kernels). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/* Whether p[0 .. n) begins like a stream that unpack() knows. */
bool unpack_knows(const void *p, size_t n);

/* Appends the unpacked bytes to out, which bounds them. 0; -EINVAL for damage or an unknown format,
   -EMSGSIZE past out's maximum, -ENOMEM. */
int unpack(const void *p, size_t n, struct buf *out, struct err *e);
