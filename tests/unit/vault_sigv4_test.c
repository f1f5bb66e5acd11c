/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signatures of AWS, against its published vectors: the Signature Version 4 test suite, and the
 * examples of the S3 API Reference ("Signature calculations for the Authorization header",
 * "Transferring payload in multiple chunks", "Signature calculations for trailing headers").
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "vault/inject.h"
#include "vault/sigv4.h"

#define EMPTY  "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define PARAM1 "9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e"
#define STREAM "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"

#define SUITE_TIME  1440938160 /* 2015-08-30 12:36:00 UTC */
#define S3_TIME     1369353600 /* 2013-05-24 00:00:00 UTC */
#define SUITE_SCOPE "AKIDEXAMPLE/20150830/us-east-1/service/aws4_request"
#define S3_SCOPE    "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request"

#define FIELDS_MAX 8

static const struct sigv4_key suite_key = {
	.id = "AKIDEXAMPLE",
	.secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
};
static const struct sigv4_key s3_key = {
	.id = "AKIAIOSFODNN7EXAMPLE",
	.secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
};

struct vector {
	const char *name, *method, *path, *query;
	struct sigv4_field fields[FIELDS_MAX];
	const char *payload, *names, *signature;
};

static size_t count_fields(const struct sigv4_field *f)
{
	size_t n = 0;
	while (n < FIELDS_MAX && f[n].name)
		n++;
	return n;
}

static void check(const struct vector *v, bool s3, struct sigv4_chain *chain)
{
	struct sigv4_request q = {
		.method = v->method,
		.path = v->path,
		.query = v->query,
		.fields = v->fields,
		.count = count_fields(v->fields),
		.payload = v->payload ? v->payload : EMPTY,
		.service = s3 ? "s3" : "service",
		.region = "us-east-1",
		.encode_once = s3,
		.now_s = s3 ? S3_TIME : SUITE_TIME,
	};
	struct err e = {0};
	auto_free char *text = NULL;
	auto_free char *want = str_printf("AWS4-HMAC-SHA256 Credential=%s, SignedHeaders=%s, "
					  "Signature=%s",
					  s3 ? S3_SCOPE : SUITE_SCOPE, v->names, v->signature);
	assert_int_equal(sigv4_sign(&q, s3 ? &s3_key : &suite_key, &text, chain, &e), 0);
	if (!str_eq(text, want))
		fail_msg("%s:\n%s\nis not\n%s", v->name, text, want);
}

/* -- the test suite -- */

#define HOST                                    \
	{                                       \
		"Host", "example.amazonaws.com" \
	}
#define DATE                                     \
	{                                        \
		"X-Amz-Date", "20150830T123600Z" \
	}
#define UNRESERVED "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#define STS_TOKEN                                                                                   \
	"AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxf" \
	"pSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPk" \
	"yQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBA" \
	"z+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="

