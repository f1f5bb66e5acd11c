/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/api.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/edge.h"
#include "daemon/run.h"
#include "daemon/sandbox.h"

#define RUN_BODY_MAX   (8u << 20)  /* bytes: policy, environment, arguments */
#define SMALL_BODY_MAX (64u << 10) /* bytes */
#define AUDIT_TEXT_MAX (1u << 30)  /* bytes of one answer */

struct api {
	struct node *node;
	struct stream_listener *listener;
	struct list connections;
};

struct connection {
	struct list link;
	struct api *api;
	struct http_conn *conn;
};

static void reply_json(struct http_exchange *x, unsigned status, json_t *j)
{
	auto_json json_t *owned = j;
	auto_free char *text = owned ? doc_to_text(owned) : NULL;
	if (text)
		http_exchange_reply(x, status, "application/json", text, strlen(text));
	else
		http_exchange_reply_error(x, 500, "no memory");
}

static void get_version(struct node *n, struct http_exchange *x)
{
	(void)n;
	reply_json(x, 200, json_pack("{s:s, s:i}", "version", SPACE_VERSION, "pid", (int)getpid()));
}

static void get_sandboxes(struct node *n, struct http_exchange *x)
{
	reply_json(x, 200, sandbox_list_json(n));
}

static void get_sandbox(struct sandbox *sb, struct http_exchange *x)
{
	reply_json(x, 200, sandbox_to_json(sb));
}

/* A DELETE waits here until nothing is left. */
struct removal {
	struct sandbox_waiter waiter;
	struct http_exchange *x; /* NULL: the client did not wait */
};

static void on_removed(void *user)
{
	struct removal *r = user;
	if (r->x)
		http_exchange_reply(r->x, 204, NULL, NULL, 0);
	free(r);
}

static void ignore_body(void *user, const uint8_t *p, size_t n)
{
	(void)user;
	(void)p;
	(void)n;
}

static void ignore(void *user)
{
	(void)user;
}

static void on_remover_gone(void *user)
{
	struct removal *r = user;
	r->x = NULL;
}

static const struct http_exchange_ops removal_ops = {
	.body = ignore_body,
	.body_end = ignore,
	.drained = ignore,
	.gone = on_remover_gone,
};

static void delete_sandbox(struct sandbox *sb, struct http_exchange *x)
{
	struct err e;
	if (sandbox_state(sb) >= SANDBOX_EXITED) {
		if (sandbox_forget(sb, &e) < 0)
			http_exchange_reply_error(x, 500, "%s", e.text);
		else
			http_exchange_reply(x, 204, NULL, NULL, 0);
		return;
	}
	struct removal *r = calloc(1, sizeof(*r));
	if (!r) {
		http_exchange_reply_error(x, 500, "no memory");
		return;
	}
	r->x = x;
	r->waiter = (struct sandbox_waiter){.gone = on_removed, .user = r};
	http_exchange_on(x, &removal_ops, r);
	sandbox_remove(sb, &r->waiter);
}

static void get_logs(struct sandbox *sb, struct http_exchange *x)
{
	auto_free char *follow = NULL;
	if (http_query_get(http_exchange_head(x)->target, "follow", &follow) < 0)
		http_exchange_reply_error(x, 400, "follow: bad percent-encoding");
	else
		tasklog_serve(sandbox_log(sb), x, str_eq(follow, "true"));
}

struct dump {
	struct http_exchange *x;
};

static void on_dumped(void *user, const struct err *why)
{
	struct dump *d = user;
	if (d->x && why->code)
		http_exchange_reply_error(d->x, 500, "%s", why->text);
	else if (d->x)
		http_exchange_reply(d->x, 204, NULL, NULL, 0);
	free(d);
}

static void on_dumper_gone(void *user)
{
	struct dump *d = user;
	d->x = NULL;
}

static const struct http_exchange_ops dump_ops = {
	.body = ignore_body,
	.body_end = ignore,
	.drained = ignore,
	.gone = on_dumper_gone,
};

