/* SPDX-License-Identifier: Apache-2.0 */
/* The node's records: written, read again, also by a later program than the one that made them. */
#include <errno.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "daemon/store.h"

struct fixture {
	char dir[24];
	char *path;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	strcpy(f->dir, "/tmp/store-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	f->path = str_printf("%s/space.db", f->dir);
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

struct seen {
	unsigned count;
	char id[16], detail[64];
	bool has_detail;
};

static void see(void *user, const struct store_record *r)
{
	struct seen *s = user;
	s->count++;
	assert_true(strlen(r->id) < sizeof(s->id));
	strcpy(s->id, r->id);
	s->has_detail = r->detail;
	if (r->detail)
		strcpy(s->detail, r->detail);
}

static void record_is_kept_with_its_detail(void **state)
{
	struct fixture *f = *state;
	struct seen seen = {0};
	struct err e;
	const struct store_record r = {.id = "i1",
				       .name = "w",
				       .state = "running",
				       .image = "base",
				       .command = "[]",
				       .cpus = 1,
				       .exit_code = -1,
				       .detail = "{\"format\":1}"};
	struct store *s = store_open(f->path, &e);
	assert_non_null(s);
	assert_int_equal(store_put(s, &r, &e), 0);
	store_close(s);
	s = store_open(f->path, &e);
	assert_non_null(s);
	assert_int_equal(store_each(s, see, &seen, &e), 0);
	assert_int_equal(seen.count, 1);
	assert_string_equal(seen.detail, "{\"format\":1}");
	store_close(s);
}

/* As it was before records had a detail. */
static void records_of_an_earlier_program_are_read(void **state)
{
	struct fixture *f = *state;
	struct seen seen = {0};
	struct err e;
	sqlite3 *db;
	assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
	assert_int_equal(
		sqlite3_exec(
			db,
			"CREATE TABLE sandboxes (id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE,"
			" state TEXT NOT NULL, image TEXT NOT NULL, command TEXT NOT NULL,"
			" cpus INTEGER NOT NULL, memory_mib INTEGER NOT NULL,"
			" started_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL,"
			" exit_code INTEGER NOT NULL, reason TEXT);"
			"INSERT INTO sandboxes VALUES"
			" ('i1','w','exited','base','[]',1,512,1,2,0,NULL)",
			NULL, NULL, NULL),
		SQLITE_OK);
	sqlite3_close(db);
	for (int i = 0; i < 2; i++) {
		struct store *s = store_open(f->path, &e);
		assert_non_null(s);
		seen = (struct seen){0};
		assert_int_equal(store_each(s, see, &seen, &e), 0);
		assert_int_equal(seen.count, 1);
		assert_string_equal(seen.id, "i1");
		assert_false(seen.has_detail);
		store_close(s);
	}
}

static void damaged_file_is_named(void **state)
{
	struct fixture *f = *state;
	struct err e;
	assert_int_equal(file_write_atomic(f->path, "no database at all", 18, 0600), 0);
	assert_null(store_open(f->path, &e));
	assert_non_null(strstr(e.text, f->path));
	assert_non_null(strstr(e.text, "damaged"));
}

#define kept(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		kept(record_is_kept_with_its_detail),
		kept(records_of_an_earlier_program_are_read),
		kept(damaged_file_is_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
