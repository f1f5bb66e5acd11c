/* SPDX-License-Identifier: Apache-2.0 */
/* The chain of records: whatever is changed, removed, added or moved shows. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "daemon/audit.h"

struct fixture {
	char dir[32], path[64];
	struct audit *audit;
};

static void write_records(struct audit *a, unsigned count)
{
	struct err e;
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(audit_write(a, i % 2 ? "i1" : "i2", "test",
					     json_pack("{s:i}", "n", (int)i), &e),
				 0);
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct err e;
	strcpy(f->dir, "/tmp/space-audit-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->path, sizeof(f->path), "%s/audit.jsonl", f->dir);
	f->audit = audit_open(f->dir, &e);
	assert_non_null(f->audit);
	write_records(f->audit, 10);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	audit_close(f->audit);
	dir_remove_all(f->dir);
	free(f);
	return 0;
}

static struct audit_verdict verify(const struct fixture *f)
{
	struct audit_verdict v;
	struct err e;
	assert_int_equal(audit_verify(f->dir, &v, &e), 0);
	return v;
}

static char *log_text(const struct fixture *f, size_t *n)
{
	char *text;
	assert_int_equal(file_read(f->path, 1 << 20, &text, n), 0);
	return text;
}

static void put_text(const struct fixture *f, const char *text, size_t n)
{
	int fd = open(f->path, O_WRONLY | O_TRUNC);
	assert_int_equal(fd_write_all(fd, text, n), 0);
	close(fd);
}

/* The start of line i, from 0. */
static char *line(char *text, unsigned i)
{
	while (i--)
		text = strchr(text, '\n') + 1;
	return text;
}

static void whole_log_verifies(void **state)
{
	struct audit_verdict v = verify(*state);
	assert_true(v.ok);
	assert_int_equal(v.records, 10);
}

static void changed_byte_shows_wherever_it_is(void **state)
{
	struct fixture *f = *state;
	size_t n;
	char *text = log_text(f, &n);
	for (size_t i = 0; i < n; i += 7) {
		char was = text[i];
		text[i] = was == '1' ? '2' : '1';
		put_text(f, text, n);
		assert_false(verify(f).ok);
		text[i] = was;
	}
	put_text(f, text, n);
	assert_true(verify(f).ok);
	free(text);
}

static void removed_line_shows_at_either_end_and_within(void **state)
{
	struct fixture *f = *state;
	size_t n;
	char *text = log_text(f, &n);
	for (unsigned i = 0; i < 10; i++) {
		char *copy = strdup(text);
		char *from = line(copy, i), *to = line(copy, i + 1);
		memmove(from, to, strlen(to) + 1);
		put_text(f, copy, strlen(copy));
		struct audit_verdict v = verify(f);
		assert_false(v.ok);
		assert_int_equal(v.line, i + 1);
		free(copy);
	}
	free(text);
}

static void swapped_and_repeated_lines_show(void **state)
{
	struct fixture *f = *state;
	size_t n;
	char *text = log_text(f, &n);
	char *copy = calloc(2, n);
	size_t a = (size_t)(line(text, 3) - text), b = (size_t)(line(text, 4) - text),
	       c = (size_t)(line(text, 5) - text);
	memcpy(copy, text, a);
	memcpy(copy + a, text + b, c - b);
	memcpy(copy + a + (c - b), text + a, b - a);
	memcpy(copy + c, text + c, n - c);
	put_text(f, copy, n);
	assert_false(verify(f).ok);
	memcpy(copy, text, c);
	memcpy(copy + c, text + b, n - b);
	put_text(f, copy, n + c - b);
	assert_false(verify(f).ok);
	free(copy);
	free(text);
}

static void reopened_log_goes_on(void **state)
{
	struct fixture *f = *state;
	struct err e;
	audit_close(f->audit);
	f->audit = audit_open(f->dir, &e);
	write_records(f->audit, 3);
	struct audit_verdict v = verify(f);
	assert_true(v.ok);
	assert_int_equal(v.records, 13);
}

