/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/sha.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"

#define AUDIT_LINE_MAX  (1u << 20)  /* bytes of one record */
#define AUDIT_QUEUE_MAX (16u << 20) /* bytes not yet written */
#define HASH_HEX        65          /* with the NUL */
#define HEAD_SIZE       96          /* bytes of the head file */

static const char zero_hash[HASH_HEX] =
	"0000000000000000000000000000000000000000000000000000000000000000";

struct chain {
	uint64_t seq; /* of the last line, 0 before the first */
	char hash[HASH_HEX];
};

struct audit {
	int fd, head_fd;
	off_t size;
	struct chain written; /* what the file ends with */
	struct chain queued;  /* what it will end with after a flush */
	struct buf queue;
	struct list watchers;
};

static void hash_line(const char *line, size_t n, char out[HASH_HEX])
{
	uint8_t sum[SHA256_DIGEST_LENGTH];
	SHA256((const uint8_t *)line, n, sum);
	hex_encode(sum, sizeof(sum), out);
}

int audit_add(struct audit *a, const char *sandbox, const char *kind, json_t *members)
{
	char now[CLOCK_RFC3339_SIZE];
	clock_rfc3339(clock_wall_ms(), now);
	auto_json json_t *rest = members;
	auto_json json_t *j =
		json_pack("{s:I, s:s}", "seq", (json_int_t)(a->queued.seq + 1), "time", now);
	if (!j || (sandbox && json_object_set_new(j, "sandbox", json_string(sandbox)) < 0) ||
	    json_object_set_new(j, "kind", json_string(kind)) < 0)
		return -ENOMEM;

	const char *key;
	json_t *value;
	json_object_foreach(rest, key, value) if (str_eq(key, "prev") ||
						  json_object_get(j, key)) return -EINVAL;
	if ((rest && json_object_update(j, rest) < 0) ||
	    json_object_set_new(j, "prev", json_string(a->queued.hash)) < 0)
		return -ENOMEM;

	auto_free char *line = doc_to_text(j);
	if (!line)
		return -ENOMEM;
	size_t n = strlen(line);
	if (n > AUDIT_LINE_MAX)
		return -E2BIG;
	if (buf_reserve(&a->queue, n + 1) < 0)
		return -ENOMEM;
	buf_append(&a->queue, line, n);
	buf_append(&a->queue, "\n", 1);
	a->queued.seq++;
	hash_line(line, n, a->queued.hash);
	return 0;
}

static void write_head(struct audit *a)
{
	char text[HEAD_SIZE + 1];
	snprintf(text, sizeof(text), "%-30" PRIu64 " %s\n", a->written.seq, a->written.hash);
	if (pwrite(a->head_fd, text, HEAD_SIZE, 0) != HEAD_SIZE)
		return; /* the log itself is whole; audit_open mends the head */
}

int audit_flush(struct audit *a, struct err *e)
{
	if (!a->queue.len)
		return 0;
	int r = fd_write_all(a->fd, a->queue.data, a->queue.len);
	if (r < 0) {
		/* Half a line would break the chain for good. */
		if (ftruncate(a->fd, a->size) < 0)
			abort();
		a->queued = a->written;
		buf_done(&a->queue);
		return err_sys(e, -r, "can't write the audit log");
	}
	a->size += (off_t)a->queue.len;
	a->written = a->queued;
	buf_consume(&a->queue, a->queue.len);
	write_head(a);
	list_for_each (it, &a->watchers) {
		struct audit_watcher *w = list_entry(it, struct audit_watcher, link);
		w->written(w->user);
	}
	return 0;
}

void audit_watch(struct audit *a, struct audit_watcher *w)
{
	list_append(&a->watchers, &w->link);
}

void audit_unwatch(struct audit_watcher *w)
{
	list_remove(&w->link);
}

int audit_write(struct audit *a, const char *sandbox, const char *kind, json_t *members,
		struct err *e)
{
	int r = audit_add(a, sandbox, kind, members);
	if (r == -E2BIG)
		return err_set(
			e, E2BIG,
			"more than 1 MiB for one record of the audit log: give what is long as a "
			"file or through standard input");
	if (r < 0)
		return err_sys(e, -r, "can't make an audit record");
	return audit_flush(a, e);
}

static int read_head(const char *dir, struct chain *ret)
{
	auto_free char *path = str_printf("%s/head", dir);
	auto_free char *text = NULL;
	int r = path ? file_read(path, HEAD_SIZE, &text, NULL) : -ENOMEM;
	if (r < 0)
		return r;
	char *end = strchr(text, ' ');
	char *hash = strrchr(text, ' ');
	if (!end || strlen(hash + 1) != HASH_HEX)
		return -EBADMSG;
	*end = '\0';
	if (str_to_u64(text, 0, INT64_MAX, &ret->seq) < 0)
		return -EBADMSG;
	memcpy(ret->hash, hash + 1, HASH_HEX - 1);
	ret->hash[HASH_HEX - 1] = '\0';
	return 0;
}

