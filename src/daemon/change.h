/* SPDX-License-Identifier: Apache-2.0 */
/* Another policy for a sandbox that is there. docs/api.md says what is asked and answered. */
#pragma once

#include "daemon/sandbox.h"
#include "http/server.h"

/* PUT /sandboxes/REF/policy: answers x when the sandbox's gateway obeys it, or has refused it. */
void change_policy(struct sandbox *sb, struct http_exchange *x, const char *body, size_t n);

/* GET /sandboxes/REF/policy */
void change_show(struct sandbox *sb, struct http_exchange *x);

/* The gateway of a sandbox that was taken over stands: what the spaced before may not have told it
 * to its end is told again. */
void change_again(struct sandbox *sb);
