/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a command as if it were in a sandbox, without a VM: a real slot, a real gateway, and in
 * place of the guest's kernel a network namespace whose tap is wired to the slot's. Plays spaced on
 * the control socket.
 *
 * Writes one JSON line for each thing that happens: {"started":{"gateway":PID,"command":PID}},
 * {"record":{…}} for each audit record, {"failed":"…"}, {"control_closed":true}. The config is read
 * when the gateway has been started, so from a FIFO it may come late. SIGUSR1 closes the control
 * socket; a test may then call at the other one, `gateway` in the directory given with --control.
 * SIGUSR2 sends the gateway what stands in the file `message` there; {"answer":{…}} is what it
 * says. While the file given with --hold exists, records are not acknowledged. Ends with the
 * command, whose exit code it passes on.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <libgen.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/if_tun.h>

#include "base/calls.h"
#include "base/cleanup.h"
#include "base/doc.h"
#include "base/fd.h"
#include "base/guest.h"
#include "base/log.h"
#include "base/proc.h"
#include "net/slot.h"

#define FRAME_MAX      (128 * 1024) /* bytes of a frame with its virtio_net_hdr */
#define FRAME_BURST    64
#define MESSAGE_MAX    (512 * 1024)
#define CONTROL_FD     3
#define CALLS_TEXT_MAX (256 * 1024)
#define LISTEN_FD      4
#define BACKLOG        4
#define GATEWAY_UID    65534

struct options {
	const char *gateway, *config, *control, *hold, *resolver, *resolv_conf;
	char **command;
};

struct run {
	struct options options;
	struct slot slot;
	int guest_tap, guest_netns;
	int control; /* -1 when closed */
	int signals;
	pid_t gateway, command;
	int status; /* of the command, -1 while it runs */
};

static void die(const char *what)
{
	log_error("%s: %s", what, strerror(errno));
	exit(125);
}

static void die_err(const struct err *e)
{
	log_error("%s", e->text);
	exit(125);
}

/* -- the guest's side of the wire -- */

/* A tap with the same frame format as the slot's, so that frames pass as they are. */
static int guest_tap_open(int slot_tap)
{
	struct ifreq ifr = {.ifr_name = GUEST_INTERFACE};
	int header;
	unsigned offload = TUN_F_CSUM | TUN_F_TSO4;
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	ifr.ifr_flags = (short)(IFF_TAP | IFF_NO_PI | IFF_VNET_HDR);
	if (fd < 0 || ioctl(fd, TUNSETIFF, &ifr) < 0 ||
	    ioctl(slot_tap, TUNGETVNETHDRSZ, &header) < 0 ||
	    ioctl(fd, TUNSETVNETHDRSZ, &header) < 0 || ioctl(fd, TUNSETOFFLOAD, offload) < 0 ||
	    ioctl(slot_tap, TUNSETOFFLOAD, offload) < 0)
		die("guest tap");
	return fd;
}

static void guest_configure(void)
{
	static const char address[] = GUEST_ADDRESS "/30";
	static const char *const commands[][10] = {
		{"ip", "link", "set", "lo", "up", NULL},
		{"ip", "link", "set", GUEST_INTERFACE, "address", GUEST_MAC, NULL},
		{"ip", "address", "add", address, "dev", GUEST_INTERFACE, NULL},
		{"ip", "link", "set", GUEST_INTERFACE, "up", NULL},
		{"ip", "route", "add", "default", "via", GUEST_GATEWAY, NULL},
	};
	struct err e = {0};
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (proc_run(commands[i], &e) < 0)
			die_err(&e);
}

static void guest_open(struct run *r)
{
	auto_fd int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (home < 0 || unshare(CLONE_NEWNET) < 0)
		die("guest namespace");
	r->guest_netns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	r->guest_tap = guest_tap_open(r->slot.tap_fd);
	guest_configure();
	if (r->guest_netns < 0 || setns(home, CLONE_NEWNET) < 0)
		die("leaving the guest namespace");
}

