/* SPDX-License-Identifier: Apache-2.0 */
/* The node's store of credentials: definitions, and the values that were given for them, which are
 * sealed (seal.h) wherever they are at rest. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/definition.h"
#include "daemon/node.h"
#include "http/server.h"

struct credentials; /* all of a node's */

/* Reads them all. A definition that can't be read any more is kept, and said to be wrong where it
 * is used. NULL with e set. */
struct credentials *credentials_open(struct node *n, struct err *e);
void credentials_close(struct credentials *c); /* NULL is fine */

/* What name is; NULL with e set: ENOENT (e says how to set one), EINVAL (it can't be read).
 * Borrowed until the loop goes on. */
const struct definition *credentials_find(const struct node *n, const char *name, struct err *e);

/* The values that were given for it, unsealed: an object, a new reference (empty where there are
   none). NULL with e set: ENOENT, EBADMSG (damaged, or sealed with another key), EIO. */
json_t *credentials_values(const struct node *n, const char *name, struct err *e);

/* How often it was set: what was fetched for another number is not for this one. 0: there is none.
 */
uint64_t credentials_generation(const struct node *n, const char *name);

/* Puts a member of its values in place of the old one (a refresh token that was rotated) and
   returns when that is on disk. When it can't be written it is kept in memory all the same, and is
   written with the next call. 0 or -errno. */
int credentials_replace(struct node *n, const char *name, const char *member, const json_t *value,
			struct err *e);

/* Sets one from the body of a PUT: {"definition", "values"}. It is on disk when this returns, and
 * whoever wants it is told. *ret_there: it was there. 0, -EINVAL (e names the member, and holds no
 * value), -ENOSPC, -errno. */
int credentials_set(struct node *n, const char *name, const char *body, size_t len, bool *ret_there,
		    struct err *e);
int credentials_remove(struct node *n, const char *name, struct err *e); /* 0, -ENOENT, -errno */

/* What could not be written before, if anything. 0 or -errno. */
int credentials_flush(struct node *n, const char *name, struct err *e);

/* The API: GET /secrets; GET, PUT, DELETE /secrets/NAME; POST /secrets/NAME/test. */
#define CREDENTIALS_BODY_MAX (1u << 20) /* bytes */
void credentials_list(struct node *n, struct http_exchange *x);
void credentials_show(struct node *n, const char *name, struct http_exchange *x);
void credentials_put(struct node *n, const char *name, struct http_exchange *x, const char *body,
		     size_t len);
void credentials_delete(struct node *n, const char *name, struct http_exchange *x);
void credentials_test(struct node *n, const char *name, struct http_exchange *x);
