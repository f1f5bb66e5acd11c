/* SPDX-License-Identifier: Apache-2.0 */
/* space grant: which sandbox may use which credential; given and taken back while it runs. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/api.h"
#include "cli/cli.h"
#include "cli/scope.h"
#include "cli/table.h"
#include "cli/text.h"
#include "cli/value.h"

enum { GRANT_ENV = SCOPE_FLAG_END, GRANT_JSON };

static const struct flag grant_flags[] = {
	SCOPE_FLAGS,
	{GRANT_ENV, 0, "env", FLAG_SWITCH, NULL, "add: the value of our variable NAME"},
	{GRANT_JSON, 0, "json", FLAG_SWITCH, NULL, "add, ls: print JSON"},
	{0},
};

struct grant_options {
	struct scope scope;
	bool env, json;
};

static int grant_flag(void *user, const struct flag_found *f, struct err *e)
{
	struct grant_options *o = user;
	if (f->id != GRANT_ENV && f->id != GRANT_JSON)
		return scope_option(&o->scope, f, e);
	*(f->id == GRANT_ENV ? &o->env : &o->json) = f->on;
	return 0;
}

static const char *kind_of(const json_t *entry)
{
	return json_string_value(json_object_get(json_object_get(entry, "inject"), "kind"));
}

/* Whose value comes from us: it has no definition but this. */
static int take_value(json_t *entry, const char *name, struct err *e)
{
	auto_json json_t *values = NULL;
	if (!json_object_get(entry, "hosts"))
		return err_set(e, EINVAL,
			       "say which hosts may get the value of %s: --host api.example.com",
			       name);
	int r = value_from_env(name, value_form_of(kind_of(entry)), NULL, &values, e);
	if (r < 0)
		return r;
	return json_object_set_new(entry, "value", value_of_entry(values)) < 0
		       ? err_set(e, ENOMEM, "out of memory")
		       : 0;
}

static int take_stored(json_t *entry, const char *name, struct err *e)
{
	if (json_object_get(entry, "inject"))
		return err_set(e, EINVAL,
			       "how %s is put in is said by 'space secret set'; with --env it is "
			       "our variable %s",
			       name, name);
	return json_object_set_new(entry, "stored", json_string(name)) < 0
		       ? err_set(e, ENOMEM, "out of memory")
		       : 0;
}

static int make_entry(const struct grant_options *o, const char *name, json_t **ret, struct err *e)
{
	auto_json json_t *entry = json_copy(o->scope.members);
	if (!entry || json_object_set_new(entry, "name", json_string(name)) < 0 ||
	    (o->scope.ttl_ms && json_object_set_new(entry, "expiresMs",
						    json_integer((json_int_t)o->scope.ttl_ms)) < 0))
		return err_set(e, ENOMEM, "out of memory");
	int r = o->env ? take_value(entry, name, e) : take_stored(entry, name, e);
	if (r < 0)
		return r;
	*ret = take_ptr(entry);
	return 0;
}

static int add(struct cli *cli, const struct grant_options *o, int count, char **words)
{
	struct err e = {0};
	auto_json json_t *entry = NULL, *reply = NULL;
	auto_free char *path = api_sandbox_path(words[0], "/grants");
	(void)count;
	int r = path ? make_entry(o, words[1], &entry, &e) : err_set(&e, ENOMEM, "out of memory");
	if (r == 0)
		r = api_call(cli, "POST", path, entry, &reply, &e);
	if (r < 0)
		return cli_fail(&e);
	if (o->json)
		api_print_json(reply);
	return CLI_OK;
}

enum { COLUMNS = 8 };
static const char *const titles[COLUMNS] = {
	"NAME", "KIND", "HOSTS", "STATE", "USES", "BYTES", "LAST USE", "EXPIRES",
};

/* "3", or "3/100" where there is a most. */
static char *uses_of(const json_t *grant)
{
	auto_free char *used = table_number(grant, "used", "");
	auto_free char *most = table_number(grant, "uses", "");
	if (!used || !most || str_eq(most, "-"))
		return take_ptr(used);
	return str_printf("%s/%s", used, most);
}

/* With what somebody should look at. */
static char *state_of(const json_t *grant)
{
	auto_free char *state = table_text(grant, "state");
	auto_free char *alarm = table_age(grant, "alarmed");
	if (state && alarm && !str_eq(alarm, "-"))
		return str_printf("%s, ALARM %s ago", state, alarm);
	return state && json_is_true(json_object_get(grant, "canary"))
		       ? str_printf("%s (canary)", state)
		       : take_ptr(state);
}

static int print_table(const json_t *list, struct err *e)
{
	struct table t;
	size_t i;
	json_t *grant;
	if (table_init(&t, titles, COLUMNS, json_array_size(list)) < 0)
		return err_set(e, ENOMEM, "out of memory");
	json_array_foreach((json_t *)list, i, grant)
	{
		char **cell = table_row(&t, i);
		cell[0] = table_text(grant, "name");
		cell[1] = table_text(grant, "kind");
		cell[2] = table_list(grant, "hosts");
		cell[3] = state_of(grant);
		cell[4] = uses_of(grant);
		cell[5] = table_size(grant, "usedBytes");
		cell[6] = table_age(grant, "lastUse");
		cell[7] = table_left(grant, "expiresAt");
	}
	table_print(&t);
	table_done(&t);
	return 0;
}

/* Why some can't be used, for whoever reads the table. */
static void print_reasons(const json_t *list)
{
	size_t i;
	json_t *grant;
	json_array_foreach((json_t *)list, i, grant)
	{
		const char *name = json_string_value(json_object_get(grant, "name"));
		const char *reason = json_string_value(json_object_get(grant, "reason"));
		if (reason)
			cli_remark("%s: %s", name ? name : "-", reason);
	}
}

