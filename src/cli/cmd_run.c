/* SPDX-License-Identifier: Apache-2.0 */
/* space run: a sandbox made for one command, gone with it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/definition.h"
#include "cli/learned.h"
#include "cli/process.h"
#include "cli/size.h"
#include "cli/spec.h"
#include "cli/task.h"
#include "cli/text.h"

enum run_flag {
	RUN_IMAGE = PROCESS_FLAG_END,
	RUN_NAME,
	RUN_CPUS,
	RUN_MEMORY,
	RUN_DETACH,
	RUN_RM,
	RUN_ALLOW,
	RUN_POLICY,
	RUN_SECRET,
	RUN_NO_NETWORK,
	RUN_COLD,
	RUN_IDLE,
	RUN_ON_TIMEOUT,
	RUN_LEARN,
};

/* clang-format off */
static const struct flag run_flags[] = {
	{RUN_IMAGE,      0,   "image",      FLAG_VALUE,  "NAME",  "image or snapshot that it starts from (default: base)"},
	{RUN_NAME,       0,   "name",       FLAG_VALUE,  "NAME",  "call the sandbox NAME"},
	{RUN_CPUS,       0,   "cpus",       FLAG_VALUE,  "N",     "virtual processors (default: 1)"},
	{RUN_MEMORY,     0,   "memory",     FLAG_VALUE,  "SIZE",  "memory: 512, 512M, 1G (default: 512M)"},
	{RUN_ALLOW,      0,   "allow-host", FLAG_VALUE,  "HOST[:PORT]", "let it reach HOST; may be repeated"},
	{RUN_POLICY,     0,   "policy",     FLAG_VALUE,  "FILE",  "let it reach what FILE says"},
	{RUN_LEARN,      0,   "learn",      FLAG_VALUE,  "FILE",  "let it reach EVERYTHING public, and write a policy for what it did to FILE"},
	{RUN_SECRET,     0,   "secret",     FLAG_VALUE,  "NAME[@HOST[,HOST]]", "let it use a key that stays outside: NAME of 'space secret', or our variable NAME at HOST"},
	{RUN_NO_NETWORK, 0,   "no-network", FLAG_SWITCH, NULL,    "no gateway: nothing is reached"},
	{RUN_COLD,       0,   "cold",       FLAG_SWITCH, NULL,    "boot it, instead of cloning a template"},
	{RUN_IDLE,       0,   "idle-timeout", FLAG_VALUE, "TIME", "end it when nothing has happened for TIME"},
	{RUN_ON_TIMEOUT, 0,   "on-timeout", FLAG_VALUE,  "kill|pause", "what happens when its time is over (default: kill)"},
	{RUN_DETACH,     'd', "detach",     FLAG_SWITCH, NULL,    "print its id and return when it runs"},
	{RUN_RM,         0,   "rm",         FLAG_SWITCH, NULL,    "remove it when it ends (default, but not with -d); --rm=false keeps it"},
	PROCESS_FLAGS,
	{0},
};
/* clang-format on */

struct run_options {
	struct process_options process;
	json_t *request; /* object: what is sent */
	json_t *allow, *secrets;
	bool detach, no_network, cold;
	uint64_t idle_ms;       /* 0: none */
	const char *on_timeout; /* NULL: not said */
	const char *learn;      /* NULL: no */
	int remove;             /* -1: as detach says */
};

static int set(json_t *obj, const char *key, json_t *value, struct err *e)
{
	return json_object_set_new(obj, key, value) < 0 ? err_set(e, ENOMEM, "out of memory") : 0;
}

static int set_name(json_t *obj, const char *key, const char *flag, const char *value,
		    struct err *e)
{
	if (!str_is_name(value))
		return err_set(e, EINVAL,
			       "%s takes a name of letters, digits, '_', '.' and '-', at most 63, "
			       "not '%.80s'",
			       flag, value);
	return set(obj, key, json_string(value), e);
}

static int add_allow(json_t *allow, const char *host, struct err *e)
{
	if (!*host || !str_is_utf8(host, strlen(host)))
		return err_set(e, EINVAL, "--allow-host needs a host");
	return json_array_append_new(allow, json_string(host)) < 0
		       ? err_set(e, ENOMEM, "out of memory")
		       : 0;
}

static int set_policy(json_t *request, const char *path, struct err *e)
{
	json_t *policy = NULL;
	if (json_object_get(request, "policy"))
		return err_set(e, EINVAL, "--policy can be given once");
	int r = spec_policy(path, &policy, e);
	return r < 0 ? r : set(request, "policy", policy, e);
}

/* Values for its credentials; what says them is read here, for it is ours. */
static int set_policy_values(json_t *request, struct err *e)
{
	const json_t *policy = json_object_get(request, "policy");
	json_t *values = NULL;
	int r = policy ? definition_policy_values(policy, &values, e) : 0;
	if (r == 0 && json_object_size(values))
		return set(request, "values", values, e);
	json_decref(values);
	return r;
}

