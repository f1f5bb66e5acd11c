/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation: records are numbered, sent in order, and kept until they are acknowledged;
 * an acknowledgement covers all up to its number, so the waiting list, in order too, is served from
 * its front. What one turn of the loop records is sent at its end, in one message, for sending and
 * waking spaced cost more than the record. A full socket makes a queue, which the loop empties.
 * Time is kept lazily: one timer, armed for the oldest waiter, rearmed when it finds younger ones.
 *
 *   waiting ─ config ─► configured ─ control_ready ─► ready ◄────────────┐
 *      └── line ends ──► ended ◄─────────┘              └─ line ends ─► alone ─ too long ─► ended
 *
 * While alone, records only pile up, up to their limits: who waits for one waits for its deadline,
 * or for the next spaced, who gets all of them that were not acknowledged. The listening socket is
 * looked at as soon as we are ready, so that who calls while somebody is on the line is turned away
 * and not kept waiting.
 */
#include "egress/control.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/doc.h"
#include "base/fd.h"
#include "base/str.h"
#include "egress/door.h"
#include "egress/inbox.h"

#define SANDBOX_MAX 64            /* bytes of a sandbox's id */
#define ANSWERS_MAX 256           /* that spaced has not read */
#define FINISH_MS   500           /* for spaced to read the last records */
#define GATHER_MAX  (32UL * 1024) /* bytes of a message of more than one record */

/* A record that is not acknowledged yet, or an answer (without a number) that is not sent. */
struct kept {
	struct list link;
	uint64_t seq;
	size_t len;
	char text[];
};

/* The connection to the spaced of the moment. */
struct line {
	uv_poll_t poll;
	int events; /* that it is polled for; starting anew costs two system calls */
	int fd;
	struct control *control;
};

enum control_state {
	CONTROL_WAITING,
	CONTROL_CONFIGURED,
	CONTROL_READY,
	CONTROL_ALONE,
	CONTROL_ENDED,
};

struct control {
	const struct control_ops *ops;
	void *user;
	uv_loop_t *loop;
	enum control_state state;
	struct line *line; /* NULL while alone */
	int listen_fd;
	unsigned handles; /* of the four below, still closing */
	uv_poll_t listener;
	uv_prepare_t turn;   /* sends what this turn of the loop has recorded */
	uv_timer_t deadline; /* of the oldest waiter */
	uv_timer_t alone;
	uint64_t alone_ms;
	uint64_t seq;        /* of the last record */
	uint64_t acked;      /* of the last record that is written */
	struct list waiting; /* struct control_wait, oldest first */
	struct list kept;    /* struct kept, acked + 1 .. seq */
	size_t kept_bytes;
	struct kept *next;   /* to be sent; NULL: all are */
	struct buf message;  /* of records */
	struct list answers; /* struct kept: to what spaced asked, sent before the next record */
	size_t answer_count;
	struct inbox inbox;
	struct buf text; /* the record being made */
	struct record record;
	char sandbox[SANDBOX_MAX + 1];
};

static void alone_over(uv_timer_t *timer);

static void control_go(struct control *c, enum control_state state)
{
	assert(c->state != CONTROL_ENDED);
	c->state = state;
	if (state == CONTROL_READY)
		uv_timer_stop(&c->alone);
	if (state == CONTROL_ALONE)
		uv_timer_start(&c->alone, alone_over, c->alone_ms, 0);
}

/* -- the line -- */

static void line_closed(uv_handle_t *h)
{
	struct line *l = h->data;
	close(l->fd);
	free(l);
}

static void control_hang_up(struct control *c)
{
	if (c->line)
		uv_close((uv_handle_t *)&c->line->poll, line_closed);
	c->line = NULL;
}

static void control_end(struct control *c, const struct err *why)
{
	if (c->state == CONTROL_ENDED)
		return;
	control_go(c, CONTROL_ENDED);
	control_hang_up(c);
	c->ops->ended(c->user, why);
}

static void answer_drop(struct control *c, struct kept *k)
{
	list_remove(&k->link);
	c->answer_count--;
	free(k);
}

static void control_forget_answers(struct control *c)
{
	list_for_each (it, &c->answers)
		answer_drop(c, list_entry(it, struct kept, link));
}

