/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request becomes a canonical text, whose hash, time and scope are signed with a key that is
 * derived from the secret for one day, region and service. Everything that held a credential (the
 * session token is a field) is wiped, so the text is written into one block that never moves.
 */
#include "vault/sigv4.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"

#define ALGORITHM "AWS4-HMAC-SHA256"
#define HASH_SIZE 32            /* bytes */
#define TEXT_MAX  (1024 * 1024) /* bytes of a canonical request */
#define TO_SIGN_MAX \
	(64 + SIGV4_STAMP_SIZE + SIGV4_SCOPE_MAX + 3 * SIGV4_HEX_SIZE) /* bytes, with the NUL */

/* One parameter of the query, encoded. */
struct pair {
	const char *name, *value;
};

bool sigv4_is_s3(const char *service)
{
	static const char *const family[] = {"s3", "s3-outposts", "s3-object-lambda", "s3express"};
	for (size_t i = 0; i < sizeof(family) / sizeof(family[0]); i++)
		if (str_eq(service, family[i]))
			return true;
	return false;
}

int sigv4_hash(const void *p, size_t n, char out[SIGV4_HEX_SIZE])
{
	uint8_t hash[HASH_SIZE];
	if (!EVP_Digest(n ? p : "", n, hash, NULL, EVP_sha256(), NULL))
		return -ENOMEM;
	hex_encode(hash, sizeof(hash), out);
	return 0;
}

/* out may be the key. */
static bool hmac(const void *key, size_t key_len, const char *text, uint8_t out[HASH_SIZE])
{
	unsigned len;
	return HMAC(EVP_sha256(), key, (int)key_len, (const uint8_t *)text, strlen(text), out,
		    &len);
}

/* -- the canonical request -- */

/* The text's room was reserved. */
static void put(struct buf *b, const char *p, size_t n)
{
	int r = buf_append(b, p, n);
	assert(r == 0);
	(void)r;
}

static void put_str(struct buf *b, const char *s)
{
	put(b, s, strlen(s));
}

static bool is_unreserved(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       (c && strchr("-._~", c));
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* The byte of the escape at s, or -1. */
static int escape_value(const char *s)
{
	int high = s[0] == '%' ? hex_value(s[1]) : -1;
	int low = high < 0 ? -1 : hex_value(s[2]);
	return low < 0 ? -1 : high << 4 | low;
}

static void put_escape(struct buf *b, uint8_t c)
{
	static const char digit[] = "0123456789ABCDEF";
	char text[] = {'%', digit[c >> 4], digit[c & 15]};
	put(b, text, sizeof(text));
}

static void put_encoded(struct buf *b, char c)
{
	if (is_unreserved(c))
		put(b, &c, 1);
	else
		put_escape(b, (uint8_t)c);
}

/* once: escapes stay what they are (an encoded slash is none that separates). */
static void put_path(struct buf *b, const char *path, bool once)
{
	for (; *path; path++) {
		int c = once ? escape_value(path) : -1;
		if (*path == '/') {
			put(b, path, 1);
		} else if (c < 0) {
			put_encoded(b, *path);
		} else {
			if (is_unreserved((char)c))
				put_encoded(b, (char)c);
			else
				put_escape(b, (uint8_t)c);
			path += 2;
		}
	}
}

/* A name or value of the query in its one spelling, and a NUL. */
static const char *put_parameter(struct buf *b, const char *s, size_t n)
{
	size_t at = b->len;
	for (size_t i = 0; i < n; i++) {
		int c = escape_value(s + i); /* ends at the NUL, or at a delimiter, at the latest */
		if (c >= 0)
			i += 2;
		else
			c = s[i] == '+' ? ' ' : s[i];
		put_encoded(b, (char)c);
	}
	put(b, "", 1);
	return (const char *)b->data + at;
}

static int pair_order(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;
	int by_name = strcmp(x->name, y->name);
	return by_name ? by_name : strcmp(x->value, y->value);
}

static size_t count_char(const char *s, char c)
{
	size_t n = 0;
	for (; *s; s++)
		n += *s == c;
	return n;
}

static int put_query(struct buf *b, const char *query)
{
	auto_free struct pair *pairs = calloc(count_char(query, '&') + 1, sizeof(*pairs));
	auto_buf struct buf room;
	size_t count = 0;
	buf_init(&room, TEXT_MAX);
	if (!pairs || buf_reserve(&room, 3 * strlen(query) + count_char(query, '&') + 2) < 0)
		return -ENOMEM;
	for (const char *at = query; *at;) {
		size_t len = strcspn(at, "&");
		size_t name = strcspn(at, "&=");
		bool bare = name == len;
		if (len)
			pairs[count++] = (struct pair){
				.name = put_parameter(&room, at, name),
				.value = bare ? ""
					      : put_parameter(&room, at + name + 1, len - name - 1),
			};
		at += len + (at[len] == '&');
	}
	qsort(pairs, count, sizeof(*pairs), pair_order);
	for (size_t i = 0; i < count; i++) {
		put_str(b, i ? "&" : "");
		put_str(b, pairs[i].name);
		put_str(b, "=");
		put_str(b, pairs[i].value);
	}
	return 0;
}

static int field_order(const void *a, const void *b)
{
	const struct sigv4_field *const *x = a, *const *y = b;
	int by_name = strcasecmp((*x)->name, (*y)->name);
	return by_name ? by_name : (*x > *y) - (*x < *y);
}

static const struct sigv4_field **sort_fields(const struct sigv4_request *q)
{
	const struct sigv4_field **list = calloc(q->count, sizeof(const struct sigv4_field *));
	for (size_t i = 0; list && i < q->count; i++)
		list[i] = &q->fields[i];
	if (list)
		qsort(list, q->count, sizeof(const struct sigv4_field *), field_order);
	return list;
}

static void put_lower(struct buf *b, const char *s)
{
	for (; *s; s++) {
		char c = *s >= 'A' && *s <= 'Z' ? (char)(*s + ('a' - 'A')) : *s;
		put(b, &c, 1);
	}
}

/* Without whitespace around it, and each run of it inside as one space. */
static void put_folded(struct buf *b, const char *s)
{
	s += strspn(s, " \t");
	while (*s) {
		size_t word = strcspn(s, " \t");
		size_t gap = strspn(s + word, " \t");
		put(b, s, word);
		if (gap && s[word + gap])
			put(b, " ", 1);
		s += word + gap;
	}
}

static bool same_name(const struct sigv4_field *const *sorted, size_t i)
{
	return i && !strcasecmp(sorted[i - 1]->name, sorted[i]->name);
}

static void put_fields(struct buf *b, const struct sigv4_field *const *sorted, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (same_name(sorted, i)) {
			put_str(b, ",");
		} else {
			put_str(b, i ? "\n" : "");
			put_lower(b, sorted[i]->name);
			put_str(b, ":");
		}
		put_folded(b, sorted[i]->value);
	}
	put_str(b, "\n\n");
}

