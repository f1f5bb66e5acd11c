/* SPDX-License-Identifier: Apache-2.0 */
/* What 'secret set' and 'grant add' share: what a credential may be used for, and how it is put
 * into requests. */
#pragma once

#include "base/doc.h"
#include "cli/flags.h"

enum scope_flag {
	SCOPE_HOST = 1,
	SCOPE_METHOD,
	SCOPE_PATH,
	SCOPE_TTL,
	SCOPE_USES,
	SCOPE_BYTES,
	SCOPE_HEADER,
	SCOPE_BASIC,
	SCOPE_QUERY,
	SCOPE_SIGV4,
	SCOPE_FLAG_END, /* a verb's own ids start here */
};

/* clang-format off */
#define SCOPE_FLAGS                                                                                                       \
	{SCOPE_HOST,   0, "host",   FLAG_VALUE, "HOST[,HOST]",   "it goes to HOST alone (or *.HOST); may be repeated"},   \
	{SCOPE_METHOD, 0, "method", FLAG_VALUE, "M[,M]",         "for requests with method M alone; may be repeated"},    \
	{SCOPE_PATH,   0, "path",   FLAG_VALUE, "PATTERN",       "for paths like /repos/** alone; may be repeated"},      \
	{SCOPE_TTL,    0, "ttl",    FLAG_VALUE, "TIME",          "a grant of it ends after TIME: 90, 90s, 30m, 1h"},      \
	{SCOPE_USES,   0, "uses",   FLAG_VALUE, "N",             "... after N requests"},                                 \
	{SCOPE_BYTES,  0, "bytes",  FLAG_VALUE, "SIZE",          "... after SIZE up and down: 1000000, 5MB, 1GB"},        \
	{SCOPE_HEADER, 0, "header", FLAG_VALUE, "NAME[=TEMPLATE]", "put it into header NAME; {} in TEMPLATE is the value"}, \
	{SCOPE_BASIC,  0, "basic",  FLAG_VALUE, "USER",          "put it in as USER's password ('': the value is USER:PASSWORD)"}, \
	{SCOPE_QUERY,  0, "query",  FLAG_VALUE, "NAME",          "put it into parameter NAME of the query"},              \
	{SCOPE_SIGV4,  0, "sigv4",  FLAG_VALUE, "SERVICE/REGION", "sign for AWS with it, for this service and region"}
/* clang-format on */

struct scope {
	json_t *members; /* hosts, methods, paths, uses, bytes, inject: as a definition has them */
	uint64_t ttl_ms; /* 0: not said */
};

int scope_init(struct scope *s, struct err *e);
void scope_done(struct scope *s);

/* Takes a flag of SCOPE_FLAGS. -EINVAL; e never holds what may be a value. */
int scope_option(struct scope *s, const struct flag_found *f, struct err *e);

/* Whether any of the flags was given. */
bool scope_given(const struct scope *s);
