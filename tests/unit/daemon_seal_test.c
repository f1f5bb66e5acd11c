/* SPDX-License-Identifier: Apache-2.0 */
/* Values at rest: what is sealed is opened again by the same key for the same name alone. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "daemon/seal.h"

struct fixture {
	char dir[24];
	char *path;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	strcpy(f->dir, "/tmp/seal-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	f->path = str_printf("%s/secrets.key", f->dir);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	dir_remove_all(f->dir);
	free(f->path);
	free(f);
	return 0;
}

static const char value[] = "hunter2-0123456789";

static void key_is_made_once_and_for_its_owner_alone(void **state)
{
	struct fixture *f = *state;
	struct err e;
	struct stat st;
	auto_free char *first = NULL, *second = NULL;
	assert_null(seal_open(f->path, false, &e));
	assert_int_equal(e.code, ENOKEY);
	assert_int_equal(access(f->path, F_OK), -1);

	struct seal *s = seal_open(f->path, true, &e);
	assert_non_null(s);
	seal_close(s);
	assert_int_equal(stat(f->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_size, 32);
	assert_int_equal(file_read(f->path, 100, &first, NULL), 0);

	s = seal_open(f->path, true, &e);
	assert_non_null(s);
	seal_close(s);
	assert_int_equal(file_read(f->path, 100, &second, NULL), 0);
	assert_memory_equal(first, second, 32);
}

static void value_comes_back_and_nothing_of_it_shows(void **state)
{
	struct fixture *f = *state;
	struct err e;
	struct seal *s = seal_open(f->path, true, &e);
	auto_free uint8_t *sealed = NULL, *again = NULL, *empty = NULL;
	size_t n, m;
	assert_int_equal(seal_wrap(s, "NAME", value, strlen(value), &sealed, &n, &e), 0);
	assert_int_equal(n, strlen(value) + SEAL_OVERHEAD);
	assert_null(memmem(sealed, n, value, 4));
	assert_int_equal(seal_wrap(s, "NAME", value, strlen(value), &again, &m, &e), 0);
	assert_memory_not_equal(sealed + 1, again + 1, 12);
	assert_memory_not_equal(sealed + 13, again + 13, strlen(value));
	seal_close(s);

	s = seal_open(f->path, false, &e); /* as the next program has it */
	auto_free char *text = NULL, *nothing = NULL;
	assert_int_equal(seal_unwrap(s, "NAME", sealed, n, &text, &m, &e), 0);
	assert_int_equal(m, strlen(value));
	assert_string_equal(text, value);
	assert_int_equal(seal_wrap(s, "NAME", "", 0, &empty, &n, &e), 0);
	assert_int_equal(seal_unwrap(s, "NAME", empty, n, &nothing, &m, &e), 0);
	assert_int_equal(m, 0);
	seal_close(s);
}

static void each_bit_counts(void **state)
{
	struct fixture *f = *state;
	struct err e;
	struct seal *s = seal_open(f->path, true, &e);
	auto_free uint8_t *sealed = NULL;
	char *text = NULL;
	size_t n, m;
	assert_int_equal(seal_wrap(s, "NAME", value, strlen(value), &sealed, &n, &e), 0);
	for (size_t bit = 0; bit < n * 8; bit++) {
		sealed[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(seal_unwrap(s, "NAME", sealed, n, &text, &m, &e), -EBADMSG);
		assert_non_null(strstr(e.text, "NAME"));
		sealed[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	for (size_t cut = 0; cut < n; cut++)
		assert_int_equal(seal_unwrap(s, "NAME", sealed, cut, &text, &m, &e), -EBADMSG);
	assert_int_equal(seal_unwrap(s, "NAMF", sealed, n, &text, &m, &e), -EBADMSG);
	assert_int_equal(seal_unwrap(s, "", sealed, n, &text, &m, &e), -EBADMSG);
	assert_null(text);
	seal_close(s);

	uint8_t other[32] = {1};
	unlink(f->path);
	assert_int_equal(file_write_atomic(f->path, other, sizeof(other), 0600), 0);
	s = seal_open(f->path, false, &e);
	assert_int_equal(seal_unwrap(s, "NAME", sealed, n, &text, &m, &e), -EBADMSG);
	assert_null(text);
	seal_close(s);
}

static void what_is_no_key_of_ours_is_refused_and_left_alone(void **state)
{
	struct fixture *f = *state;
	static const struct {
		size_t bytes;
		mode_t mode;
		int code;
	} bad[] = {{0, 0600, EBADMSG}, {31, 0600, EBADMSG}, {33, 0600, EBADMSG},
		   {32, 0640, EPERM},  {32, 0604, EPERM},   {32, 0620, EPERM}};
	const uint8_t zeros[33] = {0};
	struct err e;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct stat st;
		assert_int_equal(file_write_atomic(f->path, zeros, bad[i].bytes, bad[i].mode), 0);
		assert_null(seal_open(f->path, true, &e));
		assert_int_equal(e.code, bad[i].code);
		assert_non_null(strstr(e.text, f->path));
		assert_int_equal(stat(f->path, &st), 0);
		assert_int_equal(st.st_size, bad[i].bytes);
		assert_int_equal(st.st_mode & 07777, bad[i].mode);
	}
	unlink(f->path);
	assert_int_equal(symlink("elsewhere", f->path), 0);
	assert_null(seal_open(f->path, true, &e));
	assert_int_equal(e.code, EBADMSG);
	unlink(f->path);
	assert_int_equal(mkfifo(f->path, 0600), 0);
	assert_null(seal_open(f->path, true, &e));
	assert_int_equal(e.code, EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(key_is_made_once_and_for_its_owner_alone, setup,
						teardown),
		cmocka_unit_test_setup_teardown(value_comes_back_and_nothing_of_it_shows, setup,
						teardown),
		cmocka_unit_test_setup_teardown(each_bit_counts, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_no_key_of_ours_is_refused_and_left_alone,
						setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
