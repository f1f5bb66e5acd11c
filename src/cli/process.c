/* SPDX-License-Identifier: Apache-2.0 */
/* How a process is started, from flags to the members of a request. */
#include "cli/process.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/spec.h"

int process_options_init(struct process_options *o, struct err *e)
{
	*o = (struct process_options){.envs = json_object()};
	return o->envs ? 0 : err_set(e, ENOMEM, "out of memory");
}

void process_options_done(struct process_options *o)
{
	json_decref(o->envs);
	o->envs = NULL;
}

static int set_text(const char **where, const char *flag, const char *value, struct err *e)
{
	if (!*value || !str_is_utf8(value, strlen(value)))
		return err_set(e, EINVAL, "%s needs a value that is text", flag);
	*where = value;
	return 0;
}

int process_option(struct process_options *o, const struct flag_found *f, struct err *e)
{
	switch (f->id) {
	case PROCESS_ENV:
		return spec_env(o->envs, f->value, e);
	case PROCESS_ENV_FILE:
		return spec_env_file(o->envs, f->value, e);
	case PROCESS_CWD:
		return set_text(&o->cwd, "--workdir", f->value, e);
	case PROCESS_USER:
		return spec_user(f->value, &o->user, e);
	case PROCESS_TERMINAL:
		return f->on ? err_set(e, ENOTSUP, "terminals (-t) are not there yet: use -i alone")
			     : 0;
	case PROCESS_TIMEOUT:
		if (str_to_ms(f->value, &o->timeout_ms) < 0 || !o->timeout_ms)
			return err_set(e, EINVAL,
				       "--timeout takes a time like 90, 90s or 5m, not '%.40s'",
				       f->value);
		return 0;
	case PROCESS_INPUT:
		o->input = f->on;
		return 0;
	case PROCESS_JSON:
		o->json = f->on;
		return 0;
	case PROCESS_QUIET:
		o->quiet = f->on;
		return 0;
	default:
		return err_set(e, EINVAL, "flag %d is not handled", f->id);
	}
}

int process_to_json(const struct process_options *o, int argc, char **argv, json_t **ret,
		    struct err *e)
{
	auto_json json_t *process = NULL;
	int r = spec_command(argc, argv, &process, e);
	if (r < 0)
		return r;
	if (json_object_set(process, "envs", o->envs) < 0 ||
	    (o->cwd && json_object_set_new(process, "cwd", json_string(o->cwd)) < 0))
		return err_set(e, ENOMEM, "out of memory");
	*ret = take_ptr(process);
	return 0;
}
