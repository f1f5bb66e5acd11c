/* SPDX-License-Identifier: Apache-2.0 */
/* What is written down of a sandbox: enough for a later spaced to take it over or to resume it.
 * Values of secrets are not among it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "daemon/grant_entry.h"
#include "daemon/sandbox_state.h"

#define DETAIL_FORMAT 1

json_t *sandbox_image_json(const struct image *img)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:O}", "name", img->name ? img->name : "", "hash",
			 img->hash ? img->hash : "", "user", img->user ? img->user : "", "workdir",
			 img->workdir ? img->workdir : "", "env", img->env);
}

int sandbox_image_from_json(const json_t *j, struct image *ret, struct err *e)
{
	const char *name = NULL, *hash = NULL, *user = NULL, *workdir = NULL;
	json_t *env = NULL;
	int r = doc_want_string(j, "name", &name, e);
	if (r == 0)
		r = doc_want_string(j, "hash", &hash, e);
	if (r == 0)
		r = doc_want_string(j, "user", &user, e);
	if (r == 0)
		r = doc_want_string(j, "workdir", &workdir, e);
	if (r == 0)
		r = doc_want_object(j, "env", &env, e);
	if (r < 0)
		return r;
	*ret = (struct image){
		.name = strdup(name),
		.hash = strdup(hash),
		.user = strdup(user),
		.workdir = strdup(workdir),
		.env = json_deep_copy(env),
	};
	if (ret->name && ret->hash && ret->user && ret->workdir && ret->env)
		return 0;
	image_done(ret);
	return err_set(e, ENOMEM, "no memory");
}

static json_t *secrets_without_values(const struct sandbox *sb)
{
	json_t *list = json_array(), *secret;
	size_t i;
	json_array_foreach(sb->spec.secrets, i, secret)
		json_array_append_new(list, grant_entry_stored(secret));
	return list;
}

static json_t *detail_of(const struct sandbox *sb)
{
	const struct sandbox_spec *spec = &sb->spec;
	json_t *j = json_pack(
		"{s:i, s:s, s:s, s:i, s:s, s:b, s:b, s:b, s:b, s:I, s:I, s:I, s:o}", "format",
		DETAIL_FORMAT, "token", sb->token, "old_token", sb->old_token, "start",
		(int)sb->start, "parent", sb->parent, "network", spec->network, "keep", spec->keep,
		"detached", spec->detached, "pause_on_timeout", spec->pause_on_timeout,
		"timeout_ms", (json_int_t)spec->timeout_ms, "idle_ms", (json_int_t)spec->idle_ms,
		"paused_ms", (json_int_t)sb->paused_ms, "secrets", secrets_without_values(sb));
	if (!j)
		return NULL;
	if (json_array_size(spec->strays))
		json_object_set(j, "strays", spec->strays);
	if (spec->policy)
		json_object_set_new(j, "policy", policy_to_json(spec->policy));
	if (sb->policy_due)
		json_object_set_new(j, "policy_due", json_true());
	if (sb->image.env)
		json_object_set_new(j, "image", sandbox_image_json(&sb->image));
	if (sb->place)
		json_object_set_new(j, "place", place_to_json(sb->place));
	if (sb->task_pid)
		json_object_set_new(j, "task_pid", json_integer((json_int_t)sb->task_pid));
	if (sb->task_user)
		json_object_set_new(j, "task_user", json_string(sb->task_user));
	return j;
}

int sandbox_store(struct sandbox *sb, struct err *e)
{
	auto_free char *command = doc_to_text(sb->spec.command);
	auto_json json_t *j = detail_of(sb);
	auto_free char *detail = j ? doc_to_text(j) : NULL;
	if (!command || !detail)
		return err_set(e, ENOMEM, "no memory");
	const struct store_record r = {
		.id = sb->id,
		.name = sandbox_name(sb),
		.state = sandbox_state_name(sb->state),
		.image = sb->spec.image,
		.command = command,
		.cpus = sb->spec.cpus,
		.memory_mib = sb->spec.memory_mib,
		.started_ms = sb->started_ms,
		.ended_ms = sb->ended_ms,
		.exit_code = sb->exit_code,
		.reason = sb->reason,
		.detail = detail,
	};
	return store_put(sb->node->store, &r, e);
}

static int read_token(const json_t *j, const char *key, char out[SANDBOX_TOKEN_SIZE], struct err *e)
{
	const char *s = NULL;
	int r = doc_want_string(j, key, &s, e);
	if (r < 0)
		return r;
	if (strlen(s) >= SANDBOX_TOKEN_SIZE)
		return err_set(e, EINVAL, "%s is too long", key);
	strcpy(out, s);
	return 0;
}

static int read_switches(struct sandbox_spec *spec, const json_t *j, struct err *e)
{
	int r = doc_opt_bool(j, "network", &spec->network, e);
	if (r == 0)
		r = doc_opt_bool(j, "keep", &spec->keep, e);
	if (r == 0)
		r = doc_opt_bool(j, "detached", &spec->detached, e);
	if (r == 0)
		r = doc_opt_bool(j, "pause_on_timeout", &spec->pause_on_timeout, e);
	if (r == 0)
		r = doc_opt_uint(j, "timeout_ms", 0, INT64_MAX, &spec->timeout_ms, e);
	return r < 0 ? r : doc_opt_uint(j, "idle_ms", 0, INT64_MAX, &spec->idle_ms, e);
}

static int read_policy(struct sandbox_spec *spec, const json_t *j, struct err *e)
{
	json_t *policy = NULL, *secrets = NULL, *strays = NULL;
	int r = doc_opt_object(j, "policy", &policy, e);
	if (r == 0)
		r = doc_opt_array(j, "secrets", &secrets, e);
	if (r == 0)
		r = doc_opt_array(j, "strays", &strays, e);
	if (r < 0)
		return r;
	spec->strays = strays ? json_deep_copy(strays) : NULL;
	spec->secrets = secrets ? json_deep_copy(secrets) : json_array();
	size_t i;
	json_t *secret;
	json_array_foreach(spec->secrets, i, secret) grant_entry_update(secret);
	if (!policy)
		return 0;
	spec->policy = policy_from_json(policy, e);
	return spec->policy ? 0 : -EINVAL;
}

static int read_detail(struct sandbox *sb, const json_t *j, struct err *e)
{
	uint64_t format = 0, start = 0;
	const char *parent = "", *user = NULL;
	json_t *image = NULL;
	int r = doc_want_uint(j, "format", DETAIL_FORMAT, DETAIL_FORMAT, &format, e);
	if (r == 0)
		r = read_token(j, "token", sb->token, e);
	if (r == 0)
		r = read_token(j, "old_token", sb->old_token, e);
	if (r == 0)
		r = read_switches(&sb->spec, j, e);
	if (r == 0)
		r = doc_opt_uint(j, "start", 0, SANDBOX_FORK, &start, e);
	if (r == 0)
		r = doc_opt_string(j, "parent", &parent, e);
	if (r == 0)
		r = doc_opt_uint(j, "paused_ms", 0, INT64_MAX, &sb->paused_ms, e);
	if (r == 0)
		r = doc_opt_uint(j, "task_pid", 0, UINT32_MAX, &sb->task_pid, e);
	if (r == 0)
		r = doc_opt_string(j, "task_user", &user, e);
	if (r == 0)
		r = doc_opt_bool(j, "policy_due", &sb->policy_due, e);
	if (r == 0)
		r = doc_opt_object(j, "image", &image, e);
	if (r == 0)
		r = read_policy(&sb->spec, j, e);
	if (r == 0 && image)
		r = sandbox_image_from_json(image, &sb->image, e);
	if (r < 0)
		return r;
	sb->start = (enum sandbox_start)start;
	snprintf(sb->parent, sizeof(sb->parent), "%s", parent);
	sb->task_user = user ? strdup(user) : NULL;
	return 0;
}

static enum sandbox_state state_of(const char *name)
{
	for (int s = SANDBOX_CREATING; s < SANDBOX_FAILED; s++)
		if (str_eq(sandbox_state_name((enum sandbox_state)s), name))
			return (enum sandbox_state)s;
	return SANDBOX_FAILED;
}

int sandbox_from_record(struct sandbox *sb, const struct store_record *r, json_t **ret_detail,
			struct err *e)
{
	auto_json json_t *j =
		r->detail ? doc_parse_json(r->detail, strlen(r->detail), e) : json_object();
	snprintf(sb->id, sizeof(sb->id), "%s", r->id);
	sb->state = state_of(r->state);
	sb->started_ms = r->started_ms;
	sb->ended_ms = r->ended_ms;
	sb->exit_code = r->exit_code;
	sb->reason = r->reason ? strdup(r->reason) : NULL;
	sb->dir = str_printf("%s/%s", sb->node->paths.sandboxes, sb->id);
	if (!sb->dir)
		return err_set(e, ENOMEM, "no memory");
	if (!j)
		return -EINVAL;
	int rc = r->detail ? read_detail(sb, j, e) : 0;
	if (rc == 0)
		*ret_detail = take_ptr(j);
	return rc;
}
