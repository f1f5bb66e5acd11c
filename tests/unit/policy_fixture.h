/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of policies: documents as text. */
#pragma once

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/doc.h"
#include "policy/policy.h"

#define EACH(i, table)                        \
	size_t i = 0;                         \
	i < sizeof(table) / sizeof(*(table)); \
	i++

/* The caller's to free. NULL with e set, which may be NULL. */
static inline struct policy *compile(const char *text, struct err *e)
{
	struct doc doc;
	if (doc_load(&doc, "p.yaml", text, strlen(text), e) < 0)
		return NULL;
	struct policy *p = policy_compile(&doc, e);
	doc_done(&doc);
	return p;
}

static inline struct policy *compiled(const char *text)
{
	struct err e = {0};
	struct policy *p = compile(text, &e);
	if (!p)
		fail_msg("%s", e.text);
	return p;
}

/* text does not compile, for the reason said. */
static inline void assert_wrong(const char *text, const char *reason)
{
	struct err e = {0};
	if (compile(text, &e))
		fail_msg("compiled: %s", text);
	if (!strstr(e.text, reason))
		fail_msg("%s\nsays: %s", text, e.text);
	assert_int_equal(e.code, EINVAL);
}
