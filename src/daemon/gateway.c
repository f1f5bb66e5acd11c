/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gateway.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/proc.h"
#include "base/str.h"
#include "daemon/words.h"
#include "jail/jail.h"
#include "jail/plan.h"

#define MESSAGE_MAX (512 * 1024) /* bytes */
#define RECEIVE_MAX (128 * 1024) /* bytes of what a gateway says */
#define BURST       256          /* messages a wake */
#define CONTROL_FD  3
#define LISTEN_FD   4
#define BACKLOG     4
#define SOCKET_NAME "gateway"
#define ADOPT_MS    10000 /* for a gateway to say where it is */
#define END_MS      1000  /* for one that is told to end to record what was open */
#define CHANGE_MS   10000 /* for it to obey another policy, or a message about a credential */

enum gateway_state {
	GATEWAY_WAITING,    /* for its configuration */
	GATEWAY_CONFIGURED, /* will say that it is ready */
	GATEWAY_ADOPTED,    /* will say where it is */
	GATEWAY_READY,
	GATEWAY_CLOSING, /* told to end; records how what was open has ended */
	GATEWAY_ENDING,  /* killed, or gone */
};

/* A message about a credential that is not answered yet. */
struct asked {
	struct list link;
	char *text;           /* NULL: it is sent */
	uint64_t due_ms;      /* monotonic */
	gateway_done_fn done; /* may be NULL */
	void *user;
};

struct gateway {
	struct node *node;
	enum gateway_state state;
	char *sandbox; /* NULL while waiting */
	int control, pidfd;
	bool child; /* of ours, so that it can be waited for */
	struct gateway_identity who;
	struct words *words; /* of its standard error; NULL when it was adopted */
	uv_poll_t control_poll, pid_poll;
	uv_timer_t late;
	unsigned handles;  /* of libuv, still closing */
	bool acking;       /* an ack waits for room in the socket */
	uint64_t recorded; /* the seq of the last record written */
	struct err why;    /* first reason to end it */
	/* Who waits for it to obey another policy; NULL: nobody. */
	gateway_done_fn changed;
	void *changed_user;
	uint64_t change_due_ms; /* monotonic */
	struct list asked;      /* in the order in which they are answered */
	const struct gateway_ops *ops;
	void *user;
};

static void gateway_free(struct gateway *g)
{
	if (g->control >= 0)
		close(g->control);
	if (g->pidfd >= 0)
		close(g->pidfd);
	words_close(g->words);
	free(g->sandbox);
	free(g);
}

static void on_closed(uv_handle_t *h)
{
	struct gateway *g = h->data;
	if (--g->handles == 0)
		gateway_free(g);
}

/* No more of its messages, and no deadline. */
static void stop_listening(struct gateway *g)
{
	if (g->state == GATEWAY_ENDING)
		return;
	g->state = GATEWAY_ENDING;
	uv_close((uv_handle_t *)&g->control_poll, on_closed);
	uv_close((uv_handle_t *)&g->late, on_closed);
}

void gateway_kill(struct gateway *g)
{
	stop_listening(g);
	/* From the pidfd, so never a stranger. The process may be gone already: then it waits to be
	 * reaped. */
	pidfd_send_signal(g->pidfd, SIGKILL, NULL, 0);
}

static void on_end_late(uv_timer_t *t)
{
	gateway_kill(t->data);
}

void gateway_end(struct gateway *g)
{
	if (g->state != GATEWAY_READY) {
		gateway_kill(g);
		return;
	}
	g->state = GATEWAY_CLOSING;
	pidfd_send_signal(g->pidfd, SIGTERM, NULL, 0);
	uv_timer_start(&g->late, on_end_late, END_MS, 0);
}

struct gateway_identity gateway_identity(const struct gateway *g)
{
	return g->who;
}

/* -- what it says -- */

static void on_control(uv_poll_t *p, int status, int events);
static void send_asked(struct gateway *g);

static bool wants_room(const struct gateway *g)
{
	return g->acking ||
	       (!list_empty(&g->asked) && list_entry(g->asked.prev, struct asked, link)->text);
}

static void watch_control(struct gateway *g)
{
	if (g->state != GATEWAY_ENDING)
		uv_poll_start(&g->control_poll, UV_READABLE | (wants_room(g) ? UV_WRITABLE : 0),
			      on_control);
}

