/* SPDX-License-Identifier: Apache-2.0 */
/* A served connection of HTTP/2: any bytes, cut anywhere, whatever its user does to which of its
 * exchanges and when. */
#include <errno.h>
#include <string.h>

#include "base/list.h"
#include "http/server.h"
#include "http/syntax.h"
#include "http_drive.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define COLLECT_MAX 12

struct site {
	struct drive d;
	struct http_conn *conn; /* NULL when over */
	struct list visits;     /* struct visit, also those that are over */
	size_t open;
	unsigned in_call;
	bool closing;
};

/* One exchange, remembered past its end, so that nothing is told of it twice. */
struct visit {
	struct list link;
	struct site *site;
	struct http_exchange *x; /* NULL when over */
	uint64_t got;
	bool reading, collecting, started, trailed, body_ended;
};

static void act(struct site *v, struct visit *of);

static void visit_over(struct visit *e)
{
	require(e->x && e->site->open);
	e->x = NULL;
	e->site->open--;
}

static void visit_told(const struct visit *e)
{
	require(!e->site->in_call && e->site->conn && e->x);
}

/* -- what is told -- */

static void on_body(void *user, const uint8_t *p, size_t n)
{
	struct visit *e = user;
	visit_told(e);
	require(p && n && e->reading && !e->trailed && !e->body_ended);
	e->got += n;
	act(e->site, e);
}

static void on_trailers(void *user, const struct http_fields *fields)
{
	struct visit *e = user;
	visit_told(e);
	require(fields->count && e->reading && !e->trailed && !e->body_ended);
	for (size_t i = 0; i < fields->count; i++)
		require(http_is_token(fields->list[i].name, strlen(fields->list[i].name)));
	e->trailed = true;
	act(e->site, e);
}

static void on_body_end(void *user)
{
	struct visit *e = user;
	const struct http_head *head = http_exchange_head(e->x);
	visit_told(e);
	require(e->reading && !e->body_ended);
	require(head->framing != HTTP_LENGTH || e->got == head->length);
	require(head->framing != HTTP_NO_BODY || !e->got);
	e->body_ended = true;
	act(e->site, e);
}

static void on_drained(void *user)
{
	struct visit *e = user;
	visit_told(e);
	require(e->started);
	act(e->site, e);
}

static void on_gone(void *user)
{
	struct visit *e = user;
	struct site *v = e->site;
	require(!v->in_call || v->closing);
	visit_over(e);
	if (drive_next(&v->d) % 2)
		act(v, NULL);
}

static const struct http_exchange_ops exchange_ops = {
	.body = on_body,
	.body_end = on_body_end,
	.drained = on_drained,
	.gone = on_gone,
	.trailers = on_trailers,
};

static void on_collected(void *user, struct http_exchange *x, const char *body, size_t n)
{
	struct visit *e = user;
	visit_told(e);
	require(e->x == x && n <= COLLECT_MAX && body[n] == '\0' && !e->body_ended);
	e->body_ended = true;
	act(e->site, e);
}

static void check_head(const struct http_head *head)
{
	const char *host = http_fields_get(&head->fields, "host");
	require(host && http_fields_count(&head->fields, "host") == 1);
	require(http_is_token(head->method, strlen(head->method)));
	require(!http_method_barred(head->method));
	require(http_destination_ok(head->method, head->target, host, strlen(host)));
	for (size_t i = 0; i < head->fields.count; i++) {
		const struct http_field *f = &head->fields.list[i];
		require(http_is_token(f->name, strlen(f->name)));
		require(http_all(f->value, strlen(f->value), HTTP_CHAR_VALUE));
	}
}

static void on_request(void *user, struct http_exchange *x)
{
	struct site *v = user;
	require(!v->in_call && v->conn);
	require(http_exchange_conn(x) == v->conn && http_exchange_version(x) == 2);
	check_head(http_exchange_head(x));
	struct visit *e = calloc(1, sizeof(*e));
	require(e);
	e->site = v;
	e->x = x;
	list_append(&v->visits, &e->link);
	v->open++;
	uint8_t how = drive_next(&v->d) % 16;
	if (how == 0) { /* neither taken nor answered: it is cut */
		visit_over(e);
		return;
	}
	if (how < 4) {
		e->reading = e->collecting = true;
		http_exchange_collect(x, COLLECT_MAX, on_collected, on_gone, e);
	} else {
		http_exchange_on(x, &exchange_ops, e);
	}
	act(v, e);
	act(v, e);
}

