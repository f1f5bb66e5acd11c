/* SPDX-License-Identifier: Apache-2.0 */
/* space pause, space resume: a sandbox put to rest on the disk, and going on from there. */
#include <errno.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/api.h"
#include "cli/cli.h"
#include "cli/grant.h"
#include "cli/table.h"

enum { PAUSE_JSON = 1, PAUSE_QUIET, RESUME_JSON, RESUME_SECRET, RESUME_WITHOUT };

/* clang-format off */
static const struct flag pause_flags[] = {
	{PAUSE_JSON,  0,   "json",  FLAG_SWITCH, NULL, "print each answer as a line of JSON"},
	{PAUSE_QUIET, 'q', "quiet", FLAG_SWITCH, NULL, "no remarks of space itself"},
	{0},
};

static const struct flag resume_flags[] = {
	{RESUME_SECRET,  0, "secret",          FLAG_VALUE,  "NAME", "give NAME's value alone; may be repeated"},
	{RESUME_WITHOUT, 0, "without-secrets", FLAG_SWITCH, NULL,   "give none: their placeholders are worth nothing"},
	{RESUME_JSON,    0, "json",            FLAG_SWITCH, NULL,   "print each sandbox as a line of JSON"},
	{0},
};
/* clang-format on */

struct pause_options {
	bool json, quiet;
	bool without_secrets;
	json_t *secrets; /* resume: the names given */
};

static int pause_flag(void *user, const struct flag_found *f, struct err *e)
{
	struct pause_options *o = user;
	switch (f->id) {
	case PAUSE_QUIET:
		o->quiet = f->on;
		return 0;
	case RESUME_WITHOUT:
		o->without_secrets = f->on;
		return 0;
	case RESUME_SECRET:
		return grant_name(o->secrets, f->value, e);
	default:
		o->json = f->on;
		return 0;
	}
}

static int post(struct cli *cli, const char *ref, const char *what, const json_t *body,
		json_t **ret, struct err *e)
{
	auto_free char *path = api_sandbox_path(ref, what);
	return path ? api_call(cli, "POST", path, body, ret, e)
		    : err_set(e, ENOMEM, "out of memory");
}

static int pause_one(struct cli *cli, const struct pause_options *o, const char *ref)
{
	struct err e = {0};
	auto_json json_t *reply = NULL;
	if (post(cli, ref, "/pause", NULL, &reply, &e) < 0)
		return cli_fail(&e);
	if (o->json)
		api_print_line(reply);
	auto_free char *size = table_size(reply, "sizeBytes");
	if (!o->quiet)
		cli_remark("%s is paused and takes %s; 'space resume %s' goes on", ref,
			   size ? size : "-", ref);
	return CLI_OK;
}

/* A sandbox that isn't paused is not looked at further: spaced tells why it can't go on. */
static bool may_be_resumed(const char *state)
{
	return str_eq(state, "paused") || str_eq(state, "pausing");
}

/* {"secrets","withoutSecrets"} for a sandbox as it was shown. */
static int resume_body(const struct pause_options *o, const char *ref, const json_t *sandbox,
		       json_t **ret, struct err *e)
{
	const char *state = "paused";
	int r = doc_opt_string(sandbox, "state", &state, e);
	if (r < 0)
		return err_prefix(e, "spaced's answer cannot be read");
	struct grant grant = {
		.ref = ref,
		.only = json_array_size(o->secrets) ? o->secrets : NULL,
		.otherwise = "or leave them out with --without-secrets",
	};
	auto_json json_t *values = NULL;
	bool all = !o->without_secrets;
	if (all && may_be_resumed(state))
		r = grant_collect(&grant, sandbox, &values, &all, e);
	else
		values = json_array();
	if (r < 0)
		return r;
	*ret = json_pack("{s:O, s:b}", "secrets", values, "withoutSecrets", !all);
	return *ret ? 0 : err_set(e, ENOMEM, "out of memory");
}

static int resume_one(struct cli *cli, const struct pause_options *o, const char *ref)
{
	struct err e = {0};
	auto_free char *path = api_sandbox_path(ref, "");
	auto_json json_t *sandbox = NULL, *body = NULL, *reply = NULL;
	int r = path ? api_call(cli, "GET", path, NULL, &sandbox, &e)
		     : err_set(&e, ENOMEM, "out of memory");
	if (r == 0)
		r = resume_body(o, ref, sandbox, &body, &e);
	if (r == 0)
		r = post(cli, ref, "/resume", body, &reply, &e);
	if (r < 0)
		return cli_fail(&e);
	if (o->json)
		api_print_line(reply);
	return CLI_OK;
}

static int each(struct cli *cli, const struct verb *self, int argc, char **argv,
		int (*one)(struct cli *cli, const struct pause_options *o, const char *ref))
{
	struct err e = {0};
	int count = 0;
	auto_json json_t *names = json_array();
	struct pause_options o = {.secrets = names};
	int r = verb_parse(self, argc, argv, pause_flag, &o, &count, &e);
	if (r > 0)
		return CLI_OK;
	if (r == 0 && !count)
		r = err_set(&e, EINVAL, "no sandbox given");
	if (r == 0 && o.without_secrets && json_array_size(names))
		r = err_set(&e, EINVAL, "--secret and --without-secrets exclude each other");
	if (r < 0)
		return cli_fail_usage(self, &e);
	int code = CLI_OK;
	for (int i = 0; i < count; i++)
		if (one(cli, &o, argv[i]) != CLI_OK)
			code = CLI_FAILED;
	return code;
}

static int pause_verb(struct cli *cli, const struct verb *self, int argc, char **argv)
{
	return each(cli, self, argc, argv, pause_one);
}

static int resume_verb(struct cli *cli, const struct verb *self, int argc, char **argv)
{
	return each(cli, self, argc, argv, resume_one);
}

const struct verb verb_pause = {
	"pause",
	"[-q] SANDBOX...",
	"put sandboxes to rest on the disk; nothing of them runs",
	pause_flags,
	pause_verb,
	"It goes on by 'space resume', or by itself at the next 'space exec' or 'space cp' when it has no secrets.\n",
};

const struct verb verb_resume = {
	"resume",
	"[--secret NAME]... [--without-secrets] SANDBOX...",
	"let paused sandboxes go on where they were",
	resume_flags,
	resume_verb,
	"The values of a sandbox's secrets were not kept: they are read from our variables of the same names again.\n",
};
