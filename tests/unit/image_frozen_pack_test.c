/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed memory is the same memory, and damaged or forged it is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <zstd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "image/content.h"
#include "image_frozen_fixture.h"

static int setup(void **state)
{
	return setup_in("/tmp/frozen-test-XXXXXX", state);
}

static void compressed_memory_comes_back(void **state)
{
	const char *dir = *state;
	make(dir, "x", 7);
	auto_free char *memory = file_of(dir, "x", "memory");
	auto_free char *packed = file_of(dir, "x", "memory.zst");
	for (int i = 0; i < 2; i++) {
		open_and(dir, "x", frozen_compress, true);
		open_and(dir, "x", frozen_compress, true);
		assert_int_equal(access(memory, F_OK), -1);
		assert_true(mode_of(packed) == 0444);
		expect_whole(dir, "x", 7);
		open_and(dir, "x", frozen_expand, false);
		open_and(dir, "x", frozen_expand, false);
		assert_int_equal(access(packed, F_OK), -1);
		assert_true(mode_of(memory) == 0444);
		expect_whole(dir, "x", 7);
	}
}

static void compressing_does_not_make_young(void **state)
{
	const char *dir = *state;
	struct frozen f;
	struct err e = {0};
	make(dir, "x", 7);
	auto_free char *path = path_of(dir, "frozen/x");
	const struct timespec times[2] = {{.tv_sec = 5000}, {.tv_sec = 5000}};
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	open_and(dir, "x", frozen_compress, true);
	assert_int_equal(open_frozen(dir, "x", &f, &e), 0);
	assert_int_equal(f.used_ms, 5000 * 1000);
	frozen_touch(&f);
	frozen_done(&f);
	assert_int_equal(open_frozen(dir, "x", &f, &e), 0);
	assert_true(f.used_ms + 60000 > clock_wall_ms());
	frozen_done(&f);
}

static void memory_counts_where_both_are(void **state)
{
	const char *dir = *state;
	make(dir, "x", 7);
	auto_free char *packed = file_of(dir, "x", "memory.zst");
	auto_free char *temporary = file_of(dir, "x", "memory.zst.new");
	put(packed, "half", 4);
	put(temporary, "half", 4);
	expect_whole(dir, "x", 7);
	open_and(dir, "x", frozen_expand, false);
	assert_int_equal(access(packed, F_OK), -1);
	put(packed, "half", 4);
	open_and(dir, "x", frozen_compress, true);
	assert_int_equal(access(temporary, F_OK), -1);
	expect_whole(dir, "x", 7);
}

static void damaged_memory_is_not_compressed(void **state)
{
	const char *dir = *state;
	struct frozen f;
	struct err e = {0};
	make(dir, "x", 7);
	auto_free char *memory = file_of(dir, "x", "memory");
	flip(memory, 0, 1);
	assert_int_equal(open_frozen(dir, "x", &f, &e), 0);
	assert_int_equal(frozen_compress(&f, &e), -EBADMSG);
	expect_says(&e, "memory is damaged");
	assert_false(f.compressed);
	frozen_done(&f);
	flip(memory, 0, 1);
	expect_whole(dir, "x", 7);
	auto_free char *temporary = file_of(dir, "x", "memory.zst.new");
	assert_int_equal(access(temporary, F_OK), -1);
}

static void refuses_packed(const char *dir, const char *what)
{
	struct frozen f;
	struct err e = {0};
	assert_int_equal(open_frozen(dir, "x", &f, &e), 0);
	if (frozen_verify(&f, &e) != -EBADMSG)
		fail_msg("%s: taken for whole", what);
	expect_says(&e, "memory.zst is damaged");
	e = (struct err){0};
	if (frozen_expand(&f, &e) != -EBADMSG)
		fail_msg("%s: unpacked", what);
	expect_says(&e, "memory.zst is damaged");
	assert_true(f.compressed);
	frozen_done(&f);
	auto_free char *memory = file_of(dir, "x", "memory");
	auto_free char *temporary = file_of(dir, "x", "memory.new");
	assert_int_equal(access(memory, F_OK), -1);
	assert_int_equal(access(temporary, F_OK), -1);
}

/* zstd has bits that change no byte: what passes for whole is whole. */
static bool is_same_memory(const char *dir)
{
	struct frozen f;
	struct err e = {0};
	assert_int_equal(open_frozen(dir, "x", &f, &e), 0);
	bool same = frozen_verify(&f, &e) == 0;
	frozen_done(&f);
	if (!same)
		return false;
	open_and(dir, "x", frozen_expand, false);
	expect_whole(dir, "x", 7);
	open_and(dir, "x", frozen_compress, true);
	return true;
}

