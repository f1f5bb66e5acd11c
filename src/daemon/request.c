/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/doc.h"
#include "base/str.h"
#include "daemon/grants.h"
#include "daemon/policies.h"
#include "vault/placeholder.h"
#include "vmm/vmm.h"

#define CPUS_DEFAULT       1
#define MEMORY_DEFAULT_MIB 512
#define TIMEOUT_MAX_S      (30.0 * 24 * 3600)

void run_request_done(struct run_request *r)
{
	sandbox_spec_done(&r->spec);
	json_decref(r->start);
	free(r->user);
	*r = (struct run_request){0};
}

/* A copy of an optional string member; *ret stays NULL when it is missing. */
static int copy_string(const json_t *j, const char *key, char **ret, struct err *e)
{
	const char *s = NULL;
	int r = doc_opt_string(j, key, &s, e);
	if (r < 0 || !s)
		return r;
	*ret = strdup(s);
	return *ret ? 0 : err_set(e, ENOMEM, "no memory");
}

static int parse_names(const json_t *j, struct run_request *q, struct err *e)
{
	int r = copy_string(j, "name", &q->spec.name, e);
	if (r == 0)
		r = copy_string(j, "image", &q->spec.image, e);
	if (r == 0)
		r = copy_string(j, "user", &q->user, e);
	if (r < 0)
		return r;
	if (!q->spec.image && !(q->spec.image = strdup("base")))
		return err_set(e, ENOMEM, "no memory");
	if (q->spec.name && !str_is_name(q->spec.name))
		return err_set(
			e, EINVAL,
			"name: use 1 to 63 letters, digits, '.', '_' and '-', a letter or digit first");
	if (!str_is_name(q->spec.image))
		return err_set(e, EINVAL, "image: no name of an image");
	return 0;
}

static int parse_size(const json_t *j, struct run_request *q, struct err *e)
{
	uint64_t cpus = CPUS_DEFAULT;
	q->spec.memory_mib = MEMORY_DEFAULT_MIB;
	int r = doc_opt_uint(j, "cpus", 1, VMM_CPUS_MAX, &cpus, e);
	if (r == 0)
		r = doc_opt_uint(j, "memoryMB", VMM_RAM_MIN_MIB, VMM_RAM_MAX_MIB,
				 &q->spec.memory_mib, e);
	if (r < 0)
		return r;
	q->spec.cpus = (unsigned)cpus;
	q->spec.sized = json_object_get(j, "cpus") || json_object_get(j, "memoryMB");
	return 0;
}

/* A member that counts seconds, in milliseconds; *ret_ms stays when it is missing. */
static int parse_seconds(const json_t *j, const char *key, uint64_t *ret_ms, struct err *e)
{
	const json_t *t = json_object_get(j, key);
	if (!t || json_is_null(t))
		return 0;
	double seconds = json_number_value(t);
	if (!json_is_number(t) || !(seconds > 0) || seconds > TIMEOUT_MAX_S)
		return err_set(e, EINVAL, "%s must be more than 0 and at most %.0f seconds", key,
			       TIMEOUT_MAX_S);
	*ret_ms = (uint64_t)(seconds * 1000) + 1;
	return 0;
}

static int parse_times(const json_t *j, struct run_request *q, struct err *e)
{
	const char *action = "kill";
	int r = parse_seconds(j, "timeout", &q->spec.timeout_ms, e);
	if (r == 0)
		r = parse_seconds(j, "idleTimeout", &q->spec.idle_ms, e);
	if (r == 0)
		r = doc_opt_string(j, "onTimeout", &action, e);
	if (r < 0)
		return r;
	if (!str_eq(action, "kill") && !str_eq(action, "pause"))
		return err_set(e, EINVAL, "onTimeout must be kill or pause");
	q->spec.pause_on_timeout = str_eq(action, "pause");
	return 0;
}

static int parse_switches(const json_t *j, struct run_request *q, struct err *e)
{
	bool remove = true, network = true;
	int r = doc_opt_bool(j, "detach", &q->detach, e);
	if (r == 0)
		r = doc_opt_bool(j, "remove", &remove, e);
	if (r == 0)
		r = doc_opt_bool(j, "network", &network, e);
	if (r == 0)
		r = doc_opt_bool(j, "cold", &q->spec.cold, e);
	q->spec.detached = q->detach;
	q->spec.keep = !remove;
	q->spec.network = network;
	return r;
}

