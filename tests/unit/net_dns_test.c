/* SPDX-License-Identifier: Apache-2.0 */
/* DNS messages: what is read, what is refused, what an answer looks like on the wire. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "net/dns.h"

#define ID       "\x12\x34"
#define ONE      "\0\1\0\0\0\0\0\0" /* one question, nothing else */
#define ONE_EDNS "\0\1\0\0\0\0\0\1"
#define EXAMPLE  "\7ExAmPlE\3com\0"
#define A_IN     "\0\1\0\1"
#define OPT      "\0\0\x29\x10\0\0\0\0\0\0\0" /* takes 4096 bytes */

#define READ(bytes, q) dns_read_query((const uint8_t *)(bytes), sizeof(bytes) - 1, q)

static void query_is_read(void **state)
{
	(void)state;
	struct dns_query q;
	assert_int_equal(READ(ID "\1\0" ONE EXAMPLE A_IN, &q), 0);
	assert_int_equal(q.id, 0x1234);
	assert_true(q.recursion_desired);
	assert_string_equal(q.name, "example.com");
	assert_int_equal(q.type, DNS_A);
	assert_int_equal(q.class, 1);
	assert_false(q.edns);
	assert_int_equal(q.udp_size, 512);
	assert_int_equal(q.question_end, 12 + 13 + 4);
}

static void root_is_the_empty_name(void **state)
{
	(void)state;
	struct dns_query q;
	assert_int_equal(READ(ID "\0\0" ONE "\0\0\2\0\1", &q), 0);
	assert_string_equal(q.name, "");
	assert_int_equal(q.type, 2);
	assert_false(q.recursion_desired);
}

static void edns_size_is_kept_in_bounds(void **state)
{
	(void)state;
	struct dns_query q;
	assert_int_equal(READ(ID "\1\0" ONE_EDNS EXAMPLE A_IN OPT, &q), 0);
	assert_true(q.edns);
	assert_int_equal(q.udp_size, 4096);
	assert_int_equal(READ(ID "\1\0" ONE_EDNS EXAMPLE A_IN "\0\0\x29\xff\xff\0\0\0\0\0\0", &q),
			 0);
	assert_int_equal(q.udp_size, 4096);
	assert_int_equal(READ(ID "\1\0" ONE_EDNS EXAMPLE A_IN "\0\0\x29\0\1\0\0\0\0\0\0", &q), 0);
	assert_int_equal(q.udp_size, 512);
	assert_int_equal(
		READ(ID "\1\0" ONE_EDNS EXAMPLE A_IN "\0\0\x29\x4\xd0\0\0\x80\0\0\4\0\xa\0\0", &q),
		0);
	assert_int_equal(q.udp_size, 1232);
}

static void what_is_no_query_gets_no_answer(void **state)
{
	(void)state;
	struct dns_query q;
	static const uint8_t large[DNS_MESSAGE_MAX + 1] = {0};
	assert_int_equal(READ("", &q), -EBADMSG);
	assert_int_equal(READ(ID "\1\0\0\1\0\0\0\0\0", &q), -EBADMSG);
	assert_int_equal(READ(ID "\x81\0" ONE EXAMPLE A_IN, &q), -EBADMSG);
	assert_int_equal(dns_read_query(large, sizeof(large), &q), -EBADMSG);
}

static void other_operations_are_not_implemented(void **state)
{
	(void)state;
	struct dns_query q = {.id = 0};
	assert_int_equal(READ(ID "\x28\0" ONE EXAMPLE A_IN, &q), -ENOTSUP);
	assert_int_equal(q.id, 0x1234);
	assert_int_equal(q.question_end, 12);
}

#define assert_refused(bytes)                                \
	do {                                                 \
		struct dns_query q_ = {.id = 0};             \
		assert_int_equal(READ(bytes, &q_), -EINVAL); \
		assert_int_equal(q_.id, 0x1234);             \
		assert_int_equal(q_.question_end, 12);       \
	} while (0)

