/* SPDX-License-Identifier: Apache-2.0 */
/* What requests for AWS are signed with of their bodies, and which are refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "egress/aws.h"
#include "http/h1.h"

#define HASH  "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"
#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define SAYS  "x-amz-content-sha256: "
#define CHUNK "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
#define SCOPE "Authorization: AWS4-HMAC-SHA256 Credential=AKIA/20260101/"

struct fixture {
	struct secrets *s3, *other;
	uint64_t room;
};

static struct secrets *grant(const char *service)
{
	auto_json json_t *entry = json_pack(
		"{s:s, s:[s], s:{s:s, s:s, s:s}, s:{s:s, s:s}}", "name", "AWS", "hosts",
		"example.amazonaws.com", "inject", "kind", "sigv4", "service", service, "region",
		"eu-central-1", "value", "accessKeyId", "AKIA", "secretAccessKey", "key");
	struct secrets *set = secrets_new();
	struct err e = {0};
	if (secrets_put(set, entry, 1, &e) < 0)
		fail_msg("%s", e.text);
	return set;
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	f->s3 = grant("s3");
	f->other = grant("dynamodb");
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	secrets_free(f->s3);
	secrets_free(f->other);
	free(f);
	return 0;
}

/* lines: of the request's head, each with its end. */
static unsigned begin(struct fixture *f, struct aws *a, const struct secrets *set,
		      const char *target, const char *lines, struct err *why)
{
	auto_free char *text = str_printf("POST %s HTTP/1.1\r\nHost: h\r\n%s\r\n", target, lines);
	struct http_head head;
	enum h1_fault fault;
	size_t n = strlen(text);
	assert_int_equal(h1_read_request((const uint8_t *)text, n, &head, &fault), n);
	unsigned status = aws_begin(a, secrets_at(set, 0), &head, &f->room, why);
	if (!status && a->payload) /* it outlives the head here */
		a->payload = strcpy(a->hash, a->payload);
	http_head_done(&head);
	return status;
}

struct judged {
	const char *lines;
	bool s3;
	enum aws_body body;
	const char *payload;
	uint64_t room;
};

static const struct judged good[] = {
	{"", true, AWS_PASSES, EMPTY, 0},
	{"", false, AWS_PASSES, EMPTY, 0},
	{"Content-Length: 9\r\n", true, AWS_PASSES, "UNSIGNED-PAYLOAD", 0},
	{"Content-Length: 9\r\n", false, AWS_HELD, NULL, 9},
	{"Content-Length: 1048576\r\n", false, AWS_HELD, NULL, AWS_HELD_MAX},
	{"Transfer-Encoding: chunked\r\n", false, AWS_HELD, NULL, AWS_HELD_MAX},
	{SAYS HASH "\r\nContent-Length: 99999999\r\n", true, AWS_PASSES, HASH, 0},
	{SAYS HASH "\r\nContent-Length: 99999999\r\n", false, AWS_PASSES, HASH, 0},
	{SAYS "UNSIGNED-PAYLOAD\r\nContent-Length: 9\r\n", false, AWS_PASSES, "UNSIGNED-PAYLOAD",
	 0},
	{SAYS CHUNK "\r\nContent-Length: 99999999\r\n", true, AWS_CHUNKS, CHUNK, AWS_CHUNK_MAX},
	{SAYS CHUNK "\r\nContent-Length: 999\r\n", true, AWS_CHUNKS, CHUNK, 999},
	{SAYS CHUNK "-TRAILER\r\nTransfer-Encoding: chunked\r\n", true, AWS_CHUNKS_AND_TRAILERS,
	 CHUNK "-TRAILER", AWS_CHUNK_MAX},
	{SCOPE "eu-central-1/s3/aws4_request, SignedHeaders=host, Signature=00\r\n", true,
	 AWS_PASSES, EMPTY, 0},
	{"Authorization: AWS AKIA:c2lnbmF0dXJl\r\n", true, AWS_PASSES, EMPTY, 0},
	{"Authorization: Bearer x\r\n", true, AWS_PASSES, EMPTY, 0},
};

static void what_is_signed_for_the_body_follows_the_head(void **state)
{
	struct fixture *f = *state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		const struct judged *j = &good[i];
		struct aws a;
		struct err why = {0};
		if (begin(f, &a, j->s3 ? f->s3 : f->other, "/", j->lines, &why))
			fail_msg("%s: %s", j->lines, why.text);
		if (a.body != j->body ||
		    (j->payload ? !str_eq(a.payload, j->payload) : !!a.payload))
			fail_msg("%s: %d, %s", j->lines, (int)a.body, a.payload);
		assert_int_equal(f->room, j->room);
		aws_done(&a);
		assert_int_equal(f->room, 0);
	}
}

struct refused {
	const char *target, *lines;
	unsigned status;
	const char *why;
};

#define END ", SignedHeaders=host, Signature=00\r\n"

