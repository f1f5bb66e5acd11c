/* SPDX-License-Identifier: Apache-2.0 */
/* process.Process/Start and Connect: run a process, or join one that runs, and stream what it
 * writes. */
#include <errno.h>

#include "agent/client.h"
#include "agent/selector.h"
#include "agent/start_request.h"
#include "agent/text.h"
#include "base/cleanup.h"

#define START_MESSAGE_MAX   (4 * 1024 * 1024) /* bytes of JSON */
#define CONNECT_MESSAGE_MAX (64 * 1024)       /* likewise */

/* The user that the request names, or the default one. */
static int find_user(const struct client *c, struct user *ret, struct err *e)
{
	const char *value = http_fields_get(&http_exchange_head(c->x)->fields, "authorization");
	const struct settings *settings = &c->agent->settings;
	auto_free char *name = NULL;
	int r = value ? text_basic_user(value, &name) : 0;
	if (r < 0)
		return err_set(e, -r, "invalid Authorization: want Basic with a user name");
	r = agent_user(c->agent, name, ret);
	if (r == -ENOENT)
		return err_set(e, ENOENT, "invalid username: '%s'",
			       name             ? name
			       : settings->user ? settings->user
						: "root");
	return r < 0 ? err_sys(e, -r, "can't read the users") : 0;
}

static int start_process(const struct client *c, const struct start_request *req,
			 const struct user *user, struct process **ret, struct err *e)
{
	const struct settings *settings = &c->agent->settings;
	auto_env struct env env = {0};
	auto_free char *cwd = NULL;
	int r = start_environment(req, settings, user, &env, e);
	if (r == 0)
		r = start_directory(req, settings, user, &cwd, e);
	if (r < 0)
		return r;
	const char *path = env_get(&env, "PATH");
	struct spawn_plan plan = {
		.argv = (char *const *)req->argv,
		.envp = env.list,
		.path = path ? path : "",
		.cwd = cwd,
		.user = user,
		.group_procs = c->agent->group.procs,
	};
	return process_start(&c->agent->processes, &plan, req->want_stdin, req->tag, req->process,
			     ret, e);
}

static void run(struct client *c, const struct start_request *req)
{
	auto_user struct user user = {0};
	struct process *p;
	struct err e = {0};
	if (req->want_pty) {
		client_fail(c, RPC_UNIMPLEMENTED, "PTYs are not implemented");
		return;
	}
	if (find_user(c, &user, &e) < 0) {
		client_fail(c, RPC_UNAUTHENTICATED, "%s", e.text);
		return;
	}
	int r = start_process(c, req, &user, &p, &e);
	if (r < 0) {
		bool full = r == -EAGAIN || r == -ENOMEM || r == -EMFILE;
		client_fail(c, full ? RPC_RESOURCE_EXHAUSTED : RPC_INVALID_ARGUMENT, "%s", e.text);
		return;
	}
	uint64_t timeout = client_timeout_ms(c);
	if (timeout)
		process_set_deadline(p, timeout);
	client_attach(c, p, 0);
}

static void on_start(struct client *c, const char *text, size_t n)
{
	struct start_request req;
	struct err e = {0};
	if (c->agent->processes.held) {
		client_defer(c, text, n);
		return;
	}
	int r = start_request_read(text, n, &req, &e);
	if (r < 0) {
		client_fail(c, r == -ENOMEM ? RPC_RESOURCE_EXHAUSTED : RPC_INVALID_ARGUMENT, "%s",
			    e.text);
		return;
	}
	run(c, &req);
	start_request_done(&req);
}

void agent_start(struct agent *a, struct http_exchange *x)
{
	client_open(a, x, START_MESSAGE_MAX, on_start);
}

static void on_connect(struct client *c, const char *text, size_t n)
{
	struct selector which;
	struct err e = {0};
	auto_json json_t *message = doc_parse_json(text, n, &e);
	if (!message || selector_read(message, &which, &e) < 0) {
		client_fail(c, RPC_INVALID_ARGUMENT, "%s", e.text);
		return;
	}
	struct process *p = selector_find(&which, &c->agent->processes, true, &e);
	if (p)
		client_attach(c, p, client_timeout_ms(c));
	else
		client_fail(c, RPC_NOT_FOUND, "%s", e.text);
}

void agent_connect(struct agent *a, struct http_exchange *x)
{
	client_open(a, x, CONNECT_MESSAGE_MAX, on_connect);
}