static void malformed_queries_are_refused(void **state)
{
	(void)state;
	assert_refused(ID "\1\0\0\0\0\0\0\0\0\0");                           /* no question */
	assert_refused(ID "\1\0\0\2\0\0\0\0\0\0" EXAMPLE A_IN EXAMPLE A_IN); /* two */
	assert_refused(ID "\1\0\0\1\0\1\0\0\0\0" EXAMPLE A_IN);              /* an answer */
	assert_refused(ID "\1\0\0\1\0\0\0\1\0\0" EXAMPLE A_IN);              /* an authority */
	assert_refused(ID "\1\0" ONE);                                       /* cut */
	assert_refused(ID "\1\0" ONE "\7exam");
	assert_refused(ID "\1\0" ONE "\7example\3com");
	assert_refused(ID "\1\0" ONE EXAMPLE "\0\1\0");
	assert_refused(ID "\1\0" ONE EXAMPLE A_IN "x"); /* bytes behind */
	assert_refused(ID "\1\0" ONE "\xc0\x0c" A_IN);  /* compression */
	assert_refused(ID "\1\0" ONE "\3www\xc0\x0c" A_IN);
	assert_refused(ID "\1\0" ONE "\x40"
			  "a\0" A_IN);                /* reserved label type */
	assert_refused(ID "\1\0" ONE "\3a.b\0" A_IN); /* a dot in a label */
	assert_refused(ID "\1\0" ONE "\3a b\0" A_IN);
	assert_refused(ID "\1\0" ONE "\3a\0b\0" A_IN);
	assert_refused(ID "\1\0" ONE "\3a\x7f"
			  "b\0" A_IN);
	assert_refused(ID "\1\0" ONE "\3\xc3\xa4x\0" A_IN);
}

static void malformed_additional_records_are_refused(void **state)
{
	(void)state;
	assert_refused(ID "\1\0" ONE_EDNS EXAMPLE A_IN);                               /* missing */
	assert_refused(ID "\1\0\0\1\0\0\0\0\0\2" EXAMPLE A_IN OPT OPT);                /* two */
	assert_refused(ID "\1\0" ONE_EDNS EXAMPLE A_IN "\1x\0\x29\x10\0\0\0\0\0\0\0"); /* a name */
	assert_refused(ID "\1\0" ONE_EDNS EXAMPLE A_IN "\0\0\1\0\1\0\0\0\0\0\0"); /* another type */
	assert_refused(ID "\1\0" ONE_EDNS EXAMPLE A_IN "\0\0\x29\x10\0\0\0\0\0\0\5"
			  "abc");
	assert_refused(ID "\1\0" ONE_EDNS EXAMPLE A_IN "\0\0\x29\x10\0\0\0\0\0\0");
	assert_refused(ID "\1\0" ONE_EDNS EXAMPLE A_IN OPT "x");
}

static void other_versions_of_edns_are_told_ours(void **state)
{
	(void)state;
	static const char asked[] = ID "\1\0" ONE_EDNS EXAMPLE A_IN "\0\0\x29\x10\0\0\1\0\0\0\0";
	struct dns_query q;
	assert_int_equal(READ(asked, &q), -EPROTONOSUPPORT);
	auto_buf struct buf out;
	buf_init(&out, DNS_MESSAGE_MAX);
	assert_int_equal(dns_write_answer(&out, (const uint8_t *)asked, sizeof(asked) - 1, &q,
					  DNS_BADVERS, NULL, NULL, 0),
			 0);
	assert_int_equal(out.data[3] & 15, 0);
	assert_memory_equal(out.data + out.len - 11, "\0\0\x29\4\xd0\1\0\0\0\0\0", 11);
}

/* A query for a name of labels of the given lengths, of letters. Returns its length. */
static size_t long_query(uint8_t *p, const size_t *labels)
{
	memcpy(p, ID "\1\0" ONE, 12);
	size_t n = 12;
	for (; *labels; labels++) {
		p[n++] = (uint8_t)*labels;
		memset(p + n, 'q', *labels);
		n += *labels;
	}
	memcpy(p + n, "\0" A_IN, 5);
	return n + 5;
}