static void put_names(struct buf *b, const struct sigv4_field *const *sorted, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (same_name(sorted, i))
			continue;
		put_str(b, i ? ";" : "");
		put_lower(b, sorted[i]->name);
	}
}

/* More than the canonical request can have. */
static size_t canonical_bound(const struct sigv4_request *q)
{
	size_t n = strlen(q->method) + 3 * strlen(q->path) + strlen(q->payload) + 16;
	if (q->query) /* "=" behind each name */
		n += 3 * strlen(q->query) + count_char(q->query, '&') + 1;
	for (size_t i = 0; i < q->count; i++)
		n += 2 * strlen(q->fields[i].name) + strlen(q->fields[i].value) + 4;
	return n;
}

/* b: with the room reserved. Its hash; the names that are signed as a heap string. */
static int hash_canonical(struct buf *b, const struct sigv4_request *q,
			  const struct sigv4_field *const *sorted, char hash[SIGV4_HEX_SIZE],
			  char **ret_names)
{
	put_str(b, q->method);
	put_str(b, "\n");
	put_path(b, q->path, q->encode_once);
	put_str(b, "\n");
	int r = q->query ? put_query(b, q->query) : 0;
	if (r < 0)
		return r;
	put_str(b, "\n");
	put_fields(b, sorted, q->count);
	size_t names = b->len;
	put_names(b, sorted, q->count);
	char *text = strndup((const char *)b->data + names, b->len - names);
	put_str(b, "\n");
	put_str(b, q->payload);
	if (!text || sigv4_hash(b->data, b->len, hash) < 0) {
		free(text);
		return -ENOMEM;
	}
	*ret_names = text;
	return 0;
}

static int canonical(const struct sigv4_request *q, char hash[SIGV4_HEX_SIZE], char **ret_names)
{
	auto_free const struct sigv4_field **sorted = sort_fields(q);
	auto_buf struct buf b;
	buf_init(&b, TEXT_MAX);
	int r = sorted ? buf_reserve(&b, canonical_bound(q)) : -ENOMEM;
	if (r < 0)
		return r;
	r = hash_canonical(&b, q, sorted, hash, ret_names);
	explicit_bzero(b.data, b.len);
	return r;
}

/* -- signatures -- */

void sigv4_stamp(int64_t now_s, char out[SIGV4_STAMP_SIZE])
{
	time_t t = (time_t)now_s;
	struct tm tm = {0};
	size_t n = gmtime_r(&t, &tm) ? strftime(out, SIGV4_STAMP_SIZE, "%Y%m%dT%H%M%SZ", &tm) : 0;
	if (!n)
		out[0] = '\0';
}

