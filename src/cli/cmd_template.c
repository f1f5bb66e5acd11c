/* SPDX-License-Identifier: Apache-2.0 */
/* space template: frozen machines that sandboxes are cloned from, templates of images and snapshots
 * of sandboxes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/api.h"
#include "cli/cli.h"
#include "cli/size.h"
#include "cli/table.h"
#include "cli/text.h"

enum { TEMPLATE_CPUS = 1, TEMPLATE_MEMORY, TEMPLATE_JSON, TEMPLATE_FORCE };

/* clang-format off */
static const struct flag template_flags[] = {
	{TEMPLATE_CPUS,   0,   "cpus",   FLAG_VALUE,  "N",    "build: virtual processors (default: 1)"},
	{TEMPLATE_MEMORY, 0,   "memory", FLAG_VALUE,  "SIZE", "build: memory: 512, 512M, 1G (default: 512M)"},
	{TEMPLATE_JSON,   0,   "json",   FLAG_SWITCH, NULL,   "build, ls: print JSON"},
	{TEMPLATE_FORCE,  'f', "force",  FLAG_SWITCH, NULL,   "rm: it is fine when there is none of that name"},
	{0},
};
/* clang-format on */

enum { COLUMNS = 9 };
static const char *const titles[COLUMNS] = {
	"NAME", "KIND", "IMAGE", "CPUS", "MEMORY", "SIZE", "AGE", "USED", "STATE",
};

struct template_options {
	uint64_t cpus, memory_mib; /* 0: not said */
	bool json, force;
};

static int template_flag(void *user, const struct flag_found *f, struct err *e)
{
	struct template_options *o = user;
	switch (f->id) {
	case TEMPLATE_CPUS:
		return size_cpus(f->value, &o->cpus, e);
	case TEMPLATE_MEMORY:
		return size_memory(f->value, &o->memory_mib, e);
	case TEMPLATE_FORCE:
		o->force = f->on;
		return 0;
	default:
		o->json = f->on;
		return 0;
	}
}

static int build(struct cli *cli, const struct template_options *o, const char *image)
{
	struct err e = {0};
	auto_json json_t *reply = NULL;
	auto_json json_t *body =
		json_pack("{s:s, s:I, s:I}", "image", image, "cpus",
			  (json_int_t)(o->cpus ? o->cpus : SIZE_CPUS), "memoryMB",
			  (json_int_t)(o->memory_mib ? o->memory_mib : SIZE_MEMORY_MIB));
	int r = body ? api_call(cli, "POST", "/templates", body, &reply, &e)
		     : err_set(&e, ENOMEM, "out of memory");
	if (r < 0)
		return cli_fail(&e);
	if (o->json) {
		api_print_json(reply);
		return CLI_OK;
	}
	const char *name = json_string_value(json_object_get(reply, "name"));
	text_put(stdout, name ? name : image);
	putchar('\n');
	return CLI_OK;
}

static const char *state_of(const json_t *one)
{
	if (json_is_string(json_object_get(one, "problem")))
		return "damaged";
	return json_is_true(json_object_get(one, "stale")) ? "stale" : "ready";
}

static int print_table(const json_t *list, struct err *e)
{
	struct table t;
	size_t i;
	json_t *one;
	if (table_init(&t, titles, COLUMNS, json_array_size(list)) < 0)
		return err_set(e, ENOMEM, "out of memory");
	json_array_foreach((json_t *)list, i, one)
	{
		char **cell = table_row(&t, i);
		cell[0] = table_text(one, "name");
		cell[1] = table_text(one, "kind");
		cell[2] = table_text(one, "image");
		cell[3] = table_number(one, "cpus", "");
		cell[4] = table_number(one, "memoryMB", "M");
		cell[5] = table_size(one, "sizeBytes");
		cell[6] = table_age(one, "madeAt");
		cell[7] = table_age(one, "usedAt");
		cell[8] = strdup(state_of(one));
	}
	table_print(&t);
	table_done(&t);
	return 0;
}

static int list(struct cli *cli, const struct template_options *o)
{
	struct err e = {0};
	auto_json json_t *all = NULL;
	int r = api_call(cli, "GET", "/templates", NULL, &all, &e);
	if (r == 0 && !json_is_array(all))
		r = err_set(&e, EBADMSG, "spaced's answer cannot be read");
	if (r == 0 && o->json)
		api_print_json(all);
	else if (r == 0)
		r = print_table(all, &e);
	return r < 0 ? cli_fail(&e) : CLI_OK;
}

static int remove_one(struct cli *cli, const struct template_options *o, const char *name)
{
	struct err e = {0};
	auto_free char *encoded = http_percent_encode(name, false);
	auto_free char *path = encoded ? str_printf("/templates/%s", encoded) : NULL;
	int r = path ? api_call(cli, "DELETE", path, NULL, NULL, &e)
		     : err_set(&e, ENOMEM, "out of memory");
	return r < 0 && !(o->force && r == -ENOENT) ? cli_fail(&e) : CLI_OK;
}

static int remove_all(struct cli *cli, const struct template_options *o, int count, char **names)
{
	int code = CLI_OK;
	for (int i = 0; i < count; i++)
		if (remove_one(cli, o, names[i]) != CLI_OK)
			code = CLI_FAILED;
	return code;
}

/* A flag that the word before it has no use for was meant for something. */
static int check_flags(const struct template_options *o, const char *word, struct err *e)
{
	bool builds = str_eq(word, "build"), removes = str_eq(word, "rm");
	if ((o->cpus || o->memory_mib) && !builds)
		return err_set(e, EINVAL, "--cpus and --memory are for 'template build'");
	if (o->force && !removes)
		return err_set(e, EINVAL, "-f is for 'template rm'");
	return 0;
}

static int template_verb(struct cli *cli, const struct verb *self, int argc, char **argv)
{
	struct template_options o = {0};
	struct err e = {0};
	int count = 0;
	int r = verb_parse(self, argc, argv, template_flag, &o, &count, &e);
	if (r > 0)
		return CLI_OK;
	const char *word = count ? verb_word(argv[0]) : "";
	if (r == 0)
		r = check_flags(&o, word, &e);
	if (r < 0)
		return cli_fail_usage(self, &e);
	if (count == 2 && str_eq(word, "build") && str_is_name(argv[1]))
		return build(cli, &o, argv[1]);
	if (count == 1 && str_eq(word, "ls"))
		return list(cli, &o);
	if (count >= 2 && str_eq(word, "rm"))
		return remove_all(cli, &o, count - 1, argv + 1);
	err_set(&e, EINVAL, "say 'template build IMAGE', 'template ls' or 'template rm NAME...'");
	return cli_fail_usage(self, &e);
}

const struct verb verb_template = {
	"template",
	"build IMAGE [--cpus N] [--memory SIZE] | ls [--json] | rm [-f] NAME...",
	"build, list and remove what sandboxes are cloned from",
	template_flags,
	template_verb,
	"The first 'space run' of a size builds a template as well; one that is there and fits is not built again.\n"
	"A stale or damaged template is made anew at its next use; such a snapshot can't be used here.\n",
};
