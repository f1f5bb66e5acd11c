/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/store.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>

struct store {
	sqlite3 *db;
};

static const char schema[] =
	"PRAGMA journal_mode=WAL;"
	"PRAGMA synchronous=NORMAL;"
	"CREATE TABLE IF NOT EXISTS sandboxes ("
	" id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, state TEXT NOT NULL, image TEXT NOT NULL,"
	" command TEXT NOT NULL, cpus INTEGER NOT NULL, memory_mib INTEGER NOT NULL,"
	" started_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL, exit_code INTEGER NOT NULL, reason TEXT,"
	" detail TEXT);"
	"CREATE TABLE IF NOT EXISTS secrets ("
	" name TEXT PRIMARY KEY, definition TEXT NOT NULL, sealed BLOB, made_ms INTEGER NOT NULL);";

/* A store of before there was that column. */
static int add_detail(sqlite3 *db)
{
	sqlite3_stmt *st;
	int r = sqlite3_prepare_v2(db,
				   "SELECT 1 FROM pragma_table_info('sandboxes') WHERE name = 'detail'",
				   -1, &st, NULL);
	if (r != SQLITE_OK)
		return r;
	bool there = sqlite3_step(st) == SQLITE_ROW;
	sqlite3_finalize(st);
	return there ? SQLITE_OK
		     : sqlite3_exec(db, "ALTER TABLE sandboxes ADD COLUMN detail TEXT", NULL, NULL,
				    NULL);
}

static int fail(struct store *s, struct err *e)
{
	int code = sqlite3_errcode(s->db) == SQLITE_FULL ? ENOSPC : EIO;
	return err_set(e, code, "the node's records: %s", sqlite3_errmsg(s->db));
}

