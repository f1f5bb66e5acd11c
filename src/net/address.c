/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses as a firewall must read them: one spelling each, IPv4 found inside IPv6, and the ranges
 * that are no public destination.
 * Source: IANA's special-purpose address registries (RFC 6890), RFC 4291, RFC 6052, RFC 8215, RFC
 * 3056, RFC 4380.
 */
#include "net/address.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/str.h"

int address_parse(const char *s, struct address *ret)
{
	struct address a = {.family = strchr(s, ':') ? AF_INET6 : AF_INET};
	/* inet_pton takes neither leading zeros, short or hex forms, nor zones, nor anything behind
	 * the address. */
	if (inet_pton(a.family, s, a.bytes) != 1)
		return -EINVAL;
	*ret = a;
	return 0;
}

void address_format(const struct address *a, char out[INET6_ADDRSTRLEN])
{
	assert(a->family == AF_INET || a->family == AF_INET6);
	inet_ntop(a->family, a->bytes, out, INET6_ADDRSTRLEN);
}

void address_to_sockaddr(const struct address *a, uint16_t port, struct sockaddr_storage *ret,
			 socklen_t *ret_len)
{
	memset(ret, 0, sizeof(*ret));
	if (a->family == AF_INET6) {
		struct sockaddr_in6 sin6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
		memcpy(&sin6.sin6_addr, a->bytes, 16);
		memcpy(ret, &sin6, sizeof(sin6));
		*ret_len = sizeof(sin6);
		return;
	}
	assert(a->family == AF_INET);
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(port)};
	memcpy(&sin.sin_addr, a->bytes, 4);
	memcpy(ret, &sin, sizeof(sin));
	*ret_len = sizeof(sin);
}

int address_from_sockaddr(const struct sockaddr *sa, struct address *ret, uint16_t *ret_port)
{
	struct address a = {.family = sa->sa_family};
	in_port_t port;
	if (sa->sa_family == AF_INET) {
		struct sockaddr_in sin;
		memcpy(&sin, sa, sizeof(sin));
		memcpy(a.bytes, &sin.sin_addr, 4);
		port = sin.sin_port;
	} else if (sa->sa_family == AF_INET6) {
		struct sockaddr_in6 sin6;
		memcpy(&sin6, sa, sizeof(sin6));
		memcpy(a.bytes, &sin6.sin6_addr, 16);
		port = sin6.sin6_port;
	} else {
		return -EAFNOSUPPORT;
	}
	*ret = a;
	if (ret_port)
		*ret_port = ntohs(port);
	return 0;
}

/* A prefix and what lies there. A wrap says at which byte of the IPv6 address the IPv4 address
 * starts. */
struct range {
	const char *prefix;
	const char *what;
	size_t at;
	uint8_t flip; /* XORed onto each byte of the inner address */
};

static bool range_has(const struct range *r, const struct address *a)
{
	struct address_prefix p;
	int parsed = address_prefix_parse(r->prefix, &p);
	assert(parsed == 0);
	return address_in(a, &p);
}

static const struct range wraps[] = {
	{"::ffff:0:0/96", "mapped", 12, 0}, {"::ffff:0:0:0/96", "translated", 12, 0},
	{"64:ff9b::/96", "NAT64", 12, 0},   {"64:ff9b:1::/96", "local NAT64", 12, 0},
	{"2002::/16", "6to4", 2, 0},        {"2001::/32", "Teredo client", 12, 0xff},
};

static void unwrap_at(struct address *a, size_t at, uint8_t flip)
{
	struct address inner = {.family = AF_INET};
	for (size_t i = 0; i < 4; i++)
		inner.bytes[i] = a->bytes[at + i] ^ flip;
	*a = inner;
}

static bool all_zero(const uint8_t *p, size_t n)
{
	while (n--)
		if (*p++)
			return false;
	return true;
}

/* 64:ff9b:1::/48 with the IPv4 address around byte 8, as RFC 6052 lays it out for prefixes of 48
 * bits. */
static bool unwrap_nat64_48(struct address *a)
{
	static const uint8_t prefix[6] = {0x00, 0x64, 0xff, 0x9b, 0x00, 0x01};
	if (memcmp(a->bytes, prefix, sizeof(prefix)) != 0 || a->bytes[8] ||
	    !all_zero(a->bytes + 11, 5))
		return false;
	*a = (struct address){
		.family = AF_INET,
		.bytes = {a->bytes[6], a->bytes[7], a->bytes[9], a->bytes[10]},
	};
	return true;
}

void address_unwrap(struct address *a)
{
	if (a->family != AF_INET6)
		return;
	for (size_t i = 0; i < sizeof(wraps) / sizeof(*wraps); i++)
		if (range_has(&wraps[i], a)) {
			unwrap_at(a, wraps[i].at, wraps[i].flip);
			return;
		}
	if (unwrap_nat64_48(a))
		return;
	/* Compatible form, but :: and ::1 mean themselves. */
	bool itself = all_zero(a->bytes, 15) && a->bytes[15] <= 1;
	if (all_zero(a->bytes, 12) && !itself)
		unwrap_at(a, 12, 0);
}

/* Where clouds answer questions about the machine, credentials among them. */
static const struct range metadata[] = {
	{"169.254.169.254/32", "AWS, Azure, Google and most others", 0, 0},
	{"169.254.170.2/32", "AWS ECS", 0, 0},
	{"169.254.170.23/32", "AWS EKS", 0, 0},
	{"169.254.0.23/32", "Tencent", 0, 0},
	{"169.254.42.42/32", "Scaleway", 0, 0},
	{"100.100.100.200/32", "Alibaba", 0, 0},
	{"168.63.129.16/32", "Azure", 0, 0},
	{"192.0.0.192/32", "Oracle", 0, 0},
	{"fd00:ec2::254/128", "AWS", 0, 0},
	{"fd00:ec2::23/128", "AWS EKS", 0, 0},
	{"fd20:ce::254/128", "Google", 0, 0},
	{"fd00:42::42/128", "Scaleway", 0, 0},
};

