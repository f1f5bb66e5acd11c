/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/guest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/guest.h"
#include "base/str.h"
#include "daemon/place.h"

struct guest_call {
	struct http_client *client;
	uv_timer_t timer; /* the client's own ends at the answer's head */
	unsigned status;
	void (*done)(void *user, unsigned status, const struct err *why);
	void *user;
};

struct http_client *guest_connect(struct sandbox *sb, struct err *e)
{
	struct stream *s = sandbox_connect(sb, GUEST_AGENT_PORT, NULL, NULL, e);
	if (!s)
		return NULL;
	struct http_client *c = http_client_new(s, NULL, NULL);
	if (!c)
		err_set(e, ENOMEM, "no memory");
	return c;
}

static int add_user(struct http_fields *fields, const char *linux_user)
{
	auto_free char *plain = str_printf("%s:", linux_user);
	auto_free char *coded = plain ? malloc(base64_encoded_len(strlen(plain)) + 1) : NULL;
	if (!coded)
		return -ENOMEM;
	base64_encode(plain, strlen(plain), coded);
	return http_fields_addf(fields, "Authorization", "Basic %s", coded);
}

/* A lower bound of what the time is when the guest reads it. */
static int add_time(struct http_fields *fields)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return http_fields_addf(fields, "X-Space-Time", "%lld%09ld", (long long)now.tv_sec,
				now.tv_nsec);
}

int guest_head(const struct guest_request *q, struct http_head *ret)
{
	struct http_head h = {.method = strdup(q->method), .target = strdup(q->target), .minor = 1};
	int r = h.method && h.target ? 0 : -ENOMEM;
	if (r == 0)
		r = http_fields_add(&h.fields, "Host", GUEST_ADDRESS);
	if (r == 0 && q->token)
		r = http_fields_add(&h.fields, "X-Access-Token", q->token);
	if (r == 0)
		r = add_time(&h.fields);
	if (r == 0 && q->content_type)
		r = http_fields_add(&h.fields, "Content-Type", q->content_type);
	if (r == 0 && q->linux_user)
		r = add_user(&h.fields, q->linux_user);
	if (r < 0)
		http_head_done(&h);
	else
		*ret = h;
	return r;
}

static void on_timer_closed(uv_handle_t *h)
{
	free(h->data);
}

static void call_free(struct guest_call *c)
{
	uv_close((uv_handle_t *)&c->timer, on_timer_closed);
}

static void on_late(uv_timer_t *timer)
{
	struct guest_call *c = timer->data;
	struct err why;
	err_set(&why, ETIMEDOUT, "the agent's answer does not end");
	http_client_close(c->client);
	c->done(c->user, 0, &why);
	call_free(c);
}

static void on_head(void *user, const struct http_head *head)
{
	struct guest_call *c = user;
	c->status = head->status;
}

static void on_body(void *user, const uint8_t *p, size_t n)
{
	(void)user;
	(void)p;
	(void)n;
}

static void on_end(void *user)
{
	struct guest_call *c = user;
	http_client_close(c->client);
	c->done(c->user, c->status, NULL);
	call_free(c);
}

static void on_drained(void *user)
{
	(void)user;
}

static void on_failed(void *user, const struct err *why)
{
	struct guest_call *c = user;
	c->done(c->user, 0, why);
	call_free(c);
}

static const struct http_call_ops ops = {
	.head = on_head,
	.body = on_body,
	.end = on_end,
	.drained = on_drained,
	.failed = on_failed,
};

static int start(struct guest_call *c, const struct guest_request *q, const void *body, size_t n,
		 uint64_t timeout_ms)
{
	struct http_head h;
	int r = guest_head(q, &h);
	if (r < 0)
		return r;
	h.framing = n ? HTTP_LENGTH : HTTP_NO_BODY;
	h.length = n;
	r = http_client_call(c->client, &h, timeout_ms, &ops, c);
	http_head_done(&h);
	if (r < 0 || !n)
		return r;
	return http_client_write(c->client, body, n) < 0 ? -ENOMEM : http_client_finish(c->client);
}

struct guest_call *guest_call(struct place *p, const struct guest_request *q, const void *body,
			      size_t n, uint64_t timeout_ms,
			      void (*done)(void *user, unsigned status, const struct err *why),
			      void *user, struct err *e)
{
	struct guest_call *c = calloc(1, sizeof(*c));
	if (!c) {
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	c->done = done;
	c->user = user;
	struct stream *s = place_connect(p, GUEST_AGENT_PORT, NULL, NULL, e);
	c->client = s ? http_client_new(s, NULL, NULL) : NULL;
	if (!c->client) {
		if (s)
			err_set(e, ENOMEM, "no memory");
		free(c);
		return NULL;
	}
	uv_timer_init(p->node->loop, &c->timer);
	c->timer.data = c;
	uv_timer_start(&c->timer, on_late, timeout_ms, 0);
	int r = start(c, q, body, n, timeout_ms);
	if (r == 0)
		return c;
	err_sys(e, -r, "can't ask the agent");
	guest_call_cancel(c);
	return NULL;
}

void guest_call_cancel(struct guest_call *c)
{
	http_client_close(c->client);
	call_free(c);
}