static void send_ack(struct gateway *g)
{
	char text[64];
	int n = snprintf(text, sizeof(text), "{\"type\":\"ack\",\"seq\":%ju}",
			 (uintmax_t)g->recorded);
	int r = fd_send(g->control, text, (size_t)n, NULL, 0);
	g->acking = r == -EAGAIN;
	watch_control(g);
}

/* What a gateway may record: its own kinds, under this sandbox. 0 or -errno. */
static int take_record(struct gateway *g, json_t *event)
{
	const char *kind = NULL;
	int r = doc_want_string(event, "kind", &kind, &g->why);
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
	if (g->ops->recorded && g->state != GATEWAY_ENDING)
		g->ops->recorded(g->user, event);
	return 0;
}

/* Their count or -errno. */
static int take_records(struct gateway *g, const json_t *message)
{
	uint64_t seq;
	json_t *events;
	int r = doc_want_uint(message, "seq", g->recorded + 1, INT64_MAX, &seq, &g->why);
	if (r == 0)
		r = doc_want_array(message, "events", &events, &g->why);
	if (r == 0 && !json_array_size(events))
		r = err_set(&g->why, EBADMSG, "a message of no records");
	for (size_t i = 0; r == 0 && i < json_array_size(events); i++) {
		json_t *event = json_array_get(events, i);
		r = json_is_object(event) ? take_record(g, event)
					  : err_set(&g->why, EBADMSG, "a record that is no object");
	}
	if (r < 0)
		return r;
	g->recorded = seq + json_array_size(events) - 1;
	return (int)json_array_size(events);
}

static void stand(struct gateway *g)
{
	g->state = GATEWAY_READY;
	uv_timer_stop(&g->late);
	g->ops->ready(g->user);
}

/* Where an adopted one is. */
static int take_state(struct gateway *g, const json_t *message)
{
	const char *sandbox = NULL;
	uint64_t seq;
	int r = doc_want_string(message, "sandbox", &sandbox, &g->why);
	if (r == 0)
		r = doc_want_uint(message, "seq", 0, INT64_MAX, &seq, &g->why);
	if (r < 0)
		return r;
	if (!str_eq(sandbox, g->sandbox))
		return err_set(&g->why, EPROTO, "it is another sandbox's");
	g->recorded = seq;
	stand(g);
	return 0;
}

static void on_answer_late(uv_timer_t *t)
{
	struct gateway *g = t->data;
	/* Nobody knows what it obeys. */
	err_set(&g->why, ETIMEDOUT, "it did not take a %s within %d s",
		g->changed ? "policy" : "credential", CHANGE_MS / 1000);
	gateway_kill(g);
}

/* The deadline of the answer that is due first. */
static void watch_answers(struct gateway *g)
{
	uint64_t due_ms = g->changed ? g->change_due_ms : UINT64_MAX, now_ms = clock_mono_ms();
	if (g->state >= GATEWAY_CLOSING)
		return;
	if (!list_empty(&g->asked)) {
		const struct asked *first = list_entry(g->asked.next, struct asked, link);
		if (first->due_ms < due_ms)
			due_ms = first->due_ms;
	}
	if (due_ms == UINT64_MAX)
		uv_timer_stop(&g->late);
	else
		uv_timer_start(&g->late, on_answer_late, due_ms > now_ms ? due_ms - now_ms : 0, 0);
}

static void tell_changed(struct gateway *g, const struct err *why)
{
	gateway_done_fn changed = take_ptr(g->changed);
	if (changed)
		changed(g->changed_user, why);
}

static void tell_asked(struct gateway *g, const struct err *why)
{
	struct asked *a = list_entry(g->asked.next, struct asked, link);
	gateway_done_fn done = a->done;
	void *user = a->user;
	list_remove(&a->link);
	if (a->text)
		explicit_bzero(a->text, strlen(a->text));
	free(a->text);
	free(a);
	if (done)
		done(user, why);
}

/* Its answer to another policy, or to the first message about a credential that waits for one. */
static int take_answer(struct gateway *g, const json_t *message, bool policy)
{
	bool ok = false;
	const char *text = "no reason given";
	struct err refused;
	int r = doc_opt_bool(message, "ok", &ok, &g->why);
	if (r == 0)
		r = doc_opt_string(message, "message", &text, &g->why);
	if (r < 0)
		return r;
	if (policy) {
		err_set(&refused, EINVAL, "the gateway refused the policy: %s", text);
		tell_changed(g, ok ? NULL : &refused);
	} else {
		err_set(&refused, EINVAL, "%s", text);
		tell_asked(g, ok ? NULL : &refused);
	}
	watch_answers(g);
	return 0;
}

