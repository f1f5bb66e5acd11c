/* SPDX-License-Identifier: Apache-2.0 */
/* Reading without echo. Signals are caught while the echo is off, so that none leaves it off. */
#include "cli/ask.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "cli/text.h"

static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGALRM};
#define SIGNAL_COUNT (sizeof(signals) / sizeof(signals[0]))

static volatile sig_atomic_t caught;

static void on_signal(int number)
{
	caught = number;
}

static void catch_signals(struct sigaction before[SIGNAL_COUNT])
{
	struct sigaction act = {.sa_handler = on_signal}; /* no SA_RESTART: read() returns */
	sigemptyset(&act.sa_mask);
	caught = 0;
	for (size_t i = 0; i < SIGNAL_COUNT; i++) {
		sigaction(signals[i], NULL, &before[i]);
		if (before[i].sa_handler != SIG_IGN) // NOLINT: a union's member
			sigaction(signals[i], &act, NULL);
	}
}

/* One line; a terminal in its usual mode gives it whole, or in pieces when it is long. */
static int read_line(char *out, size_t size, struct err *e)
{
	size_t n = 0;
	while (!caught) {
		ssize_t got = read(STDIN_FILENO, out + n, size - 1 - n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_sys(e, errno, "cannot read from the terminal");
		if (got == 0 && n == 0)
			return err_set(e, ENODATA, "the input ended before a value was typed");
		n += (size_t)got;
		if (got == 0 || out[n - 1] == '\n')
			break;
		if (n == size - 1)
			return err_set(e, EMSGSIZE, "what was typed is too long");
	}
	if (caught)
		return err_set(e, EINTR, "interrupted");
	out[n] = 0;
	out[strcspn(out, "\n")] = 0;
	return 0;
}

int ask_hidden(const char *prompt, char *out, size_t size, struct err *e)
{
	struct termios before, hidden;
	struct sigaction actions[SIGNAL_COUNT];
	if (tcgetattr(STDIN_FILENO, &before) < 0)
		return err_sys(e, errno, "standard input is no terminal");
	hidden = before;
	hidden.c_lflag &= ~(tcflag_t)(ECHO | ECHOE | ECHOK | ECHONL);
	catch_signals(actions);
	int r = tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden) < 0
			? err_sys(e, errno, "cannot turn the terminal's echo off")
			: 0;
	if (r == 0) {
		text_put(stderr, prompt);
		fputs(": ", stderr);
		r = read_line(out, size, e);
		tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
		fputc('\n', stderr);
	}
	for (size_t i = 0; i < SIGNAL_COUNT; i++)
		sigaction(signals[i], &actions[i], NULL);
	if (r < 0)
		explicit_bzero(out, size);
	if (caught)
		raise(caught);
	return r;
}
