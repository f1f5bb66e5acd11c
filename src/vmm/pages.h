/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pages of a process's private file mapping that are no longer the file's: from outside, while
 * it stands still. The process may lie, as a monitor does that its guest has taken over: then the
 * result is an error or wrong pages, never more than was asked for.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define PAGE_BYTES 4096

/* Finds where the file with this inode is mapped, privately and writable, from its start to
   ram_bytes in one piece, in the text of /proc/PID/maps. 0, or -ENODATA. */
int pages_find(const char *maps, uint64_t inode, uint64_t ram_bytes, uint64_t *ret_address);

/* Of an entry of /proc/PID/pagemap in such a mapping: the page is a copy, no longer the file's.
   Source: Linux, Documentation/admin-guide/mm/pagemap.rst. */
bool pages_is_copy(uint64_t entry);

bool pages_is_zero(const void *page);

/* Writes the copied pages of process proc_fd (a descriptor of /proc/PID) over those of memory_fd, a
   file of ram_bytes; zeroes are punched out. base_fd: the file that it has mapped. Blocks. 0 or
   -errno with e set: -ENODATA when it has not got it mapped, -EIO when it ended meanwhile. */
int pages_capture(int proc_fd, int base_fd, uint64_t ram_bytes, int memory_fd, struct err *e);