/* The connection is gone, and with it what was sent and not acknowledged. */
static void control_lost(struct control *c)
{
	if (c->state != CONTROL_READY) {
		struct err why = {.code = ECONNRESET, .text = "spaced closed the control socket"};
		control_end(c, &why);
		return;
	}
	control_hang_up(c);
	control_forget_answers(c);
	c->next = list_empty(&c->kept) ? NULL : list_entry(c->kept.next, struct kept, link);
	control_go(c, CONTROL_ALONE);
}

static void alone_over(uv_timer_t *timer)
{
	struct err why = {.code = ETIMEDOUT, .text = "spaced did not come back"};
	control_end(timer->data, &why);
}

static void line_event(uv_poll_t *poll, int status, int events);

static void line_poll(struct line *l, int events)
{
	if (events == l->events)
		return;
	l->events = events;
	uv_poll_start(&l->poll, events, line_event);
}

static void line_listen(struct line *l)
{
	bool more = l->control->next || l->control->answer_count;
	line_poll(l, UV_READABLE | (more ? UV_WRITABLE : 0));
}

/* Takes fd over in any case. 0 or -errno. */
static int control_connect(struct control *c, int fd)
{
	struct line *l = calloc(1, sizeof(*l));
	int r = l ? fd_set_cloexec(fd, true) : -ENOMEM;
	if (r == 0)
		r = fd_set_nonblock(fd, true);
	if (r == 0)
		r = uv_poll_init(c->loop, &l->poll, fd);
	if (r < 0) {
		close(fd);
		free(l);
		return r;
	}
	l->poll.data = l;
	l->fd = fd;
	l->control = c;
	c->line = l;
	line_listen(l);
	return 0;
}

static bool is_gone(int r)
{
	return r == -ECONNRESET || r == -EPIPE;
}

/* -- records -- */

static void control_waited(struct control_wait *w, bool written)
{
	control_cancel(w);
	w->done(w, written);
}

static void deadline_over(uv_timer_t *timer)
{
	struct control *c = timer->data;
	uint64_t now = uv_now(c->loop);
	while (!list_empty(&c->waiting)) {
		struct control_wait *w = list_entry(c->waiting.next, struct control_wait, link);
		if (now - w->since_ms < CONTROL_ACK_MS) {
			uv_timer_start(timer, deadline_over, CONTROL_ACK_MS - (now - w->since_ms),
				       0);
			return;
		}
		control_waited(w, false);
	}
}

static void kept_drop(struct control *c, struct kept *k)
{
	list_remove(&k->link);
	c->kept_bytes -= k->len;
	free(k);
}

static int control_ack(struct control *c, const json_t *message, struct err *e)
{
	uint64_t seq, sent = c->next ? c->next->seq - 1 : c->seq;
	int r = doc_want_uint(message, "seq", c->acked, sent, &seq, e);
	if (r < 0)
		return r;
	c->acked = seq;
	while (!list_empty(&c->kept)) {
		struct kept *k = list_entry(c->kept.next, struct kept, link);
		if (k->seq > seq)
			break;
		kept_drop(c, k);
	}
	while (!list_empty(&c->waiting)) {
		struct control_wait *w = list_entry(c->waiting.next, struct control_wait, link);
		if (w->seq > seq)
			break;
		control_waited(w, true);
	}
	return 0;
}

/* Makes a message of the records from c->next on, as many as it holds. *ret_behind: the first that
 * it does not hold, NULL when it has the last. 0 or -ENOMEM. */
static int control_gather(struct control *c, struct kept **ret_behind)
{
	struct buf *m = &c->message;
	struct list *first = &c->next->link, *it = first;
	buf_consume(m, m->len);
	int r = buf_printf(m, "{\"type\":\"audit\",\"seq\":%" PRIu64 ",\"events\":[", c->next->seq);
	for (; r == 0 && it != &c->kept; it = it->next) {
		const struct kept *k = list_entry(it, struct kept, link);
		if (it != first && m->len + k->len > GATHER_MAX)
			break;
		if (it != first)
			r = buf_append(m, ",", 1);
		if (r == 0)
			r = buf_append(m, k->text, k->len);
	}
	*ret_behind = it == &c->kept ? NULL : list_entry(it, struct kept, link);
	return r < 0 ? r : buf_append(m, "]}", 2);
}

