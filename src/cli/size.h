/* SPDX-License-Identifier: Apache-2.0 */
/* How big a microVM is, and how much may pass, as flags say it. */
#pragma once

#include <stdint.h>

#include "base/err.h"

#define SIZE_CPUS       1   /* where nothing is said */
#define SIZE_MEMORY_MIB 512 /* the same */

/* What --cpus and --memory hold. 0 or -EINVAL. */
int size_cpus(const char *text, uint64_t *ret, struct err *e);
int size_memory(const char *text, uint64_t *ret_mib, struct err *e);

/* As policies have it: "1000000", "64kB", "5 MB", "1GB" (of 1000), at least 1. 0 or -EINVAL. */
int size_bytes(const char *text, uint64_t *ret, struct err *e);
