/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox may reach: documents compiled to rules, and the decision. Pure: no I/O, no clock,
 * no names looked up.
 *
 *   egress:                       # first match wins; nothing matches: denied
 *     - host: api.example.com     # a name, *.x (one label) or **.x (any depth and x itself)
 *       ports: [443]              # default 443; 80 with scheme http; none with scheme tcp
 *       scheme: https             # https (default), http, tls (passed on unread), tcp (any bytes)
 *       methods: [GET, HEAD]      # https and http; default: all
 *       paths: [/user, /v*]       # the same; * within a segment, ** across; default: all
 *       encodedSlash: true        # %2F may stand in a path (npm's scopes); default false
 *       limits: {requests: 1000}  # of this rule
 *     - host: evil.example.com
 *       deny: true                # what it matches is refused; what it leaves out is everything
 *     - cidr: 10.1.0.0/16         # instead of host: literal addresses, which get no credential
 *       ports: [5432]
 *       scheme: tcp
 *   limits:                       # of the whole sandbox; members as in a rule
 *     requests: 10000             # in all
 *     bytesUp: 1GB                # bytes that the guest sends; a number, or with kB, MB, GB
 *     bytesDown: 10GB
 *     requestsPerMinute: 600
 *     connections: 100            # at once
 *     bodyBytes: 100MB            # of one request
 *     lifetimeSeconds: 3600       # since the policy was set
 *   proxy: {url: "http://proxy.corp.example:3128"}  # or socks5://HOST:PORT: how all of it leaves
 *   resolve:                      # names of internal services, which no DNS has
 *     - host: api.internal
 *       address: 10.0.0.7         # opens that address for this name, and no other
 *       ca: |                     # PEM; that service is trusted by it alone; optional
 *         -----BEGIN CERTIFICATE-----
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/doc.h"
#include "base/err.h"
#include "net/address.h"

#define POLICY_HOST_MAX    254                   /* bytes with the NUL */
#define POLICY_PATTERN_MAX (POLICY_HOST_MAX + 3) /* with a star in front */

#define POLICY_NO_RULE SIZE_MAX

enum policy_scheme { POLICY_HTTPS, POLICY_HTTP, POLICY_TLS, POLICY_TCP, POLICY_SCHEMES };

/* The one canonical destination of a request. */
struct policy_dest {
	enum policy_scheme scheme;
	char host[POLICY_HOST_MAX]; /* canonical: lower-case A-labels, no trailing dot */
	struct address address;     /* of a literal, which is judged by it alone (host may be its
				       text); family 0: there is a name */
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

/* Adds a rule from the command line: HOST[:PORT], with an optional https://, http:// or tls://
 * before it, or tcp://HOST:PORT. */
int policy_allow(struct policy *p, const char *spec, struct err *e);

/* The document of a policy as a JSON tree that policy_compile takes back: how it travels to a
 * gateway. New reference. */
json_t *policy_to_json(const struct policy *p);
struct policy *policy_from_json(const json_t *j, struct err *e);

/* From now on what no rule decides is allowed: any name (no literal address) over https and http,
   at any port. No document of a person's says so; it travels as `learn: true`. */
void policy_learn(struct policy *p);
bool policy_learns(const struct policy *p);

/* The canonical spelling of a host name. Refuses empty or long
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
   set, or -EINVAL with the reason for dot segments, "//", %5C, encoded NUL, double encoding, bad
   escapes. %2F stays: policy_decide() lets it pass where a rule says encodedSlash, and a deny rule
   meets it in either reading. */
int policy_path_canonical(const char *target, char **ret_path, const char **ret_query,
			  struct err *e);

/* A path that a rule may name, in canonical form: '*' is any characters within a segment, a segment
   "**" any number of segments, none included. 0 with a heap string; -EINVAL. */
int policy_path_pattern_canonical(const char *s, char **ret, struct err *e);
bool policy_path_pattern_matches(const char *pattern, const char *path);

/* True for an upper-case method that a rule may name. */
bool policy_method_is_name(const char *s);

/* 0 in a member: no limit. */
struct policy_limits {
	uint64_t requests;
	uint64_t requests_per_minute;
	uint64_t connections; /* at once */
	uint64_t bytes_up, bytes_down;
	uint64_t body_bytes; /* of one request */
	uint64_t lifetime_s; /* since the policy was set */
};

struct policy_verdict {
	bool allow;
	size_t index;   /* of the rule that decided, below policy_rule_count(); POLICY_NO_RULE */
	char rule[320]; /* that rule as text; "default deny" where none did */
	/* On denial: the smallest rule that would allow it, as a flag or, with a method and path or
	   an address, as a line of a document; "" where a deny rule decided or nothing could. */
	char hint[512];
};

/* A method and path of NULL judge a connection: allowed when some request on it could be, and
   denied by a rule only when that denies all of them. */
void policy_decide(const struct policy *p, const struct policy_dest *dest,
		   struct policy_verdict *ret);

/* Whether another method or path could change the decision on an allowed destination: some rule up
   to the one that decides has methods or paths. */
bool policy_reads_requests(const struct policy *p, const struct policy_dest *dest);

/* In what rule number i differs from dest, so that it does not decide: "host", "cidr", "scheme",
   "ports", "methods", "paths", "encodedSlash"; NULL where it fits. */
const char *policy_rule_differs(const struct policy *p, size_t i, const struct policy_dest *dest);

/* What a request for a URL goes to: https://HOST[:PORT][/PATH], http, tls://HOST[:PORT],
   tcp://HOST:PORT; HOST may be an address. ret->method stays NULL; ret->path is *ret_path, which
   the caller frees, and NULL for tls and tcp. 0, -EINVAL, -ENOMEM. */
int policy_dest_from_url(const char *url, struct policy_dest *ret, char **ret_path, struct err *e);

/* Of the schemes in the mask (1 << enum policy_scheme), the one of the first rule that allows a
   connection to this host or address and port; -ENOENT when none does. dest->scheme is not read. */
int policy_first_scheme(const struct policy *p, const struct policy_dest *dest, unsigned among);

/* Whether a rule opens this address (unwrapped) and no other: what it takes to reach the host's
 * own. */
bool policy_names_address(const struct policy *p, const struct address *a);

size_t policy_rule_count(const struct policy *p);

/* The limits of rule number i, or of the sandbox for POLICY_NO_RULE. Borrowed, never NULL. */
const struct policy_limits *policy_limits(const struct policy *p, size_t i);

/* "http://HOST:PORT" or "socks5://HOST:PORT" through which all leaves, or NULL. Borrowed. */
const char *policy_proxy(const struct policy *p);

/* Whether any rule could allow some connection to this name: whether DNS answers it. */
bool policy_knows_host(const struct policy *p, const char *host);

/* The host that rule number i names exactly, canonical; "" for a rule with a pattern; NULL past the
   last. Borrowed. */
const char *policy_exact_host(const struct policy *p, size_t i);

/* The pin for a name, or false. ca is NULL where the system's store decides. Borrowed. */
bool policy_resolve(const struct policy *p, const char *host, const char **ret_address,
		    const char **ret_ca);