/* Sends what this line has not got yet, as far as it goes. 0 or -errno. */
static int control_send_kept(struct control *c)
{
	while (c->answer_count) {
		struct kept *k = list_entry(c->answers.next, struct kept, link);
		int r = fd_send(c->line->fd, k->text, k->len, NULL, 0);
		if (r < 0)
			return r;
		answer_drop(c, k);
	}
	while (c->next) {
		struct kept *behind;
		int r = control_gather(c, &behind);
		if (r == 0)
			r = fd_send(c->line->fd, c->message.data, c->message.len, NULL, 0);
		if (r < 0)
			return r;
		c->next = behind;
	}
	return 0;
}

static void control_flush(struct control *c)
{
	int r = control_send_kept(c);
	uv_prepare_stop(&c->turn);
	if (r == 0 || r == -EAGAIN) {
		line_listen(c->line);
	} else if (is_gone(r)) {
		/* Reading finds the end, behind the last acknowledgements. */
		line_poll(c->line, UV_READABLE);
	} else {
		struct err why;
		err_sys(&why, -r, "sending to spaced");
		control_end(c, &why);
	}
}

static void turn_over(uv_prepare_t *turn)
{
	struct control *c = turn->data;
	uv_prepare_stop(turn);
	if (c->line)
		control_flush(c);
}

/* -- what spaced says -- */

static int control_config(struct control *c, const char *text, size_t n, int fds[CONTROL_FDS],
			  struct err *e)
{
	const char *type, *sandbox;
	auto_json json_t *message = doc_parse_json(text, n, e);
	int r = message ? doc_want_string(message, "type", &type, e) : -EPROTO;
	if (r == 0 && strcmp(type, "config") != 0)
		r = err_set(e, EPROTO, "first message of type '%.32s'", type);
	if (r == 0)
		r = doc_want_string(message, "sandbox", &sandbox, e);
	if (r == 0 && strlen(sandbox) > SANDBOX_MAX)
		r = err_set(e, EINVAL, "sandbox is longer than %d bytes", SANDBOX_MAX);
	if (r < 0) {
		for (size_t i = 0; i < CONTROL_FDS; i++)
			close(fds[i]);
		return r;
	}
	snprintf(c->sandbox, sizeof(c->sandbox), "%s", sandbox);
	control_go(c, CONTROL_CONFIGURED);
	c->ops->config(c->user, message, fds);
	return 0;
}

static int control_take_config(struct control *c, size_t n, int *fds, size_t nfds, struct err *e)
{
	if (nfds == CONTROL_FDS) {
		int r = control_config(c, c->inbox.text, n, fds, e);
		return r < 0 ? err_prefix(e, "configuration") : 0;
	}
	for (size_t i = 0; i < nfds; i++)
		close(fds[i]);
	return err_set(e, EPROTO, "configuration with %zu descriptors", nfds);
}

/* Takes what comes after the configuration. */
static int control_take(struct control *c, size_t n, struct err *e)
{
	const char *type;
	auto_json json_t *message = doc_parse_json(c->inbox.text, n, e);
	int r = message ? doc_want_string(message, "type", &type, e) : -EPROTO;
	if (r < 0)
		return r;
	if (str_eq(type, "ack"))
		return control_ack(c, message, e);
	bool secret = str_eq(type, "secret");
	if (!secret && !str_eq(type, "policy"))
		return err_set(e, EPROTO, "message of type '%.32s'", type);
	if (c->answer_count == ANSWERS_MAX)
		return err_set(e, EPROTO, "%d answers that were not read", ANSWERS_MAX);
	(secret ? c->ops->secret : c->ops->policy)(c->user, message);
	return 0;
}

/* Receives a message and takes it. 1, 0 at the end, -errno. */
static int control_receive(struct control *c, bool first, struct err *e)
{
	int fds[CONTROL_FDS];
	size_t nfds = first ? CONTROL_FDS : 0;
	ssize_t n = inbox_recv(&c->inbox, c->line->fd, fds, &nfds);
	if (n < 0 && n != -EAGAIN)
		err_sys(e, (int)-n, "what spaced says");
	if (n <= 0)
		return (int)n;
	int r = first ? control_take_config(c, (size_t)n, fds, nfds, e)
		      : control_take(c, (size_t)n, e);
	inbox_wipe(&c->inbox, (size_t)n);
	return r < 0 ? r : 1;
}

/* Reads one message. Whether there may be more. */
static bool control_read(struct control *c)
{
	struct err why;
	bool first = c->state == CONTROL_WAITING;
	int r = control_receive(c, first, &why);
	if (r == 0 || is_gone(r)) {
		control_lost(c);
	} else if (r < 0 && r != -EAGAIN) {
		if (first)
			control_failed(c, why.text);
		control_end(c, &why);
	}
	return r > 0 && c->state == CONTROL_READY;
}