/* The key of one day, region and service. */
static bool derive_key(const char *secret, const char *stamp, const struct sigv4_request *q,
		       uint8_t out[HASH_SIZE])
{
	char date[9];
	snprintf(date, sizeof(date), "%.8s", stamp);
	size_t n = sizeof("AWS4") - 1 + strlen(secret);
	char *start = malloc(n + 1);
	if (!start)
		return false;
	snprintf(start, n + 1, "AWS4%s", secret);
	bool ok = hmac(start, n, date, out) && hmac(out, HASH_SIZE, q->region, out) &&
		  hmac(out, HASH_SIZE, q->service, out) &&
		  hmac(out, HASH_SIZE, "aws4_request", out);
	explicit_bzero(start, n);
	free(start);
	return ok;
}

/* Signs what, which stands behind kind, time and scope; the signature is the next one's previous.
 */
static int chain_sign(struct sigv4_chain *c, const char *kind, const char *what)
{
	char text[TO_SIGN_MAX];
	uint8_t signature[HASH_SIZE];
	int n = snprintf(text, sizeof(text), "%s\n%s\n%s\n%s", kind, c->stamp, c->scope, what);
	assert(n > 0 && (size_t)n < sizeof(text));
	if (!hmac(c->key, sizeof(c->key), text, signature))
		return -ENOMEM;
	hex_encode(signature, sizeof(signature), c->previous);
	return 0;
}

int sigv4_chain_chunk(struct sigv4_chain *c, const void *p, size_t n)
{
	char nothing[SIGV4_HEX_SIZE], hash[SIGV4_HEX_SIZE], what[3 * SIGV4_HEX_SIZE];
	if (sigv4_hash("", 0, nothing) < 0 || sigv4_hash(p, n, hash) < 0)
		return -ENOMEM;
	snprintf(what, sizeof(what), "%s\n%s\n%s", c->previous, nothing, hash);
	return chain_sign(c, ALGORITHM "-PAYLOAD", what);
}

int sigv4_chain_trailers(struct sigv4_chain *c, const char *p, size_t n)
{
	char hash[SIGV4_HEX_SIZE], what[2 * SIGV4_HEX_SIZE];
	if (sigv4_hash(p, n, hash) < 0)
		return -ENOMEM;
	snprintf(what, sizeof(what), "%s\n%s", c->previous, hash);
	return chain_sign(c, ALGORITHM "-TRAILER", what);
}

static bool has_host(const struct sigv4_request *q)
{
	for (size_t i = 0; i < q->count; i++)
		if (!strcasecmp(q->fields[i].name, "Host"))
			return true;
	return false;
}

static int chain_start(struct sigv4_chain *c, const struct sigv4_request *q,
		       const struct sigv4_key *key, struct err *e)
{
	sigv4_stamp(q->now_s, c->stamp);
	if (!c->stamp[0])
		return err_set(e, EINVAL, "the clock says a time that can't be signed");
	int n = snprintf(c->scope, sizeof(c->scope), "%.8s/%s/%s/aws4_request", c->stamp, q->region,
			 q->service);
	if (n < 0 || (size_t)n >= sizeof(c->scope))
		return err_set(e, EINVAL, "the names of region and service are too long");
	if (!derive_key(key->secret, c->stamp, q, c->key))
		return err_set(e, ENOMEM, "no memory");
	return 0;
}

static int sign(struct sigv4_chain *c, const struct sigv4_request *q, const struct sigv4_key *key,
		char **ret, struct err *e)
{
	char hash[SIGV4_HEX_SIZE];
	auto_free char *names = NULL;
	int r = chain_start(c, q, key, e);
	if (r < 0)
		return r;
	r = canonical(q, hash, &names);
	if (r == -EMSGSIZE)
		return err_set(e, EINVAL, "the head of the request is too long to be signed");
	if (r == 0)
		r = chain_sign(c, ALGORITHM, hash);
	char *text = r < 0 ? NULL
			   : str_printf(ALGORITHM " Credential=%s/%s, SignedHeaders=%s, "
						  "Signature=%s",
					key->id, c->scope, names, c->previous);
	if (!text)
		return err_set(e, ENOMEM, "no memory");
	*ret = text;
	return 0;
}

int sigv4_sign(const struct sigv4_request *q, const struct sigv4_key *key, char **ret,
	       struct sigv4_chain *chain, struct err *e)
{
	struct sigv4_chain c = {0};
	if (!has_host(q))
		return err_set(e, EINVAL, "a request without Host can't be signed");
	int r = sign(&c, q, key, ret, e);
	if (r == 0 && chain)
		*chain = c;
	explicit_bzero(&c, sizeof(c));
	return r;
}
