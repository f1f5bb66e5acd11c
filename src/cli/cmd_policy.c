/* SPDX-License-Identifier: Apache-2.0 */
/* space policy: whether a file is a policy, and what it would decide. */
#include <errno.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/api.h"
#include "cli/cli.h"
#include "cli/learned.h"
#include "cli/spec.h"
#include "cli/text.h"

enum { POLICY_JSON = 1 };

static const struct flag policy_flags[] = {
	{POLICY_JSON, 0, "json", FLAG_SWITCH, NULL, "the answer as JSON"},
	{0},
};

static int policy_flag(void *user, const struct flag_found *f, struct err *e)
{
	(void)e;
	*(bool *)user = f->on;
	return 0;
}

static const char *member(const json_t *j, const char *key)
{
	const char *s = json_string_value(json_object_get(j, key));
	return s ? s : "";
}

static int send_policy(struct cli *cli, const char *method, const char *path, const char *file,
		       json_t *body, json_t **ret)
{
	struct err e = {0};
	json_t *policy = NULL;
	int r = spec_policy(file, &policy, &e);
	if (r == 0 && json_object_set_new(body, "policy", policy) < 0)
		r = err_set(&e, ENOMEM, "out of memory");
	if (r == 0)
		r = api_call(cli, method, path, body, ret, &e);
	return r < 0 ? cli_fail(&e) : CLI_OK;
}

static int ask(struct cli *cli, const char *path, const char *file, json_t *body, json_t **ret)
{
	return send_policy(cli, "POST", path, file, body, ret);
}

static int check(struct cli *cli, bool json, int count, char **words)
{
	(void)count;
	auto_json json_t *body = json_object(), *reply = NULL;
	int code = ask(cli, "/policies/check", words[0], body, &reply);
	if (code != CLI_OK)
		return code;
	bool ok = json_is_true(json_object_get(reply, "ok"));
	if (json)
		api_print_json(reply);
	else if (ok)
		printf("rules: %lld\n",
		       (long long)json_integer_value(json_object_get(reply, "rules")));
	else
		cli_remark("%s", member(reply, "problem"));
	return ok ? CLI_OK : CLI_DAMAGED;
}

static void print_line(const char *front, const char *text, const char *behind)
{
	fputs(front, stdout);
	text_put(stdout, text);
	fputs(behind, stdout);
	putchar('\n');
}

static void print_verdict(const json_t *reply, bool allow)
{
	const char *place = member(reply, "place");
	print_line(allow ? "allowed: " : "denied: ", member(reply, "rule"), "");
	if (*place)
		print_line("by ", place, "");
	size_t i;
	json_t *near;
	json_array_foreach(json_object_get(reply, "nearly"), i, near)
	{
		fputs("not by ", stdout);
		text_put(stdout, member(near, "place"));
		print_line(": it differs in ", member(near, "differs"), "");
	}
	if (*member(reply, "allowWith"))
		print_line("to allow it: ", member(reply, "allowWith"), "");
}

/* FILE METHOD URL, or FILE URL for what has no method. */
static int explain(struct cli *cli, bool json, int count, char **words)
{
	auto_json json_t *reply = NULL;
	auto_json json_t *body = json_pack("{s:s, s:s*}", "url", words[count - 1], "method",
					   count == 3 ? words[1] : NULL);
	struct err e = {0};
	if (!body) {
		err_set(&e, EINVAL, "the method and the URL must be valid UTF-8");
		return cli_fail(&e);
	}
	int code = ask(cli, "/policies/explain", words[0], body, &reply);
	if (code != CLI_OK)
		return code;
	bool allow = json_is_true(json_object_get(reply, "allow"));
	if (json)
		api_print_json(reply);
	else
		print_verdict(reply, allow);
	return allow ? CLI_OK : CLI_DAMAGED;
}

/* What was set, and from when on it holds. */
static int set(struct cli *cli, bool json, int count, char **words)
{
	(void)count;
	auto_json json_t *body = json_object(), *reply = NULL;
	auto_free char *path = api_sandbox_path(words[0], "/policy");
	if (!path)
		return cli_fail(&(struct err){ENOMEM, "out of memory"});
	int code = send_policy(cli, "PUT", path, words[1], body, &reply);
	if (code != CLI_OK)
		return code;
	if (json)
		api_print_json(reply);
	else if (str_eq(member(reply, "applied"), "resume"))
		cli_remark("%s is paused: the policy holds when it is resumed", words[0]);
	return CLI_OK;
}

static int show(struct cli *cli, bool json, int count, char **words)
{
	(void)count;
	auto_json json_t *reply = NULL;
	struct err e = {0};
	auto_free char *path = api_sandbox_path(words[0], "/policy");
	if (!path)
		return cli_fail(&(struct err){ENOMEM, "out of memory"});
	if (api_call(cli, "GET", path, NULL, &reply, &e) < 0)
		return cli_fail(&e);
	api_print_json(json ? reply : json_object_get(reply, "policy"));
	return CLI_OK;
}

static int learned(struct cli *cli, bool json, int count, char **words)
{
	(void)count;
	struct err e = {0};
	auto_free char *text = NULL;
	if (learned_fetch(cli, words[0], &text, &e) < 0)
		return cli_fail(&e);
	auto_json json_t *j = json ? json_pack("{s:s}", "text", text) : NULL;
	if (json)
		api_print_json(j);
	else
		fputs(text, stdout); /* spaced escapes all that a guest chose */
	return CLI_OK;
}

static const struct {
	const char *name;
	int least, most; /* words behind the name */
	int (*run)(struct cli *cli, bool json, int count, char **words);
} actions[] = {
	{"check", 1, 1, check}, {"explain", 2, 3, explain}, {"set", 2, 2, set},
	{"show", 1, 1, show},   {"learned", 1, 1, learned},
};

static int policy_verb(struct cli *cli, const struct verb *self, int argc, char **argv)
{
	bool json = false;
	struct err e = {0};
	int count = 0;
	int r = verb_parse(self, argc, argv, policy_flag, &json, &count, &e);
	if (r > 0)
		return CLI_OK;
	for (size_t i = 0; r == 0 && i < sizeof(actions) / sizeof(actions[0]); i++)
		if (count > actions[i].least && count - 1 <= actions[i].most &&
		    str_eq(argv[0], actions[i].name))
			return actions[i].run(cli, json, count - 1, argv + 1);
	if (r == 0)
		err_set(&e, EINVAL,
			"say 'policy check FILE', 'explain FILE METHOD URL', 'set SANDBOX FILE', "
			"'show SANDBOX' or 'learned SANDBOX'");
	return cli_fail_usage(self, &e);
}

const struct verb verb_policy = {
	"policy",
	"check FILE | explain FILE METHOD URL | set SANDBOX FILE | show SANDBOX | learned SANDBOX",
	"check policies, ask what they decide, set, show and learn them",
	policy_flags,
	policy_verb,
	"URL is https://HOST[:PORT]/PATH, http://..., tls://HOST[:PORT] or tcp://HOST:PORT; the last two\n"
	"have no METHOD. check and explain exit with 1 when the file is no policy or what was asked is denied.\n"
	"set changes what a sandbox may reach: at once, also for what is open. learned prints the smallest policy that\n"
	"covers what a sandbox was let out for so far.\n",
};
