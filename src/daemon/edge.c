/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/edge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/guest.h"
#include "base/str.h"
#include "daemon/guest.h"
#include "daemon/sandbox.h"
#include "daemon/start.h"
#include "daemon/waiting.h"

#define ANSWER_TIMEOUT_MS \
	(10u * 60 * 1000) /* to requests without a body; uploads take their time */

struct relay {
	struct sandbox *sb;
	struct sandbox_link link;
	struct http_exchange *x;
	struct http_client *agent;
	bool up_paused, down_paused, answered;
};

static void relay_free(struct relay *r)
{
	sandbox_detach(&r->link);
	if (r->agent)
		http_client_close(r->agent);
	free(r);
}

/* Breaks the answer off, or says why there is none. */
static void relay_fail(struct relay *r, unsigned status, const char *why)
{
	if (r->answered)
		http_exchange_abort(r->x);
	else
		http_exchange_reply_error(r->x, status, "%s", why);
	relay_free(r);
}

/* Fields that an agent may set. */
static bool answer_field(const char *name)
{
	static const char *const names[] = {
		"Content-Type",  "Content-Disposition", "Vary", "Content-Encoding",
		"Content-Range", "Accept-Ranges",       NULL};
	for (const char *const *n = names; *n; n++)
		if (strcasecmp(*n, name) == 0)
			return true;
	return false;
}

static void on_agent_head(void *user, const struct http_head *head)
{
	struct relay *r = user;
	struct http_fields fields = {0};
	for (size_t i = 0; i < head->fields.count; i++)
		if (answer_field(head->fields.list[i].name))
			http_fields_add(&fields, head->fields.list[i].name,
					head->fields.list[i].value);
	enum http_framing framing = head->framing == HTTP_TO_CLOSE ? HTTP_CHUNKED : head->framing;
	int s = http_exchange_start(r->x, head->status, &fields, framing, head->length);
	http_fields_done(&fields);
	r->answered = s == 0;
	if (s < 0)
		relay_fail(r, 502, "the agent's answer can't be passed on");
}

static void on_agent_body(void *user, const uint8_t *p, size_t n)
{
	struct relay *r = user;
	if (http_exchange_write(r->x, p, n) > STREAM_QUEUE_HIGH && !r->down_paused) {
		r->down_paused = true;
		http_client_read(r->agent, false);
	}
}

static void on_agent_end(void *user)
{
	struct relay *r = user;
	http_exchange_end(r->x);
	relay_free(r);
}

static void on_agent_drained(void *user)
{
	struct relay *r = user;
	if (r->up_paused) {
		r->up_paused = false;
		http_exchange_read(r->x, true);
	}
}

static void on_agent_failed(void *user, const struct err *why)
{
	struct relay *r = user;
	r->agent = NULL;
	relay_fail(r, 502, why->text);
}

static const struct http_call_ops agent_ops = {
	.head = on_agent_head,
	.body = on_agent_body,
	.end = on_agent_end,
	.drained = on_agent_drained,
	.failed = on_agent_failed,
};

static void on_client_body(void *user, const uint8_t *p, size_t n)
{
	struct relay *r = user;
	if (http_client_write(r->agent, p, n) > STREAM_QUEUE_HIGH && !r->up_paused) {
		r->up_paused = true;
		http_exchange_read(r->x, false);
	}
}

static void on_client_body_end(void *user)
{
	struct relay *r = user;
	if (http_exchange_head(r->x)->framing != HTTP_NO_BODY)
		http_client_finish(r->agent);
}

static void on_client_drained(void *user)
{
	struct relay *r = user;
	if (r->down_paused) {
		r->down_paused = false;
		http_client_read(r->agent, true);
	}
}

static void on_client_gone(void *user)
{
	relay_free(user);
}

static const struct http_exchange_ops client_ops = {
	.body = on_client_body,
	.body_end = on_client_body_end,
	.drained = on_client_drained,
	.gone = on_client_gone,
};

static void on_cut(void *user)
{
	relay_fail(user, 502, "the sandbox was stopped");
}

/* What a client may tell an agent. */
static bool request_field(const char *name)
{
	static const char *const names[] = {
		"Content-Type",       "Authorization",           "Connect-Protocol-Version",
		"Connect-Timeout-Ms", "Keepalive-Ping-Interval", "Range",
		"X-Space-Mode",       "Content-Encoding",        NULL};
	for (const char *const *n = names; *n; n++)
		if (strcasecmp(*n, name) == 0)
			return true;
	return strncasecmp(name, "X-Metadata-", strlen("X-Metadata-")) == 0;
}

static int call_agent(struct relay *r, const struct http_head *head)
{
	struct http_head h;
	const struct guest_request q = {
		.method = head->method, .target = head->target, .token = sandbox_token(r->sb)};
	int s = guest_head(&q, &h);
	if (s < 0)
		return s;
	for (size_t i = 0; s == 0 && i < head->fields.count; i++)
		if (request_field(head->fields.list[i].name))
			s = http_fields_add(&h.fields, head->fields.list[i].name,
					    head->fields.list[i].value);
	h.framing = head->framing;
	h.length = head->length;
	uint64_t timeout_ms = h.framing == HTTP_NO_BODY ? ANSWER_TIMEOUT_MS : 0;
	if (s == 0)
		s = http_client_call(r->agent, &h, timeout_ms, &agent_ops, r);
	http_head_done(&h);
	return s;
}

/* Whether a target, in origin-form, has this path. */
static bool path_is(const char *target, const char *path)
{
	size_t n = strcspn(target, "?");
	return n == strlen(path) && memcmp(target, path, n) == 0;
}

/* What spaced alone may ask of an agent. */
static bool is_ours(const char *target)
{
	return path_is(target, "/init") || path_is(target, "/hold") || path_is(target, "/release");
}

