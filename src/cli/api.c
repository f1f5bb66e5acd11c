/* SPDX-License-Identifier: Apache-2.0 */
/* Calls to spaced over its unix socket. */
#include "cli/api.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/launch.h"
#include "http/stream.h"

static int wrap(struct cli *cli, int fd, void (*closed)(void *user), void *user,
		struct http_client **ret, struct err *e)
{
	struct stream *s = stream_adopt(&cli->loop, fd, NULL, NULL, e);
	if (!s)
		return -e->code;
	struct http_client *c = http_client_new(s, closed, user);
	if (!c)
		return err_set(e, ENOMEM, "out of memory");
	*ret = c;
	return 0;
}

int api_open(struct cli *cli, struct http_client **ret, struct err *e)
{
	int fd;
	int r = launch_connect(cli, &fd, e);
	return r < 0 ? r : wrap(cli, fd, NULL, NULL, ret, e);
}

int api_open_running(struct cli *cli, void (*closed)(void *user), void *user,
		     struct http_client **ret, struct err *e)
{
	int fd;
	int r = launch_connect_running(cli, &fd, e);
	return r < 0 ? r : wrap(cli, fd, closed, user, ret, e);
}

int api_request(struct http_head *head, const char *method, const char *target,
		const char *content_type, size_t n)
{
	*head = (struct http_head){.minor = 1, .framing = HTTP_NO_BODY};
	head->method = strdup(method);
	head->target = strdup(target);
	int r = head->method && head->target ? 0 : -ENOMEM;
	if (r == 0)
		r = http_fields_add(&head->fields, "Host", "localhost");
	if (r == 0 && content_type) {
		r = http_fields_add(&head->fields, "Content-Type", content_type);
		head->framing = HTTP_LENGTH;
		head->length = n;
	}
	if (r < 0)
		http_head_done(head);
	return r;
}

int api_to_agent(struct http_head *head, const char *sandbox_id)
{
	int r = http_fields_add(&head->fields, "E2b-Sandbox-Id", sandbox_id);
	if (r == 0)
		r = http_fields_add(&head->fields, "E2b-Sandbox-Port", "49983");
	if (r == 0)
		r = http_fields_add(&head->fields, "Connect-Protocol-Version", "1");
	return r;
}

static int status_errno(unsigned status)
{
	switch (status) {
	case 404:
		return ENOENT;
	case 409:
		return EEXIST;
	case 507:
		return ENOSPC;
	default:
		return status < 500 ? EINVAL : EIO;
	}
}

int api_error(unsigned status, const char *body, size_t n, struct err *e)
{
	auto_json json_t *j = n ? doc_parse_json(body, n, NULL) : NULL;
	const char *message = json_string_value(json_object_get(j, "message"));
	if (message && *message)
		return err_set(e, status_errno(status), "%s", message);
	return err_set(e, status_errno(status), "spaced answered %u %s", status,
		       http_reason(status));
}

struct call {
	bool over;
	unsigned status;
	char *body;
	size_t len;
	struct err why;
};

static void call_done(void *user, unsigned status, const char *body, size_t n,
		      const struct err *why)
{
	struct call *c = user;
	c->over = true;
	c->status = status;
	if (status == 0) {
		c->why = *why;
		return;
	}
	c->body = strndup(body ? body : "", n);
	c->len = c->body ? strlen(c->body) : 0;
}

static int reply_read(struct call *c, json_t **ret, struct err *e)
{
	if (c->status == 0) {
		*e = c->why;
		return err_prefix(e, "no answer from spaced");
	}
	if (c->status >= 400)
		return api_error(c->status, c->body, c->len, e);
	if (!ret)
		return 0;
	*ret = NULL;
	if (c->status == 204)
		return 0;
	*ret = doc_parse_json(c->body, c->len, e);
	return *ret ? 0 : err_prefix(e, "spaced's answer cannot be read");
}

typedef void reply_fn(void *user, unsigned status, const char *body, size_t n,
		      const struct err *why);

