/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gateway's side of DNS: one question in, at most one record out, nothing forwarded. Strict
 * where a lenient reader would let bytes through: one question, no records but OPT, nothing behind
 * them. Source: RFC 1035 section 4, RFC 6891 section 6.
 */
#include "net/dns.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define HEADER_SIZE   12   /* bytes */
#define LABEL_MAX     63   /* bytes */
#define UDP_SIZE_MIN  512  /* what every asker takes */
#define UDP_SIZE_OURS 1232 /* what we say we take: fits every path's MTU */
#define ANSWER_MAX    1024 /* bytes; the longest answer, a PTR, has some 800 */

#define TYPE_OPT 41
#define CLASS_IN 1

#define FLAG_QR 0x8000
#define FLAG_TC 0x0200
#define FLAG_RD 0x0100
#define FLAG_RA 0x0080
#define OPCODE  0x7800
#define RCODE   0x000f

struct reader {
	const uint8_t *p;
	size_t n, at;
};

static bool take_u16(struct reader *r, uint16_t *ret)
{
	if (r->n - r->at < 2)
		return false;
	*ret = (uint16_t)(r->p[r->at] << 8 | r->p[r->at + 1]);
	r->at += 2;
	return true;
}

static bool skip(struct reader *r, size_t n)
{
	if (r->n - r->at < n)
		return false;
	r->at += n;
	return true;
}

