/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation: each process has two output pipes, polled unless one of its watchers is
 * behind, or all processes are held: then the pipe fills and the process waits. Its end is told
 * when it was reaped and both pipes have reached their end. A grandchild may hold them open for
 * ever; after a kill that is not waited for, only what was in the pipes when it was reaped is still
 * delivered. Nor is it after the deadline.
 * One SIGCHLD may stand for many exits, so that every one of them reaps until none is left.
 */
#include "agent/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/input.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#define READS_PER_WAKE 4

struct output {
	struct process *process;
	enum process_output which;
	int fd; /* -1: at its end */
	bool polling;
	bool limited; /* only left more bytes are wanted */
	size_t left;
	uv_poll_t poll;
};

struct process {
	struct list link;
	struct processes *all;
	pid_t pid;
	char *tag;
	json_t *config;
	struct output output[2];
	struct input input;
	uv_timer_t deadline;
	unsigned handles; /* libuv handles that are not closed yet */
	bool exited;
	bool killed; /* others that hold its pipes are not waited for */
	bool expired;
	bool over;
	int status;
	struct list watchers;
	size_t behind; /* of them */
};

static void output_close(struct output *o);

static void free_process(struct process *p)
{
	json_decref(p->config);
	free(p->tag);
	free(p);
}

static void handle_closed(uv_handle_t *h)
{
	struct process *p = h->data;
	if (--p->handles == 0)
		free_process(p);
}

static void close_handle(uv_handle_t *h, struct process *p)
{
	h->data = p;
	uv_close(h, handle_closed);
}

/* Takes the process out of the table; its memory goes when libuv has let go. */
static void finish(struct process *p)
{
	p->over = true;
	list_remove(&p->link);
	p->all->count--;
	for (size_t i = 0; i < 2; i++)
		output_close(&p->output[i]);
	input_close(&p->input, -ESRCH);
	close_handle((uv_handle_t *)&p->deadline, p);
}

static struct process_watcher *first_watcher(struct process *p)
{
	return list_entry(p->watchers.next, struct process_watcher, link);
}

static void check_end(struct process *p)
{
	bool open = p->output[0].fd >= 0 || p->output[1].fd >= 0;
	if (p->over || p->all->held || !p->exited || open)
		return;
	finish(p);
	while (!list_empty(&p->watchers)) {
		struct process_watcher *w = first_watcher(p);
		process_unwatch(w);
		if (p->expired)
			w->ops->expired(w->user);
		else
			w->ops->ended(w->user, p->status);
	}
}

static void output_close(struct output *o)
{
	if (o->fd < 0)
		return;
	close_handle((uv_handle_t *)&o->poll, o->process);
	close(o->fd);
	o->fd = -1;
}

static void on_readable(uv_poll_t *poll, int status, int events);

static void output_poll(struct output *o, bool on)
{
	if (o->fd < 0 || o->polling == on)
		return;
	if (on)
		uv_poll_start(&o->poll, UV_READABLE, on_readable);
	else
		uv_poll_stop(&o->poll);
	o->polling = on;
}

static bool flows(const struct process *p)
{
	return !p->behind && !p->all->held;
}

/* After a change of what flows() looks at. */
static void set_flow(struct process *p)
{
	for (size_t i = 0; i < 2; i++)
		output_poll(&p->output[i], flows(p));
}

static void deliver(struct process *p, enum process_output which, const uint8_t *data, size_t n)
{
	list_for_each (link, &p->watchers) {
		struct process_watcher *w = list_entry(link, struct process_watcher, link);
		if (w->ops->output(w->user, which, data, n) || w->behind)
			continue;
		w->behind = true;
		p->behind++;
	}
	set_flow(p);
}

/* Reads once. Returns whether there may be more and it is wanted now. */
static bool output_read(struct output *o)
{
	struct process *p = o->process;
	size_t want = PROCESS_READ_SIZE;
	if (o->limited && o->left < want)
		want = o->left;
	ssize_t n = read(o->fd, p->all->read_buffer, want);
	if (n < 0 && (errno == EAGAIN || errno == EINTR) && !o->limited)
		return false;
	if (n <= 0) {
		output_close(o);
		return false;
	}
	if (o->limited)
		o->left -= (size_t)n;
	deliver(p, o->which, p->all->read_buffer, (size_t)n);
	if (o->limited && !o->left)
		output_close(o);
	/* A short read has emptied the pipe. */
	return flows(p) && o->fd >= 0 && (size_t)n == want;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct output *o = poll->data;
	(void)events;
	if (status < 0)
		output_close(o);
	for (int i = 0; o->fd >= 0 && i < READS_PER_WAKE && output_read(o); i++)
		;
	check_end(o->process);
}