/* The count of records, or -errno. */
static int take_message(struct gateway *g, const uint8_t *p, size_t n)
{
	auto_json json_t *m = doc_parse_json((const char *)p, n, &g->why);
	const char *type = NULL, *text = "no reason given";
	if (!m)
		return -EBADMSG;
	int r = doc_want_string(m, "type", &type, &g->why);
	if (r < 0)
		return r;
	if (str_eq(type, "audit") && (g->state == GATEWAY_READY || g->state == GATEWAY_CLOSING))
		return take_records(g, m);
	if (str_eq(type, "state") && g->state == GATEWAY_ADOPTED)
		return take_state(g, m);
	if (str_eq(type, "ready") && g->state == GATEWAY_CONFIGURED) {
		stand(g);
		return 0;
	}
	if (str_eq(type, "policy") && g->changed)
		return take_answer(g, m, true);
	if (str_eq(type, "secret") && !list_empty(&g->asked))
		return take_answer(g, m, false);
	if (!str_eq(type, "failed"))
		return err_set(&g->why, EPROTO, "a message of type '%.32s' out of turn", type);
	doc_opt_string(m, "message", &text, NULL);
	return err_set(&g->why, EPROTO, "%s", text);
}

/* Reads what has come. The count of records, or -errno: -ENODATA at the end of the socket. */
static int drain(struct gateway *g)
{
	uint8_t message[RECEIVE_MAX];
	int count = 0;
	for (int i = 0; i < BURST && g->state != GATEWAY_ENDING; i++) {
		ssize_t n = fd_recv(g->control, message, sizeof(message), NULL, NULL);
		if (n == -EAGAIN)
			break;
		if (n <= 0)
			return n < 0 ? (int)n : -ENODATA;
		int r = take_message(g, message, (size_t)n);
		if (r < 0)
			return r;
		count += r;
	}
	return count;
}

static void on_control(uv_poll_t *p, int status, int events)
{
	struct gateway *g = p->data;
	if ((events & UV_WRITABLE) && g->acking)
		send_ack(g);
	if (events & UV_WRITABLE)
		send_asked(g);
	if (status == 0 && !(events & (UV_READABLE | UV_DISCONNECT)))
		return;

	int r = drain(g);
	int w = audit_flush(g->node->audit, &g->why);
	if (g->state == GATEWAY_ENDING)
		return; /* ready() killed it */
	if (g->state == GATEWAY_CLOSING && r == -ENODATA && w == 0) {
		uv_poll_stop(&g->control_poll); /* it has said all */
	} else if (r < 0 || w < 0) {
		gateway_kill(g);
	} else if (r > 0) {
		send_ack(g);
		if (g->ops->active && g->state == GATEWAY_READY)
			g->ops->active(g->user);
	}
}

static void on_late(uv_timer_t *t)
{
	struct gateway *g = t->data;
	err_set(&g->why, ETIMEDOUT, "it did not say where it is within %d s", ADOPT_MS / 1000);
	gateway_kill(g);
}

/* -- its end -- */

/* Whether the process is gone; then *ret_how says how. */
static bool has_ended(const struct gateway *g, struct err *ret_how)
{
	siginfo_t info = {0};
	err_set(ret_how, EIO, "it ended");
	if (!g->child)
		return true; /* nobody else makes its pidfd readable */
	if (waitid(P_PIDFD, (id_t)g->pidfd, &info, WEXITED | WNOHANG) < 0 || !info.si_pid)
		return false;
	if (info.si_code == CLD_EXITED)
		err_set(ret_how, EIO, "it exited with status %d", info.si_status);
	else if (info.si_status == SIGSYS)
		err_set(ret_how, EIO,
			"it made a system call that it has no leave for, and was ended");
	else
		err_set(ret_how, EIO, "it was ended by signal %d", info.si_status);
	return true;
}

static void on_exit_readable(uv_poll_t *p, int status, int events)
{
	struct gateway *g = p->data;
	struct err how;
	(void)status;
	(void)events;
	if (!has_ended(g, &how))
		return;
	/* Its last words may still be in the socket. */
	if (g->state != GATEWAY_ENDING && !g->why.code)
		drain(g);
	audit_flush(g->node->audit, NULL);
	stop_listening(g);
	uv_close((uv_handle_t *)&g->pid_poll, on_closed);

	struct err why = g->why.code ? g->why : how;
	err_prefix(&why, "the gateway is gone");
	why.code = EPIPE;
	tell_changed(g, &why);
	while (!list_empty(&g->asked))
		tell_asked(g, &why);
	g->ops->exited(g->user, &why);
}

