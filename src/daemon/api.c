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
#include "daemon/change.h"
#include "daemon/edge.h"
#include "daemon/egress_log.h"
#include "daemon/grants.h"
#include "daemon/learned.h"
#include "daemon/lifecycle.h"
#include "daemon/policies.h"
#include "daemon/ready.h"
#include "daemon/run.h"
#include "daemon/sandbox.h"
#include "daemon/secrets.h"
#include "daemon/waiting.h"

#define RUN_BODY_MAX     (8u << 20)  /* bytes: policy, environment, arguments */
#define SMALL_BODY_MAX   (64u << 10) /* bytes */
#define SECRETS_BODY_MAX (1u << 20)  /* bytes */
#define AUDIT_TEXT_MAX   (1u << 30)  /* bytes of one answer */

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
	reply_json(x, 200,
		   json_pack("{s:s, s:i, s:o}", "version", SPACE_VERSION, "pid", (int)getpid(),
			     "ready", ready_to_json(n)));
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

static void on_remover_gone(void *user)
{
	struct removal *r = user;
	r->x = NULL;
}

static const struct http_exchange_ops removal_ops = WAITING_OPS(on_remover_gone);

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

static const struct http_exchange_ops dump_ops = WAITING_OPS(on_dumper_gone);

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
	char *ref; /* of a sandbox, or for serve_named; NULL: it is about neither */
	void (*serve_named)(struct node *n, const char *name, struct http_exchange *x,
			    const char *body, size_t len);
	void (*serve)(struct sandbox *sb, struct http_exchange *x, const char *body, size_t n);
	void (*serve_node)(struct node *n, struct http_exchange *x, const char *body, size_t len);
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
	struct sandbox *sb = c->ref && !c->serve_named ? sandbox_find(c->node, c->ref) : NULL;
	if (c->serve_named)
		c->serve_named(c->node, c->ref, x, body, n);
	else if (!c->ref)
		c->serve_node(c->node, x, body, n);
	else if (sb)
		c->serve(sb, x, body, n);
	else
		http_exchange_reply_error(x, 404, "no sandbox %s", c->ref);
	collected_free(c);
}

static void collect(struct http_exchange *x, const struct collected *what, size_t max)
{
	struct collected *c = calloc(1, sizeof(*c));
	char *copy = what->ref ? strdup(what->ref) : NULL;
	if (!c || (what->ref && !copy)) {
		free(c);
		free(copy);
		http_exchange_reply_error(x, 500, "no memory");
		return;
	}
	*c = *what;
	c->ref = copy;
	http_exchange_collect(x, max, on_collected, collected_free, c);
}

static const struct {
	const char *name;
	void (*serve)(struct sandbox *sb, struct http_exchange *x, const char *body, size_t n);
} posts[] = {
	{"memory", post_memory},          {"pause", lifecycle_pause}, {"resume", lifecycle_resume},
	{"snapshot", lifecycle_snapshot}, {"fork", lifecycle_fork},
	{"grants", grants_add},
};

static bool serve_post(struct node *n, struct http_exchange *x, char *ref, const char *what)
{
	for (size_t i = 0; i < sizeof(posts) / sizeof(posts[0]); i++) {
		if (!str_eq(posts[i].name, what))
			continue;
		const struct collected c = {.node = n, .ref = ref, .serve = posts[i].serve};
		collect(x, &c, SECRETS_BODY_MAX);
		return true;
	}
	return false;
}

/* What is read from the audit log, which also knows sandboxes that are gone: an id, or a name. */
static bool serve_records(struct node *n, struct http_exchange *x, const char *method,
			  const char *ref, const char *what)
{
	if (!what || !str_eq(method, "GET") ||
	    (!str_eq(what, "egress") && !str_eq(what, "learned")))
		return false;
	const struct sandbox *sb = sandbox_find(n, ref);
	const char *known = sb ? sandbox_id(sb) : ref;
	auto_free char *follow = NULL;
	if (str_eq(what, "learned"))
		learned_serve(n, x, known);
	else if (http_query_get(http_exchange_head(x)->target, "follow", &follow) < 0)
		http_exchange_reply_error(x, 400, "follow: bad percent-encoding");
	else
		egress_log_serve(n, x, known, sb && str_eq(follow, "true"));
	return true;
}

