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

#include "agent/machine.h"
#include "agent/rpc.h"
#include "agent/text.h"
#include "base/log.h"
#include "base/str.h"

#define HEAD_TIMEOUT_MS (30 * 1000)
#define IDLE_TIMEOUT_MS (660 * 1000)
#define OUT_MAX         (1024 * 1024) /* bytes of messages put together at once */
#define PATH_SHOWN_MAX  200

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
	{"POST", "/hold", ACCESS_TOKEN, agent_hold},
	{"POST", "/release", ACCESS_TOKEN, agent_release},
	{"POST", "/process.Process/Start", ACCESS_TOKEN, agent_start},
	{"POST", "/process.Process/Connect", ACCESS_TOKEN, agent_connect},
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

static bool knows_token(const struct agent *a, const struct http_head *head)
{
	if (!a->settings.token)
		return true;
	const char *given = http_fields_get(&head->fields, "x-access-token");
	return given && text_same_secret(a->settings.token, given);
}

/* The host's clock as it was when the request left. */
static void take_time(const struct http_head *head)
{
	const char *text = http_fields_get(&head->fields, "x-space-time");
	uint64_t wall_ns;
	struct err e = {0};
	if (text && str_to_u64(text, 0, MACHINE_TIME_MAX_NS, &wall_ns) == 0 &&
	    machine_set_clock((int64_t)wall_ns, &e) < 0)
		log_warn("%s", e.text);
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
	bool other_method = false, trusted = knows_token(c->agent, head);
	size_t n;
	const char *path = target_path(head->target, &n);

	if (trusted && c->agent->machine)
		take_time(head);
	for (const struct route *r = routes; r < routes + ROUTE_COUNT; r++) {
		if (strlen(r->path) != n || memcmp(r->path, path, n) != 0)
			continue;
		other_method = true;
		if (!str_eq(r->method, head->method))
			continue;
		if (trusted || r->access == ACCESS_ALL)
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
	static const struct http_limits limits = {.head_timeout_ms = HEAD_TIMEOUT_MS,
						  .idle_timeout_ms = IDLE_TIMEOUT_MS};
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
	*a = (struct agent){.loop = loop, .machine = machine, .group = GROUP_NONE};
	list_init(&a->connections);
	list_init(&a->deferred);
	buf_init(&a->out, OUT_MAX);
	int r = processes_init(&a->processes, loop);
	if (r < 0) {
		close(listen_fd);
		return err_sys(e, -r, "can't watch processes");
	}
	if (machine && group_open(&a->group, e) < 0)
		log_warn("processes won't stand still while they are copied: %s", e->text);
	uv_timer_init(loop, &a->hold_timer);
	a->hold_timer.data = a;
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
	uv_close((uv_handle_t *)&a->hold_timer, NULL);
	group_close(&a->group);
	settings_done(&a->settings);
	buf_done(&a->out);
}

void agent_drop_others(struct agent *a, const struct http_exchange *x)
{
	list_for_each (link, &a->connections) {
		struct connection *c = list_entry(link, struct connection, link);
		if (c->http == http_exchange_conn(x))
			continue;
		/* No one is there to acknowledge what is still in the kernel's queue. */
		struct linger now = {.l_onoff = 1};
		setsockopt(stream_fd(http_conn_stream(c->http)), SOL_SOCKET, SO_LINGER, &now,
			   sizeof(now));
		http_conn_close(c->http);
		forget(c);
	}
}

int agent_user(const struct agent *a, const char *name, struct user *ret)
{
	if (!name || !*name)
		name = a->settings.user ? a->settings.user : "root";
	return user_load(name, ret);
}
