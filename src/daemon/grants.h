/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The grants of a sandbox: which credentials it may use. What is granted stands in its spec
 * (grant_entry.h says how); what runs of it are the broker's values, on their way to the gateway.
 *
 *   made from a request ─► begun with the sandbox ─► in the gateway's configuration ─► renewed …
 *   added to a running one, or revoked, at any time
 */
#pragma once

#include "daemon/sandbox.h"
#include "http/server.h"
#include "policy/policy.h"

/* Makes a grant of an entry as the API takes it, in place: what the node's store says of it, its
   end, its variables. n may be NULL for entries that are not stored. 0, -EINVAL, -ENOENT, -ENOMEM.
 */
int grants_make(struct node *n, json_t *entry, struct err *e);

/* All that a request's "secrets" and its policy's credentials (grants already, without values; may
   be NULL) grant, with the values that it brings for them in "values": a new reference. 0, as
   above. */
int grants_from_request(struct node *n, const json_t *request, json_t *credentials, json_t **ret,
			struct err *e);

/* Whether those that live fit each other, and are for hosts that p allows. 0, -EINVAL, -ENOMEM. */
int grants_check(const json_t *entries, const struct policy *p, struct err *e);

bool grants_named_twice(const json_t *entries); /* some name */

/* Names of those that live: a new reference. */
json_t *grants_names(const json_t *entries);

/* Before a resume: values for those that have none from elsewhere. All that live must get one,
   unless without. 0, -EINVAL. */
int grants_complete(json_t *entries, const json_t *given, bool without, struct err *e);
void grants_forget_values(json_t *entries);

/* What a child gets, with placeholders of its own: a new list. NULL with e set. */
json_t *grants_inherit(const json_t *entries, struct err *e);

/* Makes what spec, of a child, was granted a list of strays. 0 or -ENOMEM with e set. */
int grants_leave(struct sandbox_spec *spec, struct err *e);

/* From now on the broker brings its values. resumed: it had its grants before. 0 or -errno. */
int grants_begin(struct sandbox *sb, bool resumed, struct err *e);

/* As above, for one that an earlier spaced has left: if it runs, its gateway goes on with the
   values that it has. */
void grants_adopt(struct sandbox *sb);

/* What its gateway is configured with: a new list; NULL: no memory. Values are on no other list
   after that. */
json_t *grants_for_gateway(struct sandbox *sb);

/* The gateway stands: it is told what has changed meanwhile. */
void grants_gateway_stands(struct sandbox *sb);

/* Whether the gateway has all that there is to have: sandbox_settled() is called when it does. */
bool grants_settled(const struct sandbox *sb);

/* A record of the gateway. */
void grants_recorded(struct sandbox *sb, const json_t *event);

/* It has no gateway any more. */
void grants_end(struct sandbox *sb);

/* Whether a Start message (borrowed) gives a variable of a living credential another value than its
   placeholder: that may be the real one, which is not to come into the guest. -EINVAL. */
int grants_check_variables(const json_t *entries, const json_t *start, struct err *e);

/* The variables of what is granted, into a Start message, where that says nothing of them: those of
   grants that came later are in no process's environment. -EINVAL as above. */
int grants_set_variables(const struct sandbox *sb, json_t *start, struct err *e);

/* The API: GET, POST /sandboxes/REF/grants; DELETE /sandboxes/REF/grants/NAME. */
void grants_list(struct sandbox *sb, struct http_exchange *x);
void grants_add(struct sandbox *sb, struct http_exchange *x, const char *body, size_t n);
void grants_revoke(struct sandbox *sb, struct http_exchange *x, const char *name);
