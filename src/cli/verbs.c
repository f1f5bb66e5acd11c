/* SPDX-License-Identifier: Apache-2.0 */
/* The table of verbs, and what is common to all: start-up, help, errors. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/dirs.h"
#include "base/doc.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/text.h"

static const struct verb *const verbs[] = {
	&verb_run,     &verb_exec,     &verb_cp,     &verb_logs,    &verb_ls,
	&verb_rm,      &verb_pause,    &verb_resume, &verb_fork,    &verb_snapshot,
	&verb_inspect, &verb_audit,    &verb_policy, &verb_secret,  &verb_grant,
	&verb_image,   &verb_template, &verb_doctor, &verb_version, &verb_help,
};

#define VERB_COUNT (sizeof(verbs) / sizeof(verbs[0]))

const char *verb_word(const char *word)
{
	static const char *const same[][2] = {
		{"list", "ls"}, {"ps", "ls"}, {"remove", "rm"}, {"delete", "rm"}};
	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
		if (str_eq(word, same[i][0]))
			return same[i][1];
	return word;
}

const struct verb *verb_find(const char *name)
{
	name = verb_word(name);
	for (size_t i = 0; i < VERB_COUNT; i++)
		if (str_eq(verbs[i]->name, name))
			return verbs[i];
	return NULL;
}

int verb_parse(const struct verb *v, int argc, char **argv,
	       int (*flag)(void *user, const struct flag_found *f, struct err *e), void *user,
	       int *ret_count, struct err *e)
{
	struct flag_parser p;
	struct flag_found f = {0};
	flags_init(&p, v->flags, argc, argv);
	int r, count = 0;
	while ((r = flags_next(&p, &f, e)) > 0) {
		if (f.id == FLAG_HELP) {
			verb_print_help(v);
			return 1;
		}
		if (f.id == 0)
			argv[count++] = (char *)f.value;
		else if ((r = flag(user, &f, e)) < 0)
			return r;
	}
	*ret_count = count;
	return r;
}

void verb_print_list(void)
{
	puts("usage: space VERB [FLAGS] ...\n");
	puts("Runs a task in a microVM of its own, with its key and its network outside.\n");
	for (size_t i = 0; i < VERB_COUNT; i++)
		printf("  %-9s %s\n", verbs[i]->name, verbs[i]->summary);
	puts("\n'space VERB --help' tells more. Try: space run -- uname -a");
}

void verb_print_help(const struct verb *v)
{
	printf("usage: space %s%s%s\n\n%s\n\n", v->name, *v->synopsis ? " " : "", v->synopsis,
	       v->summary);
	flags_print(v->flags, stdout);
	if (v->more)
		printf("\n%s", v->more);
}

void cli_remark(const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	auto_free char *text = NULL;
	if (vasprintf(&text, fmt, args) < 0)
		text = NULL;
	va_end(args);
	fputs("space: ", stderr);
	text_put(stderr, text ? text : "out of memory");
	fputc('\n', stderr);
}

int cli_fail(const struct err *e)
{
	cli_remark("%s", e->text);
	return CLI_FAILED;
}

int cli_fail_usage(const struct verb *v, const struct err *e)
{
	fputs("space: ", stderr);
	text_put(stderr, e->text);
	fprintf(stderr, "; see 'space %s --help'\n", v->name);
	return CLI_FAILED;
}

int cli_init(struct cli *cli, struct err *e)
{
	int r = dirs_set(e);
	if (r < 0)
		return r;
	const char *dir = getenv("SPACE_RUN_DIR");
	cli->run_dir = dir && *dir ? dir : "/run/space";
	int n = snprintf(cli->socket_path, sizeof(cli->socket_path), "%s/spaced.sock",
			 cli->run_dir);
	if (n < 0 || (size_t)n >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
		return err_set(e, ENAMETOOLONG,
			       "SPACE_RUN_DIR is too long for a socket's path: %.100s",
			       cli->run_dir);
	r = uv_loop_init(&cli->loop);
	return r < 0 ? err_sys(e, -r, "event loop") : 0;
}

void cli_done(struct cli *cli)
{
	/* What was closed gets its turn; what a failed verb left open ends with the process. */
	uv_run(&cli->loop, UV_RUN_NOWAIT);
	uv_run(&cli->loop, UV_RUN_NOWAIT);
	uv_loop_close(&cli->loop);
}

/* A caller may have closed 0, 1 or 2; a socket of ours must not become one of them. */
static void fill_standard_fds(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) // NOLINT: kept open
			_exit(CLI_FAILED);
}

int cli_main(int argc, char **argv)
{
	fill_standard_fds();
	doc_wipe_on_free();
	signal(SIGPIPE, SIG_IGN);
	if (argc < 2 || str_eq(argv[1], "--help") || str_eq(argv[1], "-h")) {
		verb_print_list();
		return CLI_OK;
	}
	struct err e = {0};
	const struct verb *v = str_eq(argv[1], "--version") ? &verb_version : verb_find(argv[1]);
	if (!v) {
		err_set(&e, EINVAL, "there is no verb '%.60s'; see 'space help'", argv[1]);
		return cli_fail(&e);
	}
	struct cli cli;
	if (cli_init(&cli, &e) < 0)
		return cli_fail(&e);
	int code = v->run(&cli, v, argc - 1, argv + 1);
	cli_done(&cli);
	if (fflush(stdout) != 0 && code == CLI_OK) {
		err_sys(&e, errno, "cannot write to standard output");
		code = cli_fail(&e);
	}
	return code;
}