static void post_memory(struct sandbox *sb, struct http_exchange *x, const char *body, size_t n)
{
	struct err e = {0};
	auto_json json_t *j = doc_parse_json(body, n, &e);
	const char *path = NULL;
	if (!j || doc_want_string(j, "path", &path, &e) < 0 || *path != '/') {
		http_exchange_reply_error(x, 400, "%s", e.code ? e.text : "path must be absolute");
		return;
	}
	struct dump *d = sandbox_vmm(sb) ? calloc(1, sizeof(*d)) : NULL;
	if (!d) {
		http_exchange_reply_error(x, 409, "%s has no running microVM", sandbox_name(sb));
		return;
	}
	d->x = x;
	http_exchange_on(x, &dump_ops, d);
	int r = vmm_dump_memory(sandbox_vmm(sb), path, on_dumped, d);
	if (r < 0) {
		http_exchange_reply_error(x, 500, "can't write the memory to %s: %s", path,
					  strerror(-r));
		free(d);
	}
}

static int append_line(void *user, const char *line, size_t n)
{
	return buf_append(user, line, n);
}

static void get_audit(struct node *n, struct http_exchange *x)
{
	auto_free char *ref = NULL;
	struct err e = {.text = "more records than one answer holds: read audit.jsonl itself"};
	auto_buf struct buf text;
	buf_init(&text, AUDIT_TEXT_MAX);
	if (http_query_get(http_exchange_head(x)->target, "sandbox", &ref) < 0)
		http_exchange_reply_error(x, 400, "sandbox: bad percent-encoding");
	else if (audit_each(n->paths.audit, ref, append_line, &text, &e) < 0)
		http_exchange_reply_error(x, 500, "%s", e.text);
	else if (ref && !text.len)
		http_exchange_reply_error(x, 404, "no sandbox %s is on record", ref);
	else
		http_exchange_reply(x, 200, "application/x-ndjson", text.data, text.len);
}

static void get_verify(struct node *n, struct http_exchange *x)
{
	struct audit_verdict v;
	struct err e;
	if (audit_verify(n->paths.audit, &v, &e) < 0)
		http_exchange_reply_error(x, 500, "%s", e.text);
	else if (v.ok)
		reply_json(x, 200,
			   json_pack("{s:b, s:I, s:s}", "ok", 1, "records", (json_int_t)v.records,
				     "head", v.head));
	else
		reply_json(x, 200,
			   json_pack("{s:b, s:I, s:s}", "ok", 0, "line", (json_int_t)v.line,
				     "problem", v.problem));
}

/* What a collected body is for. */
struct collected {
	struct node *node;
	char *ref; /* NULL: POST /run */
};

static void collected_free(void *user)
{
	struct collected *c = user;
	free(c->ref);
	free(c);
}

static void on_collected(void *user, struct http_exchange *x, const char *body, size_t n)
{
	struct collected *c = user;
	struct sandbox *sb = c->ref ? sandbox_find(c->node, c->ref) : NULL;
	if (!c->ref)
		run_serve(c->node, x, body, n);
	else if (sb)
		post_memory(sb, x, body, n);
	else
		http_exchange_reply_error(x, 404, "no sandbox %s", c->ref);
	collected_free(c);
}

static void collect(struct node *n, struct http_exchange *x, const char *ref, size_t max)
{
	struct collected *c = calloc(1, sizeof(*c));
	char *copy = ref ? strdup(ref) : NULL;
	if (!c || (ref && !copy)) {
		free(c);
		free(copy);
		http_exchange_reply_error(x, 500, "no memory");
		return;
	}
	*c = (struct collected){.node = n, .ref = copy};
	http_exchange_collect(x, max, on_collected, collected_free, c);
}

