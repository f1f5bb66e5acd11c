/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two layers: records, whose payloads are joined until the message is whole, and the message, which
 * is read once, from front to back, each length ending exactly where the one around it does.
 */
#include "egress/hello.h"

#include <errno.h>
#include <string.h>

#define RECORD_HANDSHAKE 22
#define RECORD_MAX       (1u << 14) /* bytes of a record's payload */
#define VERSION_MAJOR    3
#define CLIENT_HELLO     1
#define MESSAGE_HEAD     4 /* type, length of three bytes */
#define RANDOM_SIZE      32
#define SESSION_ID_MAX   32

#define EXT_SERVER_NAME 0
#define EXT_ECH         0xfe0d
#define EXT_ESNI        0xffce /* its drafts': a name that nobody outside can read */
#define EXT_TYPES       65536
#define NAME_HOST       0
#define ECH_OUTER       0

/* -- the message -- */

/* What is left of a vector. */
struct part {
	const uint8_t *p;
	size_t n;
};

static bool take(struct part *from, size_t n, struct part *ret)
{
	if (from->n < n)
		return false;
	*ret = (struct part){from->p, n};
	from->p += n;
	from->n -= n;
	return true;
}

static bool take_number(struct part *from, size_t bytes, size_t *ret)
{
	struct part number;
	if (!take(from, bytes, &number))
		return false;
	*ret = 0;
	for (size_t i = 0; i < bytes; i++)
		*ret = *ret << 8 | number.p[i];
	return true;
}

/* A vector with its length in front. */
static bool take_vector(struct part *from, size_t length_bytes, struct part *ret)
{
	size_t n;
	return take_number(from, length_bytes, &n) && take(from, n, ret);
}

/* One entry, a host name: others are defined nowhere, and a second one could be another reader's.
 */
static int read_name(struct part ext, struct hello *h, struct err *e)
{
	struct part list, name;
	size_t type;
	if (!take_vector(&ext, 2, &list) || ext.n || !take_number(&list, 1, &type) ||
	    type != NAME_HOST || !take_vector(&list, 2, &name) || list.n)
		return err_set(e, EBADMSG, "the ClientHello's server_name is malformed");
	if (policy_host_canonical((const char *)name.p, name.n, h->sni, NULL) < 0)
		return err_set(e, EBADMSG, "the ClientHello's server_name is no host name");
	h->named = true;
	return 0;
}

static int read_extension(size_t type, struct part ext, struct hello *h, struct err *e)
{
	if (type == EXT_SERVER_NAME)
		return read_name(ext, h, e);
	if (type == EXT_ESNI)
		return err_set(e, EBADMSG, "the ClientHello hides its server_name (ESNI)");
	if (type != EXT_ECH)
		return 0;
	if (!ext.n || ext.p[0] != ECH_OUTER)
		return err_set(e, EBADMSG, "the ClientHello's encrypted_client_hello is malformed");
	h->ech = true;
	return 0;
}

static int read_extensions(struct part list, struct hello *h, struct err *e)
{
	uint8_t seen[EXT_TYPES / 8] = {0};
	while (list.n) {
		size_t type;
		struct part ext;
		if (!take_number(&list, 2, &type) || !take_vector(&list, 2, &ext))
			return err_set(e, EBADMSG, "the ClientHello's extensions are malformed");
		if (seen[type / 8] & 1 << type % 8)
			return err_set(e, EBADMSG, "the ClientHello has extension %zu twice", type);
		seen[type / 8] |= (uint8_t)(1 << type % 8);
		int r = read_extension(type, ext, h, e);
		if (r < 0)
			return r;
	}
	return 0;
}