/* Appends one label to the dotted name of *len bytes. */
static bool name_append(char name[DNS_NAME_MAX], size_t *len, const uint8_t *label, size_t n)
{
	size_t dot = *len ? 1 : 0;
	if (*len + dot + n >= DNS_NAME_MAX)
		return false;
	if (dot)
		name[(*len)++] = '.';
	for (size_t i = 0; i < n; i++) {
		uint8_t c = label[i];
		if (c < 0x21 || c > 0x7e || c == '.')
			return false;
		name[(*len)++] = (char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
	}
	name[*len] = '\0';
	return true;
}

static bool take_name(struct reader *r, char name[DNS_NAME_MAX])
{
	size_t len = 0;
	name[0] = '\0';
	while (r->at < r->n) {
		size_t n = r->p[r->at++];
		if (n == 0)
			return true;
		if (n > LABEL_MAX || n > r->n - r->at)
			return false;
		if (!name_append(name, &len, r->p + r->at, n))
			return false;
		r->at += n;
	}
	return false;
}

/* The additional section of a query: nothing, or one OPT record. */
static bool take_additional(struct reader *r, uint16_t count, struct dns_query *q,
			    uint8_t *ret_version)
{
	*ret_version = 0;
	if (count == 0)
		return true;
	uint16_t type, size, length;
	if (count > 1 || !skip(r, 1) || r->p[r->at - 1] != 0)
		return false;
	if (!take_u16(r, &type) || type != TYPE_OPT || !take_u16(r, &size))
		return false;
	/* Extended rcode, version, flags. */
	if (!skip(r, 4))
		return false;
	*ret_version = r->p[r->at - 3];
	if (!take_u16(r, &length) || !skip(r, length))
		return false;
	q->edns = true;
	q->udp_size = size < UDP_SIZE_MIN      ? UDP_SIZE_MIN
		      : size > DNS_MESSAGE_MAX ? DNS_MESSAGE_MAX
					       : size;
	return true;
}

int dns_read_query(const uint8_t *p, size_t n, struct dns_query *ret)
{
	struct reader r = {.p = p, .n = n};
	uint16_t flags, questions, answers, authorities, additional;
	struct dns_query q = {.udp_size = UDP_SIZE_MIN, .question_end = HEADER_SIZE};
	if (n < HEADER_SIZE || n > DNS_MESSAGE_MAX)
		return -EBADMSG;
	if (!take_u16(&r, &q.id) || !take_u16(&r, &flags) || !take_u16(&r, &questions) ||
	    !take_u16(&r, &answers) || !take_u16(&r, &authorities) || !take_u16(&r, &additional) ||
	    (flags & FLAG_QR))
		return -EBADMSG;
	q.recursion_desired = flags & FLAG_RD;
	*ret = q;
	if (flags & OPCODE)
		return -ENOTSUP;
	if (questions != 1 || answers || authorities)
		return -EINVAL;
	if (!take_name(&r, q.name) || !take_u16(&r, &q.type) || !take_u16(&r, &q.class))
		return -EINVAL;
	q.question_end = r.at;
	uint8_t version;
	if (!take_additional(&r, additional, &q, &version) || r.at != n)
		return -EINVAL;
	*ret = q;
	return version ? -EPROTONOSUPPORT : 0;
}

struct writer {
	uint8_t bytes[ANSWER_MAX];
	size_t n;
};

static void put_bytes(struct writer *w, const void *p, size_t n)
{
	assert(n <= sizeof(w->bytes) - w->n);
	memcpy(w->bytes + w->n, p, n);
	w->n += n;
}

static void put_u16(struct writer *w, uint16_t v)
{
	put_bytes(w, (uint8_t[2]){(uint8_t)(v >> 8), (uint8_t)v}, 2);
}

static void put_u32(struct writer *w, uint32_t v)
{
	put_u16(w, (uint16_t)(v >> 16));
	put_u16(w, (uint16_t)v);
}

/* A dotted name as labels. False when it is none. */
static bool put_name(struct writer *w, const char *name)
{
	if (strlen(name) >= DNS_NAME_MAX)
		return false;
	while (*name) {
		size_t n = strcspn(name, ".");
		if (n == 0 || n > LABEL_MAX)
			return false;
		put_bytes(w, &(uint8_t){(uint8_t)n}, 1);
		put_bytes(w, name, n);
		name += n;
		if (*name == '.' && !*++name)
			return false;
	}
	put_bytes(w, "", 1);
	return true;
}

static void put_record_head(struct writer *w, uint16_t type, uint32_t ttl_s)
{
	put_u16(w, 0xc000 | HEADER_SIZE); /* the name in the question */
	put_u16(w, type);
	put_u16(w, CLASS_IN);
	put_u32(w, ttl_s);
}

static bool put_ptr(struct writer *w, const char *name, uint32_t ttl_s)
{
	struct writer data = {.n = 0};
	if (!put_name(&data, name))
		return false;
	put_record_head(w, DNS_PTR, ttl_s);
	put_u16(w, (uint16_t)data.n);
	put_bytes(w, data.bytes, data.n);
	return true;
}

static void put_a(struct writer *w, const struct address *a, uint32_t ttl_s)
{
	assert(a->family == AF_INET);
	put_record_head(w, DNS_A, ttl_s);
	put_u16(w, 4);
	put_bytes(w, a->bytes, 4);
}

static void put_opt(struct writer *w, enum dns_rcode rcode)
{
	put_bytes(w, "", 1);
	put_u16(w, TYPE_OPT);
	put_u16(w, UDP_SIZE_OURS);
	put_u32(w, (uint32_t)rcode >> 4 << 24); /* and version 0, no flags */
	put_u16(w, 0);
}

static void put_header(struct writer *w, const uint8_t *asked, const struct dns_query *q,
		       uint16_t flags, uint16_t answers)
{
	flags |= FLAG_QR | FLAG_RA | (q->recursion_desired ? FLAG_RD : 0);
	flags |= (uint16_t)((unsigned)asked[2] << 8 & OPCODE);
	put_u16(w, q->id);
	put_u16(w, flags);
	put_u16(w, q->question_end > HEADER_SIZE ? 1 : 0);
	put_u16(w, answers);
	put_u16(w, 0);
	put_u16(w, q->edns ? 1 : 0);
	put_bytes(w, asked + HEADER_SIZE, q->question_end - HEADER_SIZE);
}

int dns_write_answer(struct buf *out, const uint8_t *p, size_t n, const struct dns_query *query,
		     enum dns_rcode rcode, const struct address *a, const char *ptr_name,
		     uint32_t ttl_s)
{
	assert(query->question_end >= HEADER_SIZE && query->question_end <= n);
	bool record = rcode == DNS_NOERROR && (a || ptr_name);
	struct writer w = {.n = 0};
	put_header(&w, p, query, rcode & RCODE, record ? 1 : 0);
	if (record && a)
		put_a(&w, a, ttl_s);
	else if (record && !put_ptr(&w, ptr_name, ttl_s))
		return -EINVAL;
	if (query->edns)
		put_opt(&w, rcode);
	if (w.n > query->udp_size) {
		w.n = 0;
		put_header(&w, p, query, FLAG_TC | (rcode & RCODE), 0);
		if (query->edns)
			put_opt(&w, rcode);
	}
	return buf_append(out, w.bytes, w.n);
}