/* Routes below /sandboxes/REF. */
static void serve_sandbox(struct node *n, struct http_exchange *x, const char *method, char *rest)
{
	char *sub = strchr(rest, '/');
	if (sub)
		*sub++ = '\0';
	struct sandbox *sb = sandbox_find(n, rest);
	if (!sb)
		http_exchange_reply_error(
			x, 404, "no sandbox %s: 'space ls' shows those that there are", rest);
	else if (!sub && str_eq(method, "GET"))
		get_sandbox(sb, x);
	else if (!sub && str_eq(method, "DELETE"))
		delete_sandbox(sb, x);
	else if (str_eq(sub, "logs") && str_eq(method, "GET"))
		get_logs(sb, x);
	else if (str_eq(sub, "memory") && str_eq(method, "POST"))
		collect(n, x, rest, SMALL_BODY_MAX);
	else
		http_exchange_reply_error(x, 404, "no such call");
}

static const struct {
	const char *method, *path;
	void (*serve)(struct node *n, struct http_exchange *x);
} routes[] = {
	{"GET", "/version", get_version},
	{"GET", "/sandboxes", get_sandboxes},
	{"GET", "/audit", get_audit},
	{"GET", "/audit/verify", get_verify},
};

static void on_request(void *user, struct http_exchange *x)
{
	struct connection *c = user;
	struct node *n = c->api->node;
	const struct http_head *head = http_exchange_head(x);
	if (edge_wants(head)) {
		edge_serve(n, x);
		return;
	}
	auto_free char *path = strndup(head->target, strcspn(head->target, "?"));
	if (!path) {
		http_exchange_reply_error(x, 500, "no memory");
		return;
	}
	for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
		if (str_eq(routes[i].method, head->method) && str_eq(routes[i].path, path)) {
			routes[i].serve(n, x);
			return;
		}
	}
	if (str_eq(path, "/run") && str_eq(head->method, "POST"))
		collect(n, x, NULL, RUN_BODY_MAX);
	else if (str_starts(path, "/sandboxes/"))
		serve_sandbox(n, x, head->method, path + strlen("/sandboxes/"));
	else
		http_exchange_reply_error(x, 404, "no such call");
}

static void on_connection_closed(void *user)
{
	struct connection *c = user;
	list_remove(&c->link);
	free(c);
}

static const struct http_server_ops server_ops = {.request = on_request,
						  .closed = on_connection_closed};
static const struct http_limits limits = {.head_timeout_ms = 10000, .idle_timeout_ms = 0};

static void on_accept(void *user, int fd)
{
	struct api *a = user;
	struct err e;
	struct connection *c = calloc(1, sizeof(*c));
	struct stream *s = stream_adopt(a->node->loop, fd, NULL, NULL, &e);
	if (!c || !s) {
		free(c);
		if (s)
			stream_close(s);
		return;
	}
	c->api = a;
	list_append(&a->connections, &c->link);
	c->conn = http_serve(s, NULL, 0, &limits, &server_ops, c);
	if (!c->conn)
		on_connection_closed(c);
}

static int bind_socket(const char *path, struct err *e)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof(addr.sun_path))
		return err_set(e, ENAMETOOLONG,
			       "%s is too long for a socket: set SPACE_RUN_DIR to a shorter path",
			       path);
	memcpy(addr.sun_path, path, strlen(path) + 1);
	auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(e, errno, "socket");
	unlink(path);
	mode_t old = umask(0177);
	int r = bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 ? -errno : 0;
	umask(old);
	if (r == 0 && listen(fd, 128) < 0)
		r = -errno;
	if (r < 0)
		return err_sys(e, -r, "can't listen on %s", path);
	return take_fd(fd);
}

struct api *api_listen(struct node *n, struct err *e)
{
	int fd = bind_socket(n->paths.socket, e);
	if (fd < 0)
		return NULL;
	struct api *a = calloc(1, sizeof(*a));
	if (!a) {
		close(fd);
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	a->node = n;
	list_init(&a->connections);
	a->listener = stream_listen(n->loop, fd, on_accept, a, e);
	if (a->listener)
		return a;
	free(a);
	return NULL;
}

void api_close(struct api *a)
{
	stream_listener_close(a->listener);
	list_for_each (it, &a->connections) {
		struct connection *c = list_entry(it, struct connection, link);
		http_conn_close(c->conn);
		on_connection_closed(c);
	}
	unlink(a->node->paths.socket);
	free(a);
}