/* -- configuring it -- */

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

int gateway_configure(struct gateway *g, const char *sandbox, const struct slot *slot,
		      const json_t *policy, const json_t *secrets, struct err *e)
{
	assert(!g->sandbox);
	g->sandbox = strdup(sandbox);
	if (!g->sandbox)
		return err_set(e, ENOMEM, "no memory");
	if (g->state != GATEWAY_WAITING)
		return err_set(e, EPIPE, "the gateway is gone");
	int r = send_config(g, slot, policy, secrets, e);
	if (r == 0)
		g->state = GATEWAY_CONFIGURED;
	return r;
}

/* -- another policy -- */

int gateway_set_policy(struct gateway *g, const json_t *policy, gateway_done_fn done, void *user,
		       struct err *e)
{
	if (g->state != GATEWAY_READY)
		return err_set(e, EPIPE, "the gateway is not ready, or gone");
	if (g->changed)
		return err_set(e, EBUSY, "another policy is being set: try again");
	auto_json json_t *m = json_pack("{s:s, s:O}", "type", "policy", "policy", policy);
	auto_free char *text = m ? doc_to_text(m) : NULL;
	if (!text)
		return err_set(e, ENOMEM, "no memory");
	size_t n = strlen(text);
	int r = n <= MESSAGE_MAX ? fd_send(g->control, text, n, NULL, 0) : -EMSGSIZE;
	if (r == -EMSGSIZE)
		return err_set(e, EMSGSIZE, "the policy is longer than %d bytes", MESSAGE_MAX);
	if (r < 0)
		return err_sys(e, -r, "can't tell the gateway its policy");
	g->changed = done;
	g->changed_user = user;
	g->change_due_ms = clock_mono_ms() + CHANGE_MS;
	watch_answers(g);
	return 0;
}

/* -- credentials -- */

/* What is not sent yet, as far as there is room for it. */
static void send_asked(struct gateway *g)
{
	list_for_each (it, &g->asked) {
		struct asked *a = list_entry(it, struct asked, link);
		size_t n = a->text ? strlen(a->text) : 0;
		if (!a->text)
			continue;
		if (fd_send(g->control, a->text, n, NULL, 0) == -EAGAIN)
			break;
		/* It failed for good: the end of the socket is noticed elsewhere. */
		explicit_bzero(a->text, n);
		free(take_ptr(a->text));
	}
	watch_control(g);
}

int gateway_secret(struct gateway *g, const char *verb, json_t *what, gateway_done_fn done,
		   void *user, struct err *e)
{
	auto_json json_t *m = json_pack("{s:s, s:o}", "type", "secret", verb, what);
	if (g->state != GATEWAY_READY)
		return err_set(e, EPIPE, "the gateway is not ready, or gone");
	struct asked *a = calloc(1, sizeof(*a));
	char *text = m ? doc_to_text(m) : NULL;
	if (!a || !text || strlen(text) > MESSAGE_MAX) {
		int r = a && text ? err_set(e, EMSGSIZE, "the credential is longer than %d bytes",
					    MESSAGE_MAX)
				  : err_set(e, ENOMEM, "no memory");
		if (text)
			explicit_bzero(text, strlen(text));
		free(text);
		free(a);
		return r;
	}
	*a = (struct asked){
		.text = text, .due_ms = clock_mono_ms() + CHANGE_MS, .done = done, .user = user};
	list_append(&g->asked, &a->link);
	send_asked(g);
	watch_answers(g);
	return 0;
}

/* -- making it -- */

/* The address of DIR/gateway: through a descriptor of the directory, which is returned and stays
   open for as long as the address is used, for the paths of sockets are short. -errno. */
static int socket_address(const char *dir, struct sockaddr_un *ret)
{
	int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/" SOCKET_NAME, dir_fd);
	return dir_fd < 0 ? -errno : dir_fd;
}

/* A descriptor or -errno with e set. */
static int make_listener(const char *dir, struct err *e)
{
	struct sockaddr_un name;
	auto_fd int dir_fd = socket_address(dir, &name);
	if (dir_fd < 0)
		return err_sys(e, -dir_fd, "%s", dir);
	/* One may be there from before the sandbox was paused. */
	auto_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || (unlinkat(dir_fd, SOCKET_NAME, 0) < 0 && errno != ENOENT) ||
	    bind(fd, (struct sockaddr *)&name, sizeof(name)) < 0 || listen(fd, BACKLOG) < 0)
		return err_sys(e, errno, "can't make the gateway's socket in %s", dir);
	return take_fd(fd);
}

