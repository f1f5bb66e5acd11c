/* SPDX-License-Identifier: Apache-2.0 */
/* space snapshot, space fork: copies of a sandbox that runs; it goes on. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/api.h"
#include "cli/cli.h"
#include "cli/grant.h"
#include "cli/table.h"
#include "cli/text.h"

#define FORK_MAX 64 /* children of one call */

enum { COPY_JSON = 1, COPY_QUIET, FORK_COUNT, FORK_NAME, FORK_GRANTS };

/* clang-format off */
static const struct flag snapshot_flags[] = {
	{COPY_JSON,   0,   "json",   FLAG_SWITCH, NULL,   "print the answer as a line of JSON"},
	{COPY_QUIET,  'q', "quiet",  FLAG_SWITCH, NULL,   "no remarks of space itself"},
	{0},
};

static const struct flag fork_flags[] = {
	{FORK_COUNT,  'n', "count",  FLAG_VALUE,  "N",    "how many children (default: 1)"},
	{FORK_NAME,   0,   "name",   FLAG_VALUE,  "NAME[,NAME]", "their names; with -n one NAME gives NAME-1 to NAME-N"},
	{FORK_GRANTS, 0,   "grants", FLAG_SWITCH, NULL,   "grant them its credentials; values come from our variables"},
	{COPY_JSON,   0,   "json",   FLAG_SWITCH, NULL,   "print the answer as a line of JSON"},
	{COPY_QUIET,  'q', "quiet",  FLAG_SWITCH, NULL,   "no remarks of space itself"},
	{0},
};
/* clang-format on */

struct copy_options {
	bool json, quiet, grants;
	uint64_t count; /* 0: not said */
	json_t *names;  /* as they were given */
};

static int add_name(json_t *names, const char *name, struct err *e)
{
	size_t i;
	json_t *other;
	if (!str_is_name(name))
		return err_set(e, EINVAL,
			       "a child's name has letters, digits, '_', '.' and '-', at most 63: "
			       "not '%.80s'",
			       name);
	json_array_foreach(names, i, other)
	{
		if (str_eq(json_string_value(other), name))
			return err_set(e, EINVAL, "two children can't both be called %s", name);
	}
	return json_array_append_new(names, json_string(name)) < 0
		       ? err_set(e, ENOMEM, "out of memory")
		       : 0;
}

static int add_names(json_t *names, const char *list, struct err *e)
{
	auto_free char *copy = strdup(list);
	if (!copy)
		return err_set(e, ENOMEM, "out of memory");
	int r = 0;
	for (char *rest = copy, *name; r == 0 && (name = strsep(&rest, ","));)
		r = json_array_size(names) < FORK_MAX
			    ? add_name(names, name, e)
			    : err_set(e, EINVAL, "at most %d children at once", FORK_MAX);
	return r;
}

static int copy_flag(void *user, const struct flag_found *f, struct err *e)
{
	struct copy_options *o = user;
	switch (f->id) {
	case FORK_COUNT:
		if (str_to_u64(f->value, 1, FORK_MAX, &o->count) < 0)
			return err_set(e, EINVAL,
				       "-n takes a whole number from 1 to %d, not '%.40s'",
				       FORK_MAX, f->value);
		return 0;
	case FORK_NAME:
		return add_names(o->names, f->value, e);
	case FORK_GRANTS:
		o->grants = f->on;
		return 0;
	case COPY_QUIET:
		o->quiet = f->on;
		return 0;
	default:
		o->json = f->on;
		return 0;
	}
}

/* How long the guest stood still, as "23" or "0.8". */
static char *stopped_ms(const json_t *reply)
{
	const json_t *n = json_object_get(reply, "stoppedMs");
	double ms = json_number_value(n);
	if (json_is_integer(n))
		return str_printf("%lld", (long long)json_integer_value(n));
	return str_printf("%.*f", ms < 10 ? 1 : 0, ms);
}

static int snapshot_verb(struct cli *cli, const struct verb *self, int argc, char **argv)
{
	struct err e = {0};
	int count = 0;
	struct copy_options o = {0};
	int r = verb_parse(self, argc, argv, copy_flag, &o, &count, &e);
	if (r > 0)
		return CLI_OK;
	if (r == 0 && count != 2)
		r = err_set(&e, EINVAL, "name a sandbox and what its snapshot is to be called");
	if (r == 0 && !str_is_name(argv[1]))
		r = err_set(&e, EINVAL,
			    "a snapshot's name has letters, digits, '_', '.' and '-', at most 63: "
			    "not '%.80s'",
			    argv[1]);
	if (r < 0)
		return cli_fail_usage(self, &e);
	auto_free char *path = api_sandbox_path(argv[0], "/snapshot");
	auto_json json_t *body = json_pack("{s:s}", "name", argv[1]);
	auto_json json_t *reply = NULL;
	r = path && body ? api_call(cli, "POST", path, body, &reply, &e)
			 : err_set(&e, ENOMEM, "out of memory");
	if (r < 0)
		return cli_fail(&e);
	if (o.json)
		api_print_line(reply);
	auto_free char *size = table_size(reply, "sizeBytes");
	auto_free char *ms = stopped_ms(reply);
	if (!o.quiet)
		cli_remark("snapshot %s takes %s; %s stood still for %s ms", argv[1],
			   size ? size : "-", argv[0], ms ? ms : "-");
	return CLI_OK;
}

