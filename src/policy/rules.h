/* SPDX-License-Identifier: Apache-2.0 */
/* The compiled form of a policy, shared by the files of this room. */
#pragma once

#include "policy/policy.h"

#define POLICY_RULES_MAX   1024  /* in one policy */
#define POLICY_PORTS_MAX   64    /* in one rule */
#define POLICY_METHODS_MAX 32    /* in one rule */
#define POLICY_METHOD_MAX  24    /* bytes */
#define POLICY_PATHS_MAX   256   /* in one rule */
#define POLICY_PATH_MAX    1024  /* bytes of one pattern */
#define POLICY_PINS_MAX    256   /* in one policy */
#define POLICY_CA_MAX      65536 /* bytes of one pin's PEM */

/* What is left out of a deny rule is everything: schemes, ports, methods, paths. An allow rule has
   its scheme and its ports always. */
struct policy_rule {
	/* First what tells most rules apart from a destination, close together. */
	bool deny, any_scheme, encoded_slash, exact; /* exact: a pattern without a star */
	enum policy_scheme scheme;
	char pattern[POLICY_PATTERN_MAX]; /* "": literal addresses in cidr */
	struct address_prefix cidr;
	uint16_t ports[POLICY_PORTS_MAX];
	size_t port_count; /* 0: all */
	char **methods;
	size_t method_count; /* 0: all */
	char **paths;        /* canonical patterns */
	size_t path_count;   /* 0: all */
	struct policy_limits limits;
};

struct policy_pin {
	char host[POLICY_HOST_MAX];
	char *address;
	char *ca; /* or NULL */
};

struct policy {
	struct policy_rule *rules;
	size_t rule_count;
	struct policy_pin *pins;
	size_t pin_count;
	struct policy_limits limits;
	char *proxy; /* canonical URL, or NULL */
	bool learn;  /* what no rule decides is allowed: any name over https and http */
};

/* The scheme's name in documents, and the port that it means when none is said: 0, none. */
const char *scheme_name(enum policy_scheme scheme);
uint16_t scheme_port(enum policy_scheme scheme);
int scheme_from_name(const char *name, enum policy_scheme *ret); /* 0 or -EINVAL */
bool scheme_has_requests(enum policy_scheme scheme);             /* methods and paths */

/* As policy_host_canonical, for a name that a person wrote: U-labels are converted. */
int host_from_text(const char *s, char ret[POLICY_HOST_MAX], struct err *e);

/* A prefix that an allow rule may name, as text and for errors. */
int cidr_from_text(const char *s, bool deny, struct address_prefix *ret, struct err *e);
void cidr_to_text(const struct address_prefix *p, char out[INET6_ADDRSTRLEN + 4]);

/* "http://HOST:PORT" or "socks5://HOST:PORT" in one spelling: heap string. 0, -EINVAL, -ENOMEM. */
int proxy_from_text(const char *s, char **ret, struct err *e);

/* The port behind a host, 1 to 65535. 0 or -EINVAL. */
int port_from_text(const char *s, uint16_t *ret, struct err *e);

/* The rule as text, cut where it is too long; and what would allow a denied destination. */
void rule_to_text(const struct policy_rule *rule, uint16_t port, char *out, size_t size);
void hint_to_text(const struct policy *p, const struct policy_dest *dest, char *out, size_t size);

/* Append a copy; the rule's lists become the policy's (on failure they stay the caller's). 0;
   -E2BIG past the room's cap; -ENOMEM. */
int policy_add_rule(struct policy *p, const struct policy_rule *rule, struct err *e);
void policy_rule_done(struct policy_rule *rule);

/* The pin's strings are copied. */
int policy_add_pin(struct policy *p, const char *host, const char *address, const char *ca,
		   struct err *e);

/* Whether the rule could meet a connection to dest, whatever is asked on it. */
bool rule_fits_connection(const struct policy_rule *rule, const struct policy_dest *dest);
