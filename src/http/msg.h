/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP messages as values: a head with its fields, apart from the bytes that carried it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HTTP_HEAD_MAX      65536 /* bytes of start line and fields together */
#define HTTP_START_MAX     16384 /* bytes of the start line */
#define HTTP_FIELDS_MAX    128   /* fields in one head */
#define HTTP_CHUNKLINE_MAX 1024  /* bytes of a chunk-size line with its extensions */
#define HTTP_TRAILERS_MAX  8192  /* bytes of a trailer section */

struct http_field {
	const char *name;  /* as received; compared without case */
	const char *value; /* no leading or trailing white space; no CR, LF, NUL */
};

/* An ordered list of fields that owns its strings. Zero-initialised is empty. */
struct http_fields {
	struct http_field *list;
	size_t count;
};

/* How the body of a message is delimited. */
enum http_framing {
	HTTP_NO_BODY,
	HTTP_LENGTH, /* exactly length bytes */
	HTTP_CHUNKED,
	HTTP_TO_CLOSE, /* responses only */
};

struct http_head {
	char *method; /* requests: a token, as received */
	char *target; /* requests: as received, never empty, no white space or control characters */
	unsigned status; /* responses: 100 .. 599 */
	unsigned minor;  /* HTTP/1.minor, 0 or 1 */
	struct http_fields fields;
	enum http_framing framing;
	uint64_t length; /* for HTTP_LENGTH */
	bool keep_alive; /* the sender leaves the connection open after this message */
	bool upgrade;    /* written alone: the field Upgrade is meant, Connection says so */
	/* To be sent over HTTP/2: no table of the peer is to remember the target, or the values of
	   the last so many fields. */
	bool secret_target;
	size_t secret_fields;
	bool expect_continue;
};

void http_head_done(struct http_head *h); /* frees what it owns, leaves it zeroed */

/* Copies name and value, without white space at its ends, to the end of the list. 0; -EINVAL when
   name is no token or value has CR, LF, NUL or other control characters but HT; -E2BIG past
   HTTP_FIELDS_MAX; -ENOMEM. */
int http_fields_add(struct http_fields *f, const char *name, const char *value);
int http_fields_addf(struct http_fields *f, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The value of the first field of that name, or NULL. */
const char *http_fields_get(const struct http_fields *f, const char *name);
size_t http_fields_count(const struct http_fields *f, const char *name);
void http_fields_remove(struct http_fields *f, const char *name); /* all of that name */
void http_fields_done(struct http_fields *f);

/* The reason phrase for a status, "Unknown" where there is none. */
const char *http_reason(unsigned status);

/* Decodes %XX of a query or path part into out (n + 1 bytes); plus_is_space as forms do. Returns
   the length; -EBADMSG on a bad escape or an encoded NUL. */
ssize_t http_percent_decode(const char *s, size_t n, bool plus_is_space, char *out);

/* Percent-encodes everything but unreserved characters (and '/' when keep_slash) to a heap string;
 * NULL: no memory. */
char *http_percent_encode(const char *s, bool keep_slash);

/* The decoded value of the first parameter name in target's query, a heap string in *ret (NULL when
   absent; "" without a value). 0, -EBADMSG, -ENOMEM. */
int http_query_get(const char *target, const char *name, char **ret);
