/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/doc.h"
#include "base/str.h"
#include "vault/secret.h"
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
	const json_t *t = json_object_get(j, "timeout");
	if (!t || json_is_null(t))
		return 0;
	double seconds = json_number_value(t);
	if (!json_is_number(t) || !(seconds > 0) || seconds > TIMEOUT_MAX_S)
		return err_set(e, EINVAL, "timeout must be more than 0 and at most %.0f seconds",
			       TIMEOUT_MAX_S);
	q->timeout_ms = (uint64_t)(seconds * 1000) + 1;
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
	q->spec.keep = !remove;
	q->spec.network = network;
	return r;
}

static int load_policy(const json_t *file, struct policy **ret, struct err *e)
{
	const char *name = "policy", *text = NULL;
	int r = doc_opt_string(file, "name", &name, e);
	if (r == 0)
		r = doc_want_string(file, "text", &text, e);
	if (r < 0)
		return err_prefix(e, "policy");
	struct doc doc;
	r = doc_load(&doc, name, text, strlen(text), e);
	if (r < 0)
		return r;
	*ret = policy_compile(&doc, e);
	doc_done(&doc);
	return *ret ? 0 : -EINVAL;
}

static int parse_policy(const json_t *j, struct run_request *q, struct err *e)
{
	json_t *file = NULL, *allow = NULL, *spec;
	int r = doc_opt_object(j, "policy", &file, e);
	if (r == 0)
		r = doc_opt_array(j, "allow", &allow, e);
	if (r < 0)
		return r;
	if (!q->spec.network && (file || json_array_size(allow)))
		return err_set(e, EINVAL,
			       "there is no network to allow: drop --no-network, or the policy");
	r = file ? load_policy(file, &q->spec.policy, e) : 0;
	if (r < 0)
		return r;
	if (!file && !(q->spec.policy = policy_new_empty()))
		return err_set(e, ENOMEM, "no memory");
	size_t i;
	json_array_foreach(allow, i, spec)
	{
		if (!json_is_string(spec))
			return err_set(e, EINVAL, "allow: must be a list of strings");
		r = policy_allow(q->spec.policy, json_string_value(spec), e);
		if (r < 0)
			return r;
	}
	return 0;
}

static int add_secret(json_t *secret, struct secrets *set, json_t *list, struct err *e)
{
	const char *name = NULL;
	int r = doc_want_string(secret, "name", &name, e);
	if (r == 0)
		r = secrets_add(set, secret, e);
	if (r < 0)
		return r;
	auto_free char *placeholder = secret_placeholder(name);
	if (!placeholder ||
	    json_object_set_new(secret, "placeholder", json_string(placeholder)) < 0 ||
	    json_array_append(list, secret) < 0)
		return err_set(e, ENOMEM, "no memory");
	return 0;
}

static int parse_secrets(const json_t *j, struct run_request *q, struct err *e)
{
	json_t *list = NULL, *secret;
	int r = doc_opt_array(j, "secrets", &list, e);
	if (r < 0)
		return r;
	if (json_array_size(list) && !q->spec.network)
		return err_set(
			e, EINVAL,
			"there is no network to use a secret on: drop --no-network, or the secret");
	q->spec.secrets = json_array();
	struct secrets *set = secrets_new();
	if (!set || !q->spec.secrets) {
		secrets_free(set);
		return err_set(e, ENOMEM, "no memory");
	}
	size_t i;
	json_array_foreach(list, i, secret)
	{
		r = add_secret(secret, set, q->spec.secrets, e);
		if (r < 0)
			break;
	}
	if (r == 0)
		r = secrets_check(set, q->spec.policy, e);
	secrets_free(set);
	return r;
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

int run_request_parse(const char *body, size_t len, struct run_request *ret, struct err *e)
{
	static const char *const known[] = {"name",    "image",   "cpus",    "memoryMB", "timeout",
					    "detach",  "remove",  "network", "policy",   "allow",
					    "secrets", "process", "user",    "stdin",    NULL};
	auto_json json_t *j = doc_parse_json(body, len, e);
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
		r = parse_switches(j, &q, e);
	if (r == 0)
		r = parse_policy(j, &q, e);
	if (r == 0)
		r = parse_secrets(j, &q, e);
	if (r == 0)
		r = parse_process(j, &q, e);
	if (r < 0) {
		run_request_done(&q);
		return r;
	}
	*ret = q;
	return 0;
}
