/* SPDX-License-Identifier: Apache-2.0 */
/* An entry of a document, and errors that say where in it something is wrong. */
#pragma once

#include "policy/policy.h"

/* index is SIZE_MAX for a section that is one mapping instead of a list of them. */
struct entry {
	const struct doc *doc;
	const json_t *value;
	const char *section;
	size_t index;
	struct err *e;
};

/* "NAME:LINE:COLUMN: egress[2].host: what is wrong". Names the place of the field when it has one,
 * else the entry's. -EINVAL. */
int entry_error(const struct entry *at, const char *field, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* As above for item number i of a list. */
int entry_item_error(const struct entry *at, const char *field, size_t i, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* The first member that is not in the NULL-terminated list, or NULL. */
const char *unknown_member(const json_t *obj, const char *const *known);

/* The entry is an object with no fields but these; allowed names them for the error. */
int entry_check(const struct entry *at, const char *const *known, const char *allowed);

/* A member, or NULL where it is missing or null. */
const json_t *entry_get(const struct entry *at, const char *field);

/* A string member; *ret stays NULL when it is missing and may be. */
int entry_string(const struct entry *at, const char *field, bool must, const char **ret);
int entry_bool(const struct entry *at, const char *field, bool *ret); /* false when missing */

/* An item of a list as a string without NUL; NULL. */
const char *item_string(const json_t *item);

/* The limits of an entry: a mapping, each member of it a number. And back: NULL where there is
 * none. */
int read_limits(const struct entry *at, struct policy_limits *ret);
json_t *limits_to_json(const struct policy_limits *limits);
