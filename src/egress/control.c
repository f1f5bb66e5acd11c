/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation: records are numbered and sent in order; an acknowledgement covers all up to
 * its number, so the waiting list, in order too, is served from its front. A full socket makes a
 * queue, which the loop empties. Time is kept lazily: one timer, armed for the oldest waiter,
 * rearmed when it finds younger ones.
 */
#include "egress/control.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/doc.h"
#include "base/fd.h"

#define ACK_MAX 1024 /* bytes of a message after the configuration */

struct queued {
	struct list link;
	size_t len;
	char text[];
};

struct control {
	const struct control_ops *ops;
	void *user;
	uv_loop_t *loop;
	uv_poll_t poll;
	uv_timer_t timer;
	int fd;
	bool configured, ended;
	uint64_t seq;        /* of the last record */
	uint64_t acked;      /* of the last record that is written */
	struct list waiting; /* struct control_wait, oldest first */
	struct list queue;   /* struct queued, oldest first */
	struct buf text;     /* the record being made */
	struct record record;
};

static void control_end(struct control *c, const struct err *why)
{
	if (c->ended)
		return;
	c->ended = true;
	uv_poll_stop(&c->poll);
	c->ops->ended(c->user, why);
}

static void control_waited(struct control_wait *w, bool written)
{
	control_cancel(w);
	w->done(w, written);
}

static void control_timeout(uv_timer_t *timer)
{
	struct control *c = timer->data;
	uint64_t now = uv_now(c->loop);
	while (!list_empty(&c->waiting)) {
		struct control_wait *w = list_entry(c->waiting.next, struct control_wait, link);
		if (now - w->since_ms < CONTROL_ACK_MS) {
			uv_timer_start(timer, control_timeout, CONTROL_ACK_MS - (now - w->since_ms),
				       0);
			return;
		}
		control_waited(w, false);
	}
}

static int control_ack(struct control *c, const json_t *message, struct err *e)
{
	const char *type;
	uint64_t seq;
	int r = doc_want_string(message, "type", &type, e);
	if (r < 0)
		return r;
	if (strcmp(type, "ack") != 0)
		return err_set(e, EPROTO, "message of type '%.32s'", type);
	if ((r = doc_want_uint(message, "seq", c->acked, c->seq, &seq, e)) < 0)
		return r;
	c->acked = seq;
	while (!list_empty(&c->waiting)) {
		struct control_wait *w = list_entry(c->waiting.next, struct control_wait, link);
		if (w->seq > seq)
			break;
		control_waited(w, true);
	}
	return 0;
}

/* Memory for the configuration, which holds secrets: not dumped, not swapped where that can be had.
 */
