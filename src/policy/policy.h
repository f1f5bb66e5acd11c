/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox may reach: documents compiled to rules, and the decision. Pure: no I/O, no clock,
 * no names looked up.
 *
 *   egress:                          # first match wins; nothing matches: denied
 *     - host: api.example.com        # a name, *.x (one label) or **.x (any depth and x itself)
 *       ports: [443]                 # default 443, or 80 with scheme http
 *       scheme: https                # https (default) or http
 *   resolve:                         # names of internal services, which no DNS has
 *     - host: api.internal
 *       address: 10.0.0.7            # opens that address for this name, and no other
 *       ca: |                        # PEM; that service is trusted by it alone; optional
 *         -----BEGIN CERTIFICATE-----
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/doc.h"
#include "base/err.h"

#define POLICY_HOST_MAX    254                   /* bytes with the NUL */
#define POLICY_PATTERN_MAX (POLICY_HOST_MAX + 3) /* with a star in front */

enum policy_scheme { POLICY_HTTPS, POLICY_HTTP };

/* The one canonical destination of a request. */
struct policy_dest {
	enum policy_scheme scheme;
	char host[POLICY_HOST_MAX]; /* canonical: lower-case A-labels, no trailing dot */
	uint16_t port;
	const char *method; /* NULL while only a connection or a name is judged */
	const char *path;   /* canonical, without the query; NULL likewise */
};

struct policy;
struct policy_rule;

/* Compiles a document. e names file, line, column and field. NULL on failure. doc may be dropped
 * afterwards. */
struct policy *policy_compile(const struct doc *doc, struct err *e);
struct policy *policy_new_empty(void); /* allows nothing */
void policy_free(struct policy *p);    /* NULL is fine */

/* Adds a rule from the command line: HOST[:PORT], with an optional http:// or https:// before it.
 */
int policy_allow(struct policy *p, const char *spec, struct err *e);

/* The document of a policy as a JSON tree that policy_compile takes back: how it travels to a
 * gateway. New reference. */
json_t *policy_to_json(const struct policy *p);
struct policy *policy_from_json(const json_t *j, struct err *e);

/* The canonical spelling of a host name. Refuses what egress-conformance refuses: empty or long
   labels, long names, IP addresses in any spelling, characters other than letters, digits, '-' and
   '_'. 0 or -EINVAL. */
int policy_host_canonical(const char *s, size_t n, char ret[POLICY_HOST_MAX], struct err *e);

/* As above for patterns that a person wrote: also *.x and **.x, but no lone *, no *x, no public
   suffix behind the star; internationalised names become A-labels. Match only what
   policy_pattern_canonical has written. */
int policy_pattern_canonical(const char *s, char ret[POLICY_PATTERN_MAX], struct err *e);
int policy_pattern_check(const char *s, struct err *e);
bool policy_pattern_matches(const char *pattern, const char *host);

/* The path in the one form that is matched and sent: 0 with ret (a heap string: path without query)
   set, or -EINVAL with the reason for dot segments, "//", %5C, %2F, encoded NUL, double encoding,
   bad escapes. */
int policy_path_canonical(const char *target, char **ret_path, const char **ret_query,
			  struct err *e);

struct policy_verdict {
	bool allow;
	char rule[320]; /* the rule that decided, as text; "default deny" where none did */
	char hint[320]; /* on denial: the smallest rule that would allow it, as a command-line flag
			 */
};

void policy_decide(const struct policy *p, const struct policy_dest *dest,
		   struct policy_verdict *ret);

/* Whether any rule could allow some connection to this name: whether DNS answers it. */
bool policy_knows_host(const struct policy *p, const char *host);

/* The pin for a name, or false. ca is NULL where the system's store decides. Borrowed. */
bool policy_resolve(const struct policy *p, const char *host, const char **ret_address,
		    const char **ret_ca);