/* After the exit of a process that was killed: take what is there, wait for nothing. */
static void output_limit(struct output *o)
{
	int there = 0;
	if (o->fd < 0)
		return;
	if (ioctl(o->fd, FIONREAD, &there) < 0 || there <= 0) {
		output_close(o);
		return;
	}
	o->limited = true;
	o->left = (size_t)there;
}

static void process_exited(struct process *p, int status)
{
	p->exited = true;
	p->status = status;
	input_close(&p->input, -ESRCH);
	if (p->killed) {
		output_limit(&p->output[0]);
		output_limit(&p->output[1]);
	}
	check_end(p);
}

static void reap(uv_signal_t *signal, int number)
{
	struct processes *all = signal->data;
	int status;
	pid_t pid;
	(void)number;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		struct process *p = process_by_pid(all, pid, false);
		if (p)
			process_exited(p, status);
	}
}

int processes_init(struct processes *all, uv_loop_t *loop)
{
	*all = (struct processes){.loop = loop};
	list_init(&all->list);
	all->read_buffer = malloc(PROCESS_READ_SIZE);
	if (!all->read_buffer)
		return -ENOMEM;
	int r = uv_signal_init(loop, &all->child_signal);
	if (r < 0)
		return r;
	all->child_signal.data = all;
	return uv_signal_start(&all->child_signal, reap, SIGCHLD);
}

void processes_done(struct processes *all)
{
	list_for_each (link, &all->list) {
		struct process *p = list_entry(link, struct process, link);
		if (!p->exited)
			kill(-p->pid, SIGKILL);
		while (!list_empty(&p->watchers))
			process_unwatch(first_watcher(p));
		finish(p);
	}
	uv_close((uv_handle_t *)&all->child_signal, NULL);
	free(all->read_buffer);
	all->read_buffer = NULL;
}

static void on_deadline(uv_timer_t *timer)
{
	struct process *p = timer->data;
	p->expired = true;
	if (!p->exited) {
		process_signal(p, SIGKILL, false);
		return;
	}
	output_limit(&p->output[0]); /* others hold them */
	output_limit(&p->output[1]);
	check_end(p);
}

void process_set_deadline(struct process *p, uint64_t ms)
{
	p->deadline.data = p;
	uv_timer_start(&p->deadline, on_deadline, ms, 0);
}

void process_watch(struct process *p, struct process_watcher *w, const struct process_ops *ops,
		   void *user)
{
	*w = (struct process_watcher){.process = p, .ops = ops, .user = user};
	list_append(&p->watchers, &w->link);
}

void process_unwatch(struct process_watcher *w)
{
	if (!w->process)
		return;
	process_resume(w);
	list_remove(&w->link);
	w->process = NULL;
}

void process_resume(struct process_watcher *w)
{
	struct process *p = w->process;
	if (!p || !w->behind)
		return;
	w->behind = false;
	p->behind--;
	set_flow(p);
}

void processes_hold(struct processes *all)
{
	all->held = true;
	list_for_each (link, &all->list)
		set_flow(list_entry(link, struct process, link));
}

void processes_release(struct processes *all)
{
	all->held = false;
	list_for_each (link, &all->list) {
		struct process *p = list_entry(link, struct process, link);
		set_flow(p);
		check_end(p);
	}
}

/* By tag, or by pid when tag is NULL. */
static struct process *find(struct processes *all, pid_t pid, const char *tag, bool ended_too)
{
	struct process *ended = NULL;
	list_for_each (link, &all->list) {
		struct process *p = list_entry(link, struct process, link);
		if (tag ? !str_eq(p->tag, tag) : p->pid != pid)
			continue;
		if (!p->exited)
			return p;
		ended = p;
	}
	return ended_too ? ended : NULL;
}

struct process *process_by_pid(struct processes *all, pid_t pid, bool ended_too)
{
	return find(all, pid, NULL, ended_too);
}

struct process *process_by_tag(struct processes *all, const char *tag, bool ended_too)
{
	return find(all, 0, tag, ended_too);
}

pid_t process_pid(const struct process *p)
{
	return p->pid;
}

