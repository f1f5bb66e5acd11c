/* SPDX-License-Identifier: Apache-2.0 */
/* space secret: credentials in the node's store. Values go in, and never come out here again. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/api.h"
#include "cli/cli.h"
#include "cli/definition.h"
#include "cli/scope.h"
#include "cli/table.h"
#include "cli/text.h"

#define SHORT_VALUE 8 /* bytes, as in docs/credentials.md */

enum { SECRET_FILE = SCOPE_FLAG_END, SECRET_CANARY, SECRET_JSON, SECRET_FORCE };

/* clang-format off */
static const struct flag secret_flags[] = {
	SCOPE_FLAGS,
	{SECRET_FILE,   0,   "file",   FLAG_VALUE,  "FILE", "set: the definition, YAML or JSON; flags override what it says"},
	{SECRET_CANARY, 0,   "canary", FLAG_SWITCH, NULL,   "set: a trap: whatever touches it is refused and raises an alarm"},
	{SECRET_JSON,   0,   "json",   FLAG_SWITCH, NULL,   "ls, test, show: print JSON"},
	{SECRET_FORCE,  'f', "force",  FLAG_SWITCH, NULL,   "rm: it is fine when there is none of that name"},
	{0},
};
/* clang-format on */

struct secret_options {
	struct scope scope;
	const char *file; /* NULL: not said */
	bool canary, json, force;
};

static int secret_flag(void *user, const struct flag_found *f, struct err *e)
{
	struct secret_options *o = user;
	switch (f->id) {
	case SECRET_FILE:
		o->file = f->value;
		return 0;
	case SECRET_CANARY:
		o->canary = f->on;
		return 0;
	case SECRET_JSON:
		o->json = f->on;
		return 0;
	case SECRET_FORCE:
		o->force = f->on;
		return 0;
	default:
		return scope_option(&o->scope, f, e);
	}
}

static int call_one(struct cli *cli, const char *method, const char *name, const char *rest,
		    const json_t *body, json_t **ret, struct err *e)
{
	auto_free char *encoded = http_percent_encode(name, false);
	auto_free char *path = encoded ? str_printf("/secrets/%s%s", encoded, rest) : NULL;
	return path ? api_call(cli, method, path, body, ret, e)
		    : err_set(e, ENOMEM, "out of memory");
}

/* The name in a file is there for people; it can't be another one. */
static int check_name(const json_t *definition, const char *name, const char *file, struct err *e)
{
	json_t *own = json_object_get(definition, "name");
	if (own && !str_eq(json_string_value(own), name))
		return err_set(e, EINVAL, "%.200s defines another credential than %s", file, name);
	return 0;
}

/* Whole seconds as a number, for people; what is finer as text. */
static json_t *ttl_to_json(uint64_t ms)
{
	return ms % 1000 ? json_sprintf("%llums", (unsigned long long)ms)
			 : json_integer((json_int_t)(ms / 1000));
}

static int add_flags(const struct secret_options *o, const char *name, json_t *d, struct err *e)
{
	int r = json_object_set_new(d, "name", json_string(name));
	if (r == 0)
		r = json_object_update(d, o->scope.members);
	if (r == 0 && o->scope.ttl_ms)
		r = json_object_set_new(d, "ttl", ttl_to_json(o->scope.ttl_ms));
	if (r == 0 && o->canary)
		r = json_object_set_new(d, "canary", json_true());
	return r < 0 ? err_set(e, ENOMEM, "out of memory") : 0;
}

static int make_definition(const struct secret_options *o, const char *name, json_t **ret,
			   struct err *e)
{
	auto_json json_t *d = o->file ? NULL : json_object();
	int r = o->file ? definition_load(o->file, &d, e) : 0;
	if (r == 0)
		r = check_name(d, name, o->file, e);
	if (r == 0)
		r = add_flags(o, name, d, e);
	if (r < 0)
		return r;
	if (!json_object_get(d, "hosts"))
		return err_set(e, EINVAL,
			       "say which hosts may get %s: --host api.example.com, or 'hosts' in "
			       "its definition",
			       name);
	*ret = take_ptr(d);
	return 0;
}

static int no_values(const char *name, const char *path, const char *source, json_t **ret,
		     struct err *e)
{
	if (str_eq(source, "stored"))
		return err_set(e, EINVAL,
			       "the source 'stored' is for policy files: it means what 'secret "
			       "set' puts here");
	if (path)
		return err_set(e, EINVAL,
			       "%s takes no value: its definition has the source '%.40s', which "
			       "spaced asks itself",
			       name, source);
	*ret = json_object();
	return *ret ? 0 : err_set(e, ENOMEM, "out of memory");
}

/* What has to be given for it; the definition then says that it was. A canary needs none, spaced
 * makes one up. path NULL: none was named. */
