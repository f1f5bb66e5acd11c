/* SPDX-License-Identifier: Apache-2.0 */
/* A served connection: any bytes, cut anywhere, whatever its user does and when. */
#include "http/server.h"
#include "http_drive.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct site {
	struct drive d;
	struct http_conn *conn; /* NULL when over */
	struct http_exchange *x;
	unsigned in_call;
	bool body_ended;
};

static void act(struct site *v);

static void on_body(void *user, const uint8_t *p, size_t n)
{
	struct site *v = user;
	require(!v->in_call && v->x && n && p && !v->body_ended);
	act(v);
}

static void on_body_end(void *user)
{
	struct site *v = user;
	require(!v->in_call && v->x && !v->body_ended);
	v->body_ended = true;
	act(v);
}

static void on_drained(void *user)
{
	struct site *v = user;
	require(!v->in_call && v->x);
	act(v);
}

static void on_gone(void *user)
{
	struct site *v = user;
	require(v->x);
	v->x = NULL;
}

static const struct http_exchange_ops exchange_ops = {
	.body = on_body,
	.body_end = on_body_end,
	.drained = on_drained,
	.gone = on_gone,
};

static void on_request(void *user, struct http_exchange *x)
{
	struct site *v = user;
	require(!v->in_call && !v->x && v->conn);
	v->x = x;
	v->body_ended = false;
	if (drive_next(&v->d) % 8 == 0)
		return; /* neither taken nor answered: it is cut */
	http_exchange_on(x, &exchange_ops, v);
	act(v);
	act(v);
}

static void on_refused(void *user, unsigned status)
{
	struct site *v = user;
	require(!v->in_call && !v->x && status >= 400 && status < 600);
}

static void on_closed(void *user)
{
	struct site *v = user;
	require(!v->in_call && v->conn);
	v->x = NULL;
	v->conn = NULL;
}

static const struct http_server_ops server_ops = {on_request, on_refused, on_closed};

static void end_with(struct site *v, int how)
{
	struct http_exchange *x = v->x;
	v->x = NULL;
	if (how == 0)
		http_exchange_reply(x, 200, NULL, "reply", 5);
	else if (how == 1)
		http_exchange_end(x);
	else if (how == 2)
		http_exchange_abort(x);
	else
		http_exchange_reply_error(x, 404, "none");
}

static void act(struct site *v)
{
	uint8_t what = drive_next(&v->d);
	v->in_call++;
	if (!v->x) {
		v->in_call--;
		return;
	}
	switch (what % 8) {
	case 0:
		http_exchange_read(v->x, false);
		break;
	case 1:
	case 2:
		http_exchange_read(v->x, true);
		break;
	case 3:
		http_exchange_start(v->x, what & 16 ? 204 : 200, NULL,
				    what & 8 ? HTTP_CHUNKED : HTTP_LENGTH, 5);
		break;
	case 4:
	case 5:
		http_exchange_write(v->x, "abc", 3);
		break;
	case 6:
		end_with(v, what >> 3 & 3);
		break;
	default:
		if (what & 8) {
			http_conn_close(v->conn); /* tells gone */
			v->conn = NULL;
		}
		break;
	}
	v->in_call--;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct site v = {0};
	drive_init(&v.d, data, size);
	size_t early = v.d.left < 8 ? v.d.left : drive_next(&v.d) % 8;
	v.conn = http_serve(v.d.s, v.d.wire, early, NULL, &server_ops, &v);
	require(v.conn);
	v.d.wire += early;
	v.d.left -= early;
	while (v.conn && drive_piece(&v.d)) {
		drive_turns(&v.d, 3);
		act(&v);
	}
	drive_turns(&v.d, 3);
	drive_hang_up(&v.d);
	if (v.conn)
		http_conn_close(v.conn);
	require(!v.x);
	drive_done(&v.d);
	return 0;
}