static void names_have_at_most_253_characters(void **state)
{
	(void)state;
	uint8_t p[512];
	struct dns_query q;
	size_t n = long_query(p, (const size_t[]){63, 63, 63, 61, 0});
	assert_int_equal(dns_read_query(p, n, &q), 0);
	assert_int_equal(strlen(q.name), 253);
	n = long_query(p, (const size_t[]){63, 63, 63, 62, 0});
	assert_int_equal(dns_read_query(p, n, &q), -EINVAL);
	n = long_query(p, (const size_t[]){63, 63, 63, 63, 63, 63, 0});
	assert_int_equal(dns_read_query(p, n, &q), -EINVAL);
}

struct answer {
	struct buf b;
	struct dns_query q;
};

static int answer(struct answer *t, const void *p, size_t n, enum dns_rcode rcode,
		  const char *address, const char *ptr)
{
	struct address a;
	buf_init(&t->b, 4096);
	dns_read_query(p, n, &t->q);
	if (address)
		assert_int_equal(address_parse(address, &a), 0);
	return dns_write_answer(&t->b, p, n, &t->q, rcode, address ? &a : NULL, ptr, 60);
}

#define ANSWER(t, bytes, ...) answer(t, bytes, sizeof(bytes) - 1, __VA_ARGS__)

#define assert_bytes(t, bytes)                                             \
	do {                                                               \
		assert_int_equal((t).b.len, sizeof(bytes) - 1);            \
		assert_memory_equal((t).b.data, bytes, sizeof(bytes) - 1); \
		buf_done(&(t).b);                                          \
	} while (0)

static void an_address_is_answered(void **state)
{
	(void)state;
	struct answer t;
	assert_int_equal(ANSWER(&t, ID "\1\0" ONE EXAMPLE A_IN, DNS_NOERROR, "198.18.0.1", NULL),
			 0);
	assert_bytes(t, ID "\x81\x80\0\1\0\1\0\0\0\0" EXAMPLE A_IN
			   "\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\xc6\x12\0\1");
}

static void edns_is_answered_with_edns(void **state)
{
	(void)state;
	struct answer t;
	assert_int_equal(ANSWER(&t, ID "\0\0" ONE_EDNS EXAMPLE A_IN OPT, DNS_NXDOMAIN, NULL, NULL),
			 0);
	assert_bytes(t, ID "\x80\x83\0\1\0\0\0\0\0\1" EXAMPLE A_IN "\0\0\x29\4\xd0\0\0\0\0\0\0");
}

static void no_record_goes_with_an_error(void **state)
{
	(void)state;
	struct answer t;
	assert_int_equal(ANSWER(&t, ID "\1\0" ONE EXAMPLE A_IN, DNS_REFUSED, "198.18.0.1", NULL),
			 0);
	assert_bytes(t, ID "\x81\x85\0\1\0\0\0\0\0\0" EXAMPLE A_IN);
	assert_int_equal(ANSWER(&t, ID "\1\0" ONE EXAMPLE A_IN, DNS_NOERROR, NULL, NULL), 0);
	assert_bytes(t, ID "\x81\x80\0\1\0\0\0\0\0\0" EXAMPLE A_IN);
}

static void errors_can_be_answered_without_a_question(void **state)
{
	(void)state;
	struct answer t;
	assert_int_equal(ANSWER(&t, ID "\1\0" ONE "\xc0\x0c" A_IN, DNS_FORMERR, NULL, NULL), 0);
	assert_bytes(t, ID "\x81\x81\0\0\0\0\0\0\0\0");
	assert_int_equal(ANSWER(&t, ID "\x29\0" ONE EXAMPLE A_IN, DNS_NOTIMP, NULL, NULL), 0);
	assert_bytes(t, ID "\xa9\x84\0\0\0\0\0\0\0\0");
}

