/* SPDX-License-Identifier: Apache-2.0 */
/* One sandbox's records out of a long log, in pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "daemon/trail.h"

struct fixture {
	char dir[64];
	uv_loop_t loop;
	struct node node;
	struct trail *trail;
	unsigned lines, pieces;
	bool at_end, found, gone;
};

static void fixture_init(struct fixture *f)
{
	struct err e = {0};
	*f = (struct fixture){0};
	strcpy(f->dir, "/tmp/space-trail-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	assert_int_equal(uv_loop_init(&f->loop), 0);
	f->node.loop = &f->loop;
	f->node.paths.audit = f->dir;
	f->node.audit = audit_open(f->dir, &e);
	assert_non_null(f->node.audit);
}

static void fixture_done(struct fixture *f)
{
	audit_close(f->node.audit);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&f->loop), 0);
	assert_int_equal(dir_remove_all(f->dir), 0);
}

static void add(struct fixture *f, const char *id, const char *kind, json_t *members)
{
	assert_int_equal(audit_add(f->node.audit, id, kind, members), 0);
}

static void flush(struct fixture *f)
{
	assert_int_equal(audit_flush(f->node.audit, NULL), 0);
}

static int on_line(void *user, const json_t *record, const char *line, size_t n)
{
	struct fixture *f = user;
	assert_int_equal(line[n - 1], '}');
	assert_non_null(json_object_get(record, "kind"));
	f->lines++;
	return 0;
}

static void on_read(void *user, bool at_end, bool found)
{
	struct fixture *f = user;
	f->at_end = at_end;
	f->found = found;
	f->pieces++;
	if (!at_end)
		trail_next(f->trail);
}

static void on_failed(void *user, const struct err *why)
{
	(void)user;
	fail_msg("%s", why->text);
}

static void on_gone(void *user)
{
	((struct fixture *)user)->gone = true;
}

static const struct trail_ops ops = {.line = on_line, .read = on_read, .failed = on_failed};

static void read_on(struct fixture *f)
{
	f->lines = f->pieces = 0;
	trail_next(f->trail);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	assert_true(f->at_end);
}

static void open_trail(struct fixture *f, const char *ref)
{
	struct err e = {0};
	f->trail = trail_open(&f->node, ref, &ops, f, &e);
	assert_non_null(f->trail);
}

static void close_trail(struct fixture *f)
{
	trail_close(f->trail, on_gone);
	assert_true(f->gone);
}

static void records_of_one_sandbox_are_found(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f);
	add(&f, "i1", "sandbox.create", json_pack("{s:s}", "name", "w"));
	add(&f, "i2", "sandbox.create", json_pack("{s:s}", "name", "other"));
	/* Names that guests choose make nobody theirs. */
	add(&f, "i2", "egress.dns", json_pack("{s:s}", "name", "w"));
	add(&f, "i2", "egress.dns", json_pack("{s:s}", "name", "i1"));
	add(&f, "i1", "egress.dns", json_pack("{s:s}", "name", "x.test"));
	flush(&f);
	open_trail(&f, "w");
	read_on(&f);
	assert_true(f.found);
	assert_int_equal(f.lines, 2);
	add(&f, "i1", "sandbox.exited", NULL);
	add(&f, "i2", "sandbox.exited", NULL);
	flush(&f);
	read_on(&f);
	assert_int_equal(f.lines, 1);
	read_on(&f);
	assert_int_equal(f.lines, 0);
	close_trail(&f);
	open_trail(&f, "nobody");
	read_on(&f);
	assert_false(f.found);
	close_trail(&f);
	fixture_done(&f);
}

static void long_logs_come_in_pieces(void **state)
{
	(void)state;
	struct fixture f;
	char *big = malloc(900001);
	memset(big, 'x', 900000);
	big[900000] = '\0';
	fixture_init(&f);
	for (int i = 0; i < 20000; i++) {
		add(&f, i % 2 ? "i1" : "i2", "egress.dns", json_pack("{s:s}", "name", "x.test"));
		if (i == 10000) /* longer than a piece */
			add(&f, "i1", "egress.request", json_pack("{s:s}", "path", big));
	}
	flush(&f);
	free(big);
	open_trail(&f, "i1");
	read_on(&f);
	assert_int_equal(f.lines, 10001);
	assert_true(f.pieces > 10);
	close_trail(&f);
	fixture_done(&f);
}

static void one_that_reads_can_be_closed(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f);
	add(&f, "i1", "egress.dns", NULL);
	flush(&f);
	open_trail(&f, "i1");
	trail_next(f.trail);
	trail_close(f.trail, on_gone);
	assert_false(f.gone);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	assert_true(f.gone);
	assert_int_equal(f.pieces, 0);
	fixture_done(&f);
}

static void on_written(void *user)
{
	++*(unsigned *)user;
}

static void who_watches_is_told_of_records(void **state)
{
	(void)state;
	struct fixture f;
	unsigned times = 0;
	struct audit_watcher w = {.written = on_written, .user = &times};
	fixture_init(&f);
	audit_watch(f.node.audit, &w);
	add(&f, "i1", "egress.dns", NULL);
	assert_int_equal(times, 0);
	flush(&f);
	flush(&f);
	assert_int_equal(times, 1);
	audit_unwatch(&w);
	audit_unwatch(&w);
	add(&f, "i1", "egress.dns", NULL);
	flush(&f);
	assert_int_equal(times, 1);
	fixture_done(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(records_of_one_sandbox_are_found),
		cmocka_unit_test(long_logs_come_in_pieces),
		cmocka_unit_test(one_that_reads_can_be_closed),
		cmocka_unit_test(who_watches_is_told_of_records),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
