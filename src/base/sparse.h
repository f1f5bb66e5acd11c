/* SPDX-License-Identifier: Apache-2.0 */
/* Files with holes. */
#pragma once

/* Makes the empty file to a copy of from, same size: reflink where the filesystem has it, else data
   extents only. Blocks. 0 or -errno (-ENOSPC, -EDQUOT: to is partly written). */
int sparse_copy(int from, int to);

/* An unnamed file on the filesystem of dir, read-write, mode 0600. A descriptor or -errno. */
int sparse_open_unnamed(const char *dir);
