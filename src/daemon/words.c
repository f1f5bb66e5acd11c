/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/words.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"

#define LINE_BYTES   300 /* of one line that are shown */
#define READ_SIZE    4096
#define READS_A_WAKE 4

struct words {
	uv_poll_t poll;
	int fd;
	unsigned lines;
	size_t len;
	char line[LINE_BYTES + 1];
	char name[64];
};

static void end_line(struct words *w)
{
	if (!w->len)
		return;
	w->line[w->len] = '\0';
	w->len = 0;
	if (w->lines > WORDS_LINES_MAX)
		return;
	if (w->lines++ < WORDS_LINES_MAX)
		log_warn("%s: %s", w->name, w->line);
	else
		log_warn("%s: says too much, the rest is dropped", w->name);
}

static void take(struct words *w, const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i] == '\n')
			end_line(w);
		else if (w->len < LINE_BYTES)
			w->line[w->len++] = p[i] >= ' ' && p[i] < 0x7f ? p[i] : '?';
	}
}

/* Returns whether there may be more. */
static bool read_some(struct words *w)
{
	char data[READ_SIZE];
	for (unsigned i = 0; i < READS_A_WAKE; i++) {
		ssize_t n = read(w->fd, data, sizeof(data));
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return true;
		if (n <= 0)
			return false;
		take(w, data, (size_t)n);
	}
	return true;
}

static void on_readable(uv_poll_t *p, int status, int events)
{
	struct words *w = p->data;
	(void)events;
	if (status < 0 || !read_some(w))
		uv_poll_stop(&w->poll);
}

static void on_closed(uv_handle_t *h)
{
	struct words *w = h->data;
	close(w->fd);
	free(w);
}

struct words *words_open(uv_loop_t *loop, const char *name, int *ret_fd, struct err *e)
{
	auto_free struct words *w = calloc(1, sizeof(*w));
	int ends[2];
	if (!w) {
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	if (pipe2(ends, O_CLOEXEC) < 0) {
		err_sys(e, errno, "can't make a pipe");
		return NULL;
	}
	auto_fd int ours = ends[0], theirs = ends[1];
	int r = fcntl(ours, F_SETFL, O_NONBLOCK) < 0 ? -errno : uv_poll_init(loop, &w->poll, ours);
	if (r < 0) {
		err_sys(e, -r, "can't read a pipe");
		return NULL;
	}
	w->fd = take_fd(ours);
	w->poll.data = w;
	snprintf(w->name, sizeof(w->name), "%s", name);
	uv_poll_start(&w->poll, UV_READABLE, on_readable);
	*ret_fd = take_fd(theirs);
	return take_ptr(w);
}

void words_close(struct words *w)
{
	if (!w)
		return;
	read_some(w);
	end_line(w);
	uv_close((uv_handle_t *)&w->poll, on_closed);
}
