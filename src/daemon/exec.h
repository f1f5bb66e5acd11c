/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process in a sandbox, from spaced's side: starts it at the agent, passes its events on to a
 * client and to the task log with backpressure, records start and end. The agent's stream is the
 * guest's word: bounded, and looked at only for start and end.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/sandbox.h"
#include "http/server.h"

#define EXEC_REQUEST_MAX (4u << 20) /* bytes of a Start request */

struct exec;

struct exec_result {
	bool ended;    /* an end event came */
	int exit_code; /* of a process that exited, else 128 + signal */
	char code[32]; /* Connect error code, "" when there is none */
	char message[ERR_TEXT_MAX];
};

struct exec_ops {
	/* The process runs. exec_cancel() may not be called from here. */
	void (*started)(void *user, uint64_t pid);
	/* Over; the exec is dead. Not called after exec_cancel(). */
	void (*ended)(void *user, const struct exec_result *result);
	/* The client went away; the exec goes on without it until exec_cancel(). */
	void (*client_gone)(void *user);
};

struct exec_request {
	json_t *start;           /* the Start message, borrowed; NULL: attaches to attach_pid */
	uint64_t attach_pid;
	const char *linux_user;  /* NULL: the default */
	const char *timeout_ms;  /* the connect-timeout-ms field, NULL: none */
	struct http_exchange *x; /* who gets the events; NULL: nobody */
	bool own_stream; /* x's stream is the caller's: it was started, and is ended by him */
	bool task;       /* the sandbox's task: its events go to the log */
};

/* NULL with e set; x is then untouched. */
struct exec *exec_start(struct sandbox *sb, const struct exec_request *request,
			const struct exec_ops *ops, void *user, struct err *e);

/* Lets go of it: the process in the guest runs on. x is left to the caller. */
void exec_cancel(struct exec *ex);
