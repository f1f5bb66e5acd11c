/* SPDX-License-Identifier: Apache-2.0 */
/* Whole small calls: one request, its response collected up to a limit, the connection closed. */
#include <errno.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "http/client.h"

struct fetch {
	struct http_client *c;
	struct buf body;
	unsigned status;
	void (*done)(void *user, unsigned status, const char *body, size_t n,
		     const struct err *why);
	void *user;
};

static void fetch_free(struct fetch *f)
{
	buf_done(&f->body);
	free(f);
}

/* The client is closed or dead. */
static void fetch_failed(void *user, const struct err *why)
{
	struct fetch *f = user;
	f->done(f->user, 0, NULL, 0, why);
	fetch_free(f);
}

static void fetch_head(void *user, const struct http_head *head)
{
	struct fetch *f = user;
	f->status = head->status;
}

static void fetch_give_up(struct fetch *f, int code)
{
	struct err why = {0};
	if (code == ENOMEM)
		err_set(&why, code, "no memory for the response");
	else
		err_set(&why, code, "the response is larger than %zu bytes", f->body.max);
	http_client_close(f->c);
	fetch_failed(f, &why);
}

static void fetch_body(void *user, const uint8_t *p, size_t n)
{
	struct fetch *f = user;
	int r = buf_append(&f->body, p, n);
	if (r < 0)
		fetch_give_up(f, -r);
}

static void fetch_end(void *user)
{
	struct fetch *f = user;
	size_t n = f->body.len;
	auto_free char *body = buf_take_str(&f->body);
	if (!body) {
		fetch_give_up(f, ENOMEM);
		return;
	}
	http_client_close(f->c);
	f->done(f->user, f->status, body, n, NULL);
	fetch_free(f);
}

static const struct http_call_ops fetch_ops = {
	.head = fetch_head,
	.body = fetch_body,
	.end = fetch_end,
	.failed = fetch_failed,
};

static int fetch_start(struct fetch *f, const struct http_head *request, const void *body, size_t n,
		       uint64_t timeout_ms)
{
	struct http_head head = *request;
	if (n) {
		head.framing = HTTP_LENGTH;
		head.length = n;
	}
	int r = http_client_call(f->c, &head, timeout_ms, &fetch_ops, f);
	if (r == 0 && n) {
		ssize_t queued = http_client_write(f->c, body, n);
		r = queued < 0 ? (int)queued : 0;
	}
	return r == 0 ? http_client_finish(f->c) : r;
}

int http_client_fetch(struct http_client *c, const struct http_head *request, const void *body,
		      size_t n, size_t max, uint64_t timeout_ms,
		      void (*done)(void *user, unsigned status, const char *body, size_t n,
				   const struct err *why),
		      void *user)
{
	struct fetch *f = calloc(1, sizeof(*f));
	if (!f) {
		http_client_close(c);
		return -ENOMEM;
	}
	*f = (struct fetch){.c = c, .done = done, .user = user};
	buf_init(&f->body, max);
	int r = fetch_start(f, request, body, n, timeout_ms);
	if (r < 0) {
		http_client_close(c);
		fetch_free(f);
	}
	return r;
}