static int read_values(const char *name, const char *path, json_t *definition, json_t **ret,
		       struct err *e)
{
	enum value_form form;
	json_t *source = json_object_get(definition, "source");
	const char *kind = definition_source(definition);
	if (!definition_takes_values(definition, &form))
		return no_values(name, path, kind, ret, e);
	int r;
	bool canary = json_is_true(json_object_get(definition, "canary"));
	if (canary && !path && form == VALUE_TEXT)
		r = (*ret = json_object()) ? 0 : err_set(e, ENOMEM, "out of memory");
	else if (str_eq(kind, "env") && !path)
		r = value_from_env(name, form, json_string_value(json_object_get(source, kind)),
				   ret, e);
	else
		r = value_from_file(name, form, path, json_object_get(source, "oauth2"), ret, e);
	if (r < 0 || str_eq(kind, "oauth2"))
		return r;
	return json_object_set_new(definition, "source", json_pack("{s:b}", "value", 1)) < 0
		       ? err_set(e, ENOMEM, "out of memory")
		       : 0;
}

static void warn_of_short(const char *name, const json_t *values)
{
	json_t *value = json_object_get(values, "value");
	if (json_is_string(value) && json_string_length(value) < SHORT_VALUE)
		cli_remark("%s has fewer than %d bytes: it is not recognised in answers that show it",
			   name, SHORT_VALUE);
}

static int set(struct cli *cli, const struct secret_options *o, int count, char **words)
{
	struct err e = {0};
	const char *name = words[0], *path = count > 1 ? words[1] : NULL;
	auto_json json_t *definition = NULL, *values = NULL, *reply = NULL;
	int r = make_definition(o, name, &definition, &e);
	if (r == 0)
		r = read_values(name, path, definition, &values, &e);
	if (r < 0)
		return cli_fail(&e);
	auto_json json_t *body =
		json_pack("{s:O, s:O}", "definition", definition, "values", values);
	r = body ? call_one(cli, "PUT", name, "", body, &reply, &e)
		 : err_set(&e, ENOMEM, "out of memory");
	if (r < 0)
		return cli_fail(&e);
	if (json_is_true(json_object_get(reply, "replaced")))
		cli_remark("%s is replaced; sandboxes that have it get the new value", name);
	warn_of_short(name, values);
	return CLI_OK;
}

enum { COLUMNS = 7 };
static const char *const titles[COLUMNS] = {
	"NAME", "KIND", "SOURCE", "HOSTS", "AGE", "EXPIRES", "STATE",
};

/* What is wrong with it, or what is special. */
static char *state_of(const json_t *one)
{
	if (json_is_string(json_object_get(one, "problem")))
		return table_text(one, "problem");
	return strdup(json_is_true(json_object_get(one, "canary")) ? "canary" : "good");
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
		cell[2] = table_text(one, "source");
		cell[3] = table_list(one, "hosts");
		cell[4] = table_age(one, "madeAt");
		cell[5] = table_left(one, "expiresAt");
		cell[6] = state_of(one);
	}
	table_print(&t);
	table_done(&t);
	return 0;
}

static int list(struct cli *cli, const struct secret_options *o, int count, char **words)
{
	struct err e = {0};
	auto_json json_t *all = NULL;
	(void)count;
	(void)words;
	int r = api_call(cli, "GET", "/secrets", NULL, &all, &e);
	if (r == 0 && !json_is_array(all))
		r = err_set(&e, EBADMSG, "spaced's answer cannot be read");
	if (r == 0 && o->json)
		api_print_json(all);
	else if (r == 0)
		r = print_table(all, &e);
	return r < 0 ? cli_fail(&e) : CLI_OK;
}

static int remove_all(struct cli *cli, const struct secret_options *o, int count, char **words)
{
	int code = CLI_OK;
	for (int i = 0; i < count; i++) {
		struct err e = {0};
		int r = call_one(cli, "DELETE", words[i], "", NULL, NULL, &e);
		if (r < 0 && !(o->force && r == -ENOENT))
			code = cli_fail(&e);
	}
	return code;
}

static int test(struct cli *cli, const struct secret_options *o, int count, char **words)
{
	struct err e = {0};
	auto_json json_t *reply = NULL;
	(void)count;
	if (call_one(cli, "POST", words[0], "/test", NULL, &reply, &e) < 0)
		return cli_fail(&e);
	bool ok = json_is_true(json_object_get(reply, "ok"));
	const char *problem = json_string_value(json_object_get(reply, "problem"));
	if (o->json) {
		api_print_json(reply);
	} else if (!ok) {
		cli_remark("%s", problem ? problem : "spaced doesn't say what is wrong");
	} else {
		auto_free char *left = table_left(reply, "expiresAt");
		bool ends = left && left[0] >= '0' && left[0] <= '9';
		printf("%s: good%s%s\n", words[0], ends ? ", expires in " : "", ends ? left : "");
	}
	return ok ? CLI_OK : CLI_DAMAGED;
}

static int show(struct cli *cli, const struct secret_options *o, int count, char **words)
{
	struct err e = {0};
	auto_json json_t *reply = NULL;
	(void)count;
	if (call_one(cli, "GET", words[0], "", NULL, &reply, &e) < 0)
		return cli_fail(&e);
	json_t *definition = json_object_get(reply, "definition");
	api_print_json(definition && !o->json ? definition : reply);
	return CLI_OK;
}

