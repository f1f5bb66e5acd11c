/* SPDX-License-Identifier: Apache-2.0 */
/* Downloads: to a temporary file that is renamed, or straight to standard output, a pipe or a
 * device. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "cli/copy.h"
#include "cli/sink.h"

#define ANSWER_MAX (64 * 1024) /* bytes of an error's text */

static const int breaking[] = {SIGINT, SIGTERM, SIGHUP};
#define BREAKING (sizeof(breaking) / sizeof(breaking[0]))

struct download {
	struct http_client *client;
	struct sink sink;
	uv_signal_t signals[BREAKING];
	unsigned status;
	mode_t mode; /* that the file has there; 0: not told */
	struct buf answer;
	bool waiting; /* for the sink */
	bool ended;   /* the response is whole */
	bool over;
	int signal;
	struct err why;
};

/* Where it goes. */
struct target {
	char *path; /* NULL: standard output or a device */
	char *temporary;
	int fd;
};

static void download_over(struct download *d, const struct err *why)
{
	if (d->over)
		return;
	d->over = true;
	if (why)
		d->why = *why;
	if (d->client)
		http_client_close(take_ptr(d->client));
}

static void write_failed(struct download *d, int r)
{
	struct err e = {0};
	err_sys(&e, -r, "cannot write the target");
	d->signal = r == -EPIPE ? SIGPIPE : 0;
	download_over(d, &e);
}

static void on_drained(void *user, int r)
{
	struct download *d = user;
	d->waiting = false;
	if (r < 0)
		write_failed(d, r);
	else if (d->ended)
		download_over(d, NULL);
	else if (d->client)
		http_client_read(d->client, true);
}

static void on_head(void *user, const struct http_head *head)
{
	struct download *d = user;
	d->status = head->status;
	const char *mode = http_fields_get(&head->fields, "X-Space-Mode");
	char *end = NULL;
	unsigned long value = mode && strlen(mode) <= 6 ? strtoul(mode, &end, 8) : 0;
	if (end && !*end)
		d->mode = (mode_t)(value & 0777);
}

static void on_body(void *user, const uint8_t *p, size_t n)
{
	struct download *d = user;
	if (d->status != 200) {
		if (d->answer.len + n <= d->answer.max)
			(void)buf_append(&d->answer, p, n);
		return;
	}
	uint8_t *copy = malloc(n);
	if (!copy) {
		write_failed(d, -ENOMEM);
		return;
	}
	memcpy(copy, p, n);
	int r = sink_put(&d->sink, copy, n);
	if (r < 0)
		write_failed(d, r);
	d->waiting = r == 1;
	if (d->waiting)
		http_client_read(d->client, false);
}

static void on_end(void *user)
{
	struct download *d = user;
	d->ended = true;
	if (d->status == 200) {
		if (!d->waiting)
			download_over(d, NULL);
		return;
	}
	struct err e = {0};
	api_error(d->status, (const char *)d->answer.data, d->answer.len, &e);
	if (strstr(e.text, "is a directory"))
		err_set(&e, EISDIR,
			"it is a directory there: space cp copies files; use "
			"space exec SANDBOX tar -C DIR -c . | tar -x");
	download_over(d, &e);
}

static void on_failed(void *user, const struct err *why)
{
	struct download *d = user;
	d->client = NULL;
	struct err e = *why;
	err_prefix(&e, "download");
	download_over(d, &e);
}

static const struct http_call_ops download_ops = {
	.head = on_head,
	.body = on_body,
	.end = on_end,
	.failed = on_failed,
};

static void on_signal(uv_signal_t *handle, int number)
{
	struct download *d = handle->data;
	d->signal = number;
	download_over(d, &(struct err){EINTR, "interrupted"});
}

/* A pipe or a device is written as it is; all else becomes a new file, inside when path is a
 * directory. */
