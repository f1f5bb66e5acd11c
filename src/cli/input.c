/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read, SendInput, wait for its answer, again; CloseStdin at the end. An answer other than 200
 * means that the process takes no more (it ended, or closed its input): then we stop, which is no
 * error. A paused sandbox (409) takes nothing now: the same is sent again until it does, for what
 * was read is nowhere else.
 */
#include "cli/input.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"

#define BODY_MAX (INPUT_PIECE * 2) /* base64 and the JSON round it */
#define AGAIN_MS 500               /* between two tries while the sandbox is paused */

static void read_next(struct input *in);
static int post(struct input *in, struct err *e);

static void stop(struct input *in)
{
	in->over = true;
	if (in->client)
		http_client_close(take_ptr(in->client));
}

static void give_up(struct input *in, const struct err *why)
{
	stop(in);
	in->failed(in->user, why);
}

static void on_again(uv_timer_t *timer)
{
	struct input *in = timer->data;
	struct err e = {0};
	if (!in->over && post(in, &e) < 0)
		give_up(in, &e);
}

static void on_head(void *user, const struct http_head *head)
{
	struct input *in = user;
	in->status = head->status;
}

static void on_body(void *user, const uint8_t *p, size_t n)
{
	(void)user;
	(void)p;
	(void)n;
}

static void on_end(void *user)
{
	struct input *in = user;
	if (!http_client_reusable(in->client))
		http_client_close(take_ptr(in->client));
	if (in->status == 409)
		uv_timer_start(&in->again, on_again, AGAIN_MS, 0);
	else if (in->status != 200 || in->closing)
		stop(in);
	else
		read_next(in);
}

static void on_failed(void *user, const struct err *why)
{
	struct input *in = user;
	in->client = NULL;
	in->over = true;
	in->failed(in->user, why);
}

static const struct http_call_ops call_ops = {
	.head = on_head,
	.body = on_body,
	.end = on_end,
	.failed = on_failed,
};

static void on_idle_closed(void *user)
{
	struct input *in = user;
	in->client = NULL;
}

static int post(struct input *in, struct err *e)
{
	int r = in->client ? 0 : api_open_running(in->cli, on_idle_closed, in, &in->client, e);
	if (r < 0)
		return r;
	struct http_head head;
	r = api_request(&head, "POST", in->target, "application/json", in->body.len);
	if (r == 0)
		r = api_to_agent(&head, in->sandbox_id);
	if (r == 0)
		r = http_client_call(in->client, &head, 0, &call_ops, in);
	http_head_done(&head);
	ssize_t queued = r == 0 ? http_client_write(in->client, in->body.data, in->body.len) : r;
	if (queued >= 0)
		queued = http_client_finish(in->client);
	return queued < 0 ? err_sys(e, (int)-queued, "call to spaced") : 0;
}

static int send_piece(struct input *in, const uint8_t *p, size_t n, struct err *e)
{
	auto_free char *text = malloc(base64_encoded_len(n) + 1);
	if (!text)
		return err_set(e, ENOMEM, "out of memory");
	base64_encode(p, n, text);
	in->target = "/process.Process/SendInput";
	buf_consume(&in->body, in->body.len);
	int r = buf_printf(&in->body,
			   "{\"process\":{\"pid\":%" PRIu64 "},\"input\":{\"stdin\":\"%s\"}}",
			   in->pid, text);
	return r < 0 ? err_set(e, -r, "out of memory") : post(in, e);
}

static int send_close(struct input *in, struct err *e)
{
	in->closing = true;
	in->target = "/process.Process/CloseStdin";
	buf_consume(&in->body, in->body.len);
	int r = buf_printf(&in->body, "{\"process\":{\"pid\":%" PRIu64 "}}", in->pid);
	return r < 0 ? err_set(e, -r, "out of memory") : post(in, e);
}

static void on_ready(void *user)
{
	struct input *in = user;
	if (in->over)
		return;
	uint8_t piece[INPUT_PIECE];
	ssize_t n = read(STDIN_FILENO, piece, sizeof(piece));
	struct err e = {0};
	if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
		read_next(in);
		return;
	}
	int r = n > 0 ? send_piece(in, piece, (size_t)n, &e) : send_close(in, &e);
	if (r < 0)
		give_up(in, &e);
}

static void read_next(struct input *in)
{
	int r = watch_is_direct(&in->watch) ? 0 : watch_once(&in->watch);
	if (watch_is_direct(&in->watch))
		on_ready(in);
	if (r < 0) {
		struct err e = {0};
		err_sys(&e, -r, "cannot wait for standard input");
		give_up(in, &e);
	}
}

int input_start(struct input *in, struct cli *cli, const char *sandbox_id, uint64_t pid,
		void (*failed)(void *user, const struct err *why), void *user)
{
	*in = (struct input){
		.cli = cli,
		.sandbox_id = sandbox_id,
		.pid = pid,
		.failed = failed,
		.user = user,
	};
	int r = watch_init(&in->watch, &cli->loop, STDIN_FILENO, EPOLLIN, on_ready, in);
	if (r < 0)
		return r;
	buf_init(&in->body, BODY_MAX);
	uv_timer_init(&cli->loop, &in->again);
	in->again.data = in;
	in->watching = true;
	read_next(in);
	return 0;
}

void input_done(struct input *in)
{
	if (!in->watching)
		return;
	stop(in);
	uv_close((uv_handle_t *)&in->again, NULL);
	watch_done(&in->watch);
	buf_done(&in->body);
	in->watching = false;
}