json_t *processes_describe(const struct processes *all)
{
	auto_json json_t *array = json_array();
	list_for_each (link, &all->list) {
		struct process *p = list_entry(link, struct process, link);
		if (p->exited)
			continue;
		json_t *entry = json_pack("{s:O, s:i, s:s*}", "config", p->config, "pid",
					  (int)p->pid, "tag", p->tag);
		if (json_array_append_new(array, entry) < 0)
			return NULL;
	}
	return take_ptr(array);
}

int process_signal(struct process *p, int number, bool group)
{
	if (number == SIGKILL || number == SIGTERM)
		p->killed = true;
	return kill(group ? -p->pid : p->pid, number) < 0 ? -errno : 0;
}

int process_write(struct process *p, uint8_t *data, size_t n, process_written_fn *written,
		  void *user)
{
	return input_write(&p->input, data, n, written, user);
}

void process_close_stdin(struct process *p)
{
	input_finish(&p->input);
}

/* A pipe that fits: large, the inner end owned by the user, so that he can open it again through
   /dev/stdout. ours: the index of the end that stays here and must not block. */
static int open_pipe(const struct user *u, int ours, int fds[2])
{
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	fcntl(fds[0], F_SETPIPE_SZ, PROCESS_PIPE_SIZE); /* smaller ones work too */
	if (geteuid() == 0 && fchown(fds[0], u->uid, u->gid) < 0)
		return -errno;
	return fd_set_nonblock(fds[ours], true);
}

struct stdio {
	int in[2], out[2], err[2]; /* read end, write end */
};

static void stdio_close(struct stdio *io)
{
	int *fds = (int *)io;
	for (size_t i = 0; i < sizeof(*io) / sizeof(int); i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

static int stdio_open(struct stdio *io, const struct user *u, bool want_stdin)
{
	*io = (struct stdio){{-1, -1}, {-1, -1}, {-1, -1}};
	int r = open_pipe(u, 0, io->out);
	if (r == 0)
		r = open_pipe(u, 0, io->err);
	if (r < 0)
		return r;
	if (want_stdin)
		return open_pipe(u, 1, io->in);
	io->in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return io->in[0] < 0 ? -errno : 0;
}

static void output_init(struct process *p, enum process_output which, int fd)
{
	struct output *o = &p->output[which];
	*o = (struct output){.process = p, .which = which, .fd = fd};
	uv_poll_init(p->all->loop, &o->poll, fd);
	o->poll.data = o;
	p->handles++;
	output_poll(o, flows(p));
}

static void input_handle_closed(void *user)
{
	struct process *p = user;
	if (--p->handles == 0)
		free_process(p);
}

/* Connects our ends to the loop and puts p into the table. */
static void adopt(struct process *p, struct stdio *io)
{
	struct processes *all = p->all;
	uv_timer_init(all->loop, &p->deadline);
	p->deadline.data = p;
	p->handles++;
	output_init(p, PROCESS_STDOUT, take_fd(io->out[0]));
	output_init(p, PROCESS_STDERR, take_fd(io->err[0]));
	input_init(&p->input, all->loop, take_fd(io->in[1]), input_handle_closed, p);
	p->handles += p->input.fd >= 0;
	list_append(&all->list, &p->link);
	all->count++;
}

int process_start(struct processes *all, struct spawn_plan *plan, bool want_stdin, const char *tag,
		  json_t *config, struct process **ret, struct err *e)
{
	if (all->count >= PROCESSES_MAX)
		return err_set(e, EAGAIN, "%d processes are running already", PROCESSES_MAX);
	struct process *p = calloc(1, sizeof(*p));
	if (!p)
		return err_set(e, ENOMEM, "out of memory");
	p->all = all;
	list_init(&p->watchers);
	p->config = json_incref(config);
	p->tag = tag ? strdup(tag) : NULL;

	struct stdio io;
	int r = stdio_open(&io, plan->user, want_stdin);
	if (r < 0) {
		err_sys(e, -r, "can't open pipes");
	} else {
		plan->stdio[0] = io.in[0];
		plan->stdio[1] = io.out[1];
		plan->stdio[2] = io.err[1];
		r = spawn(plan, &p->pid, e);
	}
	if (r == 0)
		adopt(p, &io);
	else
		free_process(p);
	stdio_close(&io);
	if (r == 0)
		*ret = p;
	return r;
}
