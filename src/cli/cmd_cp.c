/* SPDX-License-Identifier: Apache-2.0 */
/*
 * space cp: one file into a sandbox or out of it, streamed. Here it appears whole or not at all: a
 * temporary file beside the target is renamed at the end.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/copy.h"
#include "cli/spec.h"

enum { CP_USER = 1 };

static const struct flag cp_flags[] = {
	{CP_USER, 'u', "user", FLAG_VALUE, "USER",
	 "read or write there as USER (default: whom tasks run as)"},
	{0},
};

static int cp_flag(void *user, const struct flag_found *f, struct err *e)
{
	return spec_user(f->value, user, e);
}

static int copy(struct cli *cli, const struct spec_place *from, const struct spec_place *to,
		const char *user, struct err *e)
{
	const struct spec_place *there = from->sandbox ? from : to;
	const struct spec_place *here = from->sandbox ? to : from;
	auto_free char *id = NULL;
	if (!str_is_utf8(there->path, strlen(there->path)))
		return err_set(e, EINVAL, "the path in the sandbox is not valid UTF-8");
	int r = api_sandbox_id(cli, there->sandbox, &id, e);
	if (r < 0)
		return r;
	struct copy_spec spec = {
		.sandbox_id = id,
		.user = user,
		.guest_path = there->path,
		.path = here->path,
	};
	return from->sandbox ? copy_out(cli, &spec, e) : copy_in(cli, &spec, e);
}

static int cp_verb(struct cli *cli, const struct verb *self, int argc, char **argv)
{
	const char *user = NULL;
	struct err e = {0};
	int count = 0;
	int r = verb_parse(self, argc, argv, cp_flag, &user, &count, &e);
	if (r > 0)
		return CLI_OK;
	if (r == 0 && count != 2)
		r = err_set(&e, EINVAL, "name a source and a target");
	struct spec_place from = {0}, to = {0};
	if (r == 0)
		r = spec_place(argv[0], &from, &e);
	if (r == 0)
		r = spec_place(argv[1], &to, &e);
	if (r == 0 && !from.sandbox == !to.sandbox)
		r = err_set(&e, EINVAL, "one of the two is SANDBOX:PATH, the other a path here");
	int code = r < 0 ? cli_fail_usage(self, &e) : CLI_OK;
	if (r == 0) {
		r = copy(cli, &from, &to, user, &e);
		code = r < 0 ? cli_fail(&e) : r;
	}
	spec_place_done(&from);
	spec_place_done(&to);
	return code;
}

const struct verb verb_cp = {
	"cp",
	"[-u USER] SOURCE SANDBOX:PATH | SANDBOX:PATH TARGET",
	"copy a file into a sandbox or out of it",
	cp_flags,
	cp_verb,
	"'-' is standard input or output. A target that is a directory gets a file of the source's name.\n"
	"For directories: space exec SANDBOX tar -C DIR -c . | tar -x\n",
};
