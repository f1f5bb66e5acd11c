/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who holds which value. A credential's source is asked once for all who want it, ahead of the
 * expiry of what they have; a value is in memory only as long as somebody wants it. While a source
 * fails, what it gave before is good until it expires.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/definition.h"
#include "daemon/node.h"

struct broker;
struct broker_want; /* one who wants a credential's value */

/*
 * The value, and again each time that it changes; always from the loop, never from within
 * broker_want(). Either value is set: as an entry's "value" (docs/internals/gateway-control.md),
 * borrowed, json_incref() keeps it; expires_ms is wall-clock time, 0 where the source says none.
 * Or it is NULL, and why says so, naming the credential and never a value:
 *   -EAGAIN  its source fails: "unavailable". A value may come later, for it is asked again
 *   -ENOENT  it was removed, or set anew as something else (another scope or recipe): what was
 *            granted from it is to be revoked. Nothing more will come
 * (why->code is the positive number.) broker_unwant() may be called from within.
 */
typedef void (*broker_told)(void *user, const json_t *value, uint64_t expires_ms,
			    const struct err *why);

/* Of a credential in the node's store. NULL with e set: ENOENT (no such credential; e says how to
 * set one), ENOMEM. */
struct broker_want *broker_want(struct node *n, const char *name, broker_told told, void *user,
				struct err *e);

/* Of one that a policy file defines (kinds SOURCE_COMMAND and SOURCE_SYSTEMD alone: the others are
   not for us to fetch, or are in the store). d is copied. All who want the same from the same
   source share it. NULL with e set: EINVAL, ENOMEM. */
struct broker_want *broker_want_defined(struct node *n, const struct definition *d,
					broker_told told, void *user, struct err *e);

/* It is wanted no longer; NULL is fine. With the last one the value is wiped. */
void broker_unwant(struct broker_want *w);

/* Asks its source now, whatever is known; who wants it gets what comes. tested is called once, from
   the loop: code 0 or why it fails. expires_ms as above. 0; -ENOENT, -ENOMEM: it is not called. */
typedef void (*broker_tested)(void *user, uint64_t expires_ms, const struct err *why);
int broker_test(struct node *n, const char *name, broker_tested tested, void *user, struct err *e);

/* What GET /secrets shows of it: when what is held expires (0: not held, or no expiry), and why its
   source failed last (NULL: it did not). Borrowed until the loop goes on. */
void broker_show(const struct node *n, const char *name, uint64_t *ret_expires_ms,
		 const char **ret_problem);

/* The store tells: name was set anew; rescoped: as something else. Or it was removed. */
void broker_changed(struct node *n, const char *name, bool rescoped);
void broker_removed(struct node *n, const char *name);

/* One for a node; NULL with e set. */
struct broker *broker_new(struct node *n, struct err *e);

/* Ends what is being fetched (waiting for those that must not be lost), wipes; whoever still wants
   something is told no more. NULL is fine. */
void broker_free(struct broker *b);