static int set_memory(json_t *request, const char *text, struct err *e)
{
	uint64_t mib;
	int r = size_memory(text, &mib, e);
	return r < 0 ? r : set(request, "memoryMB", json_integer((json_int_t)mib), e);
}

static int set_cpus(json_t *request, const char *text, struct err *e)
{
	uint64_t n;
	int r = size_cpus(text, &n, e);
	return r < 0 ? r : set(request, "cpus", json_integer((json_int_t)n), e);
}

static int set_idle(struct run_options *o, const char *text, struct err *e)
{
	if (str_to_ms(text, &o->idle_ms) < 0 || !o->idle_ms)
		return err_set(e, EINVAL,
			       "--idle-timeout takes a time like 90, 90s or 5m, not '%.40s'", text);
	return 0;
}

static int set_on_timeout(struct run_options *o, const char *text, struct err *e)
{
	if (!str_eq(text, "kill") && !str_eq(text, "pause"))
		return err_set(e, EINVAL, "--on-timeout takes kill or pause, not '%.40s'", text);
	o->on_timeout = text;
	return 0;
}

static int run_option(struct run_options *o, const struct flag_found *f, struct err *e)
{
	switch (f->id) {
	case RUN_IMAGE:
		return set_name(o->request, "image", "--image", f->value, e);
	case RUN_NAME:
		return set_name(o->request, "name", "--name", f->value, e);
	case RUN_CPUS:
		return set_cpus(o->request, f->value, e);
	case RUN_MEMORY:
		return set_memory(o->request, f->value, e);
	case RUN_ALLOW:
		return add_allow(o->allow, f->value, e);
	case RUN_POLICY:
		return set_policy(o->request, f->value, e);
	case RUN_SECRET:
		return spec_secret(o->secrets, f->value, e);
	case RUN_LEARN:
		o->learn = f->value;
		return 0;
	case RUN_DETACH:
		o->detach = f->on;
		return 0;
	case RUN_RM:
		o->remove = f->on;
		return 0;
	case RUN_NO_NETWORK:
		o->no_network = f->on;
		return 0;
	case RUN_COLD:
		o->cold = f->on;
		return 0;
	case RUN_IDLE:
		return set_idle(o, f->value, e);
	case RUN_ON_TIMEOUT:
		return set_on_timeout(o, f->value, e);
	default:
		return process_option(&o->process, f, e);
	}
}

static int check(const struct run_options *o, struct err *e)
{
	if (o->detach && o->process.input)
		return err_set(e, EINVAL, "-i and -d exclude each other");
	bool names_hosts = json_array_size(o->allow) || json_array_size(o->secrets) ||
			   json_object_get(o->request, "policy");
	if (o->no_network && names_hosts)
		return err_set(e, EINVAL,
			       "--no-network excludes --allow-host, --policy and --secret");
	if (o->learn && (o->no_network || json_array_size(o->secrets)))
		return err_set(e, EINVAL,
			       "--learn excludes --no-network, and --secret: what is let out to "
			       "everybody gets no credential");
	if (o->on_timeout && !o->process.timeout_ms && !o->idle_ms)
		return err_set(e, EINVAL,
			       "--on-timeout says what --timeout or --idle-timeout does: give one");
	return 0;
}

/* What is not said is left to spaced. */
static int complete_times(const struct run_options *o, struct err *e)
{
	json_t *request = o->request;
	int r = 0;
	if (o->process.timeout_ms)
		r = set(request, "timeout", json_real((double)o->process.timeout_ms / 1000), e);
	if (r == 0 && o->idle_ms)
		r = set(request, "idleTimeout", json_real((double)o->idle_ms / 1000), e);
	if (r == 0 && o->on_timeout)
		r = set(request, "onTimeout", json_string(o->on_timeout), e);
	if (r == 0 && o->learn)
		r = set(request, "learn", json_true(), e);
	if (r == 0 && o->cold)
		r = set(request, "cold", json_true(), e);
	return r;
}

static int complete(struct run_options *o, int argc, char **argv, struct err *e)
{
	json_t *process = NULL, *request = o->request;
	int r = process_to_json(&o->process, argc, argv, &process, e);
	if (r == 0)
		r = set(request, "process", process, e);
	if (r == 0 && o->process.user)
		r = set(request, "user", json_string(o->process.user), e);
	if (r == 0)
		r = complete_times(o, e);
	if (r == 0)
		r = set(request, "detach", json_boolean(o->detach), e);
	if (r == 0)
		r = set(request, "remove", json_boolean(o->remove < 0 ? !o->detach : o->remove), e);
	if (r == 0)
		r = set(request, "network", json_boolean(!o->no_network), e);
	if (r == 0)
		r = set(request, "stdin", json_boolean(o->process.input), e);
	if (r == 0)
		r = set(request, "allow", json_incref(o->allow), e);
	if (r == 0)
		r = set(request, "secrets", json_incref(o->secrets), e);
	if (r == 0)
		r = set_policy_values(request, e);
	return r;
}

