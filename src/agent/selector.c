/* SPDX-License-Identifier: Apache-2.0 */
/* Reads which process a call is about, and finds it. */
#include "agent/selector.h"

#include <errno.h>
#include <limits.h>

int selector_read(const json_t *message, struct selector *ret, struct err *e)
{
	json_t *process = NULL;
	uint64_t pid = 0;
	struct selector s = {0};
	if (!json_is_object(message))
		return err_set(e, EINVAL, "the message is not an object");
	int r = doc_want_object(message, "process", &process, e);
	if (r == 0)
		r = doc_opt_string(process, "tag", &s.tag, e);
	if (r == 0 && !s.tag)
		r = doc_want_uint(process, "pid", 1, INT_MAX, &pid, e);
	if (r < 0)
		return r;
	s.pid = (pid_t)pid;
	*ret = s;
	return 0;
}

struct process *selector_find(const struct selector *s, struct processes *all, bool ended_too,
			      struct err *e)
{
	struct process *p = s->tag ? process_by_tag(all, s->tag, ended_too)
				   : process_by_pid(all, s->pid, ended_too);
	if (!p && s->tag)
		err_set(e, ESRCH, "process with tag '%s' not found", s->tag);
	else if (!p)
		err_set(e, ESRCH, "process with pid %d not found", (int)s->pid);
	return p;
}