static void line_event(uv_poll_t *poll, int status, int events)
{
	struct line *l = poll->data;
	struct control *c = l->control;
	if (status < 0) { /* also when there is something to read before the end */
		while (control_read(c))
			;
		if (c->line == l)
			control_lost(c);
		return;
	}
	if (events & UV_WRITABLE)
		control_flush(c);
	/* One message a wake: acknowledgements cover each other, so few come. */
	if (c->line == l && (events & UV_READABLE))
		control_read(c);
}

/* -- the next spaced -- */

/* Ends the message and sends it, past all that waits. 0 or -errno. */
static int control_say(struct control *c, struct record *r)
{
	int failed = record_close(r);
	if (failed)
		return failed;
	return c->line ? fd_send(c->line->fd, r->out->data, r->out->len, NULL, 0) : -EPIPE;
}

/* Tells a new spaced where we are. 0 or -errno. */
static int control_say_state(struct control *c)
{
	auto_buf struct buf text;
	struct record r;
	buf_init(&text, CONTROL_MESSAGE_MAX);
	record_open(&r, &text);
	record_string(&r, "type", "state");
	record_string(&r, "sandbox", c->sandbox);
	record_number(&r, "seq", c->acked);
	return control_say(c, &r);
}

static void listener_event(uv_poll_t *poll, int status, int events)
{
	struct control *c = poll->data;
	int room = 2 * CONTROL_MESSAGE_MAX;
	(void)events;
	auto_fd int fd = status < 0 ? -1 : door_accept(c->listen_fd);
	if (fd < 0)
		return;
	/* Whoever calls may be first to know that the one on the line has died. */
	while (c->state == CONTROL_READY && control_read(c))
		;
	if (c->state != CONTROL_ALONE)
		return;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	if (control_connect(c, take_fd(fd)) < 0)
		return;
	control_go(c, CONTROL_READY);
	if (control_say_state(c) < 0)
		control_lost(c);
	else
		control_flush(c);
}

/* -- making it -- */

/* The last words. */
static void control_close(struct control *c)
{
	if (c->state == CONTROL_READY)
		control_send_kept(c);
	if (c->state != CONTROL_ENDED)
		control_go(c, CONTROL_ENDED);
	control_hang_up(c);
}

static void handle_closed(uv_handle_t *h)
{
	struct control *c = h->data;
	if (--c->handles)
		return;
	close(c->listen_fd);
	free(c);
}

static int control_open(struct control *c, int fd, struct err *e)
{
	if (!door_listens(c->listen_fd)) {
		close(fd);
		return err_set(e, EINVAL, "socket for the next spaced: it does not listen");
	}
	int r = fd_set_cloexec(c->listen_fd, true);
	if (r == 0)
		r = control_connect(c, fd);
	else
		close(fd);
	if (r == 0)
		r = uv_poll_init(c->loop, &c->listener, c->listen_fd);
	return r < 0 ? err_sys(e, -r, "control sockets") : 0;
}

