/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scoped ownership: a variable declared auto_x is released when its scope ends,
 * unless take_ptr() or take_fd() has handed it on.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void cleanup_file(FILE **f)
{
	if (*f)
		fclose(*f);
}

#define auto_free __attribute__((cleanup(cleanup_free)))
#define auto_fd   __attribute__((cleanup(cleanup_fd)))
#define auto_file __attribute__((cleanup(cleanup_file)))

/* Yields *p and leaves NULL behind. */
#define take_ptr(p)                         \
	({                                  \
		__typeof__(p) taken_ = (p); \
		(p) = NULL;                 \
		taken_;                     \
	})

/* Yields fd and leaves -1 behind. */
#define take_fd(fd)                \
	({                         \
		int taken_ = (fd); \
		(fd) = -1;         \
		taken_;            \
	})