/* One name for several children is what theirs begin with. */
static int expand_names(struct copy_options *o, struct err *e)
{
	size_t given = json_array_size(o->names);
	if (!o->count)
		o->count = given ? given : 1;
	if (!given || given == o->count)
		return 0;
	if (given > 1)
		return err_set(e, EINVAL, "-n says %llu children, --name has names for %zu",
			       (unsigned long long)o->count, given);
	auto_free char *prefix = strdup(json_string_value(json_array_get(o->names, 0)));
	json_array_clear(o->names);
	int r = prefix ? 0 : err_set(e, ENOMEM, "out of memory");
	for (uint64_t i = 1; r == 0 && i <= o->count; i++) {
		auto_free char *name = str_printf("%s-%llu", prefix, (unsigned long long)i);
		r = name ? add_name(o->names, name, e) : err_set(e, ENOMEM, "out of memory");
	}
	return r;
}

/* Values for children that may use the parent's credentials. */
static int read_grants(struct cli *cli, const char *ref, json_t **ret, struct err *e)
{
	auto_free char *path = api_sandbox_path(ref, "");
	auto_json json_t *sandbox = NULL;
	bool all;
	int r = path ? api_call(cli, "GET", path, NULL, &sandbox, e)
		     : err_set(e, ENOMEM, "out of memory");
	if (r < 0)
		return r;
	struct grant grant = {.ref = ref, .otherwise = "or fork it without --grants"};
	return grant_collect(&grant, sandbox, ret, &all, e);
}

static int make_body(struct cli *cli, const struct copy_options *o, const char *ref, json_t **ret,
		     struct err *e)
{
	auto_json json_t *secrets = NULL;
	int r = o->grants ? read_grants(cli, ref, &secrets, e) : 0;
	if (r < 0)
		return r;
	auto_json json_t *body =
		json_pack("{s:I, s:b}", "count", (json_int_t)o->count, "grants", o->grants);
	if (!body || (json_array_size(o->names) && json_object_set(body, "names", o->names) < 0) ||
	    (secrets && json_object_set(body, "secrets", secrets) < 0))
		return err_set(e, ENOMEM, "out of memory");
	*ret = take_ptr(body);
	return 0;
}

static int print_children(const json_t *reply, struct err *e)
{
	json_t *children, *child;
	size_t i;
	int r = doc_want_array(reply, "sandboxes", &children, e);
	if (r < 0)
		return err_prefix(e, "spaced's answer cannot be read");
	json_array_foreach(children, i, child)
	{
		const char *name = json_string_value(json_object_get(child, "name"));
		const char *id = json_string_value(json_object_get(child, "sandboxID"));
		text_put(stdout, name && *name ? name : id ? id : "-");
		putchar('\n');
	}
	return 0;
}

static int fork_one(struct cli *cli, const struct copy_options *o, const char *ref)
{
	struct err e = {0};
	auto_free char *path = api_sandbox_path(ref, "/fork");
	auto_json json_t *body = NULL, *reply = NULL;
	int r = path ? make_body(cli, o, ref, &body, &e) : err_set(&e, ENOMEM, "out of memory");
	if (r == 0)
		r = api_call(cli, "POST", path, body, &reply, &e);
	if (r == 0 && o->json)
		api_print_line(reply);
	else if (r == 0)
		r = print_children(reply, &e);
	if (r < 0)
		return cli_fail(&e);
	auto_free char *ms = stopped_ms(reply);
	if (!o->quiet)
		cli_remark("%s stood still for %s ms", ref, ms ? ms : "-");
	return CLI_OK;
}

static int fork_verb(struct cli *cli, const struct verb *self, int argc, char **argv)
{
	struct err e = {0};
	int count = 0;
	auto_json json_t *names = json_array();
	struct copy_options o = {.names = names};
	int r = verb_parse(self, argc, argv, copy_flag, &o, &count, &e);
	if (r > 0)
		return CLI_OK;
	if (r == 0 && count != 1)
		r = err_set(&e, EINVAL, "name one sandbox");
	if (r == 0)
		r = expand_names(&o, &e);
	return r < 0 ? cli_fail_usage(self, &e) : fork_one(cli, &o, argv[0]);
}

const struct verb verb_snapshot = {
	"snapshot",
	"[-q] SANDBOX AS",
	"keep a copy of a sandbox that new ones start from; it goes on",
	snapshot_flags,
	snapshot_verb,
	"What stands in its memory and on its disk is in the snapshot; values of secrets never are.\n"
	"\n"
	"  space snapshot w prepared\n"
	"  space run --image prepared -- ./task\n"
	"  space template rm prepared\n",
};

const struct verb verb_fork = {
	"fork",
	"[-n N] [--name NAME[,NAME]] [--grants] SANDBOX",
	"make children that go on from where a sandbox is; it goes on",
	fork_flags,
	fork_verb,
	"Prints the children's names, one a line. They may reach what their parent may reach, with no credential\n"
	"unless --grants says so. Connections to elsewhere that were open are reset in them.\n"
	"\n"
	"  space fork -n 3 --name try w      # try-1, try-2, try-3\n",
};