static const struct vector suite[] = {
	{"get-vanilla",
	 "GET",
	 "/",
	 NULL,
	 {HOST, DATE},
	 NULL,
	 "host;x-amz-date",
	 "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
	{"get-vanilla-empty-query-key",
	 "GET",
	 "/",
	 "Param1=value1",
	 {HOST, DATE},
	 NULL,
	 "host;x-amz-date",
	 "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"},
	{"get-vanilla-query-order-key-case",
	 "GET",
	 "/",
	 "Param2=value2&Param1=value1",
	 {HOST, DATE},
	 NULL,
	 "host;x-amz-date",
	 "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
	{"get-vanilla-query-order-value",
	 "GET",
	 "/",
	 "Param1=value2&Param1=value1",
	 {HOST, DATE},
	 NULL,
	 "host;x-amz-date",
	 "5772eed61e12b33fae39ee5e7012498b51d56abc0abb7c60486157bd471c4694"},
	{"get-vanilla-query-order-encoded",
	 "GET",
	 "/",
	 "Param-3=Value3&Param=Value2&%E1%88%B4=Value1",
	 {HOST, DATE},
	 NULL,
	 "host;x-amz-date",
	 "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac"},
	{"get-vanilla-query-unreserved",
	 "GET",
	 "/",
	 UNRESERVED "=" UNRESERVED,
	 {HOST, DATE},
	 NULL,
	 "host;x-amz-date",
	 "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"},
	{"get-vanilla-utf8-query",
	 "GET",
	 "/",
	 "\u1234=bar",
	 {HOST, DATE},
	 NULL,
	 "host;x-amz-date",
	 "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
	{"get-unreserved",
	 "GET",
	 "/" UNRESERVED,
	 NULL,
	 {HOST, DATE},
	 NULL,
	 "host;x-amz-date",
	 "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
	{"get-utf8",
	 "GET",
	 "/\u1234",
	 NULL,
	 {HOST, DATE},
	 NULL,
	 "host;x-amz-date",
	 "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
	{"get-space",
	 "GET",
	 "/example space/",
	 NULL,
	 {HOST, DATE},
	 NULL,
	 "host;x-amz-date",
	 "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"},
	{"get-special-character",
	 "GET",
	 "/example/$delete",
	 NULL,
	 {HOST, DATE},
	 NULL,
	 "host;x-amz-date",
	 "a853c9b21b528b19643d00910d35b83a10c366a10833ceefb45edd6c80e40f27"},
	{"get-header-key-duplicate",
	 "GET",
	 "/",
	 NULL,
	 {HOST, {"My-Header1", "value2"}, {"My-Header1", "value2"}, {"My-Header1", "value1"}, DATE},
	 NULL,
	 "host;my-header1;x-amz-date",
	 "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea"},
	{"get-header-value-order",
	 "GET",
	 "/",
	 NULL,
	 {HOST,
	  {"My-Header1", "value4"},
	  {"My-Header1", "value1"},
	  {"my-header1", "value3"},
	  {"My-Header1", "value2"},
	  DATE},
	 NULL,
	 "host;my-header1;x-amz-date",
	 "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01"},
	{"get-header-value-trim",
	 "GET",
	 "/",
	 NULL,
	 {HOST, {"My-Header1", " value1"}, {"My-Header2", " \"a   b   c\" \t"}, DATE},
	 NULL,
	 "host;my-header1;my-header2;x-amz-date",
	 "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
	{"get-vanilla-with-session-token",
	 "GET",
	 "/",
	 NULL,
	 {{"X-Amz-Security-Token",
	   "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267"},
	  HOST,
	  DATE},
	 NULL,
	 "host;x-amz-date;x-amz-security-token",
	 "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8"},
	{"post-sts-header-before",
	 "POST",
	 "/",
	 NULL,
	 {HOST, DATE, {"X-Amz-Security-Token", STS_TOKEN}},
	 NULL,
	 "host;x-amz-date;x-amz-security-token",
	 "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"},
	{"post-vanilla-empty-query-value",
	 "POST",
	 "/",
	 "Param1=value1",
	 {HOST, DATE},
	 NULL,
	 "host;x-amz-date",
	 "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11"},
	{"post-header-key-sort",
	 "POST",
	 "/",
	 NULL,
	 {DATE, {"My-Header1", "value1"}, HOST},
	 NULL,
	 "host;my-header1;x-amz-date",
	 "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c"},
	{"post-x-www-form-urlencoded",
	 "POST",
	 "/",
	 NULL,
	 {{"Content-Type", "application/x-www-form-urlencoded"}, HOST, DATE},
	 PARAM1,
	 "content-type;host;x-amz-date",
	 "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"},
	{"post-x-www-form-urlencoded-parameters",
	 "POST",
	 "/",
	 NULL,
	 {{"Content-Type", "application/x-www-form-urlencoded; charset=utf8"}, HOST, DATE},
	 PARAM1,
	 "content-type;host;x-amz-date",
	 "1a72ec8f64bd914b0e42e42607c7fbce7fb2c7465f63e3092b3b0d39fa77a6fe"},
};

static void requests_of_the_test_suite_are_signed(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(suite) / sizeof(suite[0]); i++)
		check(&suite[i], false, NULL);
}

/* -- S3 -- */

#define BUCKET                                           \
	{                                                \
		"Host", "examplebucket.s3.amazonaws.com" \
	}
#define S3_DATE                                  \
	{                                        \
		"x-amz-date", "20130524T000000Z" \
	}
#define S3_NAMES "host;x-amz-content-sha256;x-amz-date"

static const struct vector s3[] = {
	{"GET object",
	 "GET",
	 "/test.txt",
	 NULL,
	 {BUCKET, {"Range", "bytes=0-9"}, {"x-amz-content-sha256", EMPTY}, S3_DATE},
	 NULL,
	 "host;range;x-amz-content-sha256;x-amz-date",
	 "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
	{"PUT object",
	 "PUT",
	 "/test%24file.text",
	 NULL,
	 {BUCKET,
	  {"Date", "Fri, 24 May 2013 00:00:00 GMT"},
	  S3_DATE,
	  {"x-amz-storage-class", "REDUCED_REDUNDANCY"},
	  {"x-amz-content-sha256",
	   "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"}},
	 "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
	 "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
	 "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
	{"GET bucket lifecycle",
	 "GET",
	 "/",
	 "lifecycle",
	 {BUCKET, {"x-amz-content-sha256", EMPTY}, S3_DATE},
	 NULL,
	 S3_NAMES,
	 "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
	{"GET bucket (list objects)",
	 "GET",
	 "/",
	 "max-keys=2&prefix=J",
	 {BUCKET, {"x-amz-content-sha256", EMPTY}, S3_DATE},
	 NULL,
	 S3_NAMES,
	 "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	{"the order and the spelling of parameters don't matter",
	 "GET",
	 "/",
	 "prefix=%4a&max-keys=2",
	 {BUCKET, {"x-amz-content-sha256", EMPTY}, S3_DATE},
	 NULL,
	 S3_NAMES,
	 "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	{"nor does whether the path has what it may have bare",
	 "PUT",
	 "/test$file.text",
	 NULL,
	 {BUCKET,
	  {"Date", "Fri, 24 May 2013 00:00:00 GMT"},
	  S3_DATE,
	  {"x-amz-storage-class", "REDUCED_REDUNDANCY"},
	  {"x-amz-content-sha256",
	   "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"}},
	 "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
	 "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
	 "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
};

static void requests_of_s3_are_signed(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(s3) / sizeof(s3[0]); i++)
		check(&s3[i], true, NULL);
}

/* S3 reads a plus sign in the query as a space, as forms have it. */
static void plus_is_a_space(void **state)
{
	(void)state;
	struct sigv4_field fields[] = {HOST, DATE};
	struct sigv4_request q = {.method = "GET",
				  .path = "/",
				  .query = "prefix=a+b",
				  .fields = fields,
				  .count = 2,
				  .payload = EMPTY,
				  .service = "s3",
				  .region = "us-east-1",
				  .encode_once = true,
				  .now_s = S3_TIME};
	auto_free char *plus = NULL, *space = NULL;
	assert_int_equal(sigv4_sign(&q, &s3_key, &plus, NULL, NULL), 0);
	q.query = "prefix=a%20b&";
	assert_int_equal(sigv4_sign(&q, &s3_key, &space, NULL, NULL), 0);
	assert_string_equal(plus, space);
}

/* What is no S3 signs the path as it was sent, encoded once more: /a%20b is /a%2520b in the
   canonical request. */
static void other_services_encode_the_path_again(void **state)
{
	(void)state;
	struct sigv4_field fields[] = {HOST, DATE};
	struct sigv4_request q = {.method = "GET",
				  .path = "/a%20b",
				  .fields = fields,
				  .count = 2,
				  .payload = EMPTY,
				  .service = "service",
				  .region = "us-east-1",
				  .now_s = SUITE_TIME};
	auto_free char *twice = NULL, *sent_so = NULL, *once = NULL;
	assert_int_equal(sigv4_sign(&q, &suite_key, &twice, NULL, NULL), 0);
	q.encode_once = true;
	assert_int_equal(sigv4_sign(&q, &suite_key, &once, NULL, NULL), 0);
	q.path = "/a%2520b";
	assert_int_equal(sigv4_sign(&q, &suite_key, &sent_so, NULL, NULL), 0);
	assert_string_equal(twice, sent_so);
	assert_string_not_equal(twice, once);
}

static void request_that_no_server_could_check_is_refused(void **state)
{
	(void)state;
	struct sigv4_field fields[] = {HOST, DATE};
	struct sigv4_request q = {.method = "GET",
				  .path = "/",
				  .fields = fields + 1,
				  .count = 1,
				  .payload = EMPTY,
				  .service = "service",
				  .region = "us-east-1"};
	char *text = NULL;
	struct err e = {0};
	assert_int_equal(sigv4_sign(&q, &suite_key, &text, NULL, &e), -EINVAL);
	assert_non_null(strstr(e.text, "Host"));

	auto_free char *region = malloc(SIGV4_SCOPE_MAX + 1);
	memset(region, 'a', SIGV4_SCOPE_MAX);
	region[SIGV4_SCOPE_MAX] = '\0';
	q.fields = fields;
	q.count = 2;
	q.region = region;
	assert_int_equal(sigv4_sign(&q, &suite_key, &text, NULL, &e), -EINVAL);
	assert_non_null(strstr(e.text, "region"));
	assert_null(text);
}

static void stamp_is_of_utc(void **state)
{
	(void)state;
	char stamp[SIGV4_STAMP_SIZE];
	sigv4_stamp(SUITE_TIME, stamp);
	assert_string_equal(stamp, "20150830T123600Z");
	sigv4_stamp(INT64_MAX, stamp);
	assert_string_equal(stamp, "");
}

/* -- the recipe -- */

static struct secrets *grant(const char *id, const char *key, const char *session,
			     const char *service)
{
	auto_json json_t *entry =
		json_pack("{s:s, s:[s], s:{s:s, s:s, s:s}, s:{s:s, s:s, s:s*}}", "name", "AWS",
			  "hosts", "example.amazonaws.com", "inject", "kind", "sigv4", "service",
			  service, "region", "us-east-1", "value", "accessKeyId", id,
			  "secretAccessKey", key, "sessionToken", session);
	struct secrets *set = secrets_new();
	struct err e = {0};
	assert_non_null(entry);
	if (secrets_put(set, entry, 1, &e) < 0)
		fail_msg("%s", e.text);
	return set;
}

/* The last field is Authorization, the others are in the order given. */
static void check_injection(const struct secrets *set, const struct inject_request *q,
			    const char *const (*fields)[2], const char *names,
			    const char *signature)
{
	struct injection i;
	struct err e = {0};
	if (inject(secrets_at(set, 0), q, &i, &e) < 0)
		fail_msg("%s", e.text);
	assert_true(i.used);
	size_t n = 0;
	for (; fields[n][0]; n++) {
		assert_string_equal(i.fields[n].name, fields[n][0]);
		assert_string_equal(i.fields[n].value, fields[n][1]);
	}
	assert_int_equal(i.count, n + 1);
	assert_string_equal(i.fields[n].name, "Authorization");
	auto_free char *want = str_printf(", SignedHeaders=%s, Signature=%s", names, signature);
	if (!str_ends(i.fields[n].value, want))
		fail_msg("%s\ndoes not end in\n%s", i.fields[n].value, want);
	injection_done(&i);
}

/* Vectors of the suite, of what the guest signed with what it has. */
static void guest_signature_is_replaced(void **state)
{
	(void)state;
	static const struct inject_field sent[] = {
		{"content-type", "application/x-www-form-urlencoded"},
		{"Authorization", "AWS4-HMAC-SHA256 Credential=AKIAPLACEHOLDER/20150830/us-east-1/"
				  "service/aws4_request, SignedHeaders=host, Signature=00"},
		{"x-amz-date", "19990101T000000Z"},
		{"X-AMZ-Security-Token", "placeholder"},
		{"User-Agent", "guest"},
	};
	static const char *const own[][2] = {{"X-Amz-Date", "20150830T123600Z"}, {NULL, NULL}};
	struct inject_request q = {.method = "POST",
				   .host = "example.amazonaws.com",
				   .path = "/",
				   .fields = sent,
				   .field_count = 5,
				   .payload = PARAM1,
				   .now_s = SUITE_TIME};
	struct secrets *set = grant(suite_key.id, suite_key.secret, NULL, "service");
	check_injection(set, &q, own, "content-type;host;x-amz-date",
			"ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a");
	secrets_free(set);
}

static void session_token_is_put_in_and_signed(void **state)
{
	(void)state;
	static const char *const own[][2] = {{"X-Amz-Date", "20150830T123600Z"},
					     {"X-Amz-Security-Token", STS_TOKEN},
					     {NULL, NULL}};
	struct inject_request q = {.method = "POST",
				   .host = "example.amazonaws.com",
				   .path = "/",
				   .payload = EMPTY,
				   .now_s = SUITE_TIME};
	struct secrets *set = grant(suite_key.id, suite_key.secret, STS_TOKEN, "service");
	check_injection(set, &q, own, "host;x-amz-date;x-amz-security-token",
			"85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead");
	secrets_free(set);
}

static void s3_is_told_of_the_payload(void **state)
{
	(void)state;
	static const char *const own[][2] = {
		{"X-Amz-Date", "20130524T000000Z"}, {"X-Amz-Content-Sha256", EMPTY}, {NULL, NULL}};
	static const char *const less[][2] = {{"X-Amz-Date", "20130524T000000Z"}, {NULL, NULL}};
	static const struct inject_field said[] = {{"x-amz-content-sha256", EMPTY}};
	struct inject_request q = {.method = "GET",
				   .host = "examplebucket.s3.amazonaws.com",
				   .path = "/",
				   .query = "max-keys=2&prefix=J",
				   .payload = EMPTY,
				   .now_s = S3_TIME};
	struct secrets *set = grant(s3_key.id, s3_key.secret, NULL, "s3");
	check_injection(set, &q, own, S3_NAMES,
			"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
	q.fields = said;
	q.field_count = 1;
	check_injection(set, &q, less, S3_NAMES,
			"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
	secrets_free(set);
}

/* -- streams -- */

static const struct vector chunked = {
	"PUT object in chunks",
	"PUT",
	"/examplebucket/chunkObject.txt",
	NULL,
	{{"Host", "s3.amazonaws.com"},
	 S3_DATE,
	 {"x-amz-storage-class", "REDUCED_REDUNDANCY"},
	 {"x-amz-content-sha256", STREAM},
	 {"Content-Encoding", "aws-chunked"},
	 {"x-amz-decoded-content-length", "66560"},
	 {"Content-Length", "66824"}},
	STREAM,
	"content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;"
	"x-amz-decoded-content-length;x-amz-storage-class",
	"4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"};

static const struct vector with_trailer = {
	"PUT object in chunks with a trailer",
	"PUT",
	"/examplebucket/chunkObject.txt",
	NULL,
	{{"Host", "s3.amazonaws.com"},
	 S3_DATE,
	 {"x-amz-storage-class", "REDUCED_REDUNDANCY"},
	 {"x-amz-content-sha256", STREAM "-TRAILER"},
	 {"Content-Encoding", "aws-chunked"},
	 {"x-amz-decoded-content-length", "66560"},
	 {"x-amz-trailer", "x-amz-checksum-crc32c"}},
	STREAM "-TRAILER",
	"content-encoding;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;"
	"x-amz-storage-class;x-amz-trailer",
	"106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e"};

#define CHUNKED_1 "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"
#define CHUNKED_2 "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"
#define CHUNKED_3 "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"
#define TRAILER_1 "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2"
#define TRAILER_2 "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7"
#define TRAILER_3 "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992"
#define TRAILER_4 "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435"
/* What the guest signed with is no matter. */
#define GUEST "0123456789abcdef0123456789ABCDEF0123456789abcdef0123456789abcdef"

struct stream_case {
	const struct vector *head;
	const char *trailers; /* %s: the signature */
	const char *signatures[4];
};

static const struct stream_case chunked_case = {
	&chunked, "\r\n", {CHUNKED_1, CHUNKED_2, CHUNKED_3, NULL}};
static const struct stream_case trailer_case = {
	&with_trailer,
	"x-amz-checksum-crc32c:sOO8/Q==\r\nx-amz-trailer-signature:%s\r\n\r\n",
	{TRAILER_1, TRAILER_2, TRAILER_3, TRAILER_4}};

/* The 65 KiB of the letter a that AWS's examples have, in chunks. */
static void write_stream(struct buf *b, const char *trailers, const char *const signatures[4])
{
	auto_free char *a = malloc(65536);
	memset(a, 'a', 65536);
	buf_init(b, 128 * 1024);
	buf_printf(b, "10000;chunk-signature=%s\r\n", signatures[0]);
	buf_append(b, a, 65536);
	buf_printf(b, "\r\n400;chunk-signature=%s\r\n", signatures[1]);
	buf_append(b, a, 1024);
	buf_printf(b, "\r\n0;chunk-signature=%s\r\n", signatures[2]);
	const char *slot = strstr(trailers, "%s");
	buf_append(b, trailers, slot ? (size_t)(slot - trailers) : strlen(trailers));
	if (slot) {
		buf_append_str(b, signatures[3]);
		buf_append_str(b, slot + 2);
	}
}

static int to_buf(void *user, const uint8_t *p, size_t n)
{
	return buf_append(user, p, n);
}

static struct sigv4_stream *stream_for(const struct vector *head, size_t max)
{
	struct sigv4_chain chain;
	check(head, true, &chain);
	return sigv4_stream_new(&chain, head == &with_trailer, max);
}

/* Pushes pieces of the given size. */
static int push_all(struct sigv4_stream *s, const uint8_t *p, size_t n, size_t piece,
		    struct buf *out, struct err *e)
{
	int r = 0;
	for (size_t at = 0; at < n && r == 0; at += piece)
		r = sigv4_stream_push(s, p + at, n - at < piece ? n - at : piece, to_buf, out, e);
	return r < 0 ? r : sigv4_stream_end(s, e);
}

static void check_stream(const struct stream_case *c, const char *trailers, size_t piece)
{
	static const char *const guest[] = {GUEST, GUEST, GUEST, GUEST};
	auto_buf struct buf in, want, out;
	write_stream(&in, trailers, guest);
	write_stream(&want, trailers, c->signatures);
	buf_init(&out, 128 * 1024);
	struct sigv4_stream *s = stream_for(c->head, 65536);
	struct err e = {0};
	int r = push_all(s, in.data, in.len, piece, &out, &e);
	if (r < 0)
		fail_msg("pieces of %zu: %s", piece, e.text);
	assert_int_equal(out.len, want.len);
	assert_memory_equal(out.data, want.data, want.len);
	sigv4_stream_free(s);
}

static void chunks_are_signed_anew(void **state)
{
	(void)state;
	static const size_t pieces[] = {1, 2, 3, 64, 85, 1000, 65536, 65624, 1 << 20};
	for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		check_stream(&chunked_case, chunked_case.trailers, pieces[i]);
		check_stream(&trailer_case, trailer_case.trailers, pieces[i]);
	}
}

static void ends_of_lines_of_trailers_may_be_what_clients_send(void **state)
{
	(void)state;
	check_stream(
		&trailer_case,
		"\r\nx-amz-checksum-crc32c:sOO8/Q==\n\r\nx-amz-trailer-signature:%s\r\n\r\n\r\n",
		7);
}

/* Two chunks and a last one, small enough to try all ways to cut them. */
static const char small[] = "5;chunk-signature=" GUEST "\r\nhello\r\n"
			    "0A;chunk-signature=" GUEST "\r\n0;chunk-\r\n\r\n"
			    "0;chunk-signature=" GUEST "\r\n";
static const char small_trailers[] = "X-Amz-Checksum-CRC32C: sOO8/Q==\r\nx-amz-b:1\r\n"
				     "x-amz-trailer-signature:" GUEST "\r\n\r\n";

static void stream_does_not_depend_on_where_it_is_cut(void **state)
{
	(void)state;
	for (unsigned trailers = 0; trailers < 2; trailers++) {
		const struct vector *head = trailers ? &with_trailer : &chunked;
		auto_buf struct buf in, whole;
		buf_init(&in, 4096);
		buf_init(&whole, 4096);
		buf_append_str(&in, small);
		buf_append_str(&in, trailers ? small_trailers : "\r\n");
		struct sigv4_stream *s = stream_for(head, 16);
		assert_int_equal(push_all(s, in.data, in.len, in.len, &whole, NULL), 0);
		sigv4_stream_free(s);
		assert_int_equal(whole.len, in.len);
		assert_null(memmem(whole.data, whole.len, GUEST, sizeof(GUEST) - 1));
		for (size_t cut = 1; cut < in.len; cut++) {
			auto_buf struct buf out;
			buf_init(&out, 4096);
			s = stream_for(head, 16);
			assert_int_equal(sigv4_stream_push(s, in.data, cut, to_buf, &out, NULL), 0);
			assert_int_equal(sigv4_stream_end(s, NULL),
					 trailers && cut == in.len - 2 ? 0 : -EBADMSG);
			assert_int_equal(
				push_all(s, in.data + cut, in.len - cut, in.len, &out, NULL), 0);
			assert_int_equal(out.len, whole.len);
			assert_memory_equal(out.data, whole.data, whole.len);
			sigv4_stream_free(s);
		}
	}
}

/* A second byte in the same place would be a different request to whoever checks it. */
static void trailers_are_signed_in_order_and_without_case(void **state)
{
	(void)state;
	static const char *const orders[] = {
		"X-Amz-Checksum-CRC32C: sOO8/Q== \r\nx-amz-b:1\r\n",
		"x-amz-b:1\nx-amz-checksum-crc32c:sOO8/Q==\n",
	};
	char signature[2][SIGV4_HEX_SIZE] = {0};
	for (size_t i = 0; i < 2; i++) {
		auto_buf struct buf in, out;
		buf_init(&in, 4096);
		buf_init(&out, 4096);
		buf_append_str(&in, small);
		buf_append_str(&in, orders[i]);
		buf_append_str(&in, "x-amz-trailer-signature:" GUEST "\r\n");
		struct sigv4_stream *s = stream_for(&with_trailer, 16);
		assert_int_equal(push_all(s, in.data, in.len, in.len, &out, NULL), 0);
		sigv4_stream_free(s);
		memcpy(signature[i], out.data + out.len - SIGV4_HEX_SIZE - 1, SIGV4_HEX_SIZE - 1);
	}
	assert_string_equal(signature[0], signature[1]);
}

static void chunk_is_held_until_it_is_whole(void **state)
{
	(void)state;
	auto_buf struct buf out;
	buf_init(&out, 4096);
	struct sigv4_stream *s = stream_for(&chunked, 16);
	size_t one = sizeof("5;chunk-signature=" GUEST "\r\nhello\r\n") - 1;
	const uint8_t *p = (const uint8_t *)small;
	assert_int_equal(sigv4_stream_push(s, p, one - 1, to_buf, &out, NULL), 0);
	assert_int_equal(out.len, 0);
	assert_int_equal(sigv4_stream_push(s, p + one - 1, 1, to_buf, &out, NULL), 0);
	assert_int_equal(out.len, one);
	sigv4_stream_free(s);
}

struct broken {
	const char *what, *stream;
	bool trailers;
};

#define LAST "0;chunk-signature=" GUEST "\r\n"
#define END  "x-amz-trailer-signature:" GUEST "\r\n"

static const struct broken broken[] = {
	{"nothing", "", false},
	{"no size", ";chunk-signature=" GUEST "\r\n\r\n", false},
	{"no signature", "0\r\n\r\n", false},
	{"a short signature", "0;chunk-signature=00\r\n\r\n", false},
	{"a signature that is no hex",
	 "0;chunk-signature=g123456789abcdef0123456789ABCDEF0123456789"
	 "abcdef0123456789abcdef\r\n\r\n",
	 false},
	{"another extension", "0;chunk-signaturE=" GUEST "\r\n\r\n", false},
	{"something behind the signature", "0;chunk-signature=" GUEST " \r\n\r\n", false},
	{"a bare end of line", "0;chunk-signature=" GUEST "\n\r\n", false},
	{"a negative size", "-1;chunk-signature=" GUEST "\r\n\r\n", false},
	{"a size of nine digits", "000000000;chunk-signature=" GUEST "\r\n\r\n", false},
	{"a chunk over the most",
	 "11;chunk-signature=" GUEST "\r\n0123456789abcdefg\r\n" LAST "\r\n", false},
	{"a chunk longer than it says", "4;chunk-signature=" GUEST "\r\nhello\r\n" LAST "\r\n",
	 false},
	{"a chunk shorter than it says", "6;chunk-signature=" GUEST "\r\nhello\r\n" LAST "\r\n",
	 false},
	{"a chunk that doesn't end its line",
	 "5;chunk-signature=" GUEST "\r\nhello\n\r" LAST "\r\n", false},
	{"no last chunk", "5;chunk-signature=" GUEST "\r\nhello\r\n", false},
	{"no end", LAST, false},
	{"more behind the end", LAST "\r\n\r\n", false},
	{"trailers where none are said", LAST "a:b\r\n\r\n", false},
	{"no signature of trailers", LAST "a:b\r\n\r\n", true},
	{"a trailer without a name", LAST ":b\r\n" END, true},
	{"a trailer without a value", LAST "a\r\n" END, true},
	{"a trailer behind their signature", LAST "a:b\r\n" END "c:d\r\n", true},
	{"a signature of trailers that is none", LAST "x-amz-trailer-signature:00\r\n", true},
};

static void broken_streams_are_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
		const uint8_t *p = (const uint8_t *)broken[i].stream;
		size_t n = strlen(broken[i].stream);
		for (size_t piece = 1; piece <= n + 1; piece += n > 1 ? n : 1) {
			auto_buf struct buf out;
			struct err e = {0};
			buf_init(&out, 4096);
			struct sigv4_stream *s =
				stream_for(broken[i].trailers ? &with_trailer : &chunked, 16);
			int r = push_all(s, p, n, piece, &out, &e);
			if (r != -EBADMSG || !str_starts(e.text, "the aws-chunked body "))
				fail_msg("%s: %d, %s", broken[i].what, r, e.text);
			sigv4_stream_free(s);
		}
	}
}

static void trailers_have_bounds(void **state)
{
	(void)state;
	static const char *const line[] = {"a:b\r\n", "\r\n"};
	for (size_t i = 0; i < 2; i++) {
		auto_buf struct buf in, out;
		buf_init(&in, 64 * 1024);
		buf_init(&out, 64 * 1024);
		buf_append_str(&in, LAST);
		while (in.len < 20 * 1024)
			buf_append_str(&in, line[i]);
		buf_append_str(&in, END);
		struct sigv4_stream *s = stream_for(&with_trailer, 16);
		assert_int_equal(push_all(s, in.data, in.len, 100, &out, NULL), -EBADMSG);
		sigv4_stream_free(s);
	}
}

static void stream_is_over_after_an_error(void **state)
{
	(void)state;
	auto_buf struct buf out, none;
	buf_init(&out, 4096);
	buf_init(&none, 0);
	struct sigv4_stream *s = stream_for(&chunked, 16);
	const uint8_t *p = (const uint8_t *)small;
	size_t n = sizeof(small) - 1;
	assert_int_equal(sigv4_stream_push(s, p, n, to_buf, &none, NULL), -EMSGSIZE);
	assert_int_equal(sigv4_stream_push(s, p, n, to_buf, &out, NULL), -EBADMSG);
	assert_int_equal(sigv4_stream_end(s, NULL), -EBADMSG);
	assert_int_equal(out.len, 0);
	sigv4_stream_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests_of_the_test_suite_are_signed),
		cmocka_unit_test(requests_of_s3_are_signed),
		cmocka_unit_test(plus_is_a_space),
		cmocka_unit_test(other_services_encode_the_path_again),
		cmocka_unit_test(request_that_no_server_could_check_is_refused),
		cmocka_unit_test(stamp_is_of_utc),
		cmocka_unit_test(guest_signature_is_replaced),
		cmocka_unit_test(session_token_is_put_in_and_signed),
		cmocka_unit_test(s3_is_told_of_the_payload),
		cmocka_unit_test(chunks_are_signed_anew),
		cmocka_unit_test(ends_of_lines_of_trailers_may_be_what_clients_send),
		cmocka_unit_test(stream_does_not_depend_on_where_it_is_cut),
		cmocka_unit_test(trailers_are_signed_in_order_and_without_case),
		cmocka_unit_test(chunk_is_held_until_it_is_whole),
		cmocka_unit_test(broken_streams_are_refused),
		cmocka_unit_test(trailers_have_bounds),
		cmocka_unit_test(stream_is_over_after_an_error),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