static void *config_memory(void)
{
	void *p = mmap(NULL, CONTROL_MESSAGE_MAX, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	madvise(p, CONTROL_MESSAGE_MAX, MADV_DONTDUMP);
	(void)mlock2(p, CONTROL_MESSAGE_MAX, MLOCK_ONFAULT);
	return p;
}

static int control_config(struct control *c, const char *text, size_t n, int fds[CONTROL_FDS],
			  struct err *e)
{
	const char *type;
	auto_json json_t *message = doc_parse_json(text, n, e);
	if (!message)
		return err_prefix(e, "configuration");
	int r = doc_want_string(message, "type", &type, e);
	if (r < 0)
		return r;
	if (strcmp(type, "config") != 0)
		return err_set(e, EPROTO, "first message of type '%.32s'", type);
	c->configured = true;
	c->ops->config(c->user, message, fds);
	return 0;
}

/* Reads the first message. 1, 0 at the end, -errno. */
static int control_read_config(struct control *c, struct err *e)
{
	int fds[CONTROL_FDS];
	size_t nfds = CONTROL_FDS;
	char *memory = config_memory();
	if (!memory)
		return err_set(e, ENOMEM, "no memory");
	ssize_t n = fd_recv(c->fd, memory, CONTROL_MESSAGE_MAX, fds, &nfds);
	int r = n < 0 ? (int)n : n > 0;
	if (n < 0 && n != -EAGAIN)
		err_sys(e, (int)-n, "configuration");
	if (n > 0 && nfds != CONTROL_FDS) {
		for (size_t i = 0; i < nfds; i++)
			close(fds[i]);
		r = err_set(e, EPROTO, "configuration with %zu descriptors", nfds);
	} else if (n > 0) {
		int failed = control_config(c, memory, (size_t)n, fds, e);
		r = failed < 0 ? failed : 1;
	}
	explicit_bzero(memory, n > 0 ? (size_t)n : 0);
	munmap(memory, CONTROL_MESSAGE_MAX);
	return r;
}

/* Reads one acknowledgement. 1, 0 at the end, -errno. */
static int control_read_ack(struct control *c, struct err *e)
{
	char text[ACK_MAX];
	size_t nfds = 0;
	ssize_t n = fd_recv(c->fd, text, sizeof(text), NULL, &nfds);
	if (n < 0 && n != -EAGAIN)
		err_sys(e, (int)-n, "acknowledgement");
	if (n <= 0)
		return (int)n;
	auto_json json_t *message = doc_parse_json(text, (size_t)n, e);
	if (!message)
		return -EPROTO;
	int r = control_ack(c, message, e);
	return r < 0 ? r : 1;
}

static void control_flush(struct control *c)
{
	while (!list_empty(&c->queue)) {
		struct queued *q = list_entry(c->queue.next, struct queued, link);
		int r = fd_send(c->fd, q->text, q->len, NULL, 0);
		if (r == -EAGAIN)
			return;
		if (r < 0) {
			struct err why;
			err_sys(&why, -r, "sending to spaced");
			control_end(c, &why);
			return;
		}
		list_remove(&q->link);
		free(q);
	}
}

static void control_event(uv_poll_t *poll, int status, int events);

static void control_listen(struct control *c)
{
	int events = UV_READABLE | (list_empty(&c->queue) ? 0 : UV_WRITABLE);
	uv_poll_start(&c->poll, events, control_event);
}

static void control_event(uv_poll_t *poll, int status, int events)
{
	struct control *c = poll->data;
	struct err why = {.code = ECONNRESET, .text = "spaced closed the control socket"};
	if (status < 0) {
		control_end(c, &why);
		return;
	}
	if (events & UV_WRITABLE) {
		control_flush(c);
		if (!c->ended)
			control_listen(c);
	}
	if (c->ended || !(events & UV_READABLE))
		return;
	/* One message a wake: acknowledgements cover each other, so few come. */
	bool configured = c->configured;
	int r = configured ? control_read_ack(c, &why) : control_read_config(c, &why);
	if (r == -EAGAIN)
		return;
	if (r < 0 && !configured)
		control_failed(c, why.text);
	if (r <= 0)
		control_end(c, &why);
}

struct control *control_new(uv_loop_t *loop, int fd, const struct control_ops *ops, void *user,
			    struct err *e)
{
	struct control *c = calloc(1, sizeof(*c));
	if (!c) {
		close(fd);
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	*c = (struct control){.ops = ops, .user = user, .loop = loop, .fd = fd};
	list_init(&c->waiting);
	list_init(&c->queue);
	buf_init(&c->text, CONTROL_RECORD_MAX);
	int r = fd_set_cloexec(fd, true);
	if (r == 0)
		r = fd_set_nonblock(fd, true);
	if (r == 0)
		r = uv_poll_init(loop, &c->poll, fd);
	if (r < 0) {
		err_sys(e, -r, "control socket");
		close(fd);
		free(c);
		return NULL;
	}
	c->poll.data = c;
	uv_timer_init(loop, &c->timer);
	c->timer.data = c;
	control_listen(c);
	return c;
}

static void control_poll_closed(uv_handle_t *h)
{
	struct control *c = h->data;
	close(c->fd);
	free(c);
}

static void control_timer_closed(uv_handle_t *h)
{
	struct control *c = h->data;
	uv_close((uv_handle_t *)&c->poll, control_poll_closed);
}

void control_free(struct control *c)
{
	if (!c)
		return;
	c->ended = true;
	list_for_each (it, &c->waiting)
		control_cancel(list_entry(it, struct control_wait, link));
	list_for_each (it, &c->queue)
		free(list_entry(it, struct queued, link));
	buf_done(&c->text);
	uv_close((uv_handle_t *)&c->timer, control_timer_closed);
}

/* Sends text, or queues it behind what waits already. */
static int control_put(struct control *c, const void *text, size_t n)
{
	if (c->ended)
		return -EPIPE;
	if (list_empty(&c->queue)) {
		int r = fd_send(c->fd, text, n, NULL, 0);
		if (r != -EAGAIN)
			return r == -ECONNRESET ? -EPIPE : r;
	}
	struct queued *q = malloc(sizeof(*q) + n);
	if (!q)
		return -ENOMEM;
	q->len = n;
	memcpy(q->text, text, n);
	list_append(&c->queue, &q->link);
	control_listen(c);
	return 0;
}

int control_ready(struct control *c)
{
	static const char text[] = "{\"type\":\"ready\"}";
	return control_put(c, text, sizeof(text) - 1);
}

int control_failed(struct control *c, const char *message)
{
	struct buf text;
	struct record r;
	buf_init(&text, CONTROL_RECORD_MAX);
	record_open(&r, &text);
	record_string(&r, "type", "failed");
	record_string(&r, "message", message);
	int failed = record_close(&r);
	if (!failed)
		failed = control_put(c, text.data, text.len);
	buf_done(&text);
	return failed;
}

struct record *control_record(struct control *c, const char *kind)
{
	buf_consume(&c->text, c->text.len);
	record_open(&c->record, &c->text);
	record_string(&c->record, "type", "audit");
	record_number(&c->record, "seq", c->seq + 1);
	record_object(&c->record, "event");
	record_string(&c->record, "kind", kind);
	return &c->record;
}

int control_send(struct control *c, struct control_wait *w)
{
	record_close(&c->record);
	int r = record_close(&c->record);
	if (r < 0)
		return r;
	if (w && c->seq - c->acked >= CONTROL_UNACKED_MAX)
		return -ENOBUFS;
	r = control_put(c, c->text.data, c->text.len);
	if (r < 0)
		return r;
	c->seq++;
	if (!w)
		return 0;
	assert(!w->active);
	w->active = true;
	w->seq = c->seq;
	w->since_ms = uv_now(c->loop);
	list_append(&c->waiting, &w->link);
	if (!uv_is_active((uv_handle_t *)&c->timer))
		uv_timer_start(&c->timer, control_timeout, CONTROL_ACK_MS, 0);
	return 0;
}

void control_cancel(struct control_wait *w)
{
	if (!w->active)
		return;
	w->active = false;
	list_remove(&w->link);
}