static int target_open(struct target *t, const struct copy_spec *spec, struct err *e)
{
	struct stat st;
	if (str_eq(spec->path, "-")) {
		t->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
		return t->fd < 0 ? err_sys(e, errno, "standard output") : 0;
	}
	bool there = stat(spec->path, &st) == 0;
	bool directory = there && S_ISDIR(st.st_mode);
	if (there && !directory && !S_ISREG(st.st_mode)) {
		t->fd = open(spec->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
		return t->fd < 0 ? err_sys(e, errno, "%.200s", spec->path) : 0;
	}
	const char *base = copy_basename(spec->guest_path);
	if (directory && !*base)
		return err_set(e, EISDIR, "%.200s names no file", spec->guest_path);
	auto_free char *resolved = there && !directory ? realpath(spec->path, NULL) : NULL;
	t->path = directory  ? str_printf("%s/%s", spec->path, base)
		  : resolved ? take_ptr(resolved)
			     : strdup(spec->path);
	const char *name = t->path ? copy_basename(t->path) : "";
	t->temporary =
		t->path ? str_printf("%.*s.%s.XXXXXX", (int)(name - t->path), t->path, name) : NULL;
	if (!t->temporary)
		return err_set(e, ENOMEM, "out of memory");
	t->fd = mkostemp(t->temporary, O_CLOEXEC);
	if (t->fd < 0) {
		free(take_ptr(t->temporary));
		return err_sys(e, errno, "cannot write %.200s", t->path);
	}
	return 0;
}

static int target_commit(struct target *t, mode_t mode, struct err *e)
{
	if (!t->temporary)
		return 0;
	mode_t mask = umask(0);
	umask(mask);
	if (fchmod(t->fd, (mode ? mode : 0666) & ~mask) < 0 || rename(t->temporary, t->path) < 0)
		return err_sys(e, errno, "cannot write %.200s", t->path);
	free(take_ptr(t->temporary));
	return 0;
}

static void target_done(struct target *t)
{
	if (t->temporary)
		unlink(t->temporary);
	free(t->temporary);
	free(t->path);
	cleanup_fd(&t->fd);
}

static int begin(struct cli *cli, const struct copy_spec *spec, struct download *d, struct err *e)
{
	auto_free char *target = copy_target(spec, spec->guest_path);
	struct http_head head;
	if (!target || api_request(&head, "GET", target, NULL, 0) < 0)
		return err_set(e, ENOMEM, "out of memory");
	int r = api_to_agent(&head, spec->sandbox_id);
	if (r < 0)
		err_sys(e, -r, "cannot make the request");
	else if ((r = api_open_running(cli, NULL, NULL, &d->client, e)) == 0 &&
		 (r = http_client_call(d->client, &head, API_CALL_MS, &download_ops, d)) < 0)
		err_sys(e, -r, "call to spaced");
	http_head_done(&head);
	return r;
}

static int download(struct cli *cli, const struct copy_spec *spec, int fd, struct download *d,
		    struct err *e)
{
	buf_init(&d->answer, ANSWER_MAX);
	int r = sink_init(&d->sink, &cli->loop, fd, on_drained, d);
	if (r < 0)
		return err_sys(e, -r, "%.200s", spec->path);
	for (size_t i = 0; i < BREAKING; i++) {
		uv_signal_init(&cli->loop, &d->signals[i]);
		d->signals[i].data = d;
		uv_signal_start(&d->signals[i], on_signal, breaking[i]);
	}
	r = begin(cli, spec, d, e);
	while (r == 0 && !d->over)
		uv_run(&cli->loop, UV_RUN_ONCE);
	download_over(d, NULL);
	sink_done(&d->sink);
	for (size_t i = 0; i < BREAKING; i++)
		uv_close((uv_handle_t *)&d->signals[i], NULL);
	uv_run(&cli->loop, UV_RUN_NOWAIT);
	buf_done(&d->answer);
	if (r == 0 && d->why.code) {
		*e = d->why;
		r = -e->code;
	}
	return r;
}

int copy_out(struct cli *cli, const struct copy_spec *spec, struct err *e)
{
	struct target t = {.fd = -1};
	struct download d = {0};
	int r = target_open(&t, spec, e);
	if (r == 0)
		r = download(cli, spec, t.fd, &d, e);
	if (r == 0)
		r = target_commit(&t, d.mode, e);
	target_done(&t);
	return r < 0 && d.signal ? CLI_SIGNAL + d.signal : r;
}
