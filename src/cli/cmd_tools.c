/* SPDX-License-Identifier: Apache-2.0 */
/* space doctor and space image: work that spaced's program does without the daemon; and version and
 * help. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/api.h"
#include "cli/cli.h"
#include "cli/launch.h"
#include "cli/text.h"

static const struct flag no_flags[] = {{0}};

/* Becomes "spaced VERB ARGS…"; only its own --help is ours. */
static int become_spaced(struct cli *cli, const struct verb *self, int argc, char **argv)
{
	(void)cli;
	for (int i = 1; i < argc; i++)
		if (str_eq(argv[i], "--help") || str_eq(argv[i], "-h")) {
			verb_print_help(self);
			return CLI_OK;
		}
	struct err e = {0};
	auto_free char *path = launch_find("spaced");
	auto_free char **args = calloc((size_t)argc + 2, sizeof(*args));
	if (!path || !args)
		return cli_fail(&(struct err){ENOMEM, "out of memory"});
	args[0] = path;
	for (int i = 0; i < argc; i++)
		args[i + 1] = argv[i];
	signal(SIGPIPE, SIG_DFL);
	execv(path, args);
	err_sys(&e, errno, "cannot execute %s", path);
	return cli_fail(&e);
}

static int no_flag(void *user, const struct flag_found *f, struct err *e)
{
	(void)user;
	return err_set(e, EINVAL, "flag %d is not handled", f->id);
}

static int version_verb(struct cli *cli, const struct verb *self, int argc, char **argv)
{
	struct err e = {0};
	int count = 0;
	int r = verb_parse(self, argc, argv, no_flag, NULL, &count, &e);
	if (r < 0)
		return cli_fail_usage(self, &e);
	if (r > 0)
		return CLI_OK;
	puts("space " SPACE_VERSION);
	int fd;
	if (launch_connect_running(cli, &fd, &e) < 0)
		return CLI_OK;
	close(fd);
	auto_json json_t *j = NULL;
	if (api_call(cli, "GET", "/version", NULL, &j, &e) < 0)
		return cli_fail(&e);
	const char *version = json_string_value(json_object_get(j, "version"));
	fputs("spaced ", stdout);
	text_put(stdout, version ? version : "?");
	printf(" (process %lld)\n", (long long)json_integer_value(json_object_get(j, "pid")));
	return CLI_OK;
}

static int help_verb(struct cli *cli, const struct verb *self, int argc, char **argv)
{
	(void)cli;
	struct err e = {0};
	int count = 0;
	int r = verb_parse(self, argc, argv, no_flag, NULL, &count, &e);
	if (r < 0)
		return cli_fail_usage(self, &e);
	const struct verb *v = count ? verb_find(argv[0]) : NULL;
	if (count && !v) {
		err_set(&e, EINVAL, "there is no verb '%.60s'; see 'space help'", argv[0]);
		return cli_fail(&e);
	}
	if (r == 0 && v)
		verb_print_help(v);
	else if (r == 0)
		verb_print_list();
	return CLI_OK;
}

const struct verb verb_doctor = {
	"doctor",
	"[--json | --jail]",
	"tell what this host offers, what is missing, what to do",
	no_flags,
	become_spaced,
	"Exits with 1 when sandboxes cannot run here. --jail prints each step by which monitors and gateways are confined.\n",
};

const struct verb verb_image = {
	"image",
	"build NAME [--force] | ls [--json] | rm NAME",
	"build, list and remove images",
	no_flags,
	become_spaced,
	"An image that is up to date is not built again; --force does, with Debian's updates.\n",
};

const struct verb verb_version = {
	"version", "",           "print the versions of space and of a spaced that runs",
	no_flags,  version_verb, NULL,
};

const struct verb verb_help = {
	"help", "[VERB]", "show help", no_flags, help_verb, NULL,
};