static const struct {
	const char *name;
	int least, most; /* words behind the name */
	int (*run)(struct cli *cli, const struct secret_options *o, int count, char **words);
} actions[] = {
	{"set", 1, 2, set},   {"ls", 0, 0, list},   {"rm", 1, 1024, remove_all},
	{"test", 1, 1, test}, {"show", 1, 1, show},
};

/* A flag that the word before it has no use for was meant for something. */
static int check_flags(const struct secret_options *o, const char *word, struct err *e)
{
	bool sets = str_eq(word, "set");
	if (!sets && (scope_given(&o->scope) || o->file || o->canary))
		return err_set(e, EINVAL, "%s takes no definition: that is for 'secret set'",
			       *word ? word : "it");
	if (o->json && !str_eq(word, "ls") && !str_eq(word, "test") && !str_eq(word, "show"))
		return err_set(e, EINVAL, "--json is for 'secret ls', 'test' and 'show'");
	if (o->force && !str_eq(word, "rm"))
		return err_set(e, EINVAL, "-f is for 'secret rm'");
	return 0;
}

/* NAME=value and 'set NAME value' are easy slips: what was given is not repeated. */
static int check_names(const char *word, int count, char **words, struct err *e)
{
	if (str_eq(word, "set"))
		count = 1;
	for (int i = 0; i < count; i++)
		if (!str_is_env_name(words[i]))
			return err_set(e, EINVAL,
				       "a credential's name is that of a variable, as in "
				       "GITHUB_TOKEN; its value comes from standard input or a "
				       "file, never from the command line");
	return 0;
}

static int dispatch(struct cli *cli, const struct verb *self, const struct secret_options *o,
		    int count, char **words)
{
	struct err e = {0};
	const char *word = count ? verb_word(words[0]) : "";
	int r = check_flags(o, word, &e);
	for (size_t i = 0; r == 0 && i < sizeof(actions) / sizeof(actions[0]); i++) {
		if (!str_eq(word, actions[i].name) || count - 1 < actions[i].least ||
		    count - 1 > actions[i].most)
			continue;
		r = check_names(word, count - 1, words + 1, &e);
		if (r == 0)
			return actions[i].run(cli, o, count - 1, words + 1);
	}
	if (r == 0)
		err_set(&e, EINVAL,
			"say 'secret set NAME --host HOST [VALUEFILE]', 'ls', 'rm NAME...', 'test "
			"NAME' or 'show NAME'");
	return cli_fail_usage(self, &e);
}

static int secret_verb(struct cli *cli, const struct verb *self, int argc, char **argv)
{
	struct secret_options o = {0};
	struct err e = {0};
	int count = 0, code = CLI_OK;
	int r = scope_init(&o.scope, &e);
	if (r == 0)
		r = verb_parse(self, argc, argv, secret_flag, &o, &count, &e);
	if (r < 0)
		code = cli_fail_usage(self, &e);
	else if (r == 0)
		code = dispatch(cli, self, &o, count, argv);
	scope_done(&o.scope);
	return code;
}

const struct verb verb_secret = {
	"secret",
	"set NAME [FLAGS] [VALUEFILE|-] | ls | rm [-f] NAME... | test NAME | show NAME",
	"keep keys for sandboxes outside them: set, list, remove, test",
	secret_flags,
	secret_verb,
	"An agent on GitHub, with no key in its microVM:\n"
	"\n"
	"  space secret set GITHUB_TOKEN --host api.github.com --host github.com      # asks for the token\n"
	"  space run --secret GITHUB_TOKEN --allow-host api.github.com --allow-host github.com -- \\\n"
	"      git clone https://github.com/OWNER/REPO                                # push, gh and curl too\n"
	"\n"
	"The value is read from standard input or VALUEFILE, and asked for on a terminal. It is kept encrypted on this node, is\n"
	"never shown again and never enters a microVM: the gateway outside puts it into requests to its hosts. Inside, the variable\n"
	"NAME holds a placeholder, which looks like a key, so that tools work, and is worth nothing.\n"
	"\n"
	"Without --header, --basic, --query or --sigv4 it is a bearer token, which git's requests to those hosts get as well. Others:\n"
	"\n"
	"  space secret set ANTHROPIC_API_KEY --host api.anthropic.com --header x-api-key <key.txt\n"
	"  space secret set OPENAI_API_KEY --host api.openai.com <key.txt\n"
	"  space secret set S3_KEY --host s3.eu-central-1.amazonaws.com --sigv4 s3/eu-central-1 <aws-keys.json\n"
	"  space secret set NPM_LOGIN --host npm.example.com --basic ci <password.txt\n"
	"  space secret set GH_READ --host api.github.com --method GET --path '/repos/**' --ttl 1h <token.txt\n"
	"  space secret set GOOGLE_TOKEN --file google.yaml service-account.json      # OAuth 2: docs/credentials.md\n"
	"\n"
	"--ttl, --uses and --bytes count for each sandbox, from when it gets it. 'test' fetches the value from where it comes (a command,\n"
	"an OAuth server) and exits with 1 when that fails. 'space grant' says which sandbox may use what, and takes it back.\n",
};
