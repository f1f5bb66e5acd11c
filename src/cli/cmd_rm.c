/* SPDX-License-Identifier: Apache-2.0 */
/* space rm, space inspect: ending a sandbox, and all that is known of one. */
#include <errno.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/api.h"
#include "cli/cli.h"

enum { RM_FORCE = 1 };

static const struct flag rm_flags[] = {
	{RM_FORCE, 'f', "force", FLAG_SWITCH, NULL, "it is fine when there is none of that name"},
	{0},
};

static int rm_flag(void *user, const struct flag_found *f, struct err *e)
{
	(void)e;
	*(bool *)user = f->on;
	return 0;
}

static int no_flag(void *user, const struct flag_found *f, struct err *e)
{
	(void)user;
	return err_set(e, EINVAL, "flag %d is not handled", f->id);
}

static int remove_one(struct cli *cli, const char *ref, bool force)
{
	struct err e = {0};
	auto_free char *path = api_sandbox_path(ref, "");
	int r = path ? api_call(cli, "DELETE", path, NULL, NULL, &e)
		     : err_set(&e, ENOMEM, "out of memory");
	return r < 0 && !(force && r == -ENOENT) ? cli_fail(&e) : CLI_OK;
}

static int rm_verb(struct cli *cli, const struct verb *self, int argc, char **argv)
{
	bool force = false;
	struct err e = {0};
	int count = 0;
	int r = verb_parse(self, argc, argv, rm_flag, &force, &count, &e);
	if (r > 0)
		return CLI_OK;
	if (r == 0 && !count)
		r = err_set(&e, EINVAL, "no sandbox given");
	if (r < 0)
		return cli_fail_usage(self, &e);
	int code = CLI_OK;
	for (int i = 0; i < count; i++)
		if (remove_one(cli, argv[i], force) != CLI_OK)
			code = CLI_FAILED;
	return code;
}

static int inspect_verb(struct cli *cli, const struct verb *self, int argc, char **argv)
{
	struct err e = {0};
	int count = 0;
	int r = verb_parse(self, argc, argv, no_flag, NULL, &count, &e);
	if (r > 0)
		return CLI_OK;
	if (r == 0 && count != 1)
		r = err_set(&e, EINVAL, "name one sandbox");
	if (r < 0)
		return cli_fail_usage(self, &e);
	auto_free char *path = api_sandbox_path(argv[0], "");
	auto_json json_t *sandbox = NULL;
	r = path ? api_call(cli, "GET", path, NULL, &sandbox, &e)
		 : err_set(&e, ENOMEM, "out of memory");
	if (r < 0)
		return cli_fail(&e);
	api_print_json(sandbox);
	return CLI_OK;
}

static const struct flag no_flags[] = {{0}};

const struct verb verb_rm = {
	"rm", "[-f] SANDBOX...", "end and remove sandboxes", rm_flags, rm_verb, NULL,
};

const struct verb verb_inspect = {
	"inspect", "SANDBOX",    "print what is known of a sandbox, as JSON",
	no_flags,  inspect_verb, NULL,
};
