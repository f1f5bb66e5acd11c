/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the QEMU driver share: the monitor, and the one asynchronous call that may be
 * under way. qemu.c has the process from start to grave, qemu_call.c the calls, qemu_freeze.c those
 * with a worker thread, qemu_adopt.c monitors of others.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "base/err.h"
#include "vmm/qmp.h"
#include "vmm/vmm.h"

#define QEMU_LAST_WORDS 4096 /* kept of standard error */

/* Bytes of a memory dump besides memory: headers, firmware. */
#define QEMU_DUMP_OVERHEAD (16u << 20)

enum qemu_phase {
	QEMU_WAITING, /* for vmm_boot() or vmm_restore(), or for an adopted one to say what it is */
	QEMU_MACHINE, /* it has been told */
	QEMU_ENDING,
	QEMU_GONE,
};

enum qemu_call_kind {
	CALL_NONE,
	CALL_BOOT,
	CALL_RESTORE,
	CALL_PAUSE,
	CALL_RESUME,
	CALL_COPY_BASE,
	CALL_SAVE,
	CALL_DUMP,
	CALL_ADOPT,
};

struct qemu_call {
	enum qemu_call_kind kind;
	vmm_done_fn done;
	void *user;
	unsigned replies_due;
	const char *event_due; /* not settled before this; NULL: none */
	bool working;          /* a worker thread has it */
	struct err failure;    /* the first; code 0: none */
	bool *ret_running;     /* ADOPT */
	int memory_fd;         /* COPY_BASE, SAVE: the caller's */
	int state_fd;          /* SAVE: the caller's */
	int state_copy_fd;     /* SAVE: what QEMU writes to; -1: none */
};

struct vmm {
	struct vmm_events events;
	void *user;
	char id[64];
	enum qemu_phase phase;
	struct vmm_probe host;
	struct vmm_identity who;
	int pidfd;
	int proc_fd;    /* /proc/PID, which stays this process's whoever gets its number */
	int stderr_fd;  /* -1: adopted */
	int dir_fd;     /* O_PATH */
	int scratch_fd; /* -1: no longer needed */
	int base_fd;    /* its memory's file, read-only; -1: not yet */
	uint64_t ram_bytes;
	bool boots;  /* what it was opened for */
	bool paused; /* the guest stands still */
	uv_loop_t *loop;
	uv_poll_t exit_poll;
	uv_poll_t stderr_poll;
	uv_timer_t timer;
	uv_work_t work;
	struct qmp_client qmp;
	unsigned open_handles; /* and a worker */
	bool silent;           /* never started as far as the caller knows: no exited() */
	bool killed;           /* by us, because of cause */
	bool controlled;       /* QEMU has answered once */
	int status;            /* as waitpid() gives it; -1: not known */
	struct err cause;
	struct err why;
	char shutdown_reason[32]; /* from QEMU's SHUTDOWN event; empty: none */
	struct qemu_call call;
	size_t words_len;
	char words[QEMU_LAST_WORDS];
};

/* qemu.c */

/* A monitor without a process. NULL: no memory. */
struct vmm *qemu_new(uv_loop_t *loop, const char *id, const struct vmm_events *events, void *user);

/* Opens proc_fd of who.pid, a process that surely lives or is our child. 0 or -errno with e set. */
int qemu_open_proc(struct vmm *v, struct err *e);

/* Puts everything on the loop; control is a connection to its control socket, taken over also on
   failure. Then the monitor lives until exited(). 0 or -errno with e set, and qemu_unwatch() has to
   follow. */
int qemu_watch(struct vmm *v, int control, struct err *e);

/* Leaves the process alone; it is freed from the loop, without exited(). */
void qemu_unwatch(struct vmm *v);

/* Closes and frees one that was never watched. */
void qemu_free(struct vmm *v);

/* Ends it because of something. The first cause is the one that counts. */
void qemu_end(struct vmm *v, int code, const char *text);

/* A deadline for what comes next, after which the process is killed; 0: none. */
void qemu_deadline(struct vmm *v, uint64_t ms);

/* One that kept the loop's handle open is done; the last one makes exited() and frees. */
void qemu_handle_closed(struct vmm *v);

/* qemu_end.c */

/* Reads standard error, once. Bytes, 0 at its end, or -1 with errno. */
ssize_t qemu_words_read(struct vmm *v);

/* Why it is gone, once it is. */
void qemu_explain(const struct vmm *v, struct err *why);

/* qemu_call.c */

/* Registers a call with its deadline (0: none). 0; -EBUSY when another is under way; -ESRCH when
   the process is ending. */
int qemu_call_begin(struct vmm *v, enum qemu_call_kind kind, vmm_done_fn done, void *user,
		    uint64_t deadline_ms);

/* Forgets it: it failed before any of it was sent. */
void qemu_call_forget(struct vmm *v);

/* Forgets it, and ends a monitor that has got part of it: its answers would be taken for others. */
void qemu_call_cancel(struct vmm *v, int code);

/* Sends one of its commands. arguments is borrowed. 0 or -errno. */
int qemu_call_send(struct vmm *v, const char *command, json_t *arguments, int pass_fd);

/* Its end: done() is called. Nothing when there is none. */
void qemu_call_finish(struct vmm *v, const struct err *why);

void qemu_call_event(struct vmm *v, const char *name, const json_t *data);

/* qemu_freeze.c */

/* QEMU has written its state: the worker's turn. */
void qemu_save_pages(struct vmm *v);

/* The process has ended: a worker that has not begun never will. */
void qemu_work_abandon(struct vmm *v);