static int read_message(struct part m, struct hello *ret, struct err *e)
{
	struct hello h = {.named = false};
	struct part random, session, suites, compressions, extensions;
	size_t major;
	if (!take_number(&m, 1, &major) || major != VERSION_MAJOR || !take(&m, 1, &random) ||
	    !take(&m, RANDOM_SIZE, &random) || !take_vector(&m, 1, &session) ||
	    session.n > SESSION_ID_MAX || !take_vector(&m, 2, &suites) || !suites.n ||
	    suites.n % 2 || !take_vector(&m, 1, &compressions) || !compressions.n)
		return err_set(e, EBADMSG, "the ClientHello is malformed");
	if (m.n) { /* TLS 1.2 may have none */
		if (!take_vector(&m, 2, &extensions) || m.n)
			return err_set(e, EBADMSG, "the ClientHello's extensions are malformed");
		int r = read_extensions(extensions, &h, e);
		if (r < 0)
			return r;
	}
	*ret = h;
	return 0;
}

/* -- records -- */

void hello_init(struct hello_reader *r)
{
	*r = (struct hello_reader){.wire = 0};
	buf_init(&r->message, MESSAGE_HEAD + HELLO_MAX);
}

void hello_done(struct hello_reader *r)
{
	buf_done(&r->message);
}

/* A record's head is whole. */
static int record_begin(struct hello_reader *r, struct err *e)
{
	r->left = (size_t)r->head[3] << 8 | r->head[4];
	r->head_len = 0;
	if (r->head[0] != RECORD_HANDSHAKE || r->head[1] != VERSION_MAJOR)
		return err_set(e, EBADMSG,
			       "no TLS handshake, though a rule with scheme tls wants one");
	if (!r->left || r->left > RECORD_MAX)
		return err_set(e, EBADMSG, "a TLS record of %zu bytes", r->left);
	r->wire += sizeof(r->head) + r->left;
	if (r->wire > HELLO_WIRE_MAX)
		return err_set(e, EMSGSIZE,
			       "the records of the ClientHello have more than %lu bytes",
			       HELLO_WIRE_MAX);
	return 0;
}

/* Whether the message is whole, judged as early as can be. 0, -EAGAIN, -errno. */
static int message_state(const struct hello_reader *r, struct err *e)
{
	const uint8_t *p = r->message.data;
	size_t n = r->message.len;
	if (n && p[0] != CLIENT_HELLO)
		return err_set(e, EBADMSG, "the first TLS message is no ClientHello");
	if (n < MESSAGE_HEAD)
		return -EAGAIN;
	size_t length = (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
	if (length > HELLO_MAX)
		return err_set(e, EMSGSIZE, "the ClientHello is larger than %lu bytes", HELLO_MAX);
	if (n < MESSAGE_HEAD + length)
		return -EAGAIN;
	if (n > MESSAGE_HEAD + length || r->left)
		return err_set(e, EBADMSG, "something stands behind the ClientHello in its record");
	return 0;
}

/* Takes bytes up to the end of a record's head or of its payload. Returns how many. */
static ssize_t record_feed(struct hello_reader *r, const uint8_t *p, size_t n, struct err *e)
{
	if (r->left) {
		size_t part = n < r->left ? n : r->left;
		size_t room = r->message.max - r->message.len;
		if (part > room && r->message.len >= MESSAGE_HEAD)
			return err_set(e, EBADMSG,
				       "something stands behind the ClientHello in its record");
		if (part > room || buf_append(&r->message, p, part) < 0)
			return err_set(e, ENOMEM, "no memory");
		r->left -= part;
		return (ssize_t)part;
	}
	size_t part = sizeof(r->head) - r->head_len;
	if (part > n)
		part = n;
	memcpy(r->head + r->head_len, p, part);
	r->head_len += part;
	int failed = r->head_len == sizeof(r->head) ? record_begin(r, e) : 0;
	return failed < 0 ? failed : (ssize_t)part;
}

int hello_feed(struct hello_reader *r, const uint8_t *p, size_t n, struct hello *ret, struct err *e)
{
	while (n) {
		ssize_t part = record_feed(r, p, n, e);
		if (part < 0)
			return (int)part;
		p += part;
		n -= (size_t)part;
		int state = message_state(r, e);
		if (state == 0)
			return read_message((struct part){r->message.data + MESSAGE_HEAD,
							  r->message.len - MESSAGE_HEAD},
					    ret, e);
		if (state != -EAGAIN)
			return state;
	}
	return -EAGAIN;
}
