/* SPDX-License-Identifier: Apache-2.0 */
/* Accepts connections, checks the access token and sends each request to the call that it names. */
#include "agent/agent.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/rpc.h"
#include "agent/text.h"
#include "base/log.h"
#include "base/str.h"

#define HEAD_TIMEOUT_MS (30 * 1000)
#define IDLE_TIMEOUT_MS (660 * 1000)
#define OUT_MAX         (1024 * 1024) /* bytes of messages put together at once */
#define PATH_SHOWN_MAX  200

struct connection {
	struct list link;
	struct agent *agent;
	struct http_conn *http;
};

enum access {
	ACCESS_ALL,
	ACCESS_TOKEN, /* X-Access-Token when there is a token */
};

struct route {
	const char *method;
	const char *path;
	enum access access;
	void (*call)(struct agent *a, struct http_exchange *x);
};

static void health(struct agent *a, struct http_exchange *x)
{
	(void)a;
	http_exchange_reply(x, 204, NULL, NULL, 0);
}

static const struct route routes[] = {
	{"GET", "/health", ACCESS_ALL, health},
	{"POST", "/init", ACCESS_TOKEN, agent_init_call},
	{"GET", "/files", ACCESS_TOKEN, agent_files_get},
	{"POST", "/files", ACCESS_TOKEN, agent_files_post},
	{"POST", "/process.Process/Start", ACCESS_TOKEN, agent_start},
	{"POST", "/process.Process/List", ACCESS_TOKEN, agent_list},
	{"POST", "/process.Process/SendInput", ACCESS_TOKEN, agent_send_input},
	{"POST", "/process.Process/CloseStdin", ACCESS_TOKEN, agent_close_stdin},
	{"POST", "/process.Process/SendSignal", ACCESS_TOKEN, agent_send_signal},
};

#define ROUTE_COUNT (sizeof(routes) / sizeof(routes[0]))

/* The path inside a target in origin-form or absolute-form. */
static const char *target_path(const char *target, size_t *ret_len)
{
	if (target[0] != '/') {
		const char *authority = strstr(target, "://");
		const char *slash = authority ? strpbrk(authority + 3, "/?") : NULL;
		target = slash ? slash : "";
	}
	*ret_len = strcspn(target, "?");
	return target;
}

static bool is_rpc(const char *path, size_t n)
{
	return str_starts(path, "/process.Process/") ||
	       (n && str_starts(path, "/filesystem.Filesystem/"));
}

static bool may(const struct agent *a, const struct http_head *head, enum access access)
{
	if (access == ACCESS_ALL || !a->settings.token)
		return true;
	const char *given = http_fields_get(&head->fields, "x-access-token");
	return given && text_same_secret(a->settings.token, given);
}

static void no_route(struct http_exchange *x, const char *path, size_t n, bool other_method)
{
	int shown = n < PATH_SHOWN_MAX ? (int)n : PATH_SHOWN_MAX;
	if (is_rpc(path, n) && !other_method)
		rpc_fail(x, RPC_UNIMPLEMENTED, "%.*s is not implemented", shown, path);
	else if (other_method)
		http_exchange_reply_error(x, 405, "method not allowed on %.*s", shown, path);
	else
		http_exchange_reply_error(x, 404, "there is nothing at %.*s", shown, path);
}

static void on_request(void *user, struct http_exchange *x)
{
	struct connection *c = user;
	const struct http_head *head = http_exchange_head(x);
	bool other_method = false;
	size_t n;
	const char *path = target_path(head->target, &n);

	for (const struct route *r = routes; r < routes + ROUTE_COUNT; r++) {
		if (strlen(r->path) != n || memcmp(r->path, path, n) != 0)
			continue;
		other_method = true;
		if (!str_eq(r->method, head->method))
			continue;
		if (may(c->agent, head, r->access))
			r->call(c->agent, x);
		else
			http_exchange_reply_error(x, 401,
						  "unauthorized access, please provide a valid "
						  "access token");
		return;
	}
	no_route(x, path, n, other_method);
}

static void forget(struct connection *c)
{
	list_remove(&c->link);
	c->agent->connection_count--;
	free(c);
}

static void on_closed(void *user)
{
	forget(user);
}

static void on_accept(void *user, int fd)
{
	static const struct http_server_ops ops = {.request = on_request, .closed = on_closed};
	static const struct http_limits limits = {HEAD_TIMEOUT_MS, IDLE_TIMEOUT_MS};
	struct agent *a = user;
	int on = 1;
	if (a->connection_count >= AGENT_CONNECTIONS_MAX) {
		close(fd);
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	struct connection *c = calloc(1, sizeof(*c));
	struct stream *s = stream_adopt(a->loop, fd, NULL, NULL, NULL);
	if (!c || !s) {
		if (s)
			stream_close(s);
		free(c);
		return;
	}
	c->agent = a;
	list_append(&a->connections, &c->link);
	a->connection_count++;
	c->http = http_serve(s, NULL, 0, &limits, &ops, c);
	if (!c->http)
		forget(c);
}

int agent_init(struct agent *a, uv_loop_t *loop, int listen_fd, bool machine, struct err *e)
{
	*a = (struct agent){.loop = loop, .machine = machine};
	list_init(&a->connections);
	buf_init(&a->out, OUT_MAX);
	int r = processes_init(&a->processes, loop);
	if (r < 0) {
		close(listen_fd);
		return err_sys(e, -r, "can't watch processes");
	}
	a->listener = stream_listen(loop, listen_fd, on_accept, a, e);
	return a->listener ? 0 : -e->code;
}

void agent_done(struct agent *a)
{
	stream_listener_close(a->listener);
	list_for_each (link, &a->connections) {
		struct connection *c = list_entry(link, struct connection, link);
		http_conn_close(c->http);
		forget(c);
	}
	processes_done(&a->processes);
	settings_done(&a->settings);
	buf_done(&a->out);
}

int agent_user(const struct agent *a, const char *name, struct user *ret)
{
	if (!name || !*name)
		name = a->settings.user ? a->settings.user : "root";
	return user_load(name, ret);
}