/* Finds the last whole line, and cuts off what stands behind it. */
static int adopt_tail(struct audit *a, off_t *ret_torn, struct err *e)
{
	struct stat st;
	if (fstat(a->fd, &st) < 0)
		return err_sys(e, errno, "audit log");
	a->written = (struct chain){.seq = 0};
	memcpy(a->written.hash, zero_hash, HASH_HEX);
	*ret_torn = 0;
	if (st.st_size == 0)
		return 0;

	size_t want = st.st_size < 2 * AUDIT_LINE_MAX ? (size_t)st.st_size : 2 * AUDIT_LINE_MAX;
	auto_free char *tail = malloc(want);
	if (!tail || pread(a->fd, tail, want, st.st_size - (off_t)want) != (ssize_t)want)
		return err_set(e, EIO, "can't read the end of the audit log");
	char *nl = memrchr(tail, '\n', want);
	size_t whole = nl ? (size_t)(nl - tail) + 1 : 0;
	if (!whole && (off_t)want < st.st_size)
		return err_set(
			e, EBADMSG,
			"the audit log ends in no record: move its directory away to start a new one");
	*ret_torn = (off_t)(want - whole);
	a->size = st.st_size - *ret_torn;
	if (*ret_torn && ftruncate(a->fd, a->size) < 0)
		return err_sys(e, errno, "can't cut a torn line off the audit log");
	if (!whole)
		return 0;

	char *before = memrchr(tail, '\n', whole - 1);
	const char *line = before ? before + 1 : tail;
	size_t n = (size_t)(nl - line);
	auto_json json_t *j = doc_parse_json(line, n, NULL);
	if (!j || doc_want_uint(j, "seq", 1, INT64_MAX, &a->written.seq, NULL) < 0)
		return err_set(
			e, EBADMSG,
			"the audit log ends in no record: move its directory away to start a new one");
	hash_line(line, n, a->written.hash);
	return 0;
}

