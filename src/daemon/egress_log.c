/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker reads a piece of the log and makes events of it; the loop sends them, and when they are
 * gone the next piece is read. At the end of the log a reader that follows waits for records.
 */
#include "daemon/egress_log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/doc.h"
#include "base/str.h"
#include "daemon/event_stream.h"
#include "daemon/trail.h"
#include "daemon/waiting.h"
#include "http/envelope.h"

#define EVENTS_MAX (8u << 20) /* bytes of what one piece of the log becomes */

struct egress_log {
	struct node *node;
	struct http_exchange *x;
	struct trail *trail;
	struct audit_watcher watcher;
	struct buf events;  /* of the piece that was read last */
	bool follow, ended; /* the sandbox has */
	bool waits;         /* for records */
	bool news;          /* records came while a piece was read */
	bool stalled;       /* until what was sent is gone */
	bool at_end, found; /* of the log, at the last piece */
};

static void log_free(void *user)
{
	struct egress_log *l = user;
	buf_done(&l->events);
	free(l);
}

static void log_close(struct egress_log *l)
{
	audit_unwatch(&l->watcher);
	trail_close(l->trail, log_free);
}

/* "{"event":{"egress":RECORD}}" in an envelope. */
static int put_event(struct egress_log *l, const char *line, size_t n)
{
	struct buf text;
	buf_init(&text, EVENT_MAX);
	int r = buf_append_str(&text, "{\"event\":{\"egress\":");
	if (r == 0)
		r = buf_append(&text, line, n);
	if (r == 0)
		r = buf_append_str(&text, "}}");
	if (r == 0)
		r = envelope_write(&l->events, ENVELOPE_MESSAGE, text.data, text.len);
	buf_done(&text);
	return r;
}

static int on_line(void *user, const json_t *record, const char *line, size_t n)
{
	struct egress_log *l = user;
	const char *kind = "";
	doc_opt_string(record, "kind", &kind, NULL);
	if (str_eq(kind, "sandbox.exited") || str_eq(kind, "sandbox.failed"))
		l->ended = true;
	return str_starts(kind, "egress.") ? put_event(l, line, n) : 0;
}

static void log_finish(struct egress_log *l, const char *code, const char *message)
{
	event_stream_end(l->x, code, message);
	log_close(l);
}

static void log_go_on(struct egress_log *l)
{
	if (l->at_end && (!l->follow || l->ended)) {
		if (l->found)
			log_finish(l, NULL, NULL);
		else
			log_finish(l, "not_found", "no such sandbox is on record");
		return;
	}
	l->waits = l->at_end && !l->news;
	if (l->waits)
		return;
	l->news = false;
	trail_next(l->trail);
}

static void on_read(void *user, bool at_end, bool found)
{
	struct egress_log *l = user;
	l->at_end = at_end;
	l->found = found;
	if (l->events.len) {
		ssize_t queued = http_exchange_write(l->x, l->events.data, l->events.len);
		buf_done(&l->events);
		l->stalled = queued > STREAM_QUEUE_HIGH;
		if (queued < 0 || l->stalled)
			return; /* it is gone, or drained() follows */
	}
	log_go_on(l);
}

static void on_failed(void *user, const struct err *why)
{
	log_finish(user, "internal", why->text);
}

static const struct trail_ops trail_ops = {.line = on_line, .read = on_read, .failed = on_failed};

static void on_written(void *user)
{
	struct egress_log *l = user;
	l->news = true;
	if (l->waits)
		log_go_on(l);
}

static void on_drained(void *user)
{
	struct egress_log *l = user;
	if (!l->stalled)
		return;
	l->stalled = false;
	log_go_on(l);
}

static void on_gone(void *user)
{
	log_close(user);
}

static const struct http_exchange_ops exchange_ops = {
	.body = waiting_body,
	.body_end = waiting_event,
	.drained = on_drained,
	.gone = on_gone,
};

void egress_log_serve(struct node *n, struct http_exchange *x, const char *ref, bool follow)
{
	struct err e = {0};
	struct egress_log *l = calloc(1, sizeof(*l));
	if (!l) {
		http_exchange_reply_error(x, 500, "no memory");
		return;
	}
	l->node = n;
	l->x = x;
	l->follow = follow;
	buf_init(&l->events, EVENTS_MAX);
	list_init(&l->watcher.link);
	l->watcher.written = on_written;
	l->watcher.user = l;
	l->trail = trail_open(n, ref, &trail_ops, l, &e);
	if (!l->trail || event_stream_open(x) < 0) {
		http_exchange_reply_error(x, 500, "%s", l->trail ? "no memory" : e.text);
		if (l->trail)
			trail_close(l->trail, log_free);
		else
			log_free(l);
		return;
	}
	if (follow)
		audit_watch(n->audit, &l->watcher);
	http_exchange_on(x, &exchange_ops, l);
	trail_next(l->trail);
}