static void on_refused(void *user, unsigned status)
{
	struct site *v = user;
	require(!v->in_call && v->conn && status >= 400 && status < 600);
	act(v, NULL);
}

static void on_closed(void *user)
{
	struct site *v = user;
	require(!v->in_call && v->conn && !v->open);
	v->conn = NULL;
}

static const struct http_server_ops server_ops = {on_request, on_refused, on_closed};

/* -- what is done -- */

static void close_all(struct site *v)
{
	struct http_conn *conn = v->conn;
	if (!conn)
		return;
	v->closing = true;
	v->conn = NULL;
	http_conn_close(conn); /* tells gone */
	require(!v->open);
}

static void start(struct visit *e, uint8_t what)
{
	static const unsigned statuses[] = {200, 204, 304, 404};
	static const enum http_framing framings[] = {HTTP_CHUNKED, HTTP_LENGTH, HTTP_NO_BODY,
						     HTTP_LENGTH};
	struct http_field list[] = {{"X-One", "1"}, {"Connection", "close"}, {"bad", "a\nb"}};
	struct http_fields fields = {list, what % 4};
	int r = http_exchange_start(e->x, statuses[what >> 4 & 3], &fields, framings[what >> 6], 6);
	require(r == 0 || e->started || fields.count == 3);
	e->started = e->started || r == 0;
}

static void write_some(struct visit *e, uint8_t what)
{
	static const char zeros[40000];
	size_t n = what & 64 ? sizeof(zeros) : 3;
	ssize_t r = http_exchange_write(e->x, zeros, n);
	require(r >= 0 || r == -EINVAL || r == -EPIPE || r == -E2BIG);
	require(e->started || r == -EINVAL);
}

static void trail(struct visit *e)
{
	struct http_field list[] = {{"X-Sum", "abc"}, {"Content-Length", "1"}};
	struct http_fields fields = {list, 2};
	if (e->started)
		require(http_exchange_trailers(e->x, &fields) <= 0);
}

static void end_with(struct visit *e, int how)
{
	struct http_exchange *x = e->x;
	visit_over(e);
	if (how == 0)
		http_exchange_reply(x, 200, NULL, "reply", 5);
	else if (how == 1)
		http_exchange_end(x);
	else if (how == 2)
		http_exchange_abort(x);
	else
		http_exchange_reply_error(x, 404, "none");
}

static void read_some(struct visit *e, bool on)
{
	e->reading = on;
	http_exchange_read(e->x, on);
}

static void odd(struct visit *e, uint8_t what)
{
	struct stream *s;
	struct buf early;
	if (what & 64)
		close_all(e->site);
	else if (what & 16)
		trail(e);
	else
		require(http_exchange_switch(e->x, &(struct http_fields){0}, &s, &early) ==
			-ENOTSUP);
}

/* The exchange that is meant: of, or one of the others. */
static struct visit *pick(struct site *v, struct visit *of, unsigned which)
{
	if (of && of->x && which % 4)
		return of;
	size_t skip = v->open ? which % v->open : 0;
	list_for_each (it, &v->visits) {
		struct visit *e = list_entry(it, struct visit, link);
		if (e->x && skip-- == 0)
			return e;
	}
	return NULL;
}

static void act(struct site *v, struct visit *of)
{
	uint8_t what = drive_next(&v->d);
	struct visit *e = pick(v, of, what >> 4);
	if (!e)
		return;
	v->in_call++;
	switch (what % 8) {
	case 0:
	case 1:
	case 2:
		read_some(e, what % 8);
		break;
	case 3:
		start(e, drive_next(&v->d));
		break;
	case 4:
	case 5:
		write_some(e, what);
		break;
	case 6:
		end_with(e, what >> 4 & 3);
		break;
	default:
		odd(e, what);
		break;
	}
	v->in_call--;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct http_limits limits = {60000, 60000, 60000};
	struct site v = {0};
	list_init(&v.visits);
	drive_init(&v.d, data, size);
	v.conn = http_serve_h2(v.d.s, drive_next(&v.d) % 2 ? &limits : NULL, &server_ops, &v);
	require(v.conn);
	while (v.conn && drive_piece(&v.d)) {
		drive_turns(&v.d, 3);
		act(&v, NULL);
	}
	drive_turns(&v.d, 3);
	drive_hang_up(&v.d);
	close_all(&v);
	require(!v.open);
	while (!list_empty(&v.visits)) {
		struct visit *e = list_entry(v.visits.next, struct visit, link);
		list_remove(&e->link);
		free(e);
	}
	drive_done(&v.d);
	return 0;
}