static void torn_line_is_dropped_and_recorded(void **state)
{
	struct fixture *f = *state;
	struct err e;
	audit_close(f->audit);
	int fd = open(f->path, O_WRONLY | O_APPEND);
	assert_int_equal(fd_write_all(fd, "{\"seq\":11,\"ti", 13), 0);
	close(fd);
	f->audit = audit_open(f->dir, &e);
	assert_non_null(f->audit);
	assert_true(verify(f).ok);
	size_t n;
	char *text = log_text(f, &n);
	assert_non_null(strstr(text, "\"audit.torn\""));
	free(text);
}

static void tail_cut_while_nobody_looked_stays_visible(void **state)
{
	struct fixture *f = *state;
	struct err e;
	audit_close(f->audit);
	size_t n;
	char *text = log_text(f, &n);
	put_text(f, text, (size_t)(line(text, 8) - text));
	free(text);
	f->audit = audit_open(f->dir, &e);
	assert_non_null(f->audit);
	write_records(f->audit, 2);
	struct audit_verdict v = verify(f);
	assert_false(v.ok);
	assert_int_equal(v.line, 9);
}

static void last_line_changed_while_nobody_looked_stays_visible(void **state)
{
	struct fixture *f = *state;
	struct err e;
	audit_close(f->audit);
	size_t n;
	char *text = log_text(f, &n);
	char *kind = strstr(line(text, 9), "test");
	memcpy(kind, "tset", 4);
	put_text(f, text, n);
	free(text);
	f->audit = audit_open(f->dir, &e);
	assert_false(verify(f).ok);
}

static void lost_or_garbled_head_stays_visible(void **state)
{
	struct fixture *f = *state;
	struct err e;
	char head[64];
	static const char *const garbled[] = {NULL, "", "x", "10 \n", "18446744073709551616 x\n"};
	size_t n;
	char *text = log_text(f, &n);
	snprintf(head, sizeof(head), "%s/head", f->dir);
	for (size_t i = 0; i < sizeof(garbled) / sizeof(garbled[0]); i++) {
		audit_close(f->audit);
		put_text(f, text, n);
		unlink(head);
		if (garbled[i])
			assert_int_equal(
				file_write_atomic(head, garbled[i], strlen(garbled[i]), 0600), 0);
		f->audit = audit_open(f->dir, &e);
		assert_non_null(f->audit);
		write_records(f->audit, 1);
		struct audit_verdict v = verify(f);
		assert_false(v.ok);
		assert_int_equal(v.line, 11);
	}
	free(text);
}

static void log_that_was_never_written_to_opens_again(void **state)
{
	struct fixture *f = *state;
	struct err e;
	audit_close(f->audit);
	assert_int_equal(dir_remove_all(f->dir), 0);
	assert_int_equal(dir_make_all(f->dir, 0700), 0);
	f->audit = audit_open(f->dir, &e);
	audit_close(f->audit);
	f->audit = audit_open(f->dir, &e);
	assert_non_null(f->audit);
	assert_true(verify(f).ok);
	assert_int_equal(verify(f).records, 0);
}

static void log_has_one_writer(void **state)
{
	struct fixture *f = *state;
	struct err e = {0};
	assert_null(audit_open(f->dir, &e));
	assert_int_equal(e.code, EBUSY);
	write_records(f->audit, 1);
	assert_true(verify(f).ok);
}

static void record_that_cannot_be_written_leaves_the_log_whole(void **state)
{
	struct fixture *f = *state;
	struct err e;
	size_t n;
	char *text = log_text(f, &n);
	free(text);
	/* A file size limit is a disk that is full after half a line. */
	struct rlimit old, small;
	getrlimit(RLIMIT_FSIZE, &old);
	small = (struct rlimit){n + 20, old.rlim_max};
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &small);
	int r = audit_write(f->audit, "i1", "test", NULL, &e);
	setrlimit(RLIMIT_FSIZE, &old);
	assert_int_equal(r, -EFBIG);
	assert_true(verify(f).ok);
	write_records(f->audit, 1);
	struct audit_verdict v = verify(f);
	assert_true(v.ok);
	assert_int_equal(v.records, 11);
}