struct control *control_new(uv_loop_t *loop, int fd, int listen_fd, uint64_t alone_ms,
			    const struct control_ops *ops, void *user, struct err *e)
{
	struct control *c = calloc(1, sizeof(*c));
	if (!c) {
		close(fd);
		close(listen_fd);
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	*c = (struct control){.ops = ops,
			      .user = user,
			      .loop = loop,
			      .listen_fd = listen_fd,
			      .alone_ms = alone_ms};
	list_init(&c->waiting);
	list_init(&c->kept);
	list_init(&c->answers);
	buf_init(&c->text, CONTROL_RECORD_MAX);
	buf_init(&c->message, CONTROL_MESSAGE_MAX);
	if (control_open(c, fd, e) < 0) {
		control_hang_up(c);
		close(listen_fd);
		free(c);
		return NULL;
	}
	uv_prepare_init(loop, &c->turn);
	uv_timer_init(loop, &c->deadline);
	uv_timer_init(loop, &c->alone);
	c->listener.data = c->turn.data = c->deadline.data = c->alone.data = c;
	c->handles = 4;
	return c;
}

void control_finish(struct control *c)
{
	uint64_t due_ms = clock_mono_ms() + FINISH_MS;
	while (c && c->line && c->state == CONTROL_READY) {
		uint64_t now_ms = clock_mono_ms();
		struct pollfd p = {.fd = c->line->fd, .events = POLLOUT};
		if (control_send_kept(c) != -EAGAIN || now_ms >= due_ms)
			return;
		poll(&p, 1, (int)(due_ms - now_ms));
	}
}

void control_free(struct control *c)
{
	if (!c)
		return;
	control_close(c);
	list_for_each (it, &c->waiting)
		control_cancel(list_entry(it, struct control_wait, link));
	list_for_each (it, &c->kept)
		kept_drop(c, list_entry(it, struct kept, link));
	control_forget_answers(c);
	buf_done(&c->text);
	buf_done(&c->message);
	inbox_done(&c->inbox);
	uv_close((uv_handle_t *)&c->listener, handle_closed);
	uv_close((uv_handle_t *)&c->turn, handle_closed);
	uv_close((uv_handle_t *)&c->deadline, handle_closed);
	uv_close((uv_handle_t *)&c->alone, handle_closed);
}

/* -- what we say -- */

int control_ready(struct control *c)
{
	static const char text[] = "{\"type\":\"ready\"}";
	assert(c->state == CONTROL_CONFIGURED);
	int r = fd_send(c->line->fd, text, sizeof(text) - 1, NULL, 0);
	if (r == 0)
		r = uv_poll_start(&c->listener, UV_READABLE, listener_event);
	if (r == 0)
		control_go(c, CONTROL_READY);
	return r;
}

int control_failed(struct control *c, const char *message)
{
	auto_buf struct buf text;
	struct record r;
	buf_init(&text, CONTROL_MESSAGE_MAX);
	record_open(&r, &text);
	record_string(&r, "type", "failed");
	record_string(&r, "message", message);
	return control_say(c, &r);
}

/* A copy of a text, which the caller puts in a list. NULL: no memory. */
static struct kept *kept_new(const struct buf *text)
{
	struct kept *k = malloc(sizeof(*k) + text->len);
	if (!k)
		return NULL;
	k->seq = 0;
	k->len = text->len;
	memcpy(k->text, text->data, k->len);
	return k;
}

int control_answer(struct control *c, const char *type, const char *message)
{
	auto_buf struct buf text;
	struct record r;
	if (c->line)
		control_flush(c); /* what was recorded before is said before */
	if (!c->line)
		return 0;
	buf_init(&text, CONTROL_MESSAGE_MAX);
	record_open(&r, &text);
	record_string(&r, "type", type);
	record_bool(&r, "ok", !message);
	if (message)
		record_string(&r, "message", message);
	int failed = record_close(&r);
	if (failed)
		return failed;
	struct kept *k = kept_new(&text);
	if (!k)
		return -ENOMEM;
	list_append(&c->answers, &k->link);
	c->answer_count++;
	control_flush(c);
	return 0;
}

struct record *control_record(struct control *c, const char *kind)
{
	buf_consume(&c->text, c->text.len);
	record_open(&c->record, &c->text);
	record_string(&c->record, "kind", kind);
	return &c->record;
}

/* Keeps the record that has been made, until the end of this turn at least. */
static int control_keep(struct control *c)
{
	struct kept *k = kept_new(&c->text);
	if (!k)
		return -ENOMEM;
	k->seq = ++c->seq;
	list_append(&c->kept, &k->link);
	c->kept_bytes += k->len;
	if (c->next)
		return 0; /* behind what waits already */
	c->next = k;
	return uv_prepare_start(&c->turn, turn_over);
}

int control_send(struct control *c, struct control_wait *w)
{
	int r = record_close(&c->record);
	if (r < 0)
		return r;
	if (c->state != CONTROL_READY && c->state != CONTROL_ALONE)
		return -EPIPE;
	if (w &&
	    (c->seq - c->acked >= CONTROL_UNACKED_MAX || c->kept_bytes >= CONTROL_UNACKED_BYTES))
		return -ENOBUFS;
	r = control_keep(c);
	if (r < 0 || !w)
		return r;
	assert(!w->active);
	w->active = true;
	w->seq = c->seq;
	w->since_ms = uv_now(c->loop);
	list_append(&c->waiting, &w->link);
	if (!uv_is_active((uv_handle_t *)&c->deadline))
		uv_timer_start(&c->deadline, deadline_over, CONTROL_ACK_MS, 0);
	return 0;
}

void control_cancel(struct control_wait *w)
{
	if (!w->active)
		return;
	w->active = false;
	list_remove(&w->link);
}