/* Sends a request with the given text as its body on c, which it takes over. */
static int fetch(struct http_client *c, struct http_head *head, const char *text,
		 uint64_t timeout_ms, reply_fn *done, void *user, struct err *e)
{
	size_t n = text ? strlen(text) : 0;
	int r = http_client_fetch(c, head, text, n, API_REPLY_MAX, timeout_ms, done, user);
	http_head_done(head);
	return r < 0 ? err_sys(e, -r, "call to spaced") : 0;
}

static int json_request(struct http_head *head, const char *method, const char *target,
			const char *text, struct err *e)
{
	int r = api_request(head, method, target, text ? "application/json" : NULL,
			    text ? strlen(text) : 0);
	return r < 0 ? err_set(e, -r, "out of memory") : 0;
}

int api_call_async(struct cli *cli, const char *method, const char *target, const char *sandbox_id,
		   const char *text, uint64_t timeout_ms, reply_fn *done, void *user, struct err *e)
{
	struct http_head head;
	struct http_client *c;
	int r = json_request(&head, method, target, text, e);
	if (r < 0)
		return r;
	if (sandbox_id && api_to_agent(&head, sandbox_id) < 0)
		r = err_set(e, ENOMEM, "out of memory");
	if (r == 0)
		r = api_open_running(cli, NULL, NULL, &c, e);
	if (r == 0)
		return fetch(c, &head, text, timeout_ms, done, user, e);
	http_head_done(&head);
	return r;
}

int api_call(struct cli *cli, const char *method, const char *target, const json_t *body,
	     json_t **ret, struct err *e)
{
	auto_free char *text = body ? doc_to_text(body) : NULL;
	if (body && !text)
		return err_set(e, ENOMEM, "out of memory");
	struct http_head head;
	struct http_client *client;
	int r = json_request(&head, method, target, text, e);
	if (r < 0)
		return r;
	r = api_open(cli, &client, e);
	if (r < 0) {
		http_head_done(&head);
		return r;
	}
	struct call call = {0};
	r = fetch(client, &head, text, API_CALL_MS, call_done, &call, e);
	if (text)
		explicit_bzero(text, strlen(text)); /* a request may hold secrets */
	if (r < 0)
		return r;
	while (!call.over && uv_run(&cli->loop, UV_RUN_ONCE))
		;
	r = reply_read(&call, ret, e);
	free(call.body);
	return r;
}

void api_print_json(const json_t *j)
{
	json_dumpf(j, stdout, JSON_INDENT(2) | (isatty(STDOUT_FILENO) ? JSON_ENSURE_ASCII : 0u));
	putchar('\n');
}

void api_print_line(const json_t *j)
{
	json_dumpf(j, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
	putchar('\n');
}

char *api_sandbox_path(const char *ref, const char *rest)
{
	auto_free char *encoded = http_percent_encode(ref, false);
	return encoded ? str_printf("/sandboxes/%s%s", encoded, rest) : NULL;
}

static int need_living(const char *ref, json_t *sandbox, struct err *e)
{
	const char *state = "running";
	int r = doc_opt_string(sandbox, "state", &state, e);
	if (r < 0)
		return err_prefix(e, "spaced's answer cannot be read");
	if (str_eq(state, "exited") || str_eq(state, "failed"))
		return err_set(
			e, ESRCH,
			"%s has ended: 'space logs %s' shows what it printed, 'space rm %s' removes it",
			ref, ref, ref);
	if (str_eq(state, "stopping"))
		return err_set(e, ESRCH, "%s is stopping", ref);
	return 0; /* a call waits for one that starts, and resumes one that is paused */
}

int api_sandbox_id(struct cli *cli, const char *ref, char **ret, struct err *e)
{
	auto_free char *path = api_sandbox_path(ref, "");
	if (!path)
		return err_set(e, ENOMEM, "out of memory");
	auto_json json_t *sandbox = NULL;
	int r = api_call(cli, "GET", path, NULL, &sandbox, e);
	if (r < 0)
		return r;
	const char *id;
	r = doc_want_string(sandbox, "sandboxID", &id, e);
	if (r < 0)
		return err_prefix(e, "spaced's answer cannot be read");
	r = need_living(ref, sandbox, e);
	if (r < 0)
		return r;
	*ret = strdup(id);
	return *ret ? 0 : err_set(e, ENOMEM, "out of memory");
}