static bool serve_policy(struct node *n, struct http_exchange *x, const char *method,
			 struct sandbox *sb, char *ref, const char *what)
{
	if (!str_eq(what, "policy"))
		return false;
	if (str_eq(method, "GET")) {
		change_show(sb, x);
		return true;
	}
	const struct collected c = {.node = n, .ref = ref, .serve = change_policy};
	if (str_eq(method, "PUT"))
		collect(x, &c, RUN_BODY_MAX);
	return str_eq(method, "PUT");
}

static bool serve_grants(struct http_exchange *x, const char *method, struct sandbox *sb,
			 const char *what)
{
	if (str_eq(what, "grants") && str_eq(method, "GET"))
		grants_list(sb, x);
	else if (str_starts(what, "grants/") && str_eq(method, "DELETE"))
		grants_revoke(sb, x, what + strlen("grants/"));
	else
		return false;
	return true;
}

/* Routes below /sandboxes/REF. */
static void serve_sandbox(struct node *n, struct http_exchange *x, const char *method, char *rest)
{
	char *sub = strchr(rest, '/');
	if (sub)
		*sub++ = '\0';
	if (serve_records(n, x, method, rest, sub))
		return;
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
	else if (sub &&
		 (serve_policy(n, x, method, sb, rest, sub) || serve_grants(x, method, sb, sub)))
		return;
	else if (!sub || !str_eq(method, "POST") || !serve_post(n, x, rest, sub))
		http_exchange_reply_error(x, 404, "no such call");
}

/* Routes below /secrets. */
static void serve_secret(struct node *n, struct http_exchange *x, const char *method, char *name)
{
	char *sub = strchr(name, '/');
	if (sub)
		*sub++ = '\0';
	const struct collected c = {.node = n, .ref = name, .serve_named = credentials_put};
	if (!sub && str_eq(method, "PUT"))
		collect(x, &c, CREDENTIALS_BODY_MAX);
	else if (!sub && str_eq(method, "GET"))
		credentials_show(n, name, x);
	else if (!sub && str_eq(method, "DELETE"))
		credentials_delete(n, name, x);
	else if (str_eq(sub, "test") && str_eq(method, "POST"))
		credentials_test(n, name, x);
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
	{"GET", "/templates", lifecycle_templates},
	{"GET", "/secrets", credentials_list},
};

static const struct {
	const char *path;
	void (*serve)(struct node *n, struct http_exchange *x, const char *body, size_t len);
	size_t max; /* bytes of a body */
} node_posts[] = {
	{"/run", run_serve, RUN_BODY_MAX},
	{"/templates", lifecycle_build_template, SMALL_BODY_MAX},
	{"/policies/check", policies_check, RUN_BODY_MAX},
	{"/policies/explain", policies_explain, RUN_BODY_MAX},
};

static bool serve_node_post(struct node *n, struct http_exchange *x, const char *method,
			    const char *path)
{
	for (size_t i = 0; i < sizeof(node_posts) / sizeof(node_posts[0]); i++) {
		if (!str_eq(method, "POST") || !str_eq(node_posts[i].path, path))
			continue;
		const struct collected c = {.node = n, .serve_node = node_posts[i].serve};
		collect(x, &c, node_posts[i].max);
		return true;
	}
	return false;
}

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
	if (serve_node_post(n, x, head->method, path))
		return;
	if (str_starts(path, "/templates/") && str_eq(head->method, "DELETE"))
		lifecycle_remove_template(n, x, path + strlen("/templates/"));
	else if (str_starts(path, "/secrets/"))
		serve_secret(n, x, head->method, path + strlen("/secrets/"));
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
