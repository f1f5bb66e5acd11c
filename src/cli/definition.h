/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions of credentials (docs/credentials.md) as far as the command line has to know them:
 * which values belong to one, and who reads them. */
#pragma once

#include "base/doc.h"
#include "base/err.h"
#include "cli/value.h"

/* How a definition or an entry is put into requests: "bearer" when it doesn't say. Borrowed. */
const char *definition_kind(const json_t *definition);

/* The first member of its source, such as "env", "command"; NULL when it has none. Borrowed. */
const char *definition_source(const json_t *definition);

/* What "secret set" has to give for it: true with *ret_form, or false: spaced fetches all of it. */
bool definition_takes_values(const json_t *definition, enum value_form *ret_form);

/* The mapping in a file; a new reference in *ret. 0, -EINVAL, -errno. */
int definition_load(const char *path, json_t **ret, struct err *e);

/*
 * Values for the credentials of a policy ({"name","text"}) whose source is our environment or a
 * file: {"NAME": value}, a new reference, empty when there is none. What is wrong with the document
 * itself is left to spaced. 0, -EINVAL, -ENOENT.
 */
int definition_policy_values(const json_t *policy, json_t **ret, struct err *e);