static void packed_memory_with_any_damage_is_refused(void **state)
{
	const char *dir = *state;
	make(dir, "x", 7);
	open_and(dir, "x", frozen_compress, true);
	auto_free char *packed = file_of(dir, "x", "memory.zst");
	auto_free char *whole = NULL;
	size_t len;
	assert_int_equal(file_read(packed, 1 << 20, &whole, &len), 0);
	size_t harmless = 0;
	for (size_t at = 0; at < len; at++) {
		char what[64];
		snprintf(what, sizeof(what), "byte %zu flipped", at);
		char *c = &whole[at];
		*c = (char)(*c ^ 1);
		put(packed, whole, len);
		*c = (char)(*c ^ 1);
		if (!is_same_memory(dir))
			refuses_packed(dir, what);
		else
			harmless++;
		snprintf(what, sizeof(what), "cut to %zu", at);
		put(packed, whole, at);
		refuses_packed(dir, what);
	}
	assert_true(harmless <= 4);  /* reserved bits, and how much memory a decoder needs */
	put(packed, whole, len + 1); /* the NUL behind */
	refuses_packed(dir, "a byte more");
	put(packed, whole, len);
	expect_whole(dir, "x", 7);
	open_and(dir, "x", frozen_expand, false);
	expect_whole(dir, "x", 7);
}

/* Packs records, {where, how much, then those bytes}, ended by {0, UINT64_MAX}. */
static void put_records(const char *path, const uint64_t (*records)[2])
{
	static uint8_t plain[4 << 20];
	static uint8_t packed[1 << 20];
	size_t n = 0;
	for (size_t i = 0; records[i][1] != UINT64_MAX; i++) {
		uint64_t bytes = records[i][1] > CONTENT_RUN_MAX ? 4096 : records[i][1];
		content_put_le64(plain + n, records[i][0]);
		content_put_le64(plain + n + 8, records[i][1]);
		memset(plain + n + 16, 7, bytes);
		n += 16 + bytes;
	}
	size_t len = ZSTD_compress(packed, sizeof(packed), plain, n, 3);
	assert_false(ZSTD_isError(len));
	put(path, packed, len);
}

static void hostile_records_are_refused(void **state)
{
	const char *dir = *state;
	static const uint64_t end[2] = {0, UINT64_MAX};
	const uint64_t cases[][4][2] = {
		{{end[0], end[1]}},                                          /* nothing */
		{{RAM_BYTES, 0}, {end[0], end[1]}},                          /* zeros */
		{{0, 4096}, {end[0], end[1]}},                               /* no end */
		{{0, 4096}, {4096, 0}, {end[0], end[1]}},                    /* a wrong end */
		{{4096, 4096}, {0, 4096}, {RAM_BYTES, 0}, {end[0], end[1]}}, /* backwards */
		{{0, 8192}, {4096, 4096}, {RAM_BYTES, 0}, {end[0], end[1]}}, /* twice */
		{{100, 4096}, {RAM_BYTES, 0}, {end[0], end[1]}},
		{{0, 100}, {RAM_BYTES, 0}, {end[0], end[1]}},
		{{RAM_BYTES, 4096}, {RAM_BYTES, 0}, {end[0], end[1]}},
		{{RAM_BYTES - 4096, 8192}, {RAM_BYTES, 0}, {end[0], end[1]}},
		{{UINT64_MAX - 4095, 4096}, {RAM_BYTES, 0}, {end[0], end[1]}},
		{{0, UINT64_MAX - 4095}, {RAM_BYTES, 0}, {end[0], end[1]}},
		{{0, CONTENT_RUN_MAX + 4096}, {RAM_BYTES, 0}, {end[0], end[1]}},
		{{RAM_BYTES, 0}, {RAM_BYTES, 0}, {end[0], end[1]}}, /* more behind the end */
	};
	make(dir, "x", 7);
	open_and(dir, "x", frozen_compress, true);
	auto_free char *packed = file_of(dir, "x", "memory.zst");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char what[32];
		snprintf(what, sizeof(what), "case %zu", i);
		put_records(packed, cases[i]);
		refuses_packed(dir, what);
	}
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(compressed_memory_comes_back),
		TEST(compressing_does_not_make_young),
		TEST(memory_counts_where_both_are),
		TEST(damaged_memory_is_not_compressed),
		TEST(packed_memory_with_any_damage_is_refused),
		TEST(hostile_records_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
