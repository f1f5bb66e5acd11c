/* SPDX-License-Identifier: Apache-2.0 */
/* Uploads: read a piece, send it, wait while the connection is full. The body is chunked, since a
 * file may change under us. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/copy.h"
#include "cli/watch.h"

#define PIECE      (64 * 1024) /* bytes read at once */
#define PROBE_MS   30000       /* until the head of the answer about a target */
#define ANSWER_MAX (64 * 1024) /* bytes of an error's text */

struct upload {
	struct http_client *client;
	struct watch watch;
	int fd;
	unsigned status;
	struct buf answer;
	bool sent, over;
	struct err why;
};

char *copy_target(const struct copy_spec *spec, const char *guest_path)
{
	auto_free char *path = http_percent_encode(guest_path, true);
	auto_free char *user = spec->user ? http_percent_encode(spec->user, false) : NULL;
	if (!path || (spec->user && !user))
		return NULL;
	return str_printf("/files?path=%s%s%s", path, user ? "&username=" : "", user ? user : "");
}

const char *copy_basename(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static void upload_over(struct upload *u, const struct err *why)
{
	if (u->over)
		return;
	u->over = true;
	if (why)
		u->why = *why;
	if (u->client)
		http_client_close(take_ptr(u->client));
}

static void send_more(void *user)
{
	struct upload *u = user;
	struct err e = {0};
	uint8_t piece[PIECE];
	while (!u->over && !u->sent) {
		ssize_t n = read(u->fd, piece, sizeof(piece));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			err_sys(&e, errno, "cannot read the source");
			upload_over(u, &e);
			return;
		}
		u->sent = n == 0;
		ssize_t queued = u->sent ? http_client_finish(u->client)
					 : http_client_write(u->client, piece, (size_t)n);
		if (queued < 0) {
			err_sys(&e, (int)-queued, "upload");
			upload_over(u, &e);
			return;
		}
		if (queued >= STREAM_QUEUE_HIGH)
			return; /* on_drained goes on */
		if (!watch_is_direct(&u->watch)) {
			int r = u->sent ? 0 : watch_once(&u->watch);
			if (r < 0) {
				err_sys(&e, -r, "cannot wait for the source");
				upload_over(u, &e);
			}
			return;
		}
	}
}

static void on_drained(void *user)
{
	struct upload *u = user;
	if (u->over || u->sent)
		return;
	if (watch_is_direct(&u->watch))
		send_more(u);
	else if (watch_once(&u->watch) < 0)
		upload_over(u, &(struct err){EIO, "cannot wait for the source"});
}

static void on_head(void *user, const struct http_head *head)
{
	((struct upload *)user)->status = head->status;
}

static void on_body(void *user, const uint8_t *p, size_t n)
{
	struct upload *u = user;
	if (u->answer.len + n <= u->answer.max)
		(void)buf_append(&u->answer, p, n);
}

static void on_end(void *user)
{
	struct upload *u = user;
	struct err e = {0};
	if (u->status < 400) {
		upload_over(u, NULL);
		return;
	}
	api_error(u->status, (const char *)u->answer.data, u->answer.len, &e);
	upload_over(u, &e);
}

static void on_failed(void *user, const struct err *why)
{
	struct upload *u = user;
	u->client = NULL;
	struct err e = *why;
	err_prefix(&e, "upload");
	upload_over(u, &e);
}

static const struct http_call_ops upload_ops = {
	.head = on_head,
	.body = on_body,
	.end = on_end,
	.drained = on_drained,
	.failed = on_failed,
};

/* What the agent says to a look at a path; only the head and an error's text are read. */
static int probe(struct cli *cli, const struct copy_spec *spec, const char *path, struct upload *u,
		 struct err *e)
{
	auto_free char *target = copy_target(spec, path);
	struct http_head head;
	if (!target || api_request(&head, "GET", target, NULL, 0) < 0)
		return err_set(e, ENOMEM, "out of memory");
	int r = api_open_running(cli, NULL, NULL, &u->client, e);
	if (r == 0 && api_to_agent(&head, spec->sandbox_id) < 0)
		r = err_set(e, ENOMEM, "out of memory");
	if (r == 0 && http_client_call(u->client, &head, PROBE_MS, &upload_ops, u) < 0)
		r = err_set(e, EIO, "call to spaced");
	http_head_done(&head);
	while (r == 0 && !u->over && (u->status == 0 || u->status >= 400) &&
	       uv_run(&cli->loop, UV_RUN_ONCE))
		;
	upload_over(u, NULL);
	return r;
}