/* 1: help was asked for and given. 0: the request is complete. */
static int parse(struct run_options *o, const struct verb *self, int argc, char **argv,
		 struct err *e)
{
	struct flag_parser p;
	struct flag_found f = {0};
	flags_init(&p, run_flags, argc, argv);
	int r;
	while ((r = flags_next(&p, &f, e)) > 0 && f.id) {
		if (f.id == FLAG_HELP) {
			verb_print_help(self);
			return 1;
		}
		r = run_option(o, &f, e);
		if (r < 0)
			return r;
	}
	if (r < 0)
		return r;
	if (r == 0)
		return err_set(e, EINVAL, "no command given");
	char **command;
	int count = flags_rest(&p, &command) + 1; /* the word that ended the flags is its first */
	r = check(o, e);
	return r < 0 ? r : complete(o, count, command - 1, e);
}

static void warn_learning(const struct run_options *o)
{
	cli_remark(
		"WARNING: --learn lets this sandbox reach every public host over https and http, to "
		"find out what it needs. Give it nothing that must not get out.");
	if (o->detach)
		cli_remark(
			"nobody waits for its end: 'space policy learned SANDBOX >%s' writes what "
			"was learned so far",
			o->learn);
}

/* The exit code is the task's, unless what it was run for fails. */
static int learn_from(struct cli *cli, const struct run_options *o, const char *id, int code)
{
	struct err e = {0};
	if (!id)
		return code;
	if (learned_save(cli, id, o->learn, &e) < 0)
		return cli_fail(&e);
	if (!o->process.quiet)
		cli_remark("%s holds a policy for what it did: read it, then run it with --policy",
			   o->learn);
	return code;
}

static int run_detached(struct cli *cli, const struct run_options *o)
{
	struct err e = {0};
	auto_json json_t *reply = NULL;
	if (api_call(cli, "POST", "/run", o->request, &reply, &e) < 0)
		return cli_fail(&e);
	auto_free char *text = o->process.json ? doc_to_text(reply) : NULL;
	const char *id = json_string_value(json_object_get(reply, "sandboxID"));
	text_put(stdout, text ? text : id ? id : "");
	putchar('\n');
	return CLI_OK;
}

static int run_attached(struct cli *cli, const struct run_options *o)
{
	struct err e = {0};
	auto_free char *text = doc_to_text(o->request);
	if (!text) {
		err_set(&e, ENOMEM, "out of memory");
		return cli_fail(&e);
	}
	struct task_spec spec = {
		.method = "POST",
		.target = "/run",
		.content_type = "application/json",
		.body = text,
		.body_len = strlen(text),
		.owns_sandbox = true,
		.forwards = true,
		.input = o->process.input,
		.json = o->process.json,
		.quiet = o->process.quiet,
	};
	auto_free char *id = NULL;
	spec.ret_sandbox_id = &id;
	int code = task_attach(cli, &spec);
	explicit_bzero(text, spec.body_len); /* secrets were in it */
	return o->learn ? learn_from(cli, o, id, code) : code;
}

static int run_verb(struct cli *cli, const struct verb *self, int argc, char **argv)
{
	struct run_options o = {.remove = -1};
	struct err e = {0};
	o.request = json_object();
	o.allow = json_array();
	o.secrets = json_array();
	int r = process_options_init(&o.process, &e);
	if (r == 0)
		r = parse(&o, self, argc, argv, &e);
	if (r == 0 && o.learn) {
		r = learned_check(o.learn, &e);
		if (r == 0)
			warn_learning(&o);
	}
	int code = r > 0      ? CLI_OK
		   : r < 0    ? cli_fail_usage(self, &e)
		   : o.detach ? run_detached(cli, &o)
			      : run_attached(cli, &o);
	process_options_done(&o.process);
	json_decref(o.request);
	json_decref(o.allow);
	json_decref(o.secrets);
	return code;
}

const struct verb verb_run = {
	"run",
	"[FLAGS] [--] COMMAND [ARG...]",
	"run a command in a microVM made for it",
	run_flags,
	run_verb,
	"The exit code is the command's; 128+N when signal N ended it; 124 when its time ran out (or\n"
	"it is paused for that); 125 when space itself failed; 126 and 127 when the command cannot be executed or found.\n"
	"\n"
	"  space run -- uname -a\n"
	"  space run -i --allow-host api.example.com --secret API_TOKEN@api.example.com -- python3 - <task.py\n"
	"  space run --allow-host github.com --secret GITHUB_TOKEN -- git clone https://github.com/OWNER/REPO   # see 'space secret'\n"
	"  echo 'print(6*7)' | space run -i -- python3 -\n"
	"  space run -d --name w -- sleep 600\n",
};