static void pump(int from, int to)
{
	static uint8_t frame[FRAME_MAX];
	for (int i = 0; i < FRAME_BURST; i++) {
		ssize_t n = read(from, frame, sizeof(frame));
		if (n <= 0)
			return;
		if (write(to, frame, (size_t)n) < 0 && errno != EAGAIN && errno != EIO)
			log_warn("a frame of %zd bytes was lost: %s", n, strerror(errno));
	}
}

/* -- the gateway -- */

static void say(const char *key, json_t *value)
{
	auto_json json_t *line = json_object();
	json_object_set_new(line, key, value);
	auto_free char *text = doc_to_text(line);
	printf("%s\n", text);
	fflush(stdout);
}

/* Where the next spaced would call. Through the directory, for paths of sockets are short. */
static int listen_open(const char *dir)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	auto_fd int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	snprintf(name.sun_path, sizeof(name.sun_path), "/proc/self/fd/%d/gateway", dir_fd);
	if (dir_fd < 0 || fd < 0 || bind(fd, (struct sockaddr *)&name, sizeof(name)) < 0 ||
	    listen(fd, BACKLOG) < 0)
		die(dir);
	return fd;
}

/* Puts fd at number to in the child, over whatever is there. */
static void place(int fd, int to)
{
	if (fd == to ? fcntl(fd, F_SETFD, 0) < 0 : dup2(fd, to) < 0)
		die("dup2");
}

/* The filter of system calls that the program names, for it is to be tested as spaced starts it. */
static struct calls_filter calls_of(const char *program)
{
	const char *const argv[] = {program, "--calls", NULL};
	auto_free char *text = NULL;
	struct calls_filter f;
	struct err e;
	if (proc_output(argv, CALLS_TEXT_MAX, &text, &e) < 0 || calls_parse(text, &f) < 0)
		die(program);
	return f;
}

/* Becomes program, which its uid need not be able to reach, under the filter. */
static void exec_confined(const char *program, char **argv, const struct calls_filter *calls,
			  int dir_fd)
{
	const char *slash = strrchr(program, '/');
	struct err e;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || calls_enforce(calls, &e) < 0)
		die(program);
	/* sanitizers read their options in the environment */
	syscall(SYS_execveat, dir_fd, slash ? slash + 1 : program, argv, environ, 0);
	die(program);
}