static void a_pointer_is_answered(void **state)
{
	(void)state;
	struct answer t;
	assert_int_equal(
		ANSWER(&t, ID "\1\0" ONE "\1\x31\0\0\x0c\0\1", DNS_NOERROR, NULL, "a.example"), 0);
	assert_bytes(t, ID "\x81\x80\0\1\0\1\0\0\0\0\1\x31\0\0\x0c\0\1"
			   "\xc0\x0c\0\x0c\0\1\0\0\0\x3c\0\x0b\1a\7example\0");
}

static void a_pointer_to_no_name_is_an_error(void **state)
{
	(void)state;
	static const char *const names[] = {"a..b", ".a", "a.", "."};
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct answer t;
		assert_int_equal(
			ANSWER(&t, ID "\1\0" ONE EXAMPLE A_IN, DNS_NOERROR, NULL, names[i]),
			-EINVAL);
		assert_int_equal(t.b.len, 0);
	}
	char label[70], name[300];
	struct answer t;
	memset(label, 'x', 64);
	label[64] = '\0';
	assert_int_equal(ANSWER(&t, ID "\1\0" ONE EXAMPLE A_IN, DNS_NOERROR, NULL, label), -EINVAL);
	memset(name, 'x', 299);
	name[299] = '\0';
	assert_int_equal(ANSWER(&t, ID "\1\0" ONE EXAMPLE A_IN, DNS_NOERROR, NULL, name), -EINVAL);
}

static void long_answers_are_cut_and_marked(void **state)
{
	(void)state;
	uint8_t p[512];
	char name[DNS_NAME_MAX];
	size_t n = long_query(p, (const size_t[]){63, 63, 63, 61, 0});
	memset(name, 'x', 253);
	name[63] = name[127] = name[191] = '.';
	name[253] = '\0';
	struct answer t;
	assert_int_equal(answer(&t, p, n, DNS_NOERROR, NULL, name), 0);
	assert_int_equal(t.b.len, n);
	assert_int_equal(t.b.data[2], 0x83); /* TC */
	assert_int_equal(t.b.data[7], 0);
	buf_done(&t.b);

	t.q.udp_size = DNS_MESSAGE_MAX;
	buf_init(&t.b, 4096);
	assert_int_equal(dns_write_answer(&t.b, p, n, &t.q, DNS_NOERROR, NULL, name, 60), 0);
	assert_int_equal(t.b.len, n + 12 + 255);
	assert_int_equal(t.b.data[2], 0x81);
	buf_done(&t.b);
}

static void an_answer_is_written_whole_or_not(void **state)
{
	(void)state;
	struct answer t;
	static const char bytes[] = ID "\1\0" ONE EXAMPLE A_IN;
	assert_int_equal(READ(bytes, &t.q), 0);
	buf_init(&t.b, 20);
	assert_int_equal(dns_write_answer(&t.b, (const uint8_t *)bytes, sizeof(bytes) - 1, &t.q,
					  DNS_NXDOMAIN, NULL, NULL, 0),
			 -EMSGSIZE);
	assert_int_equal(t.b.len, 0);
	buf_done(&t.b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(query_is_read),
		cmocka_unit_test(root_is_the_empty_name),
		cmocka_unit_test(edns_size_is_kept_in_bounds),
		cmocka_unit_test(what_is_no_query_gets_no_answer),
		cmocka_unit_test(other_operations_are_not_implemented),
		cmocka_unit_test(malformed_queries_are_refused),
		cmocka_unit_test(malformed_additional_records_are_refused),
		cmocka_unit_test(other_versions_of_edns_are_told_ours),
		cmocka_unit_test(names_have_at_most_253_characters),
		cmocka_unit_test(an_address_is_answered),
		cmocka_unit_test(edns_is_answered_with_edns),
		cmocka_unit_test(no_record_goes_with_an_error),
		cmocka_unit_test(errors_can_be_answered_without_a_question),
		cmocka_unit_test(a_pointer_is_answered),
		cmocka_unit_test(a_pointer_to_no_name_is_an_error),
		cmocka_unit_test(long_answers_are_cut_and_marked),
		cmocka_unit_test(an_answer_is_written_whole_or_not),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
