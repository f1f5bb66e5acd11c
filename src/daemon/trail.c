/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/doc.h"
#include "base/str.h"

#define PIECE     (256u << 10)         /* bytes of the log that are read at once */
#define PIECE_MAX ((1u << 20) + PIECE) /* the same where a record is longer */
#define IDS_MAX   1024                 /* sandboxes of one name */

struct trail {
	uv_work_t work;
	struct node *node;
	char *ref;
	json_t *ids; /* object: the sandboxes that ref names, as far as was read */
	int fd;
	off_t at;
	char *piece; /* PIECE_MAX bytes */
	bool working, at_end, found;
	int code;
	struct err why;
	const struct trail_ops *ops;
	void *user;
	void (*gone)(void *user); /* closed: called when no worker has it */
};

static void trail_free(struct trail *t)
{
	if (t->fd >= 0)
		close(t->fd);
	json_decref(t->ids);
	free(t->piece);
	free(t->ref);
	free(t);
}

struct trail *trail_open(struct node *n, const char *ref, const struct trail_ops *ops, void *user,
			 struct err *e)
{
	auto_free char *path = str_printf("%s/audit.jsonl", n->paths.audit);
	struct trail *t = path ? calloc(1, sizeof(*t)) : NULL;
	if (!t) {
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	*t = (struct trail){.node = n, .ops = ops, .user = user};
	t->work.data = t;
	t->ref = strdup(ref);
	t->ids = json_object();
	t->piece = malloc(PIECE_MAX);
	t->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (t->ref && t->ids && t->piece && t->fd >= 0)
		return t;
	if (t->fd < 0)
		err_sys(e, errno, "can't read the audit log");
	else
		err_set(e, ENOMEM, "no memory");
	trail_free(t);
	return NULL;
}

/* Whether a record with this sandbox is about one that ref names. Only the record of its making has
   a name that we gave: others may hold one that the guest chose. */
static bool is_ours(struct trail *t, const json_t *record)
{
	const char *id = NULL, *kind = NULL, *name = NULL;
	if (doc_want_string(record, "sandbox", &id, NULL) < 0)
		return false;
	if (doc_want_string(record, "kind", &kind, NULL) == 0 && str_eq(kind, "sandbox.create") &&
	    doc_opt_string(record, "name", &name, NULL) == 0 && str_eq(name, t->ref) &&
	    json_object_size(t->ids) < IDS_MAX)
		json_object_set_new(t->ids, id, json_true());
	return str_eq(id, t->ref) || json_object_get(t->ids, id);
}

/* Most records are other sandboxes': these are told without being parsed. */
static bool may_be_ours(const struct trail *t, const char *line, size_t n)
{
	const char *id;
	json_t *value;
	if (memmem(line, n, t->ref, strlen(t->ref)))
		return true;
	json_object_foreach(t->ids, id, value) if (memmem(line, n, id, strlen(id))) return true;
	return false;
}

static int take_line(struct trail *t, const char *line, size_t n)
{
	if (!may_be_ours(t, line, n))
		return 0;
	auto_json json_t *record = doc_parse_json(line, n, NULL);
	if (!record || !is_ours(t, record))
		return 0;
	t->found = true;
	return t->ops->line(t->user, record, line, n);
}

/* Reads up to size bytes from where it is; n, or -errno. */
static ssize_t read_piece(struct trail *t, size_t size)
{
	size_t n = 0;
	while (n < size) {
		ssize_t got = pread(t->fd, t->piece + n, size - n, t->at + (off_t)n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_sys(&t->why, errno, "can't read the audit log");
		if (got == 0)
			break;
		n += (size_t)got;
	}
	return (ssize_t)n;
}

static void run_piece(uv_work_t *work)
{
	struct trail *t = work->data;
	size_t size = PIECE;
	ssize_t n = read_piece(t, size);
	if (n == (ssize_t)size && !memrchr(t->piece, '\n', size)) {
		size = PIECE_MAX;
		n = read_piece(t, size);
	}
	t->code = n < 0 ? (int)n : 0;
	t->at_end = n < (ssize_t)size;
	const char *p = t->piece, *end = p + (n > 0 ? n : 0), *nl;
	/* What stands behind the last newline is being written. */
	while (t->code == 0 && (nl = memchr(p, '\n', (size_t)(end - p)))) {
		t->code = take_line(t, p, (size_t)(nl - p));
		if (t->code < 0)
			err_sys(&t->why, -t->code, "a record that can't be taken");
		p = nl + 1;
	}
	if (t->code == 0 && p == t->piece && !t->at_end)
		t->code = err_set(&t->why, EBADMSG, "the audit log has a line without an end");
	t->at += p - t->piece;
}

static void on_piece(uv_work_t *work, int status)
{
	struct trail *t = work->data;
	(void)status; /* never cancelled */
	t->working = false;
	if (t->gone) {
		t->gone(t->user);
		trail_free(t);
	} else if (t->code < 0) {
		t->ops->failed(t->user, &t->why);
	} else {
		t->ops->read(t->user, t->at_end, t->found);
	}
}

void trail_next(struct trail *t)
{
	t->working = true;
	uv_queue_work(t->node->loop, &t->work, run_piece, on_piece);
}

void trail_close(struct trail *t, void (*gone)(void *user))
{
	if (t->working) {
		t->gone = gone;
		return;
	}
	gone(t->user);
	trail_free(t);
}
