/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command-line flags from a table: --name VALUE, --name=VALUE, -n VALUE, -nVALUE, -abc for three
 * switches, -- ends them. Values are borrowed from argv.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"

enum flag_kind {
	FLAG_SWITCH, /* --name, or --name=true|false */
	FLAG_VALUE,
};

struct flag {
	int id;           /* > 0; a table ends with id 0 */
	char letter;      /* 0: none */
	const char *name; /* without dashes; NULL: the letter alone */
	enum flag_kind kind;
	const char *value; /* what help calls the value */
	const char *help;
};

#define FLAG_HELP 1000 /* id of -h and --help, which every table has of itself */

struct flag_parser {
	const struct flag *table;
	int argc;
	char **argv;
	int next;         /* private: index of the argument looked at next */
	const char *tail; /* private: letters left in a group like -it */
	bool only_words;  /* private: -- was seen */
};

struct flag_found {
	int id;            /* 0: a word that is no flag */
	const char *value; /* the word, or the flag's value */
	bool on;           /* for switches */
};

/* Starts behind argv[0]. */
void flags_init(struct flag_parser *p, const struct flag *table, int argc, char **argv);

/* 1 with ret filled, 0 at the end, -EINVAL with e naming the argument. */
int flags_next(struct flag_parser *p, struct flag_found *ret, struct err *e);

/* The arguments behind the last one returned, for a command that follows. Returns the count. */
int flags_rest(const struct flag_parser *p, char ***ret_argv);

/* One aligned line for each flag. */
void flags_print(const struct flag *table, FILE *out);
