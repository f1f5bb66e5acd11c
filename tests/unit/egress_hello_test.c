/* SPDX-License-Identifier: Apache-2.0 */
/* ClientHellos: the name in them, however they are cut, and what is no ClientHello. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "egress/hello.h"

#define RECORD_ROOM 16384

/* A message under construction. */
struct writer {
	uint8_t bytes[3 * HELLO_MAX];
	size_t n;
};

static void put(struct writer *w, const void *p, size_t n)
{
	assert_true(w->n + n <= sizeof(w->bytes));
	memcpy(w->bytes + w->n, p, n);
	w->n += n;
}

static void put_number(struct writer *w, size_t value, size_t bytes)
{
	for (size_t i = bytes; i--;)
		put(w, &(uint8_t){(uint8_t)(value >> (8 * i))}, 1);
}

static void put_extension(struct writer *w, size_t type, const void *p, size_t n)
{
	put_number(w, type, 2);
	put_number(w, n, 2);
	put(w, p, n);
}

static void put_name(struct writer *w, const char *name)
{
	size_t n = strlen(name);
	put_number(w, 0, 2);
	put_number(w, n + 5, 2);
	put_number(w, n + 3, 2);
	put_number(w, 0, 1);
	put_number(w, n, 2);
	put(w, name, n);
}

/* The message with these extensions. */
static struct writer message(const struct writer *extensions)
{
	static const uint8_t head[] = {3, 3, [34] = 0, /* session id */ 0, 2, 0x13, 1, 1, 0};
	struct writer w = {.n = 0};
	put_number(&w, 1, 1);
	put_number(&w, sizeof(head) + 2 + extensions->n, 3);
	put(&w, head, sizeof(head));
	put_number(&w, extensions->n, 2);
	put(&w, extensions->bytes, extensions->n);
	return w;
}

/* Feeds the message in records of at most record bytes, in pieces of at most piece. */
static int feed(const struct writer *m, size_t record, size_t piece, struct hello *ret,
		struct err *e)
{
	static struct writer wire;
	struct hello_reader r;
	int state = -EAGAIN;
	wire.n = 0;
	for (size_t at = 0; at < m->n; at += record) {
		size_t n = m->n - at < record ? m->n - at : record;
		put(&wire, "\x16\3\1", 3);
		put_number(&wire, n, 2);
		put(&wire, m->bytes + at, n);
	}
	hello_init(&r);
	for (size_t at = 0; at < wire.n && state == -EAGAIN; at += piece) {
		size_t n = wire.n - at < piece ? wire.n - at : piece;
		state = hello_feed(&r, wire.bytes + at, n, ret, e);
	}
	hello_done(&r);
	hello_done(&r);
	return state;
}

static int feed_name(const char *name, struct hello *ret)
{
	struct writer extensions = {.n = 0};
	struct err why;
	put_name(&extensions, name);
	struct writer m = message(&extensions);
	return feed(&m, RECORD_ROOM, RECORD_ROOM, ret, &why);
}

static void the_name_is_read_however_it_is_cut(void **state)
{
	(void)state;
	static const size_t sizes[] = {1, 2, 3, 5, 7, 50, 1000, RECORD_ROOM};
	struct writer extensions = {.n = 0};
	uint8_t key[1216] = {0}; /* as X25519MLKEM768 has */
	put_extension(&extensions, 51, key, sizeof(key));
	put_name(&extensions, "Api.Example.Com");
	put_extension(&extensions, 43, "\2\3\4", 3);
	struct writer m = message(&extensions);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
			struct hello h;
			struct err why;
			assert_int_equal(feed(&m, sizes[i], sizes[k], &h, &why), 0);
			assert_true(h.named);
			assert_false(h.ech);
			assert_string_equal(h.sni, "api.example.com");
		}
}

