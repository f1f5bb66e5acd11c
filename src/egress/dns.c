/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each question becomes a pending answer, whose record is sent, and which goes out when that is
 * written. The guest decides how many questions there are, so their rate is capped, and what is
 * over it is dropped as a busy server would. Under a wildcard it also makes up the names: each
 * takes an address for good and may be looked up outside, so new ones have a rate of their own,
 * over which they are refused.
 */
#include "egress/dns.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "egress/deny.h"
#include "http/stream.h"
#include "net/dns.h"

#define CLASS_IN        1
#define LENGTH_BYTES    2     /* before each message over TCP (RFC 1035, 4.2.2) */
#define UDP_BURST       32    /* datagrams in one wake */
#define FLOOD_RECORD_MS 10000 /* one record for all that were dropped in this time */
#define REVERSE_SUFFIX  ".in-addr.arpa"

/* So many at once, and then so many a second. */
struct bucket {
	uint64_t tokens, burst, rate, refilled_ms;
};

/* What was over a limit and is not recorded yet. */
struct flood {
	uint64_t count, recorded_ms;
};

struct dns {
	struct gateway *g;
	uv_udp_t udp;
	struct stream_listener *listener;
	struct list streams;
	size_t stream_count;
	struct list pending;
	size_t pending_count;
	struct bucket questions, new_names;
	struct flood dropped, refused;
	uint8_t datagram[DNS_MESSAGE_MAX];
};

/* A connection over TCP: one question at a time. */
struct dns_stream {
	struct list link;
	struct dns *dns;
	struct stream *stream;
	struct buf in;
	struct dns_pending *pending; /* being recorded */
};

struct dns_pending {
	struct list link;
	struct control_wait wait;
	struct dns *dns;
	struct dns_stream *stream; /* NULL: over UDP, or the connection is gone */
	bool over_udp;
	struct sockaddr_storage peer;
	struct dns_query query;
	enum dns_rcode rcode;
	struct address address; /* family 0: none */
	const char *ptr_name;   /* NULL: none */
	size_t len;
	uint8_t message[];
};

/* -- what to answer -- */

static bool bucket_take(struct bucket *b, uint64_t now)
{
	uint64_t more = (now - b->refilled_ms) * b->rate / 1000;
	if (more) {
		b->tokens = b->tokens + more > b->burst ? b->burst : b->tokens + more;
		b->refilled_ms = now;
	}
	if (!b->tokens)
		return false;
	b->tokens--;
	return true;
}

/* Records once in a while how many there were. what has a place for the number. */
static void dns_flooded(struct dns *d, struct flood *f, const char *what, int limit)
{
	uint64_t now = uv_now(d->g->loop);
	f->count++;
	if (f->recorded_ms && now - f->recorded_ms < FLOOD_RECORD_MS)
		return;
	char reason[160];
	snprintf(reason, sizeof(reason), "%llu %s over the limit of %d a second",
		 (unsigned long long)f->count, what, limit);
	if (deny_record(d->g->control, &(struct denial){.port = 53, .reason = reason}, NULL) == 0) {
		f->count = 0;
		f->recorded_ms = now;
	}
}

static bool dns_may_ask(struct dns *d)
{
	if (d->pending_count < DNS_PENDING_MAX && bucket_take(&d->questions, uv_now(d->g->loop)))
		return true;
	dns_flooded(d, &d->dropped, "DNS questions", DNS_RATE);
	return false;
}

/* Whether a name that is allowed may be given an address. */
static bool dns_may_name(struct dns *d, const char *host)
{
	if (names_has(d->g->names, host) || bucket_take(&d->new_names, uv_now(d->g->loop)))
		return true;
	dns_flooded(d, &d->refused, "new names under a wildcard", DNS_NEW_RATE);
	return false;
}