/* File transfers are on record; the rest is signals, input and questions to a process that is. */
static int record(struct sandbox *sb, const struct http_head *head)
{
	if (!path_is(head->target, "/files"))
		return 0;
	auto_free char *path = NULL;
	http_query_get(head->target, "path", &path); /* the agent refuses what can't be read */
	bool put = str_eq(head->method, "POST");
	return sandbox_record(sb, put ? "file.put" : "file.get", json_pack("{s:s?}", "path", path));
}

static void relay_start(struct sandbox *sb, struct http_exchange *x)
{
	struct relay *r = calloc(1, sizeof(*r));
	struct err e;
	if (!r) {
		http_exchange_reply_error(x, 500, "no memory");
		return;
	}
	*r = (struct relay){.sb = sb, .x = x, .link = {.cut = on_cut, .user = r}};
	list_init(&r->link.link);
	r->agent = guest_connect(sb, &e);
	if (!r->agent || call_agent(r, http_exchange_head(x)) < 0) {
		relay_fail(r, 502, "the agent can't be reached");
		return;
	}
	sandbox_attach(sb, &r->link);
	http_exchange_on(x, &client_ops, r);
	http_exchange_read(x, true);
}

/* E2B's clients read this exact form. */
static void reply_not_found(struct http_exchange *x, const char *id)
{
	auto_json json_t *j = json_pack("{s:s, s:s, s:i}", "sandboxId", id, "message",
					"The sandbox was not found", "code", 502);
	auto_free char *text = j ? doc_to_text(j) : NULL;
	if (text)
		http_exchange_reply(x, 502, "application/json", text, strlen(text));
	else
		http_exchange_reply_error(x, 502, "The sandbox was not found");
}

bool edge_wants(const struct http_head *head)
{
	return http_fields_get(&head->fields, "E2b-Sandbox-Id") ||
	       http_fields_get(&head->fields, "E2b-Sandbox-Port");
}

static void serve(struct sandbox *sb, struct http_exchange *x)
{
	const struct http_head *head = http_exchange_head(x);
	if (path_is(head->target, "/process.Process/Start") && str_eq(head->method, "POST"))
		start_serve(sb, x);
	else if (record(sb, head) < 0)
		http_exchange_reply_error(x, 503, "the audit log can't be written");
	else
		relay_start(sb, x);
}

/* A call to a sandbox that starts, or is being paused, waits; one that is paused is resumed for it.
 */
struct wake {
	struct sandbox_starter starter;
	struct node *node;
	char *id;
	struct http_exchange *x;
};

static void wake_free(struct wake *w)
{
	free(w->id);
	free(w);
}

static void wake(struct sandbox *sb, struct http_exchange *x);

static void on_awake(void *user, const struct err *why)
{
	struct wake *w = user;
	struct sandbox *sb = sandbox_find_id(w->node, w->id);
	struct http_exchange *x = w->x;
	wake_free(w);
	if (why || !sb)
		http_exchange_reply_error(x, 502, "%s", why ? why->text : "the sandbox is gone");
	else if (sandbox_waits(sb)) /* it was being paused when it was called */
		wake(sb, x);
	else
		serve(sb, x);
}

static void on_waker_gone(void *user)
{
	struct wake *w = user;
	sandbox_await_not(&w->starter);
	wake_free(w);
}

static const struct http_exchange_ops wake_ops = WAITING_OPS(on_waker_gone);

static void wake(struct sandbox *sb, struct http_exchange *x)
{
	struct err e = {0};
	struct wake *w = calloc(1, sizeof(*w));
	if (!w || !(w->id = strdup(sandbox_id(sb)))) {
		free(w);
		http_exchange_reply_error(x, 500, "no memory");
		return;
	}
	w->node = sandbox_node(sb);
	w->x = x;
	w->starter = (struct sandbox_starter){.done = on_awake, .user = w};
	http_exchange_on(x, &wake_ops, w);
	if (sandbox_state(sb) != SANDBOX_PAUSED)
		sandbox_await(sb, &w->starter);
	else if (sandbox_resume(sb, NULL, false, &w->starter, &e) < 0) {
		wake_free(w);
		http_exchange_reply_error(x, 409, "%s is paused, 'space resume %s': %s",
					  sandbox_name(sb), sandbox_name(sb), e.text);
	}
}

void edge_serve(struct node *n, struct http_exchange *x)
{
	const struct http_head *head = http_exchange_head(x);
	const char *id = http_fields_get(&head->fields, "E2b-Sandbox-Id");
	const char *port_text = http_fields_get(&head->fields, "E2b-Sandbox-Port");
	uint64_t port;
	if (!id || !port_text) {
		http_exchange_reply_error(
			x, 400, "missing header: E2b-Sandbox-Id and E2b-Sandbox-Port go together");
		return;
	}
	if (str_to_u64(port_text, 1, 65535, &port) < 0 || port != GUEST_AGENT_PORT) {
		http_exchange_reply_error(
			x, 400, "E2b-Sandbox-Port: only %d, the agent's, is reached this way yet",
			GUEST_AGENT_PORT);
		return;
	}
	struct sandbox *sb = sandbox_find_id(n, id);
	bool waits = sb && sandbox_waits(sb);
	if (!sb || (sandbox_state(sb) != SANDBOX_RUNNING && !waits))
		reply_not_found(x, id);
	else if (*head->target != '/') /* other forms would slip by what follows */
		http_exchange_reply_error(x, 400, "the target must be a path");
	else if (is_ours(head->target))
		http_exchange_reply_error(x, 404, "no such route");
	else if (waits)
		wake(sb, x);
	else
		serve(sb, x);
}
