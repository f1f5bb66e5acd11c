/* SPDX-License-Identifier: Apache-2.0 */
/* Secrets as a gateway holds them: a name, a value in locked memory, the hosts that may get it, how
 * it is put in. */
#pragma once

#include <stddef.h>

#include "base/doc.h"
#include "base/err.h"
#include "policy/policy.h"

#define SECRET_VALUE_MAX (64 * 1024) /* bytes */

struct secrets; /* a set, at most one secret for each host */

struct secrets *secrets_new(void);
void secrets_free(struct secrets *s); /* wipes */

/*
 * Adds one: {"name": "API_TOKEN", "value": "…", "hosts": ["api.example.com"], "placeholder": "…"}.
 * Bearer token. Refused: a name that is no variable's, an empty value, CR, LF, NUL or other control
 * characters in it, hosts that are no name or pattern, a host that another secret has. e never
 * holds the value. 0, -EINVAL, -ENOMEM.
 */
int secrets_add(struct secrets *s, const json_t *secret, struct err *e);

/* For each secret and host: some rule of p must allow https to it, else -EINVAL with e saying which
 * and what to add. */
int secrets_check(const struct secrets *s, const struct policy *p, struct err *e);

/* The secret for this destination (https alone), or NULL. */
struct secret;
const struct secret *secrets_for(const struct secrets *s, const struct policy_dest *dest);
const char *secret_name(const struct secret *s);

/* The value of the Authorization field: a heap string that the caller wipes and frees with
 * secret_text_free(). NULL: no memory. */
char *secret_authorization(const struct secret *s);
void secret_text_free(char *text);

/* True for request fields that carry credentials and are stripped before one is put in
 * (Authorization, Cookie's kin, …). */
bool secret_is_credential_field(const char *name);

/* A value for the guest's variable: random, plausible, worthless. "sp_NAME_" and 32 hex digits;
 * heap string. */
char *secret_placeholder(const char *name);