struct store *store_open(const char *path, struct err *e)
{
	struct store *s = calloc(1, sizeof(*s));
	if (!s) {
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	if (sqlite3_open(path, &s->db) == SQLITE_OK &&
	    sqlite3_exec(s->db, schema, NULL, NULL, NULL) == SQLITE_OK &&
	    add_detail(s->db) == SQLITE_OK)
		return s;
	fail(s, e);
	if (sqlite3_errcode(s->db) == SQLITE_NOTADB || sqlite3_errcode(s->db) == SQLITE_CORRUPT)
		err_prefix(e, "%s is damaged (move it away to start without records)", path);
	else
		err_prefix(e, "%s", path);
	store_close(s);
	return NULL;
}

void store_close(struct store *s)
{
	if (!s)
		return;
	sqlite3_close(s->db);
	free(s);
}

/* Runs a statement that yields no rows, and finalizes it. */
static int finish(struct store *s, sqlite3_stmt *st, struct err *e)
{
	int r = sqlite3_step(st) == SQLITE_DONE ? 0 : fail(s, e);
	sqlite3_finalize(st);
	return r;
}

int store_put(struct store *s, const struct store_record *r, struct err *e)
{
	sqlite3_stmt *st;
	if (sqlite3_prepare_v2(s->db,
			       "INSERT OR REPLACE INTO sandboxes VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
			       -1, &st, NULL) != SQLITE_OK)
		return fail(s, e);
	const char *texts[] = {r->id, r->name, r->state, r->image, r->command};
	for (int i = 0; i < 5; i++)
		sqlite3_bind_text(st, i + 1, texts[i], -1, SQLITE_STATIC);
	sqlite3_bind_int(st, 6, (int)r->cpus);
	sqlite3_bind_int64(st, 7, (sqlite3_int64)r->memory_mib);
	sqlite3_bind_int64(st, 8, (sqlite3_int64)r->started_ms);
	sqlite3_bind_int64(st, 9, (sqlite3_int64)r->ended_ms);
	sqlite3_bind_int(st, 10, r->exit_code);
	if (r->reason)
		sqlite3_bind_text(st, 11, r->reason, -1, SQLITE_STATIC);
	if (r->detail)
		sqlite3_bind_text(st, 12, r->detail, -1, SQLITE_STATIC);
	return finish(s, st, e);
}

int store_remove(struct store *s, const char *id, struct err *e)
{
	sqlite3_stmt *st;
	if (sqlite3_prepare_v2(s->db, "DELETE FROM sandboxes WHERE id = ?", -1, &st, NULL) !=
	    SQLITE_OK)
		return fail(s, e);
	sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
	return finish(s, st, e);
}

static const char *column_text(sqlite3_stmt *st, int i)
{
	return (const char *)sqlite3_column_text(st, i);
}

int store_each(struct store *s, void (*each)(void *user, const struct store_record *r), void *user,
	       struct err *e)
{
	sqlite3_stmt *st;
	if (sqlite3_prepare_v2(s->db, "SELECT * FROM sandboxes ORDER BY started_ms", -1, &st,
			       NULL) != SQLITE_OK)
		return fail(s, e);
	int step;
	while ((step = sqlite3_step(st)) == SQLITE_ROW) {
		struct store_record r = {
			.id = column_text(st, 0),
			.name = column_text(st, 1),
			.state = column_text(st, 2),
			.image = column_text(st, 3),
			.command = column_text(st, 4),
			.cpus = (unsigned)sqlite3_column_int(st, 5),
			.memory_mib = (uint64_t)sqlite3_column_int64(st, 6),
			.started_ms = (uint64_t)sqlite3_column_int64(st, 7),
			.ended_ms = (uint64_t)sqlite3_column_int64(st, 8),
			.exit_code = sqlite3_column_int(st, 9),
			.reason = column_text(st, 10),
			.detail = column_text(st, 11),
		};
		each(user, &r);
	}
	int r = step == SQLITE_DONE ? 0 : fail(s, e);
	sqlite3_finalize(st);
	return r;
}

/* What is written while this is FULL is on disk when it returns, and not only with the next
 * checkpoint. */
static int set_synchronous(struct store *s, bool full, struct err *e)
{
	const char *text = full ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL";
	return sqlite3_exec(s->db, text, NULL, NULL, NULL) == SQLITE_OK ? 0 : fail(s, e);
}

static int insert_secret(struct store *s, const struct store_secret *r, struct err *e)
{
	sqlite3_stmt *st;
	if (sqlite3_prepare_v2(s->db, "INSERT OR REPLACE INTO secrets VALUES (?,?,?,?)", -1, &st,
			       NULL) != SQLITE_OK)
		return fail(s, e);
	sqlite3_bind_text(st, 1, r->name, -1, SQLITE_STATIC);
	sqlite3_bind_text(st, 2, r->definition, -1, SQLITE_STATIC);
	if (r->sealed)
		sqlite3_bind_blob64(st, 3, r->sealed, r->sealed_len, SQLITE_STATIC);
	sqlite3_bind_int64(st, 4, (sqlite3_int64)r->made_ms);
	return finish(s, st, e);
}

int store_put_secret(struct store *s, const struct store_secret *r, struct err *e)
{
	int done = set_synchronous(s, true, e);
	if (done < 0)
		return done;
	done = insert_secret(s, r, e);
	int after = set_synchronous(s, false, done < 0 ? NULL : e);
	return done < 0 ? done : after;
}

int store_remove_secret(struct store *s, const char *name, struct err *e)
{
	sqlite3_stmt *st;
	if (sqlite3_prepare_v2(s->db, "DELETE FROM secrets WHERE name = ?", -1, &st, NULL) !=
	    SQLITE_OK)
		return fail(s, e);
	sqlite3_bind_text(st, 1, name, -1, SQLITE_STATIC);
	return finish(s, st, e);
}

int store_each_secret(struct store *s, void (*each)(void *user, const struct store_secret *r),
		      void *user, struct err *e)
{
	sqlite3_stmt *st;
	if (sqlite3_prepare_v2(s->db, "SELECT * FROM secrets ORDER BY name", -1, &st, NULL) !=
	    SQLITE_OK)
		return fail(s, e);
	int step;
	while ((step = sqlite3_step(st)) == SQLITE_ROW) {
		struct store_secret r = {
			.name = column_text(st, 0),
			.definition = column_text(st, 1),
			.sealed = sqlite3_column_blob(st, 2),
			.sealed_len = (size_t)sqlite3_column_bytes(st, 2),
			.made_ms = (uint64_t)sqlite3_column_int64(st, 3),
		};
		each(user, &r);
	}
	int r = step == SQLITE_DONE ? 0 : fail(s, e);
	sqlite3_finalize(st);
	return r;
}
