/* SPDX-License-Identifier: Apache-2.0 */
/* The compiled form of a policy, shared by the files of this room. */
#pragma once

#include "policy/policy.h"

#define POLICY_RULES_MAX 1024  /* in one policy */
#define POLICY_PORTS_MAX 64    /* in one rule */
#define POLICY_PINS_MAX  256   /* in one policy */
#define POLICY_CA_MAX    65536 /* bytes of one pin's PEM */

struct policy_rule {
	char pattern[POLICY_PATTERN_MAX];
	enum policy_scheme scheme;
	uint16_t ports[POLICY_PORTS_MAX];
	size_t port_count;
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
};

/* The scheme's name in documents, and the port that it means when none is said. */
const char *scheme_name(enum policy_scheme scheme);
uint16_t scheme_port(enum policy_scheme scheme);

/* As policy_host_canonical, for a name that a person wrote: U-labels are converted. */
int host_from_text(const char *s, char ret[POLICY_HOST_MAX], struct err *e);

/* Append a copy. 0; -E2BIG past the room's cap; -ENOMEM. The pin's strings are copied too. */
int policy_add_rule(struct policy *p, const struct policy_rule *rule, struct err *e);
int policy_add_pin(struct policy *p, const char *host, const char *address, const char *ca,
		   struct err *e);