/* The host that "4.3.2.1.in-addr.arpa" stands for, or NULL. */
static const char *dns_reverse(const struct dns *d, const char *name)
{
	unsigned char octet[4];
	size_t n = strlen(name);
	struct address a = {0}, reversed;
	char text[INET_ADDRSTRLEN];
	if (!str_ends(name, REVERSE_SUFFIX) || n - strlen(REVERSE_SUFFIX) >= sizeof(text))
		return NULL;
	memcpy(text, name, n - strlen(REVERSE_SUFFIX));
	text[n - strlen(REVERSE_SUFFIX)] = '\0';
	if (address_parse(text, &reversed) < 0 || reversed.family != AF_INET)
		return NULL;
	memcpy(octet, reversed.bytes, sizeof(octet));
	a.family = AF_INET;
	for (size_t i = 0; i < sizeof(octet); i++)
		a.bytes[i] = octet[sizeof(octet) - 1 - i];
	return names_host(d->g->names, &a);
}

static void dns_decide(struct dns_pending *p)
{
	struct gateway *g = p->dns->g;
	char host[POLICY_HOST_MAX];
	const char *name = p->query.name;
	p->rcode = DNS_NXDOMAIN;
	if (p->query.class != CLASS_IN) {
		p->rcode = DNS_REFUSED;
		return;
	}
	if (p->query.type == DNS_PTR && (p->ptr_name = dns_reverse(p->dns, name))) {
		p->rcode = DNS_NOERROR;
		return;
	}
	if (policy_host_canonical(name, strlen(name), host, NULL) < 0 ||
	    !policy_knows_host(g->policy, host))
		return;
	struct address a;
	if (!dns_may_name(p->dns, host)) {
		p->rcode = DNS_REFUSED;
		return;
	}
	if (names_address(g->names, host, &a) < 0) {
		p->rcode = DNS_SERVFAIL;
		return;
	}
	p->rcode = DNS_NOERROR;
	if (p->query.type == DNS_A)
		p->address = a;
}

static const char *dns_answer_text(const struct dns_pending *p, char out[INET6_ADDRSTRLEN])
{
	switch (p->rcode) {
	case DNS_FORMERR:
		return "FORMERR";
	case DNS_SERVFAIL:
		return "SERVFAIL";
	case DNS_NXDOMAIN:
		return "NXDOMAIN";
	case DNS_NOTIMP:
		return "NOTIMP";
	case DNS_REFUSED:
		return "REFUSED";
	case DNS_BADVERS:
		return "BADVERS";
	case DNS_NOERROR:
		break;
	}
	if (p->ptr_name)
		return p->ptr_name;
	if (!p->address.family)
		return "NODATA";
	address_format(&p->address, out);
	return out;
}

static const char *dns_type_text(uint16_t type, char out[16])
{
	static const struct {
		uint16_t type;
		const char *name;
	} known[] = {
		{DNS_A, "A"},       {2, "NS"},          {5, "CNAME"},         {6, "SOA"},
		{DNS_PTR, "PTR"},   {15, "MX"},         {16, "TXT"},          {33, "SRV"},
		{DNS_AAAA, "AAAA"}, {DNS_SVCB, "SVCB"}, {DNS_HTTPS, "HTTPS"}, {255, "ANY"},
	};
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].type == type)
			return known[i].name;
	snprintf(out, 16, "TYPE%u", type);
	return out;
}

/* -- answering -- */

static void stream_next(struct dns_stream *s);

static void pending_send(struct dns_pending *p)
{
	struct buf out;
	buf_init(&out, DNS_MESSAGE_MAX + LENGTH_BYTES);
	if (!p->over_udp)
		buf_append(&out, "\0", LENGTH_BYTES);
	int r = dns_write_answer(&out, p->message, p->len, &p->query, p->rcode,
				 p->address.family ? &p->address : NULL, p->ptr_name, DNS_TTL_S);
	if (r == 0 && p->over_udp) {
		uv_buf_t b = uv_buf_init((char *)out.data, (unsigned)out.len);
		uv_udp_try_send(&p->dns->udp, &b, 1, (struct sockaddr *)&p->peer);
	} else if (r == 0 && p->stream) {
		size_t n = out.len - LENGTH_BYTES;
		out.data[0] = (uint8_t)(n >> 8);
		out.data[1] = (uint8_t)n;
		stream_write(p->stream->stream, out.data, out.len);
	}
	buf_done(&out);
}

