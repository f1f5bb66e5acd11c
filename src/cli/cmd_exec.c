/* SPDX-License-Identifier: Apache-2.0 */
/* space exec: one more process in a sandbox. */
#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/process.h"
#include "cli/task.h"
#include "http/envelope.h"

#define REQUEST_MAX (8u << 20) /* bytes */

static const struct flag exec_flags[] = {PROCESS_FLAGS, {0}};

/* 1: help was given. 0: *ret_ref is the sandbox, *ret_process the process. */
static int parse(struct process_options *o, const struct verb *self, int argc, char **argv,
		 const char **ret_ref, json_t **ret_process, struct err *e)
{
	struct flag_parser p;
	struct flag_found f = {0};
	flags_init(&p, exec_flags, argc, argv);
	int r;
	while ((r = flags_next(&p, &f, e)) > 0 && f.id) {
		if (f.id == FLAG_HELP) {
			verb_print_help(self);
			return 1;
		}
		r = process_option(o, &f, e);
		if (r < 0)
			return r;
	}
	if (r < 0)
		return r;
	char **command;
	int count = r > 0 ? flags_rest(&p, &command) : 0;
	if (count && str_eq(command[0], "--")) {
		command++;
		count--;
	}
	if (!count)
		return err_set(e, EINVAL, r ? "no command given" : "no sandbox given");
	*ret_ref = f.value;
	return process_to_json(o, count, command, ret_process, e);
}

static int make_body(const struct process_options *o, json_t *process, struct buf *out,
		     struct err *e)
{
	auto_json json_t *request = json_pack("{s:O, s:b}", "process", process, "stdin", o->input);
	auto_free char *text = request ? doc_to_text(request) : NULL;
	int r = text ? envelope_write(out, ENVELOPE_MESSAGE, text, strlen(text)) : -ENOMEM;
	return r < 0 ? err_sys(e, -r, "the command is too long") : 0;
}

static int attach(struct cli *cli, const struct process_options *o, const char *ref,
		  json_t *process)
{
	struct err e = {0};
	auto_free char *id = NULL;
	auto_buf struct buf body;
	buf_init(&body, REQUEST_MAX);
	int r = api_sandbox_id(cli, ref, &id, &e);
	if (r == 0)
		r = make_body(o, process, &body, &e);
	if (r < 0)
		return cli_fail(&e);
	struct task_spec spec = {
		.method = "POST",
		.target = "/process.Process/Start",
		.sandbox_id = id,
		.sandbox_name = ref,
		.user = o->user,
		.timeout_ms = o->timeout_ms,
		.content_type = "application/connect+json",
		.body = body.data,
		.body_len = body.len,
		.forwards = true,
		.input = o->input,
		.json = o->json,
		.quiet = o->quiet,
	};
	return task_attach(cli, &spec);
}

static int exec_verb(struct cli *cli, const struct verb *self, int argc, char **argv)
{
	struct process_options o;
	struct err e = {0};
	const char *ref = NULL;
	auto_json json_t *process = NULL;
	int r = process_options_init(&o, &e);
	if (r == 0)
		r = parse(&o, self, argc, argv, &ref, &process, &e);
	int code = r > 0   ? CLI_OK
		   : r < 0 ? cli_fail_usage(self, &e)
			   : attach(cli, &o, ref, process);
	process_options_done(&o);
	return code;
}

const struct verb verb_exec = {
	"exec",
	"[FLAGS] SANDBOX [--] COMMAND [ARG...]",
	"run one more command in a sandbox that runs",
	exec_flags,
	exec_verb,
	"A paused sandbox without secrets is resumed. Exit codes are those of 'space run'.\n",
};