static int list(struct cli *cli, const struct grant_options *o, int count, char **words)
{
	struct err e = {0};
	auto_json json_t *all = NULL;
	auto_free char *path = api_sandbox_path(words[0], "/grants");
	(void)count;
	int r = path ? api_call(cli, "GET", path, NULL, &all, &e)
		     : err_set(&e, ENOMEM, "out of memory");
	if (r == 0 && !json_is_array(all))
		r = err_set(&e, EBADMSG, "spaced's answer cannot be read");
	if (r == 0 && o->json)
		api_print_json(all);
	else if (r == 0)
		r = print_table(all, &e);
	if (r < 0)
		return cli_fail(&e);
	if (!o->json)
		print_reasons(all);
	return CLI_OK;
}

static int revoke_all(struct cli *cli, const struct grant_options *o, int count, char **words)
{
	int code = CLI_OK;
	(void)o;
	for (int i = 1; i < count; i++) {
		struct err e = {0};
		auto_free char *name = http_percent_encode(words[i], false);
		auto_free char *rest = name ? str_printf("/grants/%s", name) : NULL;
		auto_free char *path = rest ? api_sandbox_path(words[0], rest) : NULL;
		int r = path ? api_call(cli, "DELETE", path, NULL, NULL, &e)
			     : err_set(&e, ENOMEM, "out of memory");
		if (r < 0)
			code = cli_fail(&e);
	}
	return code;
}

static const struct {
	const char *name;
	int least, most; /* words behind the name */
	int (*run)(struct cli *cli, const struct grant_options *o, int count, char **words);
} actions[] = {
	{"add", 2, 2, add},
	{"ls", 1, 1, list},
	{"revoke", 2, 1024, revoke_all},
};

/* A flag that the word before it has no use for was meant for something. */
static int check_flags(const struct grant_options *o, const char *word, struct err *e)
{
	if (!str_eq(word, "add") && (scope_given(&o->scope) || o->env))
		return err_set(e, EINVAL, "that flag is for 'grant add'");
	if (o->json && str_eq(word, "revoke"))
		return err_set(e, EINVAL, "--json is for 'grant add' and 'grant ls'");
	return 0;
}

/* NAME=value is an easy slip, so the text is not repeated. */
static int check_names(int count, char **words, struct err *e)
{
	for (int i = 1; i < count; i++)
		if (!str_is_env_name(words[i]))
			return err_set(e, EINVAL,
				       "a grant is called by the name of its credential, as in "
				       "GITHUB_TOKEN; a value is never given on the command line");
	return 0;
}

static int dispatch(struct cli *cli, const struct verb *self, const struct grant_options *o,
		    int count, char **words)
{
	struct err e = {0};
	const char *word = count ? verb_word(words[0]) : "";
	if (str_eq(word, "rm"))
		word = "revoke";
	int r = check_flags(o, word, &e);
	for (size_t i = 0; r == 0 && i < sizeof(actions) / sizeof(actions[0]); i++) {
		if (!str_eq(word, actions[i].name) || count - 1 < actions[i].least ||
		    count - 1 > actions[i].most)
			continue;
		r = check_names(count - 1, words + 1, &e);
		if (r == 0)
			return actions[i].run(cli, o, count - 1, words + 1);
	}
	if (r == 0)
		err_set(&e, EINVAL,
			"say 'grant add SANDBOX NAME', 'ls SANDBOX' or 'revoke SANDBOX NAME'");
	return cli_fail_usage(self, &e);
}

static int grant_verb(struct cli *cli, const struct verb *self, int argc, char **argv)
{
	struct grant_options o = {0};
	struct err e = {0};
	int count = 0, code = CLI_OK;
	int r = scope_init(&o.scope, &e);
	if (r == 0)
		r = verb_parse(self, argc, argv, grant_flag, &o, &count, &e);
	if (r < 0)
		code = cli_fail_usage(self, &e);
	else if (r == 0)
		code = dispatch(cli, self, &o, count, argv);
	scope_done(&o.scope);
	return code;
}

const struct verb verb_grant = {
	"grant",
	"add SANDBOX NAME [FLAGS] | ls SANDBOX | revoke SANDBOX NAME...",
	"let a sandbox that runs use a credential, and take that back",
	grant_flags,
	grant_verb,
	"NAME is a credential of 'space secret ls'; flags narrow what that is for, and can't widen it. The sandbox's policy must\n"
	"allow the hosts. No key enters the microVM: the gateway outside puts it into requests.\n"
	"\n"
	"An agent that runs as w, let read one repository on GitHub for half an hour:\n"
	"\n"
	"  space secret set GITHUB_TOKEN --host api.github.com --host github.com      # once; asks for the token\n"
	"  space run -d --name w --allow-host api.github.com -- ./agent\n"
	"  space grant add w GITHUB_TOKEN --host api.github.com --method GET --path '/repos/OWNER/REPO/**' --ttl 30m\n"
	"  space exec w -- gh api repos/OWNER/REPO/issues\n"
	"  space grant ls w                     # state, uses so far, last use, time left\n"
	"  space grant revoke w GITHUB_TOKEN    # at once; downloads that use it are cut\n"
	"\n"
	"Processes that are started from now on have the variable NAME with a placeholder, which looks like a key, so that tools work,\n"
	"and is worth nothing. Requests of those that run already get the real one, too.\n"
	"\n"
	"With --env the value is that of our variable NAME: --host is needed then, and --header, --basic, --query or --sigv4 say how\n"
	"it is put in, if not as a bearer token. A grant ends with its sandbox.\n",
};
