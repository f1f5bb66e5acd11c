/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/guest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/guest.h"
#include "base/str.h"

struct guest_call {
	struct http_client *client;
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

int guest_head(const struct sandbox *sb, const char *method, const char *target,
	       const char *content_type, const char *linux_user, struct http_head *ret)
{
	struct http_head h = {.method = strdup(method), .target = strdup(target), .minor = 1};
	int r = h.method && h.target ? 0 : -ENOMEM;
	if (r == 0)
		r = http_fields_add(&h.fields, "Host", GUEST_ADDRESS);
	if (r == 0)
		r = http_fields_add(&h.fields, "X-Access-Token", sandbox_token(sb));
	if (r == 0 && content_type)
		r = http_fields_add(&h.fields, "Content-Type", content_type);
	if (r == 0 && linux_user)
		r = add_user(&h.fields, linux_user);
	if (r < 0)
		http_head_done(&h);
	else
		*ret = h;
	return r;
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
	free(c);
}

static void on_drained(void *user)
{
	(void)user;
}

static void on_failed(void *user, const struct err *why)
{
	struct guest_call *c = user;
	c->done(c->user, 0, why);
	free(c);
}

static const struct http_call_ops ops = {
	.head = on_head,
	.body = on_body,
	.end = on_end,
	.drained = on_drained,
	.failed = on_failed,
};

static int start(struct guest_call *c, struct sandbox *sb, const char *target, const char *json,
		 uint64_t timeout_ms)
{
	struct http_head h;
	int r = guest_head(sb, "POST", target, "application/json", NULL, &h);
	if (r < 0)
		return r;
	h.framing = HTTP_LENGTH;
	h.length = strlen(json);
	r = http_client_call(c->client, &h, timeout_ms, &ops, c);
	http_head_done(&h);
	if (r == 0 && http_client_write(c->client, json, strlen(json)) < 0)
		r = -ENOMEM;
	return r < 0 ? r : http_client_finish(c->client);
}

struct guest_call *guest_call(struct sandbox *sb, const char *target, const char *json,
			      uint64_t timeout_ms,
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
	c->client = guest_connect(sb, e);
	if (!c->client) {
		free(c);
		return NULL;
	}
	int r = start(c, sb, target, json, timeout_ms);
	if (r == 0)
		return c;
	err_sys(e, -r, "can't ask the agent");
	guest_call_cancel(c);
	return NULL;
}

void guest_call_cancel(struct guest_call *c)
{
	http_client_close(c->client);
	free(c);
}
