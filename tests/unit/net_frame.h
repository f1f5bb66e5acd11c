/* SPDX-License-Identifier: Apache-2.0 */
/* Ethernet frames as a hostile guest would make them, for the tests of slots. */
#pragma once

#include <arpa/inet.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define FRAME_MAX 2048

static const uint8_t guest_mac[6] = {0x02, 0x53, 0x50, 0x41, 0x43, 0x02};
static const uint8_t gateway_mac[6] = {0x02, 0x53, 0x50, 0x41, 0x43, 0x01};
static const uint8_t everyone[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

struct frame {
	uint8_t bytes[FRAME_MAX];
	size_t n;
};

static inline void put(struct frame *f, const void *p, size_t n)
{
	assert_true(f->n + n <= sizeof(f->bytes));
	memcpy(f->bytes + f->n, p, n);
	f->n += n;
}

static inline void put8(struct frame *f, unsigned v)
{
	put(f, &(uint8_t){(uint8_t)v}, 1);
}

static inline void put16(struct frame *f, unsigned v)
{
	put8(f, v >> 8);
	put8(f, v & 0xff);
}

static inline void put_ip(struct frame *f, const char *dotted)
{
	struct in_addr a;
	assert_int_equal(inet_pton(AF_INET, dotted, &a), 1);
	put(f, &a, 4);
}

static inline void put_ethernet(struct frame *f, const uint8_t *to, const uint8_t *from,
				unsigned type)
{
	put(f, to, 6);
	put(f, from, 6);
	put16(f, type);
}

static inline uint16_t checksum(const uint8_t *p, size_t n, uint32_t sum)
{
	for (size_t i = 0; i < n; i++)
		sum += i % 2 ? p[i] : (uint32_t)p[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

static inline void patch16(struct frame *f, size_t at, uint16_t v)
{
	f->bytes[at] = (uint8_t)(v >> 8);
	f->bytes[at + 1] = (uint8_t)v;
}

struct ipv4 {
	const char *from, *to;
	unsigned protocol;
	unsigned fragment; /* flags and offset */
	size_t options;    /* bytes, a multiple of 4 */
};

/* The IPv4 header for a payload of n bytes. */
static inline void put_ipv4(struct frame *f, struct ipv4 ip, size_t n)
{
	size_t at = f->n, header = 20 + ip.options;
	put8(f, 0x40 | (unsigned)(header / 4));
	put8(f, 0);
	put16(f, (unsigned)(header + n));
	put16(f, 0x1234);
	put16(f, ip.fragment);
	put8(f, 64);
	put8(f, ip.protocol);
	put16(f, 0);
	put_ip(f, ip.from);
	put_ip(f, ip.to);
	for (size_t i = 0; i < ip.options; i++)
		put8(f, 1); /* no operation */
	patch16(f, at + 10, checksum(f->bytes + at, header, 0));
}

/* The sum over the pseudo-header of the n bytes from at. */
static inline uint32_t pseudo_sum(struct ipv4 ip, size_t n)
{
	struct frame pseudo = {.n = 0};
	put_ip(&pseudo, ip.from);
	put_ip(&pseudo, ip.to);
	put16(&pseudo, ip.protocol);
	put16(&pseudo, (unsigned)n);
	uint16_t folded = checksum(pseudo.bytes, pseudo.n, 0);
	return (uint16_t)~folded;
}

static inline struct frame udp_frame(struct ipv4 ip, uint16_t sport, uint16_t dport,
				     const char *payload)
{
	struct frame f = {.n = 0};
	size_t n = 8 + strlen(payload);
	ip.protocol = IPPROTO_UDP;
	put_ethernet(&f, gateway_mac, guest_mac, 0x0800);
	put_ipv4(&f, ip, n);
	size_t at = f.n;
	put16(&f, sport);
	put16(&f, dport);
	put16(&f, (unsigned)n);
	put16(&f, 0);
	put(&f, payload, strlen(payload));
	patch16(&f, at + 6, checksum(f.bytes + at, n, pseudo_sum(ip, n)));
	return f;
}

static inline struct frame tcp_frame(struct ipv4 ip, uint16_t sport, uint16_t dport, uint8_t flags)
{
	struct frame f = {.n = 0};
	ip.protocol = IPPROTO_TCP;
	put_ethernet(&f, gateway_mac, guest_mac, 0x0800);
	put_ipv4(&f, ip, 20);
	size_t at = f.n;
	put16(&f, sport);
	put16(&f, dport);
	put(&f, "\1\2\3\4\0\0\0\0", 8);
	put8(&f, 5 << 4);
	put8(&f, flags);
	put16(&f, 65535);
	put16(&f, 0);
	put16(&f, 0);
	patch16(&f, at + 16, checksum(f.bytes + at, 20, pseudo_sum(ip, 20)));
	return f;
}

static inline struct frame icmp_frame(struct ipv4 ip, unsigned type)
{
	struct frame f = {.n = 0};
	ip.protocol = IPPROTO_ICMP;
	put_ethernet(&f, gateway_mac, guest_mac, 0x0800);
	put_ipv4(&f, ip, 8);
	size_t at = f.n;
	put8(&f, type);
	put8(&f, 0);
	put16(&f, 0);
	put(&f, "\0\1\0\1", 4);
	patch16(&f, at + 2, checksum(f.bytes + at, 8, 0));
	return f;
}

static inline struct frame arp_frame(unsigned operation, const uint8_t *sender_mac,
				     const char *sender, const char *target)
{
	struct frame f = {.n = 0};
	put_ethernet(&f, everyone, guest_mac, 0x0806);
	put16(&f, ARPHRD_ETHER);
	put16(&f, 0x0800);
	put8(&f, 6);
	put8(&f, 4);
	put16(&f, operation);
	put(&f, sender_mac, 6);
	put_ip(&f, sender);
	put(&f, "\0\0\0\0\0\0", 6);
	put_ip(&f, target);
	return f;
}
