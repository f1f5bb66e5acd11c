/* SPDX-License-Identifier: Apache-2.0 */
/* Queries of a hostile guest: whatever is answered must be a message that its reader could follow.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "net/dns.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool truth)
{
	if (!truth)
		abort();
}

/* The answer repeats id and question and is never longer than the asker takes. */
static void check_answer(const uint8_t *p, size_t n, const struct dns_query *q,
			 enum dns_rcode rcode, const struct address *a, const char *ptr)
{
	auto_buf struct buf out;
	buf_init(&out, DNS_MESSAGE_MAX);
	int r = dns_write_answer(&out, p, n, q, rcode, a, ptr, 60);
	if (r == -EINVAL && ptr) /* a label that no name may have */
		return;
	require(r == 0);
	require(out.len >= 12 && out.len <= q->udp_size);
	require(memcmp(out.data, p, 2) == 0);
	require((out.data[2] & 0x80) && (out.data[3] & 15) == (rcode & 15));
	require(memcmp(out.data + 12, p + 12, q->question_end - 12) == 0);

	struct dns_query again;
	require(dns_read_query(out.data, out.len, &again) == -EBADMSG); /* it is no query */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct dns_query q;
	struct address a;
	address_parse("198.18.0.1", &a);
	int r = dns_read_query(data, size, &q);
	if (r == -EBADMSG)
		return 0;
	require(q.question_end >= 12 && q.question_end <= size);
	require(q.udp_size >= 512 && q.udp_size <= DNS_MESSAGE_MAX);
	if (r < 0) {
		check_answer(data, size, &q,
			     r == -EINVAL    ? DNS_FORMERR
			     : r == -ENOTSUP ? DNS_NOTIMP
					     : DNS_BADVERS,
			     NULL, NULL);
		require(r != -EPROTONOSUPPORT || q.edns);
		return 0;
	}
	size_t n = strlen(q.name);
	require(n < DNS_NAME_MAX && (n == 0 || q.name[n - 1] != '.'));
	for (size_t i = 0; i < n; i++)
		require(q.name[i] > 0x20 && q.name[i] < 0x7f &&
			!(q.name[i] >= 'A' && q.name[i] <= 'Z'));
	check_answer(data, size, &q, DNS_NOERROR, &a, NULL);
	check_answer(data, size, &q, DNS_NOERROR, NULL, NULL); /* NODATA: AAAA, HTTPS, SVCB */
	check_answer(data, size, &q, DNS_NXDOMAIN, NULL, NULL);
	check_answer(data, size, &q, DNS_NOERROR, NULL, q.name);
	q.udp_size = DNS_MESSAGE_MAX; /* over TCP */
	check_answer(data, size, &q, DNS_NOERROR, NULL, q.name);
	return 0;
}
