/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that the agent runs for its callers: pipes with backpressure in both directions, exits,
 * deadlines. Any number of watchers get all the same; the slowest holds the process back. Without
 * one, output is read and dropped. While all are held, nothing is read and nobody's end is told.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "agent/spawn.h"
#include "base/doc.h"
#include "base/list.h"

#define PROCESSES_MAX     1024               /* at once */
#define PROCESS_PIPE_SIZE (256 * 1024)       /* bytes that a pipe holds */
#define PROCESS_READ_SIZE (64 * 1024)        /* bytes taken from a pipe at a time */
#define PROCESS_INPUT_MAX (16 * 1024 * 1024) /* bytes waiting for one process to read them */

enum process_output {
	PROCESS_STDOUT,
	PROCESS_STDERR,
};

struct process;

/* All processes, and the reaper of all children. */
struct processes {
	uv_loop_t *loop;
	uv_signal_t child_signal;
	struct list list;
	size_t count;
	bool held;
	uint8_t *read_buffer; /* PROCESS_READ_SIZE bytes, shared */
};

/* Each may end the watch that it is called for, and no other. */
struct process_ops {
	/* Output has come; valid during the call. False: send no more until process_resume(). */
	bool (*output)(void *user, enum process_output which, const uint8_t *p, size_t n);
	/* It is over, status as from waitpid(), all output was delivered. The watch is over. */
	void (*ended)(void *user, int status);
	/* Instead of ended(): its deadline passed and it was killed, or what others still write to
	   its pipes is not waited for. The watch is over. */
	void (*expired)(void *user);
};

/* One who gets a process's output and end. Zeroes: watches nothing. */
struct process_watcher {
	struct list link;
	struct process *process; /* NULL: none */
	const struct process_ops *ops;
	void *user;
	bool behind;
};

/* From here on SIGCHLD is ours, and every child that ends is reaped. 0 or -errno. */
int processes_init(struct processes *all, uv_loop_t *loop);

/* Kills the process groups of all and forgets the processes; the loop must run once more to free
 * them. */
void processes_done(struct processes *all);

/*
 * Starts plan (whose stdio is filled in here) with pipes on its output and, when stdin is wanted,
 * on its input, else /dev/null. tag may be NULL; config is what List tells (a reference is taken).
 * 0 with *ret, or -errno with e set as spawn() does; -EAGAIN past PROCESSES_MAX.
 */
int process_start(struct processes *all, struct spawn_plan *plan, bool want_stdin, const char *tag,
		  json_t *config, struct process **ret, struct err *e);

/* From now on w gets output and the end. It watches nothing before, and stays where it is until the
   watch is over. */
void process_watch(struct process *p, struct process_watcher *w, const struct process_ops *ops,
		   void *user);

/* Both harmless when the watch is over. */
void process_unwatch(struct process_watcher *w);
void process_resume(struct process_watcher *w);

/* Holding: reads no output and forgets no process that ends. Releasing: goes on with what has
   gathered, and tells of those that have ended. Each is harmless when it holds already. */
void processes_hold(struct processes *all);
void processes_release(struct processes *all);

/* Kills the process in ms milliseconds from now unless it has ended. */
void process_set_deadline(struct process *p, uint64_t ms);

/* The running process of that pid or tag, NULL when there is none. ended_too: else the latest that
   has ended and whose end was not told yet. */
struct process *process_by_pid(struct processes *all, pid_t pid, bool ended_too);
struct process *process_by_tag(struct processes *all, const char *tag, bool ended_too);

pid_t process_pid(const struct process *p);

/* [{"config","pid","tag"?}] of the running ones; NULL: no memory. */
json_t *processes_describe(const struct processes *all);

/* Sends a signal to the process, or to its group. After SIGKILL and SIGTERM its end does not wait
   for others that hold its pipes. 0, -ESRCH. */
int process_signal(struct process *p, int number, bool group);

/* Told how a queued input went: 0 all written, -EPIPE its reader closed, -ESRCH it ended. */
typedef void process_written_fn(void *user, int result);

/*
 * Writes to standard input, after what waits there. Takes data over (a heap block), also on
 * failure. 1: all is written; 0: queued, written() will be called once; -EPIPE when it is closed or
 * was never open, -ENOBUFS past PROCESS_INPUT_MAX, -ENOMEM.
 */
int process_write(struct process *p, uint8_t *data, size_t n, process_written_fn *written,
		  void *user);

/* Closes standard input after what is queued. Harmless when it is closed. */
void process_close_stdin(struct process *p);
