/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gateway.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "daemon/words.h"
#include "jail/jail.h"

#define MESSAGE_MAX (512 * 1024) /* bytes */
#define BURST       256          /* messages a wake */
#define CONTROL_FD  3

struct gateway {
	struct node *node;
	char *sandbox;
	int control, pidfd;
	struct words *words; /* of its standard error */
	uv_poll_t control_poll, pid_poll;
	unsigned handles; /* of libuv, still closing */
	bool polling, exited;
	bool acking;       /* an ack waits for room in the socket */
	uint64_t recorded; /* the seq of the last record written */
	struct err why;    /* first reason to end it */
	const struct gateway_ops *ops;
	void *user;
	uint8_t *message; /* MESSAGE_MAX bytes */
};

static void gateway_free(struct gateway *g)
{
	if (g->control >= 0)
		close(g->control);
	if (g->pidfd >= 0)
		close(g->pidfd);
	words_close(g->words);
	free(g->message);
	free(g->sandbox);
	free(g);
}

static void on_closed(uv_handle_t *h)
{
	struct gateway *g = h->data;
	if (--g->handles == 0)
		gateway_free(g);
}

static void stop_control(struct gateway *g)
{
	if (!g->polling)
		return;
	g->polling = false;
	uv_close((uv_handle_t *)&g->control_poll, on_closed);
}

void gateway_kill(struct gateway *g)
{
	stop_control(g);
	/* From the pidfd, so never a stranger. The process may be gone already: then it waits to be
	 * reaped. */
	pidfd_send_signal(g->pidfd, SIGKILL, NULL, 0);
}

static void on_control(uv_poll_t *p, int status, int events);

static void send_ack(struct gateway *g)
{
	char text[64];
	int n = snprintf(text, sizeof(text), "{\"type\":\"ack\",\"seq\":%ju}",
			 (uintmax_t)g->recorded);
	int r = fd_send(g->control, text, (size_t)n, NULL, 0);
	g->acking = r == -EAGAIN;
	uv_poll_start(&g->control_poll, UV_READABLE | (g->acking ? UV_WRITABLE : 0), on_control);
}

/* What a gateway may record: its own kinds, under this sandbox. */
static int take_record(struct gateway *g, const json_t *message)
{
	const char *kind = NULL;
	uint64_t seq;
	json_t *event;
	int r = doc_want_uint(message, "seq", g->recorded + 1, INT64_MAX, &seq, &g->why);
	if (r == 0)
		r = doc_want_object(message, "event", &event, &g->why);
	if (r == 0)
		r = doc_want_string(event, "kind", &kind, &g->why);
	if (r < 0)
		return r;
	if (!str_starts(kind, "egress."))
		return err_set(&g->why, EBADMSG, "a record of a kind that is not its own");

	auto_free char *own_kind = strdup(kind);
	json_t *members = json_copy(event);
	json_object_del(members, "kind");
	r = own_kind ? audit_add(g->node->audit, g->sandbox, own_kind, members) : -ENOMEM;
	if (r < 0)
		return err_sys(&g->why, -r, "a record that can't be written");
	g->recorded = seq;
	return 0;
}

static int take_message(struct gateway *g, size_t n)
{
	auto_json json_t *m = doc_parse_json((const char *)g->message, n, &g->why);
	const char *type = NULL, *text = "no reason given";
	if (!m)
		return -EBADMSG;
	int r = doc_want_string(m, "type", &type, &g->why);
	if (r < 0)
		return r;
	if (str_eq(type, "audit"))
		return take_record(g, m);
	if (str_eq(type, "ready")) {
		g->ops->ready(g->user);
		return 0;
	}
	if (str_eq(type, "failed"))
		doc_opt_string(m, "message", &text, NULL);
	return err_set(&g->why, EPROTO, "%s", text);
}

/* Reads what has come. Returns the count of messages, -ENODATA at the end of the socket. */
static int drain(struct gateway *g)
{
	int count = 0;
	while (count < BURST) {
		ssize_t n = fd_recv(g->control, g->message, MESSAGE_MAX, NULL, NULL);
		if (n == -EAGAIN)
			break;
		if (n <= 0)
			return n < 0 ? (int)n : -ENODATA;
		int r = take_message(g, (size_t)n);
		if (r < 0)
			return r;
		count++;
	}
	return count;
}

static void on_control(uv_poll_t *p, int status, int events)
{
	struct gateway *g = p->data;
	(void)status;
	if ((events & UV_WRITABLE) && g->acking)
		send_ack(g);
	if (!(events & (UV_READABLE | UV_DISCONNECT)))
		return;

	uint64_t before = g->recorded;
	int r = drain(g);
	int w = audit_flush(g->node->audit, &g->why);
	if (r < 0 || w < 0)
		gateway_kill(g);
	else if (g->recorded != before)
		send_ack(g);
}

