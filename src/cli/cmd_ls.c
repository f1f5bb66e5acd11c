/* SPDX-License-Identifier: Apache-2.0 */
/* space ls: the sandboxes there are, in a line for each. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/api.h"
#include "cli/cli.h"
#include "cli/table.h"
#include "cli/text.h"

enum { LS_JSON = 1, LS_QUIET };

static const struct flag ls_flags[] = {
	{LS_JSON, 0, "json", FLAG_SWITCH, NULL, "print JSON"},
	{LS_QUIET, 'q', "quiet", FLAG_SWITCH, NULL, "print ids alone"},
	{0},
};

enum { COLUMNS = 8, COMMAND_MAX = 48 };
static const char *const titles[COLUMNS] = {
	"NAME", "ID", "STATE", "IMAGE", "CPUS", "MEMORY", "AGE", "COMMAND",
};

struct ls_options {
	bool json, quiet;
};

static int ls_flag(void *user, const struct flag_found *f, struct err *e)
{
	struct ls_options *o = user;
	(void)e;
	*(f->id == LS_JSON ? &o->json : &o->quiet) = f->on;
	return 0;
}

/* "exited (3)" where there is a code to tell, "paused (5m)" where it is known since when. */
static char *state_of(const json_t *sandbox)
{
	auto_free char *state = table_text(sandbox, "state");
	json_t *code = json_object_get(sandbox, "exitCode");
	if (state && json_is_integer(code))
		return str_printf("%s (%lld)", state, (long long)json_integer_value(code));
	if (!str_eq(state, "paused") || !json_is_string(json_object_get(sandbox, "pausedAt")))
		return take_ptr(state);
	auto_free char *age = table_age(sandbox, "pausedAt");
	return age ? str_printf("paused (%s)", age) : NULL;
}

static char *command_of(const json_t *sandbox)
{
	auto_buf struct buf line;
	buf_init(&line, 1 << 20);
	size_t i;
	json_t *word;
	json_array_foreach(json_object_get(sandbox, "command"), i,
			   word) if (json_is_string(word) && line.len <= COMMAND_MAX * 4)
		buf_printf(&line, "%s%s", i ? " " : "", json_string_value(word));
	auto_free char *safe = text_safe((const char *)line.data, line.len);
	if (!safe || strlen(safe) <= COMMAND_MAX)
		return take_ptr(safe);
	size_t cut = COMMAND_MAX - 3;
	while (cut && ((unsigned char)safe[cut] & 0xc0) == 0x80)
		cut--; /* not inside a character */
	return str_printf("%.*s...", (int)cut, safe);
}

static int print_table(const json_t *list, struct err *e)
{
	struct table t;
	size_t i;
	json_t *sandbox;
	if (table_init(&t, titles, COLUMNS, json_array_size(list)) < 0)
		return err_set(e, ENOMEM, "out of memory");
	json_array_foreach((json_t *)list, i, sandbox)
	{
		char **cell = table_row(&t, i);
		cell[0] = table_text(sandbox, "name");
		cell[1] = table_text(sandbox, "sandboxID");
		cell[2] = state_of(sandbox);
		cell[3] = table_text(sandbox, "image");
		cell[4] = table_number(sandbox, "cpus", "");
		cell[5] = table_number(sandbox, "memoryMB", "M");
		cell[6] = table_age(sandbox, "startedAt");
		cell[7] = command_of(sandbox);
	}
	table_print(&t);
	table_done(&t);
	return 0;
}

static int ls_verb(struct cli *cli, const struct verb *self, int argc, char **argv)
{
	struct ls_options o = {0};
	struct err e = {0};
	int count = 0;
	int r = verb_parse(self, argc, argv, ls_flag, &o, &count, &e);
	if (r > 0)
		return CLI_OK;
	if (r == 0 && count)
		r = err_set(&e, EINVAL, "'%.60s' is one word too many", argv[0]);
	if (r < 0)
		return cli_fail_usage(self, &e);
	auto_json json_t *list = NULL;
	r = api_call(cli, "GET", "/sandboxes", NULL, &list, &e);
	if (r == 0 && !json_is_array(list))
		r = err_set(&e, EBADMSG, "spaced's answer cannot be read");
	if (r == 0 && o.json) {
		api_print_json(list);
	} else if (r == 0 && o.quiet) {
		for (size_t i = 0; i < json_array_size(list); i++) {
			auto_free char *id = table_text(json_array_get(list, i), "sandboxID");
			puts(id ? id : "");
		}
	} else if (r == 0) {
		r = print_table(list, &e);
	}
	return r < 0 ? cli_fail(&e) : CLI_OK;
}

const struct verb verb_ls = {
	"ls", "[--json | -q]", "list the sandboxes", ls_flags, ls_verb, NULL,
};
