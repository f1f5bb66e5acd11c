/* SPDX-License-Identifier: Apache-2.0 */
/* Connect envelopes: read, written, capped, cut anywhere. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "http/envelope.h"

static void envelope_is_read_when_it_is_whole(void **state)
{
	(void)state;
	static const uint8_t in[] = {0, 0, 0, 0, 2, '{', '}', 2};
	struct envelope e;
	for (size_t n = 0; n < 7; n++) {
		auto_free uint8_t *copy = malloc(n + 1);
		memcpy(copy, in, n);
		assert_int_equal(envelope_read(copy, n, 64, &e), -EAGAIN);
	}
	assert_int_equal(envelope_read(in, sizeof(in), 64, &e), 7);
	assert_int_equal(e.flag, ENVELOPE_MESSAGE);
	assert_int_equal(e.len, 2);
	assert_ptr_equal(e.payload, in + ENVELOPE_HEAD);
}

static void envelope_rejects_oversized_payload_by_its_length(void **state)
{
	(void)state;
	static const uint8_t in[] = {2, 0xff, 0xff, 0xff, 0xff};
	struct envelope e;
	assert_int_equal(envelope_read(in, 5, 65536, &e), -EMSGSIZE);
	assert_int_equal(envelope_read(in, 4, 65536, &e), -EAGAIN);
	assert_int_equal(envelope_read(in, 5, UINT32_MAX, &e), -EAGAIN);
	static const uint8_t two[] = {0, 0, 0, 0, 2, 'x', 'y'};
	assert_int_equal(envelope_read(two, 7, 1, &e), -EMSGSIZE);
	assert_int_equal(envelope_read(two, 7, 2, &e), 7);
}

static void envelope_rejects_other_flags_at_once(void **state)
{
	(void)state;
	struct envelope e;
	for (unsigned flag = 0; flag < 256; flag++) {
		uint8_t c = (uint8_t)flag;
		bool known = c == ENVELOPE_MESSAGE || c == ENVELOPE_END;
		assert_int_equal(envelope_read(&c, 1, 64, &e), known ? -EAGAIN : -EBADMSG);
	}
}

static void envelope_round_trips(void **state)
{
	(void)state;
	auto_buf struct buf b;
	buf_init(&b, 1u << 20);
	char payload[70000];
	memset(payload, 'x', sizeof(payload));
	assert_int_equal(envelope_write(&b, ENVELOPE_MESSAGE, payload, sizeof(payload)), 0);
	assert_int_equal(envelope_write(&b, ENVELOPE_END, NULL, 0), 0);
	struct envelope e;
	ssize_t n = envelope_read(b.data, b.len, sizeof(payload), &e);
	assert_int_equal(n, ENVELOPE_HEAD + sizeof(payload));
	assert_memory_equal(e.payload, payload, e.len);
	buf_consume(&b, (size_t)n);
	assert_int_equal(envelope_read(b.data, b.len, 0, &e), ENVELOPE_HEAD);
	assert_int_equal(e.flag, ENVELOPE_END);
	assert_int_equal(e.len, 0);
}

static void envelope_is_written_whole_or_not_at_all(void **state)
{
	(void)state;
	auto_buf struct buf b;
	buf_init(&b, 6);
	assert_int_equal(envelope_write(&b, ENVELOPE_MESSAGE, "ab", 2), -EMSGSIZE);
	assert_int_equal(b.len, 0);
	assert_int_equal(envelope_write(&b, ENVELOPE_MESSAGE, "a", 1), 0);
	assert_int_equal(b.len, 6);
	assert_int_equal(envelope_write(&b, ENVELOPE_MESSAGE, "a", (size_t)UINT32_MAX + 1),
			 -EMSGSIZE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(envelope_is_read_when_it_is_whole),
		cmocka_unit_test(envelope_rejects_oversized_payload_by_its_length),
		cmocka_unit_test(envelope_rejects_other_flags_at_once),
		cmocka_unit_test(envelope_round_trips),
		cmocka_unit_test(envelope_is_written_whole_or_not_at_all),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