/* The path to write: inside, when guest_path is a directory there. Heap in *ret. */
static int resolve(struct cli *cli, const struct copy_spec *spec, char **ret, struct err *e)
{
	const char *base = copy_basename(spec->path);
	bool named = *base && !str_eq(spec->path, "-");
	struct upload u = {.sent = true};
	buf_init(&u.answer, ANSWER_MAX);
	int r = str_ends(spec->guest_path, "/") ? 0 : probe(cli, spec, spec->guest_path, &u, e);
	bool directory = str_ends(spec->guest_path, "/") ||
			 (u.status == 400 && strstr(u.why.text, "is a directory"));
	buf_done(&u.answer);
	if (r < 0)
		return r;
	if (directory && !named)
		return err_set(e, EISDIR, "%.200s is a directory there: name the file too",
			       spec->guest_path);
	*ret = directory ? str_printf("%s%s%s", spec->guest_path,
				      str_ends(spec->guest_path, "/") ? "" : "/", base)
			 : strdup(spec->guest_path);
	return *ret ? 0 : err_set(e, ENOMEM, "out of memory");
}

static int open_source(const char *path, struct stat *st, struct err *e)
{
	int fd = str_eq(path, "-") ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
				   : open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, errno, "%.200s", path);
	if (fstat(fd, st) < 0 || S_ISDIR(st->st_mode)) {
		close(fd);
		return err_set(e, EISDIR,
			       "%.200s is a directory: space cp copies files; use "
			       "tar -C %.200s -c . | space exec -i SANDBOX tar -C DIR -x",
			       path, path);
	}
	return fd;
}

static int begin(struct cli *cli, const struct copy_spec *spec, const char *target,
		 const struct stat *st, struct upload *u, struct err *e)
{
	struct http_head head;
	if (api_request(&head, "POST", target, "application/octet-stream", 0) < 0)
		return err_set(e, ENOMEM, "out of memory");
	head.framing = HTTP_CHUNKED;
	int r = api_to_agent(&head, spec->sandbox_id);
	if (r == 0 && S_ISREG(st->st_mode))
		r = http_fields_addf(&head.fields, "X-Space-Mode", "%04o", st->st_mode & 0777);
	if (r < 0)
		err_sys(e, -r, "cannot make the request");
	else if ((r = api_open_running(cli, NULL, NULL, &u->client, e)) == 0 &&
		 (r = http_client_call(u->client, &head, 0, &upload_ops, u)) < 0)
		err_sys(e, -r, "call to spaced");
	http_head_done(&head);
	return r;
}

static int upload(struct cli *cli, const struct copy_spec *spec, const char *target, int fd,
		  const struct stat *st, struct err *e)
{
	struct upload u = {.fd = fd};
	buf_init(&u.answer, ANSWER_MAX);
	int r = watch_init(&u.watch, &cli->loop, fd, EPOLLIN, send_more, &u);
	if (r < 0)
		return err_sys(e, -r, "%.200s", spec->path);
	r = begin(cli, spec, target, st, &u, e);
	if (r == 0) {
		send_more(&u);
		while (!u.over && uv_run(&cli->loop, UV_RUN_ONCE))
			;
	}
	upload_over(&u, NULL);
	watch_done(&u.watch);
	uv_run(&cli->loop, UV_RUN_NOWAIT);
	buf_done(&u.answer);
	if (r < 0)
		return r;
	*e = u.why;
	return -e->code;
}

int copy_in(struct cli *cli, const struct copy_spec *spec, struct err *e)
{
	struct stat st;
	auto_fd int fd = open_source(spec->path, &st, e);
	if (fd < 0)
		return fd;
	auto_free char *path = NULL;
	int r = resolve(cli, spec, &path, e);
	if (r < 0)
		return r;
	auto_free char *target = copy_target(spec, path);
	return target ? upload(cli, spec, target, fd, &st, e) : err_set(e, ENOMEM, "out of memory");
}