static void a_hello_may_have_no_name(void **state)
{
	(void)state;
	struct writer none = {.n = 0}, m = message(&none);
	struct hello h;
	struct err why;
	assert_int_equal(feed(&m, RECORD_ROOM, RECORD_ROOM, &h, &why), 0);
	assert_false(h.named);
	m.n -= 2; /* no extensions at all */
	m.bytes[3] -= 2;
	assert_int_equal(feed(&m, RECORD_ROOM, RECORD_ROOM, &h, &why), 0);
	assert_false(h.named);
}

static void only_host_names_are_names(void **state)
{
	(void)state;
	static const char *const bad[] = {"",        "127.0.0.1", "0x7f.1",       "::1", "a..test",
					  ".a.test", "-a.test",   "a.test:443",   "a b", "u@a.test",
					  "*.test",  "a.test..",  "\xc3\xa4.test"};
	struct hello h;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(feed_name(bad[i], &h), -EBADMSG);
	assert_int_equal(feed_name("a.test.", &h), 0);
	assert_string_equal(h.sni, "a.test");
}

static void two_names_are_none(void **state)
{
	(void)state;
	static const char list[] = "\0\22\0\0\6a.test\0\0\6b.test";
	struct writer twice = {.n = 0}, both = {.n = 0};
	struct hello h;
	struct err why;
	put_name(&twice, "a.test");
	put_name(&twice, "a.test");
	put_extension(&both, 0, list, sizeof(list) - 1);
	struct writer m = message(&twice);
	assert_int_equal(feed(&m, RECORD_ROOM, RECORD_ROOM, &h, &why), -EBADMSG);
	m = message(&both);
	assert_int_equal(feed(&m, RECORD_ROOM, RECORD_ROOM, &h, &why), -EBADMSG);
}

static void an_encrypted_hello_is_told_and_judged_by_its_outer_name(void **state)
{
	(void)state;
	struct writer outer = {.n = 0}, inner = {.n = 0}, esni = {.n = 0};
	struct hello h;
	struct err why;
	put_name(&outer, "public.test");
	put_extension(&outer, 0xfe0d, "\0rest", 5);
	put_extension(&inner, 0xfe0d, "\1", 1);
	put_extension(&esni, 0xffce, "x", 1);
	struct writer m = message(&outer);
	assert_int_equal(feed(&m, RECORD_ROOM, RECORD_ROOM, &h, &why), 0);
	assert_true(h.ech);
	assert_string_equal(h.sni, "public.test");
	m = message(&inner);
	assert_int_equal(feed(&m, RECORD_ROOM, RECORD_ROOM, &h, &why), -EBADMSG);
	m = message(&esni);
	assert_int_equal(feed(&m, RECORD_ROOM, RECORD_ROOM, &h, &why), -EBADMSG);
}

static void sixteen_kib_are_read_and_not_a_byte_more(void **state)
{
	(void)state;
	static uint8_t padding[HELLO_MAX];
	static struct writer extensions;
	struct hello h;
	struct err why;
	size_t around = 41 + 2 + 4; /* the message without its padding's bytes */
	extensions.n = 0;
	put_extension(&extensions, 21, padding, HELLO_MAX - around);
	struct writer m = message(&extensions);
	assert_int_equal(m.n, HELLO_MAX + 4);
	assert_int_equal(feed(&m, 5000, 77, &h, &why), 0);
	extensions.n = 0;
	put_extension(&extensions, 21, padding, HELLO_MAX - around + 1);
	m = message(&extensions);
	assert_int_equal(feed(&m, 5000, 77, &h, &why), -EMSGSIZE);
	assert_non_null(strstr(why.text, "16384"));
}

static void records_must_not_outweigh_what_they_bring(void **state)
{
	(void)state;
	static uint8_t padding[8000];
	struct writer extensions = {.n = 0};
	struct hello h;
	struct err why;
	put_extension(&extensions, 21, padding, sizeof(padding));
	struct writer m = message(&extensions);
	assert_int_equal(feed(&m, 10, RECORD_ROOM, &h, &why), 0);
	assert_int_equal(feed(&m, 1, RECORD_ROOM, &h, &why), -EMSGSIZE);
}