static void pending_free(struct dns_pending *p)
{
	control_cancel(&p->wait);
	list_remove(&p->link);
	p->dns->pending_count--;
	free(p);
}

static void pending_recorded(struct control_wait *w, bool written)
{
	struct dns_pending *p = list_entry(w, struct dns_pending, wait);
	struct dns_stream *s = p->stream;
	if (!written) {
		p->rcode = DNS_SERVFAIL;
		p->address.family = 0;
		p->ptr_name = NULL;
	}
	pending_send(p);
	pending_free(p);
	if (s) {
		s->pending = NULL;
		stream_next(s);
	}
}

/* Judges and records a question. The pending answer, or NULL: there is nothing to answer. */
static struct dns_pending *dns_ask(struct dns *d, const uint8_t *p, size_t n)
{
	struct dns_query query;
	int r = dns_read_query(p, n, &query);
	if (r == -EBADMSG || !dns_may_ask(d))
		return NULL;
	struct dns_pending *pending = calloc(1, sizeof(*pending) + n);
	if (!pending)
		return NULL;
	pending->dns = d;
	pending->query = query;
	pending->len = n;
	memcpy(pending->message, p, n);
	if (r < 0)
		pending->rcode = r == -ENOTSUP           ? DNS_NOTIMP
				 : r == -EPROTONOSUPPORT ? DNS_BADVERS
							 : DNS_FORMERR;
	else
		dns_decide(pending);

	char type[16], answer[INET6_ADDRSTRLEN];
	struct record *record = control_record(d->g->control, "egress.dns");
	record_string(record, "name", r < 0 ? "" : query.name);
	record_string(record, "qtype", dns_type_text(query.type, type));
	record_string(record, "answer", dns_answer_text(pending, answer));
	pending->wait.done = pending_recorded;
	if (control_send(d->g->control, &pending->wait) < 0) {
		free(pending);
		return NULL;
	}
	list_append(&d->pending, &pending->link);
	d->pending_count++;
	return pending;
}

/* -- UDP -- */

static void udp_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
	struct dns *d = h->data;
	(void)suggested;
	*buf = uv_buf_init((char *)d->datagram, sizeof(d->datagram));
}

static void udp_received(uv_udp_t *h, ssize_t n, const uv_buf_t *buf, const struct sockaddr *peer,
			 unsigned flags)
{
	struct dns *d = h->data;
	if (n <= 0 || !peer || (flags & UV_UDP_PARTIAL) || peer->sa_family != AF_INET)
		return;
	struct dns_pending *p = dns_ask(d, (const uint8_t *)buf->base, (size_t)n);
	if (!p)
		return;
	p->over_udp = true;
	memcpy(&p->peer, peer, sizeof(struct sockaddr_in));
}

/* -- TCP -- */

static void dns_stream_free(struct dns_stream *s)
{
	if (s->pending)
		s->pending->stream = NULL;
	list_remove(&s->link);
	s->dns->stream_count--;
	buf_done(&s->in);
	free(s);
}

/* Takes the next whole question; nothing more is read while one is pending. */
static void stream_next(struct dns_stream *s)
{
	while (!s->pending) {
		size_t n =
			s->in.len < LENGTH_BYTES ? 0 : ((size_t)s->in.data[0] << 8 | s->in.data[1]);
		bool whole = s->in.len >= LENGTH_BYTES + n && s->in.len >= LENGTH_BYTES;
		if (s->in.len >= LENGTH_BYTES && (!n || n > DNS_MESSAGE_MAX)) {
			stream_close(s->stream);
			dns_stream_free(s);
			return;
		}
		if (!whole) {
			stream_read(s->stream, true);
			return;
		}
		struct dns_pending *p = dns_ask(s->dns, s->in.data + LENGTH_BYTES, n);
		buf_consume(&s->in, LENGTH_BYTES + n);
		if (!p)
			continue;
		p->stream = s;
		p->query.udp_size = DNS_MESSAGE_MAX;
		s->pending = p;
		stream_read(s->stream, false);
	}
}

