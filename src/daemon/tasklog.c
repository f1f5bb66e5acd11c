/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tasklog.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/event_stream.h"
#include "http/envelope.h"

#define READ_SIZE (64 * 1024) /* bytes a turn */

struct tasklog {
	char *path, *old_path;
	int fd;
	size_t size;
	unsigned generation; /* grows when a new file starts */
	bool finished, broken;
	struct list readers;
};

struct reader {
	struct list link;
	struct tasklog *log;
	struct http_exchange *x;
	int fd;
	unsigned generation; /* of the file that fd is */
	bool follow, stalled;
};

static int open_log(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd;
}

struct tasklog *tasklog_open(const char *dir, struct err *e)
{
	struct tasklog *l = calloc(1, sizeof(*l));
	if (!l) {
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	list_init(&l->readers);
	l->generation = 1;
	l->path = str_printf("%s/task.log", dir);
	l->old_path = str_printf("%s/task.log.1", dir);
	l->fd = l->path && l->old_path ? open_log(l->path, O_WRONLY | O_APPEND | O_CREAT) : -ENOMEM;
	if (l->fd >= 0) {
		off_t end = lseek(l->fd, 0, SEEK_END);
		l->size = end > 0 ? (size_t)end : 0;
		return l;
	}
	err_sys(e, -l->fd, "can't write %s/task.log", dir);
	tasklog_close(l);
	return NULL;
}

bool tasklog_is_empty(const struct tasklog *l)
{
	return l->generation == 1 && l->size == 0;
}

static void reader_free(struct reader *r)
{
	list_remove(&r->link);
	if (r->fd >= 0)
		close(r->fd);
	free(r);
}

static void reader_finish(struct reader *r)
{
	event_stream_end(r->x, NULL, NULL);
	reader_free(r);
}

/* Moves on to the next file when this one was read to its end. False: there is none. */
static bool reader_next_file(struct reader *r)
{
	if (r->generation == r->log->generation)
		return false;
	if (r->fd >= 0)
		close(r->fd);
	/* A reader that fell behind by more than a whole file has a gap. */
	r->generation = r->log->generation;
	r->fd = open_log(r->log->path, O_RDONLY);
	return r->fd >= 0;
}

static void reader_pump(struct reader *r)
{
	char data[READ_SIZE];
	for (;;) {
		ssize_t n = r->fd < 0 ? 0 : fd_read_all(r->fd, data, sizeof(data));
		if (n > 0) {
			ssize_t queued = http_exchange_write(r->x, data, (size_t)n);
			r->stalled = queued > STREAM_QUEUE_HIGH;
			if (queued < 0 || r->stalled)
				return;
		} else if (!reader_next_file(r)) {
			break;
		}
	}
	if (!r->follow || r->log->finished)
		reader_finish(r);
}

static void reader_drained(void *user)
{
	struct reader *r = user;
	if (r->stalled) {
		r->stalled = false;
		reader_pump(r);
	}
}

static void reader_gone(void *user)
{
	reader_free(user);
}

static const struct http_exchange_ops reader_ops = {.drained = reader_drained, .gone = reader_gone};

void tasklog_serve(struct tasklog *l, struct http_exchange *x, bool follow)
{
	struct reader *r = calloc(1, sizeof(*r));
	if (!r || event_stream_open(x) < 0) {
		free(r);
		http_exchange_reply_error(x, 500, "no memory");
		return;
	}
	*r = (struct reader){.log = l, .x = x, .follow = follow};
	list_append(&l->readers, &r->link);
	r->fd = open_log(l->old_path, O_RDONLY);
	http_exchange_on(x, &reader_ops, r);
	reader_pump(r);
}

static void wake_readers(struct tasklog *l)
{
	list_for_each (it, &l->readers) {
		struct reader *r = list_entry(it, struct reader, link);
		if (!r->stalled)
			reader_pump(r);
	}
}

static int start_new_file(struct tasklog *l)
{
	if (rename(l->path, l->old_path) < 0)
		return -errno;
	int fd = open_log(l->path, O_WRONLY | O_APPEND | O_CREAT);
	if (fd < 0)
		return fd;
	close(l->fd);
	l->fd = fd;
	l->size = 0;
	l->generation++;
	return 0;
}

void tasklog_append(struct tasklog *l, const void *payload, size_t n)
{
	if (l->broken)
		return;
	struct buf b;
	buf_init(&b, TASKLOG_MAX);
	int r = l->size > 0 && l->size + n + ENVELOPE_HEAD > TASKLOG_MAX ? start_new_file(l) : 0;
	if (r == 0)
		r = envelope_write(&b, ENVELOPE_MESSAGE, payload, n);
	if (r == 0)
		r = fd_write_all(l->fd, b.data, b.len);
	if (r < 0) {
		/* Half an envelope would garble all that follow it. */
		if (ftruncate(l->fd, (off_t)l->size) < 0)
			log_warn("%s is damaged", l->path);
		l->broken = true;
		log_warn("%s ends here: %s", l->path, strerror(-r));
	} else {
		l->size += b.len;
	}
	buf_done(&b);
	wake_readers(l);
}

void tasklog_finish(struct tasklog *l)
{
	l->finished = true;
	wake_readers(l);
}

void tasklog_close(struct tasklog *l)
{
	if (!l)
		return;
	list_for_each (it, &l->readers) {
		struct reader *r = list_entry(it, struct reader, link);
		http_exchange_abort(r->x);
		reader_free(r);
	}
	if (l->fd >= 0)
		close(l->fd);
	free(l->path);
	free(l->old_path);
	free(l);
}
