/* SPDX-License-Identifier: Apache-2.0 */
/* What QEMU said last and how it ended, as one line for a person. It may have been taken over by
 * its guest: printable ASCII, and not much of it. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vmm/qemu_state.h"

#define LAST_WORDS_TOLD 300 /* so much fits an error */

static void words_append(struct vmm *v, const char *p, size_t n)
{
	if (n >= QEMU_LAST_WORDS) {
		p += n - QEMU_LAST_WORDS;
		n = QEMU_LAST_WORDS;
	}
	if (v->words_len + n > QEMU_LAST_WORDS) {
		size_t drop = v->words_len + n - QEMU_LAST_WORDS;

		memmove(v->words, v->words + drop, v->words_len - drop);
		v->words_len -= drop;
	}
	memcpy(v->words + v->words_len, p, n);
	v->words_len += n;
}

/* The end of standard error as one line. */
static void words_tell(const struct vmm *v, char out[static LAST_WORDS_TOLD])
{
	size_t end = v->words_len, start, n = 0;

	while (end > 0 && (v->words[end - 1] == '\n' || v->words[end - 1] == ' '))
		end--;
	start = end >= LAST_WORDS_TOLD ? end - LAST_WORDS_TOLD + 1 : 0;
	for (size_t i = start; i < end; i++) {
		char c = v->words[i];

		out[n++] = (char)(c == '\n' ? ' ' : c >= ' ' && c <= '~' ? c : '?');
	}
	out[n] = '\0';
}

ssize_t qemu_words_read(struct vmm *v)
{
	char chunk[QEMU_LAST_WORDS];
	ssize_t n;

	if (v->stderr_fd < 0)
		return 0;
	n = read(v->stderr_fd, chunk, sizeof(chunk));
	if (n > 0)
		words_append(v, chunk, (size_t)n);
	return n;
}

static void explain_exit(const struct vmm *v, struct err *why)
{
	char words[LAST_WORDS_TOLD];
	const char *sep;

	words_tell(v, words);
	sep = words[0] ? ": " : "";
	if (v->status >= 0 && WIFEXITED(v->status) && WEXITSTATUS(v->status) == 0)
		err_set(why, EIO, "QEMU ended");
	else if (v->status >= 0 && WIFEXITED(v->status))
		err_set(why, EIO, "QEMU failed with status %d%s%s", WEXITSTATUS(v->status), sep,
			words);
	else if (v->status >= 0 && WTERMSIG(v->status) == SIGSYS)
		err_set(why, EIO,
			"QEMU made a system call that it has no leave for, and was ended (its guest may have taken "
			"it over)%s%s",
			sep, words);
	else if (v->status >= 0)
		err_set(why, EIO, "QEMU was killed by signal %d (%s)%s%s", WTERMSIG(v->status),
			strsignal(WTERMSIG(v->status)), sep, words);
	else
		err_set(why, EIO, "QEMU ended, nobody knows how%s%s", sep, words);
}

/* The status of another's child is not known; its guest's last word is. */
void qemu_explain(const struct vmm *v, struct err *why)
{
	bool clean = v->status < 0 || (WIFEXITED(v->status) && WEXITSTATUS(v->status) == 0);

	if (v->killed)
		*why = v->cause;
	else if (clean && v->shutdown_reason[0])
		snprintf(why->text, sizeof(why->text), "the machine stopped: %s",
			 v->shutdown_reason);
	else
		explain_exit(v, why);
}
