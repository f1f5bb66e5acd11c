/* SPDX-License-Identifier: Apache-2.0 */
/* The programs that a build runs: what they say becomes progress lines, or the reason of a failure.
 */
#pragma once

#include "base/err.h"

/* What every program of one build gets. */
struct tools {
	const char *title;      /* begins each progress line: "image base" */
	const char *const *env; /* whole environment, NULL-terminated; has TOOL_PATH_ENV */
	int lock_fd; /* stays open in them: while one lives, so does the lock. -1: none */
};

#define TOOL_PATH     "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define TOOL_PATH_ENV "PATH=" TOOL_PATH

/* Prints "TITLE: text" to standard error. */
void tools_say(const struct tools *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* 0 when program is in TOOL_PATH; else -ENOENT with e naming the package to install. */
int tools_want(const char *program, const char *package, struct err *e);

/*
 * Runs argv to its end, in a mount namespace of its own; it is ended when we die. Those lines
 * of mmdebstrap that tell where it is are shown as progress. Any other end than status 0: prints
 * the last lines of its output and returns -EIO, e has the one that says most.
 */
int tools_run(const struct tools *t, const char *const *argv, struct err *e);
