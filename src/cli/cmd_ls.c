/* SPDX-License-Identifier: Apache-2.0 */
/* space ls: the sandboxes there are, in columns as wide as what stands in them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/api.h"
#include "cli/cli.h"
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

struct row {
	char *cell[COLUMNS];
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

static char *text_of(const json_t *sandbox, const char *key)
{
	const char *s = json_string_value(json_object_get(sandbox, key));
	return text_safe(s ? s : "-", s ? strlen(s) : 1);
}

static char *age_of(const json_t *sandbox)
{
	struct tm tm = {0};
	const char *s = json_string_value(json_object_get(sandbox, "startedAt"));
	if (!s || !strptime(s, "%Y-%m-%dT%H:%M:%S", &tm))
		return strdup("-");
	int64_t age = (int64_t)(clock_wall_ms() / 1000) - timegm(&tm);
	age = age < 0 ? 0 : age;
	if (age < 120)
		return str_printf("%llds", (long long)age);
	if (age < 2 * 3600)
		return str_printf("%lldm", (long long)age / 60);
	return age < 2 * 86400 ? str_printf("%lldh", (long long)age / 3600)
			       : str_printf("%lldd", (long long)age / 86400);
}

/* "exited (3)" where there is a code to tell. */
static char *state_of(const json_t *sandbox)
{
	auto_free char *state = text_of(sandbox, "state");
	json_t *code = json_object_get(sandbox, "exitCode");
	if (!state || !json_is_integer(code))
		return take_ptr(state);
	return str_printf("%s (%lld)", state, (long long)json_integer_value(code));
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

static void row_fill(struct row *row, const json_t *sandbox)
{
	long long memory = (long long)json_integer_value(json_object_get(sandbox, "memoryMB"));
	long long cpus = (long long)json_integer_value(json_object_get(sandbox, "cpus"));
	*row = (struct row){{
		text_of(sandbox, "name"),
		text_of(sandbox, "sandboxID"),
		state_of(sandbox),
		text_of(sandbox, "image"),
		str_printf("%lld", cpus),
		str_printf("%lldM", memory),
		age_of(sandbox),
		command_of(sandbox),
	}};
}

static void print_row(const char *const cell[COLUMNS], const size_t width[COLUMNS])
{
	for (size_t i = 0; i < COLUMNS; i++)
		printf("%-*s%s", i + 1 < COLUMNS ? (int)width[i] : 0, cell[i] ? cell[i] : "",
		       i + 1 < COLUMNS ? "  " : "\n");
}

static int print_table(const json_t *list, struct err *e)
{
	size_t count = json_array_size(list);
	auto_free struct row *rows = calloc(count + 1, sizeof(*rows));
	if (!rows)
		return err_set(e, ENOMEM, "out of memory");
	size_t width[COLUMNS];
	for (size_t c = 0; c < COLUMNS; c++)
		width[c] = strlen(titles[c]);
	for (size_t i = 0; i < count; i++) {
		row_fill(&rows[i], json_array_get(list, i));
		for (size_t c = 0; c < COLUMNS; c++) {
			size_t n = rows[i].cell[c] ? strlen(rows[i].cell[c]) : 0;
			width[c] = n > width[c] ? n : width[c];
		}
	}
	print_row(titles, width);
	for (size_t i = 0; i < count; i++) {
		print_row((const char *const *)rows[i].cell, width);
		for (size_t c = 0; c < COLUMNS; c++)
			free(rows[i].cell[c]);
	}
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
			auto_free char *id = text_of(json_array_get(list, i), "sandboxID");
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