static const struct range special[] = {
	{"0.0.0.0/8", "this network", 0, 0},
	{"10.0.0.0/8", "private", 0, 0},
	{"100.64.0.0/10", "shared", 0, 0},
	{"127.0.0.0/8", "loopback", 0, 0},
	{"169.254.0.0/16", "link-local", 0, 0},
	{"172.16.0.0/12", "private", 0, 0},
	{"192.0.0.0/24", "protocol assignments", 0, 0},
	{"192.0.2.0/24", "documentation", 0, 0},
	{"192.88.99.0/24", "6to4 relay", 0, 0},
	{"192.168.0.0/16", "private", 0, 0},
	{"198.18.0.0/15", "benchmarking", 0, 0},
	{"198.51.100.0/24", "documentation", 0, 0},
	{"203.0.113.0/24", "documentation", 0, 0},
	{"224.0.0.0/4", "multicast", 0, 0},
	{"255.255.255.255/32", "broadcast", 0, 0},
	{"240.0.0.0/4", "reserved", 0, 0},
	{"::/128", "unspecified", 0, 0},
	{"::1/128", "loopback", 0, 0},
	{"64:ff9b:1::/48", "local NAT64", 0, 0},
	{"2001::/23", "protocol assignments", 0, 0},
	{"2001:db8::/32", "documentation", 0, 0},
	{"3fff::/20", "documentation", 0, 0},
	{"fc00::/7", "private", 0, 0},
	{"fe80::/10", "link-local", 0, 0},
	{"fec0::/10", "site-local", 0, 0},
	{"ff00::/8", "multicast", 0, 0},
};

bool address_is_metadata(const struct address *address)
{
	struct address a = *address;
	address_unwrap(&a);
	for (size_t i = 0; i < sizeof(metadata) / sizeof(*metadata); i++)
		if (range_has(&metadata[i], &a))
			return true;
	return false;
}

static const struct range global = {"2000::/3", "global unicast", 0, 0};

const char *address_special(const struct address *address)
{
	struct address a = *address;
	address_unwrap(&a);
	if (address_is_metadata(&a))
		return "metadata";
	for (size_t i = 0; i < sizeof(special) / sizeof(*special); i++)
		if (range_has(&special[i], &a))
			return special[i].what;
	return a.family == AF_INET6 && !range_has(&global, &a) ? "reserved" : NULL;
}

int address_prefix_parse(const char *s, struct address_prefix *ret)
{
	char text[INET6_ADDRSTRLEN];
	const char *slash = strchrnul(s, '/');
	size_t n = (size_t)(slash - s);
	if (n >= sizeof(text))
		return -EINVAL;
	memcpy(text, s, n);
	text[n] = '\0';

	struct address_prefix p;
	if (address_parse(text, &p.base) < 0)
		return -EINVAL;
	uint64_t most = p.base.family == AF_INET ? 32 : 128, bits = most;
	if (*slash && str_to_u64(slash + 1, 0, most, &bits) < 0)
		return -EINVAL;
	if (*slash && slash[1] == '0' && slash[2])
		return -EINVAL;
	p.bits = (unsigned)bits;
	for (unsigned i = p.bits; i < most; i++)
		if (p.base.bytes[i / 8] & 0x80 >> i % 8)
			return -EINVAL;
	*ret = p;
	return 0;
}

bool address_in(const struct address *a, const struct address_prefix *p)
{
	if (a->family != p->base.family)
		return false;
	unsigned whole = p->bits / 8, rest = p->bits % 8;
	if (memcmp(a->bytes, p->base.bytes, whole) != 0)
		return false;
	return !rest || !((a->bytes[whole] ^ p->base.bytes[whole]) >> (8 - rest));
}

static bool prefix_within(const struct address_prefix *p, const char *range)
{
	struct address_prefix outer;
	int parsed = address_prefix_parse(range, &outer);
	assert(parsed == 0);
	return p->bits >= outer.bits && address_in(&p->base, &outer);
}

bool address_opened_by(const struct address *a, const struct address_prefix *p)
{
	if (!address_in(a, p) || address_is_metadata(a))
		return false;
	bool known = false;
	for (size_t i = 0; i < sizeof(special) / sizeof(*special); i++) {
		if (!range_has(&special[i], a))
			continue;
		if (!prefix_within(p, special[i].prefix))
			return false;
		known = true;
	}
	if (known || a->family == AF_INET || range_has(&global, a))
		return true;
	return p->bits >= 3 && !range_has(&global, &p->base);
}

/* Digits alone, or hex digits (even none) behind 0x. */
static bool is_number(const char *s, size_t n)
{
	static const char digits[] = "0123456789abcdefABCDEF";
	bool hex = n >= 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X');
	size_t from = hex ? 2 : 0;
	for (size_t i = from; i < n; i++)
		if (!memchr(digits, s[i], hex ? 22 : 10))
			return false;
	return n > 0;
}

/* Source: WHATWG URL, "ends in a number": every numeric spelling has a number for its last label,
 * and no name has. */
bool address_is_numeric_host(const char *s)
{
	size_t n = strlen(s);
	if (n && s[n - 1] == '.')
		n--;
	const char *dot = memrchr(s, '.', n);
	const char *last = dot ? dot + 1 : s;
	return is_number(last, (size_t)(s + n - last));
}
