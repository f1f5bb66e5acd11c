/* SPDX-License-Identifier: Apache-2.0 */
/* Source: S3 API Reference, "Authenticating requests: using the Authorization header", for the
 * words of x-amz-content-sha256. */
#include "egress/aws.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/str.h"

#define EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define UNSIGNED   "UNSIGNED-PAYLOAD"
#define WORD_MAX   40 /* bytes of the name of a service or a region */

static const char content_hash[] = "X-Amz-Content-Sha256";

/* -- how the guest's client authenticates -- */

static bool is_presigned(const char *target)
{
	static const char *const parameters[] = {"X-Amz-Credential", "X-Amz-Signature",
						 "X-Amz-Algorithm", "AWSAccessKeyId"};
	for (size_t i = 0; i < sizeof(parameters) / sizeof(parameters[0]); i++) {
		auto_free char *value = NULL;
		if (http_query_get(target, parameters[i], &value) == 0 && value)
			return true;
	}
	return false;
}

/* A name as regions and services have it, from s up to end. */
static bool take_word(const char *s, const char *end, char out[WORD_MAX + 1])
{
	size_t n = (size_t)(end - s);
	if (!n || n > WORD_MAX || strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") < n)
		return false;
	memcpy(out, s, n);
	out[n] = '\0';
	return true;
}

/* The last slash before end, not before s. */
static const char *slash_before(const char *s, const char *end)
{
	return end ? memrchr(s, '/', (size_t)(end - s)) : NULL;
}

/* Reads KEY/DATE/REGION/SERVICE/aws4_request. */
static bool read_scope(const char *value, char region[WORD_MAX + 1], char service[WORD_MAX + 1])
{
	static const char word[] = "Credential=", last[] = "/aws4_request";
	const char *s = strstr(value, word);
	if (!s)
		return false;
	s += sizeof(word) - 1;
	const char *end = s + strcspn(s, ", ");
	if ((size_t)(end - s) < sizeof(last) ||
	    memcmp(end - (sizeof(last) - 1), last, sizeof(last) - 1) != 0)
		return false;
	end -= sizeof(last) - 1;
	const char *before_service = slash_before(s, end);
	const char *before_region = slash_before(s, before_service);
	return slash_before(s, before_region) && take_word(before_service + 1, end, service) &&
	       take_word(before_region + 1, before_service, region);
}

/* The guest signs for what it means to reach: that is to be what was granted. */
static unsigned judge_scope(const struct secret *s, const char *value, struct err *why)
{
	char region[WORD_MAX + 1], service[WORD_MAX + 1];
	if (strncasecmp(value, "AWS4-", strlen("AWS4-")) != 0)
		return 0;
	if (strncmp(value, "AWS4-HMAC-SHA256 ", strlen("AWS4-HMAC-SHA256 ")) != 0 ||
	    !read_scope(value, region, service)) {
		err_set(why, EACCES,
			"%s signs with AWS4-HMAC-SHA256 for one region and service, and the "
			"request's Authorization is none of that kind",
			secret_name(s));
		return 403;
	}
	if (str_eq(region, secret_recipe(s, "region")) &&
	    str_eq(service, secret_recipe(s, "service")))
		return 0;
	err_set(why, EACCES,
		"%s is granted for the service %s in %s, and the request is signed for %s in %s",
		secret_name(s), secret_recipe(s, "service"), secret_recipe(s, "region"), service,
		region);
	return 403;
}

static unsigned judge_authentication(const struct secret *s, const struct http_head *head,
				     struct err *why)
{
	if (is_presigned(head->target)) {
		err_set(why, EACCES,
			"%s is put into signed fields alone, and this is a presigned URL: have the "
			"client sign with an Authorization field",
			secret_name(s));
		return 403;
	}
	for (size_t i = 0; i < head->fields.count; i++) {
		const struct http_field *f = &head->fields.list[i];
		unsigned status = str_same_field(f->name, "Authorization")
					  ? judge_scope(s, f->value, why)
					  : 0;
		if (status)
			return status;
	}
	return 0;
}

/* -- what is signed for the body -- */

static bool is_hash(const char *s)
{
	return strlen(s) == SIGV4_HEX_SIZE - 1 &&
	       strspn(s, "0123456789abcdefABCDEF") == SIGV4_HEX_SIZE - 1;
}

/* What the client says of its body. */
static unsigned read_payload(struct aws *a, const char *said, struct err *why)
{
	static const char chunks[] = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
	a->payload = said;
	if (is_hash(said) || str_eq(said, UNSIGNED) ||
	    str_eq(said, "STREAMING-UNSIGNED-PAYLOAD-TRAILER"))
		return 0;
	a->body = str_ends(said, "-TRAILER") ? AWS_CHUNKS_AND_TRAILERS : AWS_CHUNKS;
	if (str_starts(said, chunks) &&
	    (!said[sizeof(chunks) - 1] || str_eq(said + sizeof(chunks) - 1, "-TRAILER")))
		return 0;
	err_set(why, EACCES,
		"x-amz-content-sha256 says %.80s, and the gateway can't sign a body of that kind",
		said);
	return 403;
}

static unsigned too_long(struct err *why)
{
	err_set(why, EMSGSIZE,
		"the body is hashed before it is sent to AWS, which the gateway does with at most "
		"1 MiB: have the client say x-amz-content-sha256, or send less");
	return 413;
}

static unsigned judge_body(struct aws *a, const struct secret *s, const struct http_head *head,
			   struct err *why)
{
	size_t said = http_fields_count(&head->fields, content_hash);
	if (said > 1) {
		err_set(why, EBADMSG, "the request has more than one x-amz-content-sha256");
		return 400;
	}
	if (said)
		return read_payload(a, http_fields_get(&head->fields, content_hash), why);
	if (head->framing == HTTP_NO_BODY) {
		a->payload = EMPTY_HASH;
	} else if (sigv4_is_s3(secret_recipe(s, "service"))) {
		a->payload = UNSIGNED;
	} else {
		a->body = AWS_HELD;
		if (head->framing == HTTP_LENGTH && head->length > AWS_HELD_MAX)
			return too_long(why);
	}
	return 0;
}

/* Takes room for what will be held. */
static unsigned take_room(struct aws *a, const struct http_head *head, uint64_t *room,
			  struct err *why)
{
	uint64_t most = a->body == AWS_HELD ? AWS_HELD_MAX : AWS_CHUNK_MAX;
	bool known = head->framing == HTTP_LENGTH && head->length < most;
	uint64_t n = known ? head->length : most;
	if (a->body == AWS_PASSES || head->framing == HTTP_NO_BODY)
		return 0;
	if (*room + n > AWS_ROOM) {
		err_set(why, EAGAIN,
			"too many bodies for AWS are held at once to be signed; try again");
		return 503;
	}
	*room += n;
	a->room = room;
	a->taken = n;
	return 0;
}

unsigned aws_begin(struct aws *a, const struct secret *s, const struct http_head *head,
		   uint64_t *room, struct err *why)
{
	*a = (struct aws){0};
	buf_init(&a->held, AWS_HELD_MAX);
	unsigned status = judge_authentication(s, head, why);
	if (!status)
		status = judge_body(a, s, head, why);
	return status ? status : take_room(a, head, room, why);
}

void aws_done(struct aws *a)
{
	if (a->room)
		*a->room -= a->taken;
	buf_done(&a->held);
	sigv4_stream_free(a->stream);
	*a = (struct aws){0};
}

/* -- the body -- */

int aws_hold(struct aws *a, const uint8_t *p, size_t n, struct err *e)
{
	int r = buf_append(&a->held, p, n);
	if (r == -EMSGSIZE)
		too_long(e);
	else if (r < 0)
		err_set(e, ENOMEM, "no memory");
	return r;
}

int aws_hash(struct aws *a, struct err *e)
{
	int r = sigv4_hash(a->held.data, a->held.len, a->hash);
	if (r < 0)
		return err_set(e, -r, "no memory");
	a->payload = a->hash;
	return 0;
}

int aws_follow(struct aws *a, const struct sigv4_chain *chain)
{
	a->stream = sigv4_stream_new(chain, a->body == AWS_CHUNKS_AND_TRAILERS, AWS_CHUNK_MAX);
	return a->stream ? 0 : -ENOMEM;
}
