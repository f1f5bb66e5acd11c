/* SPDX-License-Identifier: Apache-2.0 */
/* DNS messages, sans-I/O: reading one question, writing one answer. Source: RFC 1035, RFC 6891, RFC
 * 9460. */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "net/address.h"

#define DNS_NAME_MAX    254  /* bytes of a dotted name with its NUL */
#define DNS_MESSAGE_MAX 4096 /* bytes; longer input is dropped */

enum dns_type { DNS_A = 1, DNS_PTR = 12, DNS_AAAA = 28, DNS_HTTPS = 65, DNS_SVCB = 64 };
enum dns_rcode {
	DNS_NOERROR = 0,
	DNS_FORMERR = 1,
	DNS_SERVFAIL = 2,
	DNS_NXDOMAIN = 3,
	DNS_NOTIMP = 4,
	DNS_REFUSED = 5,
	DNS_BADVERS = 16 /* extended: in the OPT record */
};

struct dns_query {
	uint16_t id;
	bool recursion_desired;
	char name[DNS_NAME_MAX]; /* lower case, dotted, without trailing dot; "" is the root */
	uint16_t type, class;
	bool edns;
	uint16_t udp_size;   /* what the asker can take, 512 .. 4096 */
	size_t question_end; /* offset behind the question, which an answer repeats */
};

/*
 * Reads a query. 0; -EBADMSG: not to be answered at all (a response, too short, garbage); -EINVAL
 * with id set: FORMERR; -ENOTSUP: NOTIMP (other opcodes); -EPROTONOSUPPORT: BADVERS (EDNS of
 * another version than 0). Labels must be printable ASCII without dots; no compression in a
 * question.
 */
int dns_read_query(const uint8_t *p, size_t n, struct dns_query *ret);

/* Appends the answer to query (whose bytes are p[0 .. n)): rcode with no record, or one A record of
   the address (ttl seconds), or one PTR record. Longer than query->udp_size it is cut and marked
   TC; over TCP, set udp_size to DNS_MESSAGE_MAX first. 0, -ENOMEM, -EMSGSIZE, -EINVAL when ptr_name
   is no name. */
int dns_write_answer(struct buf *out, const uint8_t *p, size_t n, const struct dns_query *query,
		     enum dns_rcode rcode, const struct address *a, const char *ptr_name,
		     uint32_t ttl_s);