/* To learn: all that is public is allowed, but nothing gets a credential. */
static int parse_learn(const json_t *j, struct run_request *q, struct err *e)
{
	bool learn = false;
	int r = doc_opt_bool(j, "learn", &learn, e);
	if (r < 0 || !learn)
		return r;
	if (!q->spec.network)
		return err_set(e, EINVAL, "there is no network to learn from: drop --no-network");
	policy_learn(q->spec.policy);
	return 0;
}

static int parse_policy(struct node *n, const json_t *j, json_t **ret_credentials,
			struct run_request *q, struct err *e)
{
	bool said = json_is_object(json_object_get(j, "policy")) ||
		    json_array_size(json_object_get(j, "allow"));
	if (!q->spec.network && said)
		return err_set(e, EINVAL,
			       "there is no network to allow: drop --no-network, or the policy");
	int r = policies_from_request(n, j, &q->spec.policy, ret_credentials, e);
	return r < 0 ? r : parse_learn(j, q, e);
}

/* What the guest's variables hold is ours to say. */
static int parse_secrets(struct node *n, const json_t *j, json_t *credentials,
			 struct run_request *q, struct err *e)
{
	int r = grants_from_request(n, j, credentials, &q->spec.secrets, e);
	if (r < 0 || !json_array_size(q->spec.secrets))
		return r;
	if (!q->spec.network)
		return err_set(
			e, EINVAL,
			"there is no network to use a secret on: drop --no-network, or the secret");
	if (policy_learns(q->spec.policy))
		return err_set(e, EINVAL,
			       "a sandbox that learns gets no secrets, for it may send them "
			       "anywhere: drop --secret, or --learn");
	return grants_check(q->spec.secrets, q->spec.policy, e);
}

/* The process as the agent's Start message, and as the list that shows it. */
static int parse_process(const json_t *j, struct run_request *q, struct err *e)
{
	json_t *process = NULL, *args = NULL, *envs = NULL, *value;
	const char *cmd = NULL, *cwd = NULL, *key;
	bool input = false;
	int r = doc_want_object(j, "process", &process, e);
	if (r == 0)
		r = doc_want_string(process, "cmd", &cmd, e);
	if (r == 0)
		r = doc_opt_string(process, "cwd", &cwd, e);
	if (r == 0)
		r = doc_opt_array(process, "args", &args, e);
	if (r == 0)
		r = doc_opt_object(process, "envs", &envs, e);
	if (r == 0)
		r = doc_opt_bool(j, "stdin", &input, e);
	if (r < 0)
		return r;
	if (!*cmd)
		return err_set(e, EINVAL, "cmd is empty: name the command to run");
	json_object_foreach(
		envs, key,
		value) if (!str_is_env_name(key) ||
			   !json_is_string(
				   value)) return err_set(e, EINVAL,
							  "envs: %s is no variable with a string",
							  key);

	size_t i;
	q->spec.command = json_pack("[s]", cmd);
	json_array_foreach(args, i, value)
	{
		if (!json_is_string(value))
			return err_set(e, EINVAL, "args must be a list of strings");
		json_array_append(q->spec.command, value);
	}
	q->start = json_pack("{s:O, s:b}", "process", process, "stdin", input);
	return q->start && q->spec.command ? 0 : err_set(e, ENOMEM, "no memory");
}

int run_request_parse(struct node *n, const char *body, size_t len, struct run_request *ret,
		      struct err *e)
{
	static const char *const known[] = {
		"name",    "image",  "cpus",      "memoryMB",    "timeout", "detach", "remove",
		"network", "policy", "allow",     "secrets",     "process", "user",   "stdin",
		"values",  "cold",   "onTimeout", "idleTimeout", "learn",   NULL};
	auto_json json_t *j = doc_parse_json(body, len, e), *credentials = NULL;
	if (!j)
		return -EINVAL;
	if (!json_is_object(j))
		return err_set(e, EINVAL, "the request must be an object");

	struct run_request q = {0};
	int r = doc_only(j, known, e);
	if (r == 0)
		r = parse_names(j, &q, e);
	if (r == 0)
		r = parse_size(j, &q, e);
	if (r == 0)
		r = parse_times(j, &q, e);
	if (r == 0)
		r = parse_switches(j, &q, e);
	if (r == 0)
		r = parse_policy(n, j, &credentials, &q, e);
	if (r == 0)
		r = parse_secrets(n, j, credentials, &q, e);
	if (r == 0)
		r = parse_process(j, &q, e);
	if (r == 0)
		r = grants_check_variables(q.spec.secrets, q.start, e);
	if (r < 0) {
		run_request_done(&q);
		return r;
	}
	*ret = q;
	return 0;
}