/* 0 or -errno. */
static int call_gateway(struct gateway *g, const char *dir)
{
	struct sockaddr_un name;
	auto_fd int dir_fd = socket_address(dir, &name);
	if (dir_fd < 0)
		return dir_fd;
	return connect(g->control, (struct sockaddr *)&name, sizeof(name)) < 0 ? -errno : 0;
}

/* What a gateway's process sees: its program, the names and authorities that it asks and trusts,
 * two devices. All else comes through its control socket. */
static const struct jail_file gateway_files[] = {
	{"/dev/null", JAIL_FILE_DEVICE},
	{"/dev/urandom", JAIL_FILE_DEVICE},
	{"/etc/resolv.conf", JAIL_FILE_OPTIONAL},
	{"/etc/hosts", JAIL_FILE_OPTIONAL},
	{"/etc/nsswitch.conf", JAIL_FILE_OPTIONAL},
	{"/etc/host.conf", JAIL_FILE_OPTIONAL},
	{"/usr/lib/ssl/openssl.cnf", JAIL_FILE_OPTIONAL},
	{"/usr/lib/ssl/cert.pem", JAIL_FILE_OPTIONAL},
	/* Links to files in the other two. */
	{"/usr/lib/ssl/certs", JAIL_FILE_OPTIONAL},
	{"/usr/share/ca-certificates", JAIL_FILE_OPTIONAL},
	{"/usr/local/share/ca-certificates", JAIL_FILE_OPTIONAL},
};

#define CALLS_TEXT_MAX (256 * 1024)

/* The system calls that the gateway's program says it makes, asked before anything else has had to
 * do with it. Once for as long as its file is the same one. NULL with e set. */
static const struct calls_filter *gateway_calls(const struct jail_program *program,
						const char *path, struct err *e)
{
	static const struct jail_program *asked;
	static struct calls_filter filter;
	const char *const argv[] = {path, "--calls", NULL};
	auto_free char *text = NULL;
	if (asked == program)
		return &filter;
	if (proc_output(argv, CALLS_TEXT_MAX, &text, e) < 0)
		return NULL;
	struct calls_filter now;
	int r = calls_parse(text, &now);
	if (r < 0) {
		err_sys(e, -r, "the system calls of %s", path);
		return NULL;
	}
	calls_done(&filter);
	filter = now;
	asked = program;
	return &filter;
}

int gateway_jail_make(struct gateway_jail *ret, const struct paths *paths, struct err *e)
{
	auto_free char *path = str_printf("%s/space-egress", paths->libexec);
	if (!path)
		return err_set(e, ENOMEM, "no memory");
	const struct jail_program *program = jail_program(path, e);
	const struct calls_filter *filter = program ? gateway_calls(program, path, e) : NULL;
	if (!filter)
		return -(e->code ? e->code : EIO);
	size_t count;
	struct jail_file *files = jail_program_files(
		program, gateway_files, sizeof(gateway_files) / sizeof(gateway_files[0]), &count);
	if (!files)
		return err_set(e, ENOMEM, "no memory");
	*ret = (struct gateway_jail){.files = files, .argv = {take_ptr(path), NULL}};
	ret->spec = (struct jail_spec){
		.name = "space-egress",
		.argv = ret->argv,
		.stdout_fd = -1,
		.netns_fd = -1,
		.outlives_parent = true,
		.own_pid = true,
		.own_mount = true,
		.files = files,
		.nfiles = count,
		.filter = filter,
	};
	return 0;
}

void gateway_jail_done(struct gateway_jail *jail)
{
	free((char *)jail->argv[0]);
	free(jail->files);
}

char *gateway_jail_text(const struct paths *paths, uid_t uid, struct err *e)
{
	const struct jail_fd fds[] = {{.to = CONTROL_FD}, {.to = LISTEN_FD}};
	struct gateway_jail jail;
	struct jail_plan plan;
	char *text = NULL;
	if (gateway_jail_make(&jail, paths, e) < 0)
		return NULL;
	jail.spec.fds = fds;
	jail.spec.nfds = 2;
	jail.spec.uid = uid;
	if (jail_plan_make(&jail.spec, &plan, e) == 0) {
		text = jail_plan_text(&plan);
		if (!text)
			err_set(e, ENOMEM, "no memory");
		jail_plan_done(&plan);
	}
	gateway_jail_done(&jail);
	return text;
}