static void a_part_is_not_the_whole(void **state)
{
	(void)state;
	struct writer extensions = {.n = 0};
	put_name(&extensions, "a.test");
	struct writer m = message(&extensions);
	struct hello h;
	struct err why;
	m.n--;
	assert_int_equal(feed(&m, 20, RECORD_ROOM, &h, &why), -EAGAIN);
}

/* The bytes, with each change of one byte or of the length, are read or refused: nothing else. */
static void no_byte_can_be_changed_into_something_worse(void **state)
{
	(void)state;
	struct writer extensions = {.n = 0};
	put_name(&extensions, "a.test");
	struct writer m = message(&extensions);
	for (size_t i = 0; i < m.n; i++)
		for (int value = 0; value < 256; value++) {
			struct writer changed = {.n = m.n};
			struct hello h;
			struct err why;
			memcpy(changed.bytes, m.bytes, m.n);
			changed.bytes[i] = (uint8_t)value;
			int r = feed(&changed, RECORD_ROOM, RECORD_ROOM, &h, &why);
			assert_true(r == 0 || r == -EAGAIN || r == -EBADMSG || r == -EMSGSIZE);
		}
}

static void what_is_no_hello_is_refused_at_once(void **state)
{
	(void)state;
	static const struct {
		const char *bytes;
		size_t n;
	} bad[] = {
		{"GET /", 5},
		{"\x80\x2e\1\3\1", 5},
		{"\x17\3\3\0\1", 5},           /* no handshake */
		{"\x16\2\0\0\1", 5},           /* no version of TLS */
		{"\x16\3\1\0\0", 5},           /* nothing in it */
		{"\x16\3\1\x40\1", 5},         /* too much */
		{"\x16\3\1\0\1\2", 6},         /* a ServerHello */
		{"\x16\3\1\0\5\1\0\0\0x", 10}, /* shorter than what it is in */
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct hello_reader r;
		struct hello h;
		struct err why;
		hello_init(&r);
		assert_int_equal(hello_feed(&r, (const uint8_t *)bad[i].bytes, bad[i].n, &h, &why),
				 -EBADMSG);
		assert_true(*why.text);
		hello_done(&r);
	}
}

static void what_follows_in_a_record_of_its_own_is_not_looked_at(void **state)
{
	(void)state;
	struct writer extensions = {.n = 0}, wire = {.n = 0};
	put_name(&extensions, "a.test");
	struct writer m = message(&extensions);
	struct hello_reader r;
	struct hello h;
	struct err why;
	put(&wire, "\x16\3\1", 3);
	put_number(&wire, m.n, 2);
	put(&wire, m.bytes, m.n);
	put(&wire, "\x14\3\3\0\1\1", 6);
	hello_init(&r);
	assert_int_equal(hello_feed(&r, wire.bytes, wire.n, &h, &why), 0);
	hello_done(&r);
	wire.bytes[4]++; /* now it is in the hello's */
	hello_init(&r);
	assert_int_equal(hello_feed(&r, wire.bytes, wire.n, &h, &why), -EBADMSG);
	hello_done(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_name_is_read_however_it_is_cut),
		cmocka_unit_test(a_hello_may_have_no_name),
		cmocka_unit_test(only_host_names_are_names),
		cmocka_unit_test(two_names_are_none),
		cmocka_unit_test(an_encrypted_hello_is_told_and_judged_by_its_outer_name),
		cmocka_unit_test(sixteen_kib_are_read_and_not_a_byte_more),
		cmocka_unit_test(records_must_not_outweigh_what_they_bring),
		cmocka_unit_test(a_part_is_not_the_whole),
		cmocka_unit_test(no_byte_can_be_changed_into_something_worse),
		cmocka_unit_test(what_is_no_hello_is_refused_at_once),
		cmocka_unit_test(what_follows_in_a_record_of_its_own_is_not_looked_at),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
