/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest policy for what a sandbox did: its audit records in, a document out. One rule for
 * each host, port and scheme, with the methods that were used and the paths, in which what looks
 * like an identifier becomes '*', and what branches much becomes '**'. The order of requests does
 * not matter.
 */
#pragma once

#include <jansson.h>

#include "base/err.h"

struct learn;

struct learn *learn_new(void);
void learn_free(struct learn *l); /* NULL is fine */

/* Takes a record of the sandbox; those that allowed nothing are passed over. 0 or -ENOMEM. */
int learn_take(struct learn *l, const json_t *record);

/* The policy as YAML: a heap string. What was denied, pinned, limited and sent through a proxy by
   the policy that the sandbox had last stays so. NULL with e set. */
char *learn_to_yaml(const struct learn *l, struct err *e);

size_t learn_rules(const struct learn *l);
