/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /files: one regular file, opened as the user. Files that tell no size, such as those of
 * procfs, are sent in chunks up to their end.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/file_request.h"
#include "base/cleanup.h"

#define READ_SIZE      (128 * 1024) /* bytes */
#define READS_PER_WAKE 8

struct download {
	struct http_exchange *x;
	int fd;
	bool sized;
	uint64_t left;  /* when sized */
	uv_idle_t next; /* on while the client takes data as fast as we read it */
	uint8_t buffer[READ_SIZE];
};

static void on_idle_closed(uv_handle_t *h)
{
	free(h->data);
}

static void download_free(struct download *d)
{
	close(d->fd);
	uv_close((uv_handle_t *)&d->next, on_idle_closed);
}

static void download_abort(struct download *d)
{
	struct http_exchange *x = d->x;
	download_free(d);
	http_exchange_abort(x);
}

static void download_end(struct download *d)
{
	struct http_exchange *x = d->x;
	download_free(d);
	http_exchange_end(x);
}

/* Sends one piece. Returns the bytes queued now, or -1 when d is over. */
static ssize_t send_piece(struct download *d)
{
	size_t want = READ_SIZE;
	if (d->sized && d->left < want)
		want = (size_t)d->left;
	ssize_t n = want ? read(d->fd, d->buffer, want) : 0;
	if (n == 0 && (!d->sized || !d->left)) {
		download_end(d);
		return -1;
	}
	ssize_t queued = n > 0 ? http_exchange_write(d->x, d->buffer, (size_t)n) : -1;
	if (queued < 0) {
		download_abort(d); /* it can't be read on, or was cut meanwhile */
		return -1;
	}
	d->left -= d->sized ? (uint64_t)n : 0;
	return queued;
}

static void on_idle(uv_idle_t *idle);

static void pump(struct download *d)
{
	uv_idle_stop(&d->next);
	for (int i = 0; i < READS_PER_WAKE; i++) {
		ssize_t queued = send_piece(d);
		if (queued < 0 || queued > STREAM_QUEUE_HIGH)
			return; /* over, or on_drained() goes on */
	}
	uv_idle_start(&d->next, on_idle);
}

static void on_idle(uv_idle_t *idle)
{
	pump(idle->data);
}

static void on_drained(void *user)
{
	pump(user);
}

static void on_gone(void *user)
{
	download_free(user);
}

static const struct http_exchange_ops download_ops = {.drained = on_drained, .gone = on_gone};

static int open_as(const struct user *u, const char *path, struct stat *st)
{
	int r = user_enter(u);
	if (r < 0)
		return r;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	r = fd < 0 || fstat(fd, st) < 0 ? -errno : fd;
	user_leave();
	if (r < 0 && fd >= 0)
		close(fd);
	return r;
}

static int start_answer(struct download *d, const char *path)
{
	struct http_fields fields = {0};
	const char *slash = strrchr(path, '/');
	auto_free char *name = http_percent_encode(slash ? slash + 1 : path, false);
	int r = name ? 0 : -ENOMEM;
	if (r == 0)
		r = http_fields_add(&fields, "Content-Type", "application/octet-stream");
	if (r == 0)
		r = http_fields_addf(&fields, "Content-Disposition", "inline; filename*=utf-8''%s",
				     name);
	if (r == 0)
		r = http_exchange_start(d->x, 200, &fields, d->sized ? HTTP_LENGTH : HTTP_CHUNKED,
					d->left);
	http_fields_done(&fields);
	return r;
}

/* procfs and its like say 0 for files that are not empty. */
static bool size_is_true(int fd, const struct stat *st)
{
	uint8_t byte;
	return st->st_size > 0 || pread(fd, &byte, 1, 0) == 0;
}

static void send_file(uv_loop_t *loop, struct http_exchange *x, int fd, const struct stat *st,
		      const char *path)
{
	struct download *d = malloc(sizeof(*d));
	if (!d) {
		close(fd);
		http_exchange_reply_error(x, 500, "out of memory");
		return;
	}
	d->x = x;
	d->fd = fd;
	uv_idle_init(loop, &d->next);
	d->next.data = d;
	d->sized = size_is_true(fd, st);
	d->left = d->sized ? (uint64_t)st->st_size : 0;
	http_exchange_on(x, &download_ops, d);
	http_exchange_read(x, true);
	if (start_answer(d, path) < 0)
		download_abort(d);
	else
		pump(d);
}

void agent_files_get(struct agent *a, struct http_exchange *x)
{
	struct file_request req;
	struct stat st;
	if (!file_request_read(a, x, &req))
		return;
	const char *path = req.path;
	auto_fd int fd = open_as(&req.user, path, &st);
	if (fd == -ENOENT || fd == -ENOTDIR)
		http_exchange_reply_error(x, 404, "path '%s' does not exist", path);
	else if (fd < 0)
		http_exchange_reply_error(x, file_request_status(-fd), "path '%s': %s", path,
					  strerrordesc_np(-fd));
	else if (S_ISDIR(st.st_mode))
		http_exchange_reply_error(x, 400, "path '%s' is a directory", path);
	else if (!S_ISREG(st.st_mode))
		http_exchange_reply_error(x, 400, "path '%s' is not a regular file", path);
	else
		send_file(a->loop, x, take_fd(fd), &st, path);
	file_request_done(&req);
}
