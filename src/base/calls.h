/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of the system calls that a program makes, as a filter for the kernel: what is not listed
 * ends the process (SIGSYS). x86_64 alone; calls of the other two kinds end it, too. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

struct sock_filter;

struct calls_filter {
	struct sock_filter *code;
	size_t count;
};

#define CALLS_WHERE_MAX 2

/* A call with the same number may be listed with several values. */
struct calls_rule {
	int call;
	int error; /* it fails with this, and the process goes on; 0: it is allowed */
	struct {
		uint64_t mask; /* 0: no condition */
		uint64_t value;
		unsigned argument; /* 0 .. 5 */
	} where[CALLS_WHERE_MAX];  /* all of them: argument & mask == value */
};

/* The whole width of an argument that is an int: what is above is not looked at by the kernel. */
#define CALLS_INT UINT64_C(0xffffffff)

/* Shorthands for tables. */
#define CALL(name)                 \
	{                          \
		.call = SYS_##name \
	}
#define CALL_FAILS(name, code)                      \
	{                                           \
		.call = SYS_##name, .error = (code) \
	}
#define CALL_IF(name, n, bits, is)                                   \
	{                                                            \
		.call = SYS_##name, .where = { {(bits), (is), (n)} } \
	}
#define CALL_IF_FAILS(name, n, bits, is, code)                                        \
	{                                                                             \
		.call = SYS_##name, .error = (code), .where = { {(bits), (is), (n)} } \
	}

/* Fills ret, to be released with calls_done(). 0 or -errno with e
 * set. */
int calls_compile(const struct calls_rule *const *lists, const size_t *counts, size_t nlists,
		  struct calls_filter *ret, struct err *e);
void calls_done(struct calls_filter *f);

/* Puts it on the calling process, all its threads, for good. 0 or -errno with e set. */
int calls_enforce(const struct calls_filter *f, struct err *e);

/* As text for another process, an instruction a line, and back. 0 or -errno. */
int calls_print(const struct calls_filter *f, FILE *to);
int calls_parse(const char *text, struct calls_filter *ret);

/* What every program with threads and an event loop makes, and with sanitizers what those make. */
extern const struct calls_rule calls_common[];
extern const size_t calls_common_count;
