/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line: a table of verbs, one file for each. A verb parses its flags, talks to spaced
 * over its API, prints, and returns the exit code of the process.
 */
#pragma once

#include <uv.h>

#include "base/err.h"
#include "cli/flags.h"

/* Exit codes of our own; all others are the task's. */
enum cli_exit {
	CLI_OK = 0,
	CLI_DAMAGED = 1,   /* audit verify found something, a policy is wrong or denies */
	CLI_TIMEOUT = 124, /* the task's time ran out */
	CLI_FAILED = 125,  /* SPACE itself failed, or was called wrongly */
	CLI_NOT_EXECUTABLE = 126,
	CLI_NOT_FOUND = 127,
	CLI_SIGNAL = 128, /* plus the signal's number */
};

struct cli {
	uv_loop_t loop;
	const char *run_dir; /* where spaced's socket and log are */
	char socket_path[108];
};

/* Takes the directories from the environment. 0, or -ENAMETOOLONG with e set. */
int cli_init(struct cli *cli, struct err *e);
void cli_done(struct cli *cli);

struct verb {
	const char *name;
	const char *synopsis; /* what follows the name */
	const char *summary;  /* one line, for the list of verbs */
	const struct flag *flags;
	/* argv[0] is the verb. Returns the exit code. */
	int (*run)(struct cli *cli, const struct verb *self, int argc, char **argv);
	const char *more; /* text behind the flags; may be NULL */
};

extern const struct verb verb_run, verb_exec, verb_cp, verb_logs, verb_ls, verb_rm, verb_inspect,
	verb_pause, verb_resume, verb_snapshot, verb_fork, verb_template, verb_audit, verb_policy,
	verb_secret, verb_grant, verb_image, verb_doctor, verb_version, verb_help;

/*
 * For verbs whose words and flags may come in any order: calls flag(user, f, e) for each flag and
 * moves the words to the front of argv; *ret_count is their number. 0; 1 when help was asked for
 * and given; -EINVAL with e set.
 */
int verb_parse(const struct verb *v, int argc, char **argv,
	       int (*flag)(void *user, const struct flag_found *f, struct err *e), void *user,
	       int *ret_count, struct err *e);

/* The verb of that name, or NULL. */
const struct verb *verb_find(const char *name);

/* The word that is meant by one that other tools use for it: list, remove. */
const char *verb_word(const char *word);
void verb_print_help(const struct verb *v);
void verb_print_list(void);

/* The whole program behind main(). */
int cli_main(int argc, char **argv);

/* Prints "space: text" to standard error, made safe for a terminal. */
void cli_remark(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The same for what went wrong; return CLI_FAILED. */
int cli_fail(const struct err *e);
int cli_fail_usage(const struct verb *v, const struct err *e); /* and where to read on */