static void oversized_record_is_refused_with_a_reason(void **state)
{
	struct fixture *f = *state;
	auto_free char *word = str_printf("%0*d", 1 << 20, 0);
	struct err e = {0};
	assert_int_equal(audit_write(f->audit, "i1", "test", json_pack("{s:s}", "argv", word), &e),
			 -E2BIG);
	assert_non_null(strstr(e.text, "more than 1 MiB for one record"));
	write_records(f->audit, 1);
	assert_true(verify(f).ok);
}

static void members_cannot_pose_as_the_chain(void **state)
{
	struct fixture *f = *state;
	static const char *const names[] = {"seq", "time", "sandbox", "kind", "prev"};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_int_equal(
			audit_add(f->audit, "i1", "test", json_pack("{s:s}", names[i], "x")),
			-EINVAL);
	assert_true(verify(f).ok);
}

static int count_line(void *user, const char *text, size_t n)
{
	(void)text;
	(void)n;
	++*(unsigned *)user;
	return 0;
}

static void records_are_found_by_id_and_by_name(void **state)
{
	struct fixture *f = *state;
	struct err e;
	assert_int_equal(
		audit_write(f->audit, "i9", "sandbox.create", json_pack("{s:s}", "name", "w"), &e),
		0);
	assert_int_equal(audit_write(f->audit, "i9", "sandbox.exited", NULL, &e), 0);
	unsigned by_id = 0, by_name = 0, all = 0, none = 0;
	assert_int_equal(audit_each(f->dir, "i9", count_line, &by_id, &e), 0);
	assert_int_equal(audit_each(f->dir, "w", count_line, &by_name, &e), 0);
	assert_int_equal(audit_each(f->dir, NULL, count_line, &all, &e), 0);
	assert_int_equal(audit_each(f->dir, "x", count_line, &none, &e), 0);
	assert_int_equal(by_id, 2);
	assert_int_equal(by_name, 2);
	assert_int_equal(all, 12);
	assert_int_equal(none, 0);
}

/* A sandbox's gateway records what its guest says, such as the names that it asks for. */
static void only_its_creation_gives_a_sandbox_its_name(void **state)
{
	struct fixture *f = *state;
	struct err e;
	assert_int_equal(
		audit_write(f->audit, "i8", "egress.dns", json_pack("{s:s}", "name", "w"), &e), 0);
	assert_int_equal(audit_write(f->audit, "i8", "sandbox.exited", NULL, &e), 0);
	unsigned count = 0;
	assert_int_equal(audit_each(f->dir, "w", count_line, &count, &e), 0);
	assert_int_equal(count, 0);
}

#define WITH_LOG(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_LOG(whole_log_verifies),
		WITH_LOG(changed_byte_shows_wherever_it_is),
		WITH_LOG(removed_line_shows_at_either_end_and_within),
		WITH_LOG(swapped_and_repeated_lines_show),
		WITH_LOG(reopened_log_goes_on),
		WITH_LOG(torn_line_is_dropped_and_recorded),
		WITH_LOG(tail_cut_while_nobody_looked_stays_visible),
		WITH_LOG(last_line_changed_while_nobody_looked_stays_visible),
		WITH_LOG(lost_or_garbled_head_stays_visible),
		WITH_LOG(log_that_was_never_written_to_opens_again),
		WITH_LOG(log_has_one_writer),
		WITH_LOG(record_that_cannot_be_written_leaves_the_log_whole),
		WITH_LOG(oversized_record_is_refused_with_a_reason),
		WITH_LOG(members_cannot_pose_as_the_chain),
		WITH_LOG(records_are_found_by_id_and_by_name),
		WITH_LOG(only_its_creation_gives_a_sandbox_its_name),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