static void on_exit_readable(uv_poll_t *p, int status, int events)
{
	struct gateway *g = p->data;
	(void)status;
	(void)events;
	siginfo_t info = {0};
	if (waitid(P_PIDFD, (id_t)g->pidfd, &info, WEXITED | WNOHANG) < 0 || !info.si_pid)
		return;
	/* Its last words may still be in the socket. */
	if (g->polling && !g->why.code)
		drain(g);
	audit_flush(g->node->audit, NULL);
	stop_control(g);
	uv_close((uv_handle_t *)&g->pid_poll, on_closed);

	struct err why = g->why;
	if (!why.code && info.si_code == CLD_EXITED)
		err_set(&why, EIO, "it exited with status %d", info.si_status);
	else if (!why.code)
		err_set(&why, EIO, "it was ended by signal %d", info.si_status);
	err_prefix(&why, "the gateway is gone");
	g->ops->exited(g->user, &why);
}

static json_t *config_message(const struct node *n, const char *sandbox, const json_t *policy,
			      const json_t *secrets, struct err *e)
{
	auto_free char *cert = NULL;
	char *key = NULL;
	if (ca_issue(n->ca, sandbox, &cert, &key, e) < 0)
		return NULL;
	json_t *m = json_pack("{s:s, s:s, s:O, s:O, s:{s:s, s:s}}", "type", "config", "sandbox",
			      sandbox, "policy", policy, "secrets", secrets, "ca", "certificates",
			      cert, "key", key);
	explicit_bzero(key, strlen(key));
	free(key);
	if (!m)
		err_set(e, ENOMEM, "no memory");
	return m;
}

static int send_config(struct gateway *g, const struct slot *slot, const json_t *policy,
		       const json_t *secrets, struct err *e)
{
	auto_json json_t *m = config_message(g->node, g->sandbox, policy, secrets, e);
	if (!m)
		return -EIO;
	char *text = doc_to_text(m);
	if (!text)
		return err_set(e, ENOMEM, "no memory");
	size_t n = strlen(text);
	const int fds[] = {slot->tcp_fd, slot->dns_udp_fd, slot->dns_tcp_fd};
	int r = n <= MESSAGE_MAX ? fd_send(g->control, text, n, fds, 3) : -EMSGSIZE;
	explicit_bzero(text, n);
	free(text);
	return r < 0 ? err_sys(e, -r, "can't tell the gateway its policy") : 0;
}

static int spawn(struct gateway *g, uid_t uid, int peer, int words_fd, struct err *e)
{
	auto_free char *path = str_printf("%s/space-egress", g->node->paths.libexec);
	if (!path)
		return err_set(e, ENOMEM, "no memory");
	const char *const argv[] = {path, NULL};
	const struct jail_fd fds[] = {{.from = peer, .to = CONTROL_FD}};
	const struct jail_spec spec = {
		.name = "space-egress",
		.argv = argv,
		.fds = fds,
		.nfds = 1,
		.stdout_fd = words_fd,
		.uid = uid,
		.netns_fd = -1,
		.own_pid = true,
		.own_mount = true,
	};
	pid_t pid;
	return jail_spawn(&spec, &pid, &g->pidfd, e);
}

struct gateway *gateway_start(struct node *n, const char *sandbox, const struct slot *slot,
			      uid_t uid, const json_t *policy, const json_t *secrets,
			      const struct gateway_ops *ops, void *user, struct err *e)
{
	struct gateway *g = calloc(1, sizeof(*g));
	if (!g) {
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	*g = (struct gateway){.node = n, .control = -1, .pidfd = -1, .ops = ops, .user = user};
	g->sandbox = strdup(sandbox);
	g->message = malloc(MESSAGE_MAX);
	int ends[2] = {-1, -1}, room = 2 * MESSAGE_MAX;
	int r = 0;
	if (!g->sandbox || !g->message)
		r = err_set(e, ENOMEM, "no memory");
	else if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		r = err_sys(e, errno, "can't make a socket for the gateway");
	g->control = ends[0];
	auto_fd int peer = ends[1];
	auto_fd int words_fd = -1;
	if (r == 0 && !(g->words = words_open(n->loop, sandbox, &words_fd, e)))
		r = -EIO;
	if (r == 0) {
		setsockopt(ends[0], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
		setsockopt(peer, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
		r = send_config(g, slot, policy, secrets, e);
	}
	if (r == 0)
		r = spawn(g, uid, peer, words_fd, e);
	if (r < 0) {
		gateway_free(g);
		return NULL;
	}
	uv_poll_init(n->loop, &g->control_poll, g->control);
	uv_poll_init(n->loop, &g->pid_poll, g->pidfd);
	g->control_poll.data = g->pid_poll.data = g;
	g->handles = 2;
	g->polling = true;
	uv_poll_start(&g->control_poll, UV_READABLE, on_control);
	uv_poll_start(&g->pid_poll, UV_READABLE, on_exit_readable);
	return g;
}
