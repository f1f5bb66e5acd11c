/* SPDX-License-Identifier: Apache-2.0 */
/* IP addresses: canonical spelling, classes that are never a destination unless a rule names them.
 */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"

struct address {
	sa_family_t family; /* AF_INET, AF_INET6 */
	uint8_t bytes[16];  /* network order; 4 used for AF_INET */
};

/* Strict: dotted quad without leading zeros, or RFC 4291 text without zone. 0 or -EINVAL. */
int address_parse(const char *s, struct address *ret);
void address_format(const struct address *a, char out[INET6_ADDRSTRLEN]);
void address_to_sockaddr(const struct address *a, uint16_t port, struct sockaddr_storage *ret,
			 socklen_t *ret_len);
int address_from_sockaddr(const struct sockaddr *sa, struct address *ret, uint16_t *ret_port);

/* IPv4 inside IPv6 (mapped, compatible, NAT64, 6to4, Teredo) becomes the IPv4 address; others are
 * left alone. */
void address_unwrap(struct address *a);

/* Why a (unwrapped) is no public destination: "loopback", "private", "link-local", "metadata", …;
 * NULL when it is public. */
const char *address_special(const struct address *a);

/* True for cloud metadata services, which no rule can open. */
bool address_is_metadata(const struct address *a);

struct address_prefix {
	struct address base;
	unsigned bits;
};
int address_prefix_parse(const char *s,
			 struct address_prefix *ret); /* "10.0.0.0/8", "10.1.2.3", "fd00::/8" */
bool address_in(const struct address *a, const struct address_prefix *p);

/* Whether a rule that names p opens a (unwrapped): a lies in p, is no metadata service, and where
 * it is special, p lies within that range: 0.0.0.0/1 opens no private address. */
bool address_opened_by(const struct address *a, const struct address_prefix *p);

/* True when s is any spelling that some resolver would take for an IPv4 address: decimal, octal,
 * hex, short forms. */
bool address_is_numeric_host(const char *s);