static const struct refused bad[] = {
	{"/", SCOPE "eu-central-1/s3/aws4_request" END, 403, "signed for s3 in eu-central-1"},
	{"/", SCOPE "us-east-1/dynamodb/aws4_request" END, 403, "signed for dynamodb in us-east-1"},
	{"/", "Authorization: Bearer x\r\n" SCOPE "us-east-1/dynamodb/aws4_request" END, 403,
	 "dynamodb in us-east-1"},
	{"/", SCOPE "dynamodb/aws4_request" END, 403, "none of that kind"},
	{"/", SCOPE "US/dynamodb/aws4_request" END, 403, "none of that kind"},
	{"/", SCOPE "eu-central-1/dynamodb/aws5_request" END, 403, "none of that kind"},
	{"/", SCOPE "eu-central-1//aws4_request" END, 403, "none of that kind"},
	{"/", "Authorization: AWS4-HMAC-SHA256 Credential=/aws4_request\r\n", 403,
	 "none of that kind"},
	{"/", "Authorization: AWS4-HMAC-SHA256 Credential=\r\n", 403, "none of that kind"},
	{"/", "Authorization: aws4-hmac-sha256\r\n", 403, "none of that kind"},
	{"/", "Authorization: AWS4-ECDSA-P256-SHA256 Credential=AKIA/20260101/s3/aws4_request\r\n",
	 403, "none of that kind"},
	{"/?a=b&X-Amz-Credential=AKIA%2F20260101", "", 403, "presigned"},
	{"/?X%2dAmz-Signature", "", 403, "presigned"},
	{"/?AWSAccessKeyId=AKIA", "", 403, "presigned"},
	{"/", SAYS HASH "\r\n" SAYS HASH "\r\n", 400, "more than one"},
	{"/", SAYS "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD\r\n", 403, "of that kind"},
	{"/", SAYS CHUNK "-TRAILERS\r\n", 403, "of that kind"},
	{"/", SAYS CHUNK "S-TRAILER\r\n", 403, "of that kind"},
	{"/", SAYS "STREAMING-AWS4-HMAC-SHA256-EVENTS\r\n", 403, "of that kind"},
	{"/", SAYS "4ce7dd\r\n", 403, "of that kind"},
	{"/", "Content-Length: 1048577\r\n", 413, "1 MiB"},
};

static void others_are_refused_and_say_why(void **state)
{
	struct fixture *f = *state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct aws a;
		struct err why = {0};
		unsigned status = begin(f, &a, f->other, bad[i].target, bad[i].lines, &why);
		if (status != bad[i].status || !strstr(why.text, bad[i].why))
			fail_msg("%s %s: %u, %s", bad[i].target, bad[i].lines, status, why.text);
		aws_done(&a);
		assert_int_equal(f->room, 0);
	}
}

static void held_body_is_hashed(void **state)
{
	struct fixture *f = *state;
	struct aws a;
	struct err why = {0};
	assert_int_equal(begin(f, &a, f->other, "/", "Content-Length: 26\r\n", &why), 0);
	/* The body of S3's example of PUT. */
	assert_int_equal(aws_hold(&a, (const uint8_t *)"Welcome to ", 11, &why), 0);
	assert_int_equal(aws_hold(&a, (const uint8_t *)"Amazon S3.", 10, &why), 0);
	assert_int_equal(aws_hash(&a, &why), 0);
	assert_string_equal(a.payload, HASH);
	aws_done(&a);
}

static void body_without_bytes_has_the_hash_of_none(void **state)
{
	struct fixture *f = *state;
	struct aws a;
	struct err why = {0};
	assert_int_equal(begin(f, &a, f->other, "/", "Transfer-Encoding: chunked\r\n", &why), 0);
	assert_int_equal(aws_hash(&a, &why), 0);
	assert_string_equal(a.payload, EMPTY);
	aws_done(&a);
}

static void no_more_than_the_most_is_held(void **state)
{
	struct fixture *f = *state;
	struct aws a;
	struct err why = {0};
	auto_free uint8_t *most = calloc(1, AWS_HELD_MAX);
	assert_int_equal(begin(f, &a, f->other, "/", "Transfer-Encoding: chunked\r\n", &why), 0);
	assert_int_equal(aws_hold(&a, most, AWS_HELD_MAX, &why), 0);
	assert_int_equal(aws_hold(&a, most, 1, &why), -EMSGSIZE);
	assert_non_null(strstr(why.text, "1 MiB"));
	aws_done(&a);
}

static void room_is_for_all_together(void **state)
{
	enum { MOST = AWS_ROOM / AWS_HELD_MAX };
	static const char lines[] = "Transfer-Encoding: chunked\r\n";
	struct fixture *f = *state;
	struct aws all[MOST], more;
	struct err why = {0};
	for (size_t i = 0; i < MOST; i++)
		assert_int_equal(begin(f, &all[i], f->other, "/", lines, &why), 0);
	assert_int_equal(begin(f, &more, f->other, "/", lines, &why), 503);
	assert_non_null(strstr(why.text, "try again"));
	aws_done(&more);
	aws_done(&all[0]);
	assert_int_equal(begin(f, &all[0], f->other, "/", lines, &why), 0);
	for (size_t i = 0; i < MOST; i++)
		aws_done(&all[i]);
	assert_int_equal(f->room, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_signed_for_the_body_follows_the_head),
		cmocka_unit_test(others_are_refused_and_say_why),
		cmocka_unit_test(held_body_is_hashed),
		cmocka_unit_test(body_without_bytes_has_the_hash_of_none),
		cmocka_unit_test(no_more_than_the_most_is_held),
		cmocka_unit_test(room_is_for_all_together),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
