/* SPDX-License-Identifier: Apache-2.0 */
/* Names of signals. The texts are those of envd's implementation, which clients show to people. */
#include "agent/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

struct signal_name {
	int number;
	const char *name;
	const char *text;
};

static const struct signal_name names[] = {
	{SIGHUP, "HUP", "hangup"},
	{SIGINT, "INT", "interrupt"},
	{SIGQUIT, "QUIT", "quit"},
	{SIGILL, "ILL", "illegal instruction"},
	{SIGTRAP, "TRAP", "trace/breakpoint trap"},
	{SIGABRT, "ABRT", "aborted"},
	{SIGBUS, "BUS", "bus error"},
	{SIGFPE, "FPE", "floating point exception"},
	{SIGKILL, "KILL", "killed"},
	{SIGUSR1, "USR1", "user defined signal 1"},
	{SIGSEGV, "SEGV", "segmentation fault"},
	{SIGUSR2, "USR2", "user defined signal 2"},
	{SIGPIPE, "PIPE", "broken pipe"},
	{SIGALRM, "ALRM", "alarm clock"},
	{SIGTERM, "TERM", "terminated"},
	{SIGSTKFLT, "STKFLT", "stack fault"},
	{SIGCHLD, "CHLD", "child exited"},
	{SIGCONT, "CONT", "continued"},
	{SIGSTOP, "STOP", "stopped (signal)"},
	{SIGTSTP, "TSTP", "stopped"},
	{SIGTTIN, "TTIN", "stopped (tty input)"},
	{SIGTTOU, "TTOU", "stopped (tty output)"},
	{SIGURG, "URG", "urgent I/O condition"},
	{SIGXCPU, "XCPU", "CPU time limit exceeded"},
	{SIGXFSZ, "XFSZ", "file size limit exceeded"},
	{SIGVTALRM, "VTALRM", "virtual timer expired"},
	{SIGPROF, "PROF", "profiling timer expired"},
	{SIGWINCH, "WINCH", "window changed"},
	{SIGIO, "IO", "I/O possible"},
	{SIGPWR, "PWR", "power failure"},
	{SIGSYS, "SYS", "bad system call"},
};

#define NAME_COUNT (sizeof(names) / sizeof(names[0]))

int signal_from_json(const json_t *value)
{
	if (json_is_integer(value)) {
		json_int_t n = json_integer_value(value);
		return n >= 1 && n <= SIGNAL_MAX ? (int)n : -EINVAL;
	}
	const char *name = json_string_value(value);
	if (!name)
		return -EINVAL;
	if (str_starts(name, "SIGNAL_"))
		name += strlen("SIGNAL_");
	if (str_starts(name, "SIG"))
		name += strlen("SIG");
	for (size_t i = 0; i < NAME_COUNT; i++)
		if (str_eq(names[i].name, name))
			return names[i].number;
	return -EINVAL;
}

void signal_text(int number, char out[SIGNAL_TEXT_SIZE])
{
	for (size_t i = 0; i < NAME_COUNT; i++) {
		if (names[i].number == number) {
			snprintf(out, SIGNAL_TEXT_SIZE, "%s", names[i].text);
			return;
		}
	}
	snprintf(out, SIGNAL_TEXT_SIZE, "signal %d", number);
}