static void dns_stream_data(void *user, const uint8_t *p, size_t n)
{
	struct dns_stream *s = user;
	if (buf_append(&s->in, p, n) < 0) {
		stream_close(s->stream);
		dns_stream_free(s);
		return;
	}
	stream_next(s);
}

static void dns_stream_eof(void *user)
{
	struct dns_stream *s = user;
	stream_close_gracefully(s->stream, DNS_STREAM_MS);
	dns_stream_free(s);
}

static void dns_stream_closed(void *user, const struct err *why)
{
	(void)why;
	dns_stream_free(user);
}

static const struct stream_ops dns_stream_ops = {
	.data = dns_stream_data,
	.eof = dns_stream_eof,
	.closed = dns_stream_closed,
};

static void dns_accepted(void *user, int fd)
{
	struct dns *d = user;
	struct err why;
	struct dns_stream *s = d->stream_count < DNS_STREAMS_MAX ? calloc(1, sizeof(*s)) : NULL;
	if (!s) {
		close(fd);
		return;
	}
	s->dns = d;
	buf_init(&s->in, 2 * (DNS_MESSAGE_MAX + LENGTH_BYTES) + 64 * 1024);
	list_append(&d->streams, &s->link);
	d->stream_count++;
	s->stream = stream_adopt(d->g->loop, fd, &dns_stream_ops, s, &why);
	if (!s->stream) {
		log_error("a DNS connection: %s", why.text);
		dns_stream_free(s);
		return;
	}
	stream_set_idle_timeout(s->stream, DNS_STREAM_MS);
	stream_read(s->stream, true);
}

/* -- making it -- */

static void udp_closed(uv_handle_t *h)
{
	free(h->data);
}

static int dns_open_udp(struct dns *d, int fd, struct err *e)
{
	uv_udp_init(d->g->loop, &d->udp);
	d->udp.data = d;
	int r = uv_udp_open(&d->udp, fd);
	if (r < 0)
		close(fd);
	else
		r = uv_udp_recv_start(&d->udp, udp_alloc, udp_received);
	return r < 0 ? err_set(e, -r, "DNS socket: %s", uv_strerror(r)) : 0;
}

struct dns *dns_new(struct gateway *g, int udp_fd, int tcp_fd, struct err *e)
{
	struct dns *d = calloc(1, sizeof(*d));
	if (!d) {
		close(udp_fd);
		close(tcp_fd);
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	d->g = g;
	uint64_t now = uv_now(g->loop);
	d->questions = (struct bucket){DNS_BURST, DNS_BURST, DNS_RATE, now};
	d->new_names = (struct bucket){DNS_NEW_BURST, DNS_NEW_BURST, DNS_NEW_RATE, now};
	list_init(&d->streams);
	list_init(&d->pending);
	if (dns_open_udp(d, udp_fd, e) < 0) {
		close(tcp_fd);
		uv_close((uv_handle_t *)&d->udp, udp_closed);
		return NULL;
	}
	d->listener = stream_listen(g->loop, tcp_fd, dns_accepted, d, e);
	if (!d->listener) {
		uv_close((uv_handle_t *)&d->udp, udp_closed);
		return NULL;
	}
	return d;
}

void dns_free(struct dns *d)
{
	if (!d)
		return;
	stream_listener_close(d->listener);
	list_for_each (it, &d->streams) {
		struct dns_stream *s = list_entry(it, struct dns_stream, link);
		stream_close(s->stream);
		dns_stream_free(s);
	}
	list_for_each (it, &d->pending)
		pending_free(list_entry(it, struct dns_pending, link));
	uv_close((uv_handle_t *)&d->udp, udp_closed);
}
