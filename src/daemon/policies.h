/* SPDX-License-Identifier: Apache-2.0 */
/* Policies in requests: read, checked, and asked what they would decide. docs/api.md says what is
 * asked and answered. */
#pragma once

#include "base/doc.h"
#include "daemon/node.h"
#include "http/server.h"
#include "policy/policy.h"

/*
 * What the members "policy" ({"name","text"}: the file's name for errors, and what is in it) and
 * "allow" of a request say, both optional: a policy, in any case. ret_credentials: the grants of
 * its `credentials:` (grant_entry.h), a new list, without values; NULL: there may be none. n: where
 * stored ones are looked up. 0, -EINVAL, -ENOMEM.
 */
int policies_from_request(struct node *n, const json_t *request, struct policy **ret,
			  json_t **ret_credentials, struct err *e);

/* POST /policies/check and /policies/explain: body is the request's JSON; answers x. */
void policies_check(struct node *n, struct http_exchange *x, const char *body, size_t len);
void policies_explain(struct node *n, struct http_exchange *x, const char *body, size_t len);
