/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/start.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/doc.h"
#include "base/str.h"
#include "daemon/exec.h"
#include "daemon/grants.h"
#include "http/envelope.h"

struct served {
	struct exec *ex;
};

static void served_started(void *user, uint64_t pid)
{
	(void)user;
	(void)pid;
}

static void served_ended(void *user, const struct exec_result *result)
{
	free(user);
	(void)result;
}

static void served_client_gone(void *user)
{
	struct served *s = user;
	exec_cancel(s->ex);
	free(s);
}

static const struct exec_ops served_ops = {
	.started = served_started,
	.ended = served_ended,
	.client_gone = served_client_gone,
};

/* The user that a client names by Basic authorization, a heap string; NULL: none, or not to be
 * understood. */
static char *named_user(const struct http_head *head)
{
	const char *v = http_fields_get(&head->fields, "Authorization");
	if (!v || !str_starts(v, "Basic "))
		return NULL;
	v += strlen("Basic ");
	size_t n = strlen(v);
	char *plain = malloc(n + 4);
	ssize_t len = plain ? base64_decode(v, n, plain) : -ENOMEM;
	if (len < 0) {
		free(plain);
		return NULL;
	}
	plain[len] = '\0';
	plain[strcspn(plain, ":")] = '\0';
	return plain;
}

/* As the agent refuses: Connect's clients read no message from an answer of another status. */
static void refuse(struct http_exchange *x, const char *code, const char *message)
{
	auto_json json_t *j =
		json_pack("{s:{s:s, s:s}}", "error", "code", code, "message", message);
	auto_free char *text = j ? doc_to_text(j) : NULL;
	auto_buf struct buf body;
	buf_init(&body, SIZE_MAX);
	if (text && envelope_write(&body, ENVELOPE_END, text, strlen(text)) == 0)
		http_exchange_reply(x, 200, "application/connect+json", (const char *)body.data,
				    body.len);
	else
		http_exchange_reply_error(x, 500, "no memory");
}

static void serve(struct sandbox *sb, struct http_exchange *x, const char *body, size_t n)
{
	struct envelope env;
	struct err e = {0};
	ssize_t used = envelope_read((const uint8_t *)body, n, EXEC_REQUEST_MAX, &env);
	auto_json json_t *start = NULL;
	if (used >= 0 && (size_t)used == n && env.flag == ENVELOPE_MESSAGE)
		start = doc_parse_json((const char *)env.payload, env.len, &e);
	if (!start) {
		if (!e.code)
			err_set(&e, EBADMSG, "this is none");
		err_prefix(&e, "Start wants one envelope with a JSON message");
		refuse(x, "invalid_argument", e.text);
		return;
	}
	if (grants_set_variables(sb, start, &e) < 0) {
		refuse(x, "invalid_argument", e.text);
		return;
	}
	struct served *s = calloc(1, sizeof(*s));
	if (!s) {
		http_exchange_reply_error(x, 500, "no memory");
		return;
	}
	auto_free char *user = named_user(http_exchange_head(x));
	const struct exec_request q = {
		.start = start,
		.linux_user = user,
		.timeout_ms = http_fields_get(&http_exchange_head(x)->fields, "Connect-Timeout-Ms"),
		.x = x,
	};
	s->ex = exec_start(sb, &q, &served_ops, s, &e);
	if (!s->ex) {
		free(s);
		refuse(x, "unavailable", e.text);
	}
}

struct pending {
	struct node *node;
	char *id;
};

static void on_start_collected(void *user, struct http_exchange *x, const char *body, size_t n)
{
	struct pending *p = user;
	struct sandbox *sb = sandbox_find_id(p->node, p->id);
	if (sb && sandbox_state(sb) == SANDBOX_RUNNING)
		serve(sb, x, body, n);
	else
		http_exchange_reply_error(x, 502, "the sandbox was stopped");
	free(p->id);
	free(p);
}

static void on_start_gone(void *user)
{
	struct pending *p = user;
	free(p->id);
	free(p);
}

void start_serve(struct sandbox *sb, struct http_exchange *x)
{
	struct pending *p = calloc(1, sizeof(*p));
	char *id = strdup(sandbox_id(sb));
	if (!p || !id) {
		free(p);
		free(id);
		http_exchange_reply_error(x, 500, "no memory");
		return;
	}
	*p = (struct pending){.node = sandbox_node(sb), .id = id};
	http_exchange_collect(x, EXEC_REQUEST_MAX, on_start_collected, on_start_gone, p);
}