static int open_in(const char *dir, const char *name, int flags)
{
	auto_free char *path = str_printf("%s/%s", dir, name);
	if (!path)
		return -ENOMEM;
	int fd = open(path, flags | O_CREAT | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd;
}

/* Whether the log ends otherwise than it once did, as far as the head can tell. A head is there
 * before the first record is. */
static bool was_cut(const struct audit *a, int head_result, const struct chain *head)
{
	if (head_result < 0)
		return a->written.seq > 0;
	return head->seq > a->written.seq ||
	       (head->seq == a->written.seq && !str_eq(head->hash, a->written.hash));
}

/* A log that does not end as the head says gets a record of that, which verify reports from then
 * on. */
static int settle_head(struct audit *a, const char *dir, off_t torn, struct err *e)
{
	struct chain head = {.hash = ""};
	int r = read_head(dir, &head);
	a->queued = a->written;
	if (was_cut(a, r, &head)) {
		r = audit_write(a, NULL, "audit.cut",
				json_pack("{s:I, s:s}", "written", (json_int_t)head.seq,
					  "last_hash", head.hash),
				e);
		if (r < 0)
			return r;
	}
	if (torn)
		return audit_write(a, NULL, "audit.torn",
				   json_pack("{s:I}", "bytes_dropped", (json_int_t)torn), e);
	write_head(a);
	return fdatasync(a->head_fd) < 0 ? err_sys(e, errno, "can't keep the audit log's head") : 0;
}

struct audit *audit_open(const char *dir, struct err *e)
{
	struct audit *a = calloc(1, sizeof(*a));
	if (!a) {
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	buf_init(&a->queue, AUDIT_QUEUE_MAX);
	list_init(&a->watchers);
	a->fd = open_in(dir, "audit.jsonl", O_RDWR | O_APPEND);
	a->head_fd = open_in(dir, "head", O_RDWR);
	off_t torn = 0;
	int r;
	if (a->fd < 0 || a->head_fd < 0)
		r = err_sys(e, a->fd < 0 ? -a->fd : -a->head_fd, "can't open the audit log in %s",
			    dir);
	else if (flock(a->fd, LOCK_EX | LOCK_NB) < 0)
		r = err_set(e, EBUSY, "another spaced writes the audit log in %s", dir);
	else
		r = adopt_tail(a, &torn, e);
	if (r == 0)
		r = settle_head(a, dir, torn, e);
	if (r == 0)
		return a;
	audit_close(a);
	return NULL;
}

void audit_close(struct audit *a)
{
	if (!a)
		return;
	if (a->fd >= 0)
		close(a->fd);
	if (a->head_fd >= 0)
		close(a->head_fd);
	buf_done(&a->queue);
	free(a);
}

static FILE *open_log(const char *dir)
{
	auto_free char *path = str_printf("%s/audit.jsonl", dir);
	return path ? fopen(path, "re") : NULL;
}

static int check_line(struct audit_verdict *v, struct chain *last, const char *line, size_t n)
{
	v->line++;
	if (n == 0 || line[n - 1] != '\n') {
		snprintf(v->problem, sizeof(v->problem), "the last line is cut off");
		return -EBADMSG;
	}
	auto_json json_t *j = doc_parse_json(line, n - 1, NULL);
	uint64_t seq = 0;
	const char *prev = NULL, *kind = NULL;
	if (!j || doc_want_uint(j, "seq", 1, INT64_MAX, &seq, NULL) < 0 ||
	    doc_want_string(j, "kind", &kind, NULL) < 0 ||
	    doc_want_string(j, "prev", &prev, NULL) < 0) {
		snprintf(v->problem, sizeof(v->problem), "not a record");
		return -EBADMSG;
	}
	if (seq != last->seq + 1) {
		snprintf(v->problem, sizeof(v->problem),
			 "record %" PRIu64 " stands here, %" PRIu64
			 " should: lines were removed, added or moved",
			 seq, last->seq + 1);
		return -EBADMSG;
	}
	if (!str_eq(prev, last->hash)) {
		snprintf(
			v->problem, sizeof(v->problem),
			"it does not follow from the line before: that one was changed, or this one was");
		return -EBADMSG;
	}
	if (str_eq(kind, "audit.cut")) {
		snprintf(
			v->problem, sizeof(v->problem),
			"when this was written, the log no longer ended as it had: lines were lost or changed");
		return -EBADMSG;
	}
	last->seq = seq;
	hash_line(line, n - 1, last->hash);
	v->records++;
	return 0;
}

static void check_head(const char *dir, struct audit_verdict *v, const struct chain *last)
{
	struct chain head;
	int r = read_head(dir, &head);
	v->ok = r == 0 && head.seq == last->seq && str_eq(head.hash, last->hash);
	if (v->ok)
		return;
	v->line = v->records + 1;
	if (r < 0)
		snprintf(v->problem, sizeof(v->problem),
			 "the file that holds the last hash can't be read");
	else if (head.seq > last->seq)
		snprintf(v->problem, sizeof(v->problem),
			 "the log ends after record %" PRIu64 ", but %" PRIu64 " were written",
			 last->seq, head.seq);
	else
		snprintf(v->problem, sizeof(v->problem),
			 "the last line is not the one that was written");
}

int audit_verify(const char *dir, struct audit_verdict *ret, struct err *e)
{
	auto_file FILE *f = open_log(dir);
	if (!f)
		return err_sys(e, errno, "can't read the audit log");
	struct audit_verdict v = {0};
	struct chain last = {0};
	memcpy(last.hash, zero_hash, HASH_HEX);

	auto_free char *line = NULL;
	size_t cap = 0;
	int r = 0;
	for (ssize_t n; r == 0 && (n = getline(&line, &cap, f)) > 0;)
		r = check_line(&v, &last, line, (size_t)n);
	if (r == 0)
		check_head(dir, &v, &last);
	memcpy(v.head, last.hash, HASH_HEX);
	*ret = v;
	return 0;
}

/* ids: an object whose keys are the sandboxes that ref names. */
static bool line_matches(const char *line, size_t n, const char *ref, json_t *ids)
{
	auto_json json_t *j = doc_parse_json(line, n, NULL);
	const char *id = NULL, *kind = NULL, *name = NULL;
	if (!j || doc_opt_string(j, "sandbox", &id, NULL) < 0 || !id)
		return false;
	/* Other kinds have a name that the guest chose: one that it asked DNS for. */
	if (doc_opt_string(j, "kind", &kind, NULL) == 0 && str_eq(kind, "sandbox.create") &&
	    doc_opt_string(j, "name", &name, NULL) == 0 && str_eq(name, ref))
		json_object_set_new(ids, id, json_true());
	return str_eq(id, ref) || json_object_get(ids, id);
}

int audit_each(const char *dir, const char *ref,
	       int (*each)(void *user, const char *line, size_t len), void *user, struct err *e)
{
	auto_file FILE *f = open_log(dir);
	if (!f)
		return err_sys(e, errno, "can't read the audit log");
	auto_json json_t *ids = json_object();
	auto_free char *line = NULL;
	size_t cap = 0;
	int r = 0;
	for (ssize_t n; r >= 0 && (n = getline(&line, &cap, f)) > 0;)
		if (!ref || line_matches(line, (size_t)n, ref, ids))
			r = each(user, line, (size_t)n);
	return r < 0 ? r : 0;
}
