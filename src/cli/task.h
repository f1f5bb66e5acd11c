/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process in a sandbox that we are attached to: its output to ours, our input to it, our signals
 * to it, its end as our exit code. run, exec and logs are this with different beginnings.
 */
#pragma once

#include "cli/api.h"

struct task_spec {
	const char *method, *target;
	const char *sandbox_id;   /* exec: whose agent it goes to. NULL: spaced itself */
	const char *sandbox_name; /* how the user called it; NULL: spaced will tell */
	const char *user;         /* exec: whom the process runs as; NULL: the image's user */
	uint64_t timeout_ms;      /* exec: the process's time; 0: no limit */
	const char *content_type; /* NULL: no body */
	const void *body;
	size_t body_len;
	bool owns_sandbox;     /* run: a break ends the sandbox, not just the process */
	bool forwards;         /* signals go to the process; logs: no */
	bool input;            /* pump standard input */
	bool json;             /* print events as lines of JSON instead of the output */
	bool quiet;            /* no remarks of ours */
	char **ret_sandbox_id; /* NULL, or where its id goes, on the heap, when it was told */
	uint64_t skip_lines;   /* logs: lines at the start that are not shown */
};

/* Runs it to its end, starting spaced when needed. Returns the exit code of our process; errors
 * have been printed. */
int task_attach(struct cli *cli, const struct task_spec *spec);