static int spawn(struct gateway *g, uid_t uid, int peer, int listener, int words_fd, struct err *e)
{
	const struct jail_fd fds[] = {{.from = peer, .to = CONTROL_FD},
				      {.from = listener, .to = LISTEN_FD}};
	struct gateway_jail jail;
	int r = gateway_jail_make(&jail, &g->node->paths, e);
	if (r < 0)
		return r;
	jail.spec.fds = fds;
	jail.spec.nfds = 2;
	jail.spec.stdout_fd = words_fd;
	jail.spec.uid = uid;
	r = jail_spawn(&jail.spec, &g->who.pid, &g->pidfd, e);
	gateway_jail_done(&jail);
	if (r < 0)
		return r;
	g->child = true;
	r = proc_started(g->who.pid, &g->who.started);
	return r < 0 ? err_sys(e, -r, "can't see the gateway's process") : 0;
}

static struct gateway *gateway_new(struct node *n, enum gateway_state state,
				   const struct gateway_ops *ops, void *user, struct err *e)
{
	struct gateway *g = calloc(1, sizeof(*g));
	if (!g) {
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	*g = (struct gateway){
		.node = n, .state = state, .control = -1, .pidfd = -1, .ops = ops, .user = user};
	list_init(&g->asked);
	return g;
}

static void gateway_watch(struct gateway *g)
{
	uv_timer_init(g->node->loop, &g->late);
	uv_poll_init(g->node->loop, &g->control_poll, g->control);
	uv_poll_init(g->node->loop, &g->pid_poll, g->pidfd);
	g->control_poll.data = g->pid_poll.data = g->late.data = g;
	g->handles = 3;
	uv_poll_start(&g->control_poll, UV_READABLE, on_control);
	uv_poll_start(&g->pid_poll, UV_READABLE, on_exit_readable);
}

static int gateway_spawn(struct gateway *g, const char *name, const char *dir, uid_t uid,
			 struct err *e)
{
	int ends[2], room = 2 * MESSAGE_MAX;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		return err_sys(e, errno, "can't make a socket for the gateway");
	g->control = ends[0];
	auto_fd int peer = ends[1], words_fd = -1;
	setsockopt(g->control, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
	setsockopt(peer, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
	auto_fd int listener = make_listener(dir, e);
	if (listener < 0)
		return listener;
	g->words = words_open(g->node->loop, name, &words_fd, e);
	return g->words ? spawn(g, uid, peer, listener, words_fd, e) : -EIO;
}

struct gateway *gateway_open(struct node *n, const char *name_for_errors, const char *dir,
			     uid_t uid, const struct gateway_ops *ops, void *user, struct err *e)
{
	struct gateway *g = gateway_new(n, GATEWAY_WAITING, ops, user, e);
	if (!g)
		return NULL;
	if (gateway_spawn(g, name_for_errors, dir, uid, e) == 0) {
		gateway_watch(g);
		return g;
	}
	if (g->child) {
		pidfd_send_signal(g->pidfd, SIGKILL, NULL, 0);
		waitid(P_PIDFD, (id_t)g->pidfd, &(siginfo_t){0}, WEXITED);
	}
	gateway_free(g);
	return NULL;
}

struct gateway *gateway_adopt(struct node *n, const char *sandbox, const char *dir, uid_t uid,
			      const struct gateway_identity *who, const struct gateway_ops *ops,
			      void *user, struct err *e)
{
	struct gateway *g = gateway_new(n, GATEWAY_ADOPTED, ops, user, e);
	if (!g)
		return NULL;
	g->who = *who;
	g->sandbox = strdup(sandbox);
	g->control = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	g->pidfd = proc_find(who->pid, who->started, uid);
	if (!g->sandbox || g->control < 0)
		err_set(e, ENOMEM, "no memory for a gateway");
	else if (g->pidfd < 0)
		err_sys(e, -g->pidfd, "the gateway that was process %d", (int)who->pid);
	if (!g->sandbox || g->control < 0 || g->pidfd < 0) {
		gateway_free(g);
		return NULL;
	}
	int room = 2 * MESSAGE_MAX;
	setsockopt(g->control, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
	int r = call_gateway(g, dir);
	gateway_watch(g);
	uv_timer_start(&g->late, on_late, ADOPT_MS, 0);
	if (r < 0) { /* a gateway that can't be called has nobody to write its records */
		err_sys(&g->why, -r, "calling it at %s/" SOCKET_NAME, dir);
		gateway_kill(g);
	}
	return g;
}