static int open_dir_of(const char *program)
{
	auto_free char *copy = strdup(program);
	int fd = copy ? open(dirname(copy), O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	if (fd < 0)
		die(program);
	return fd;
}

static pid_t spawn_gateway(const struct options *o, int control, int listener)
{
	struct calls_filter calls = calls_of(o->gateway);
	pid_t pid = fork();
	if (pid)
		calls_done(&calls);
	if (pid)
		return pid;
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	int lifted = fcntl(listener, F_DUPFD, LISTEN_FD + 1); /* it may be in the other's place */
	place(control, CONTROL_FD);
	place(lifted, LISTEN_FD);
	proc_close_fds(LISTEN_FD + 1, NULL, 0);
	char *argv[] = {"space-egress", o->resolver ? "--resolver" : NULL,
			(char *)(uintptr_t)o->resolver, NULL};
	struct rlimit files = {.rlim_cur = 1024, .rlim_max = 8192}; /* as spaced starts it */
	setrlimit(RLIMIT_NOFILE, &files);
	int dir_fd = open_dir_of(o->gateway);
	if (setgroups(0, NULL) < 0 || setgid(GATEWAY_UID) < 0 || setuid(GATEWAY_UID) < 0 ||
	    prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		die(o->gateway);
	exec_confined(o->gateway, argv, &calls, dir_fd);
	return -1;
}

static void gateway_start(struct run *r)
{
	int pair[2];
	auto_free char *config = NULL;
	size_t n;
	struct err e = {0};
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		die("socketpair");
	auto_fd int listener = listen_open(r->options.control);
	r->gateway = spawn_gateway(&r->options, pair[1], listener);
	close(pair[1]);
	r->control = pair[0];
	int room = 2 * MESSAGE_MAX;
	setsockopt(r->control, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
	if (file_read(r->options.config, MESSAGE_MAX, &config, &n) < 0)
		die(r->options.config);
	int fds[] = {r->slot.tcp_fd, r->slot.dns_udp_fd, r->slot.dns_tcp_fd};
	int failed = fd_send(r->control, config, n, fds, 3);
	if (failed < 0) {
		err_sys(&e, -failed, "sending the configuration");
		die_err(&e);
	}
	static char answer[MESSAGE_MAX];
	size_t none = 0;
	ssize_t len = fd_recv(r->control, answer, sizeof(answer), NULL, &none);
	auto_json json_t *message = len > 0 ? doc_parse_json(answer, (size_t)len, &e) : NULL;
	const char *type = json_string_value(json_object_get(message, "type"));
	if (type && !strcmp(type, "ready"))
		return;
	const char *why = json_string_value(json_object_get(message, "message"));
	say("failed", json_string(why ? why : "the gateway went away"));
	exit(1);
}

static void control_close(struct run *r)
{
	if (r->control < 0)
		return;
	close(r->control);
	r->control = -1;
	say("control_closed", json_true());
}

/* Passes records on, and acknowledges all that were waiting with one message. */
static void control_read(struct run *r)
{
	static char text[MESSAGE_MAX];
	json_int_t last = 0;
	for (;;) {
		size_t none = 0;
		ssize_t n = fd_recv(r->control, text, sizeof(text), NULL, &none);
		if (n == -EAGAIN)
			break;
		if (n <= 0) {
			control_close(r);
			return;
		}
		struct err e = {0};
		auto_json json_t *message = doc_parse_json(text, (size_t)n, &e);
		json_t *events = json_object_get(message, "events");
		if (!message)
			die_err(&e);
		if (!events) {
			say("answer", json_incref(message));
			continue;
		}
		last = json_integer_value(json_object_get(message, "seq")) +
		       (json_int_t)json_array_size(events) - 1;
		for (size_t i = 0; i < json_array_size(events); i++)
			say("record", json_incref(json_array_get(events, i)));
	}
	if (!last || (r->options.hold && access(r->options.hold, F_OK) == 0))
		return;
	int n = snprintf(text, sizeof(text), "{\"type\":\"ack\",\"seq\":%lld}", (long long)last);
	fd_send(r->control, text, (size_t)n, NULL, 0);
}

static void control_tell(struct run *r)
{
	auto_free char *text = NULL;
	auto_fd int dir = open(r->options.control, O_PATH | O_DIRECTORY | O_CLOEXEC);
	size_t n = 0;
	if (r->control < 0)
		return;
	if (dir < 0 || file_read_at(dir, "message", MESSAGE_MAX, &text, &n) < 0)
		die("message");
	if (fd_send(r->control, text, n, NULL, 0) < 0)
		die("sending a message");
}

/* -- the command -- */

/* The root of the namespace's mount tree becomes our root directory for a moment: in a chroot "/"
   is no mount. */
static int own_mounts(void)
{
	if (unshare(CLONE_NEWNS) < 0)
		return -1;
	auto_fd int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	auto_fd int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (root < 0 || self < 0 || setns(self, CLONE_NEWNS) < 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || fchdir(root) < 0)
		return -1;
	return chroot(".");
}

static pid_t command_start(struct run *r)
{
	int report[2];
	if (pipe2(report, O_CLOEXEC) < 0)
		die("pipe");
	pid_t pid = fork();
	if (pid < 0)
		die("fork");
	if (pid) {
		char c;
		close(report[1]);
		(void)!read(report[0], &c, 1); /* ends when it runs */
		close(report[0]);
		return pid;
	}
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (setns(r->guest_netns, CLONE_NEWNET) < 0 || own_mounts() < 0)
		die("entering the guest namespace");
	if (r->options.resolv_conf &&
	    mount(r->options.resolv_conf, "/etc/resolv.conf", NULL, MS_BIND, NULL) < 0)
		die(r->options.resolv_conf);
	dup2(STDERR_FILENO, STDOUT_FILENO);
	execvp(r->options.command[0], r->options.command);
	die(r->options.command[0]);
	return -1;
}

static void children_reap(struct run *r)
{
	int status;
	for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
		if (pid == r->command)
			r->status =
				WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		if (pid == r->gateway) {
			r->gateway = -1;
			say("gateway_ended", json_integer(status));
		}
	}
}

static void signals_read(struct run *r)
{
	struct signalfd_siginfo info;
	while (read(r->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGUSR1)
			control_close(r);
		else if (info.ssi_signo == SIGUSR2)
			control_tell(r);
		else if (info.ssi_signo == SIGCHLD)
			children_reap(r);
		else
			r->status = 128 + (int)info.ssi_signo;
	}
}

static void signals_open(struct run *r)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	r->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	if (r->signals < 0)
		die("signalfd");
}

static void run_loop(struct run *r)
{
	while (r->status < 0) {
		struct pollfd p[] = {
			{.fd = r->slot.tap_fd, .events = POLLIN},
			{.fd = r->guest_tap, .events = POLLIN},
			{.fd = r->control, .events = POLLIN},
			{.fd = r->signals, .events = POLLIN},
		};
		if (poll(p, 4, -1) < 0 && errno != EINTR)
			die("poll");
		if (p[0].revents)
			pump(r->slot.tap_fd, r->guest_tap);
		if (p[1].revents)
			pump(r->guest_tap, r->slot.tap_fd);
		if (p[2].revents && r->control >= 0)
			control_read(r);
		if (p[3].revents)
			signals_read(r);
	}
}

static void parse(int argc, char **argv, struct options *o)
{
	static const struct option known[] = {
		{"gateway", required_argument, NULL, 'g'},
		{"config", required_argument, NULL, 'c'},
		{"control", required_argument, NULL, 'C'},
		{"hold", required_argument, NULL, 'h'},
		{"resolver", required_argument, NULL, 'r'},
		{"resolv-conf", required_argument, NULL, 'R'},
		{0},
	};
	for (int c; (c = getopt_long(argc, argv, "+", known, NULL)) != -1;) {
		switch (c) {
		case 'g':
			o->gateway = optarg;
			break;
		case 'c':
			o->config = optarg;
			break;
		case 'C':
			o->control = optarg;
			break;
		case 'h':
			o->hold = optarg;
			break;
		case 'r':
			o->resolver = optarg;
			break;
		case 'R':
			o->resolv_conf = optarg;
			break;
		default:
			exit(2);
		}
	}
	o->command = argv + optind;
	if (!o->gateway || !o->config || !o->control || !*o->command) {
		fprintf(stderr,
			"usage: slot-run --gateway PROGRAM --config FILE --control DIR "
			"[--hold FILE] [--resolver ADDRESS:PORT] [--resolv-conf FILE] COMMAND…\n");
		exit(2);
	}
}

int main(int argc, char **argv)
{
	struct run r = {.status = -1, .control = -1};
	struct err e = {0};
	log_init("slot-run", false);
	parse(argc, argv, &r.options);
	signals_open(&r);
	if (slot_open(&r.slot, &e) < 0)
		die_err(&e);
	guest_open(&r);
	gateway_start(&r);
	fd_set_nonblock(r.control, true);
	r.command = command_start(&r);
	json_t *started = json_object();
	json_object_set_new(started, "gateway", json_integer(r.gateway));
	json_object_set_new(started, "command", json_integer(r.command));
	say("started", started);
	run_loop(&r);

	int status;
	if (r.gateway > 0)
		kill(r.gateway, SIGTERM);
	if (r.gateway > 0 && waitpid(r.gateway, &status, 0) == r.gateway)
		say("gateway_ended", json_integer(status));
	slot_close(&r.slot);
	return r.status;
}
