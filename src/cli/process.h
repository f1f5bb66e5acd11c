/* SPDX-License-Identifier: Apache-2.0 */
/* The flags that run and exec share: how a process is started. */
#pragma once

#include "base/doc.h"
#include "cli/flags.h"

enum process_flag {
	PROCESS_ENV = 1,
	PROCESS_ENV_FILE,
	PROCESS_CWD,
	PROCESS_USER,
	PROCESS_INPUT,
	PROCESS_TERMINAL,
	PROCESS_TIMEOUT,
	PROCESS_JSON,
	PROCESS_QUIET,
	PROCESS_FLAG_END, /* a verb's own ids start here */
};

#define PROCESS_FLAGS                                                                             \
	{PROCESS_ENV, 'e', "env", FLAG_VALUE, "K[=V]", "set a variable; without =V, to ours"},    \
		{PROCESS_ENV_FILE, 0,      "env-file",                                            \
		 FLAG_VALUE,       "FILE", "set the variables of FILE, one K[=V] a line"},        \
		{PROCESS_CWD, 'w', "workdir", FLAG_VALUE, "DIR", "start in DIR"},                 \
		{PROCESS_USER, 'u',    "user",                                                    \
		 FLAG_VALUE,   "USER", "run as USER (the image's by default)"},                   \
		{PROCESS_INPUT, 'i', "interactive", FLAG_SWITCH, NULL, "pass standard input on"}, \
		{PROCESS_TERMINAL, 't', "tty", FLAG_SWITCH, NULL, "not there yet: use -i"},       \
		{PROCESS_TIMEOUT, 0,      "timeout",                                              \
		 FLAG_VALUE,      "TIME", "end it after TIME: 90, 90s, 5m (exit code 124)"},      \
		{PROCESS_JSON, 0, "json", FLAG_SWITCH, NULL, "print events as lines of JSON"},    \
	{                                                                                         \
		PROCESS_QUIET, 'q', "quiet", FLAG_SWITCH, NULL, "no remarks of space itself"      \
	}

struct process_options {
	json_t *envs;           /* object */
	const char *cwd, *user; /* NULL: the image's */
	bool input, json, quiet;
	uint64_t timeout_ms; /* 0: none */
};

int process_options_init(struct process_options *o, struct err *e);
void process_options_done(struct process_options *o);

/* Takes a flag of PROCESS_FLAGS. 0 or -EINVAL. */
int process_option(struct process_options *o, const struct flag_found *f, struct err *e);

/* {"cmd","args","envs","cwd"?} for a command; a new reference. */
int process_to_json(const struct process_options *o, int argc, char **argv, json_t **ret,
		    struct err *e);
