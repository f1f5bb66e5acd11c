/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values at rest: AES-256-GCM under the node's key, with a random nonce for each and its owner's
 * name as associated data, so that none can be put in another's place. Source: NIST SP 800-38D
 * (random nonces of 96 bits are good for 2^32 values).
 *
 * The key is a file of its own, outside the database: a copy of the one is nothing without the
 * other. In memory it is locked, and left out of dumps and of children.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define SEAL_OVERHEAD 29 /* bytes that a sealed value has more than the value */

struct seal;

/* Opens the key in path (which is absolute). make: makes one where there is no such file. A file
   that is there is never written. NULL with e set, saying what to do: ENOKEY (none, and not to be
   made), EPERM (others than its owner, who must be us, can read or write it), EBADMSG (it is no
   key), ENOMEM, an errno. */
struct seal *seal_open(const char *path, bool make, struct err *e);
void seal_close(struct seal *s); /* wipes; NULL is fine */

/* A heap block of n + SEAL_OVERHEAD bytes. 0, -ENOMEM, -EIO. */
int seal_wrap(const struct seal *s, const char *name, const void *p, size_t n, uint8_t **ret,
	      size_t *ret_len, struct err *e);

/* A heap block of *ret_len bytes and a NUL, the caller's to wipe. 0; -EBADMSG: damaged, sealed with
   another key, or for another name; -ENOMEM. */
int seal_unwrap(const struct seal *s, const char *name, const void *p, size_t n, char **ret,
		size_t *ret_len, struct err *e);
