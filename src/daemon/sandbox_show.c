/* SPDX-License-Identifier: Apache-2.0 */
/* A sandbox as the API shows it. */
#include "base/clock.h"
#include "daemon/grant_entry.h"
#include "daemon/sandbox_state.h"

static const char *const start_names[] = {"cold", "clone", "pool", "fork"};

const char *sandbox_state_name(enum sandbox_state state)
{
	static const char *const names[] = {"creating", "booting",  "running", "pausing",
					    "paused",   "stopping", "exited",  "failed"};
	return names[state];
}

/* A secret's name and hosts, and whether a caller need not give its value to resume the sandbox, or
 * what makes it up. */
static json_t *secret_shown(const json_t *secret)
{
	json_t *stored = json_object_get(secret, "stored");
	json_t *source = json_object_get(secret, "source");
	json_t *kind = stored || source
			       ? NULL
			       : json_object_get(json_object_get(secret, "inject"), "kind");
	return json_pack("{s:O, s:O, s:O*, s:O*, s:O*}", "name", json_object_get(secret, "name"),
			 "hosts", json_object_get(secret, "hosts"), "stored", stored, "source",
			 source, "kind", kind);
}

static json_t *secrets_shown(const struct sandbox *sb)
{
	json_t *list = json_array(), *secret;
	uint64_t now_ms = clock_wall_ms();
	size_t i;
	json_array_foreach(sb->spec.secrets, i, secret)
	{
		if (grant_entry_lives(secret, now_ms))
			json_array_append_new(list, secret_shown(secret));
	}
	return list;
}

static void set_time(json_t *j, const char *key, uint64_t wall_ms)
{
	char text[CLOCK_RFC3339_SIZE];
	if (!wall_ms)
		return;
	clock_rfc3339(wall_ms, text);
	json_object_set_new(j, key, json_string(text));
}

json_t *sandbox_to_json(const struct sandbox *sb)
{
	json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:i, s:I, s:O, s:s, s:o}", "sandboxID", sb->id,
			      "name", sandbox_name(sb), "state", sandbox_state_name(sb->state),
			      "image", sb->spec.image, "cpus", (int)sb->spec.cpus, "memoryMB",
			      (json_int_t)sb->spec.memory_mib, "command", sb->spec.command, "start",
			      start_names[sb->start], "secrets", secrets_shown(sb));
	if (!j)
		return NULL;
	set_time(j, "startedAt", sb->started_ms);
	set_time(j, "endAt", sb->ended_ms);
	set_time(j, "pausedAt", sb->paused_ms);
	if (sb->spec.policy && policy_learns(sb->spec.policy))
		json_object_set_new(j, "learn", json_true());
	if (sb->parent[0])
		json_object_set_new(j, "parent", json_string(sb->parent));
	if (sb->exit_code >= 0)
		json_object_set_new(j, "exitCode", json_integer(sb->exit_code));
	if (sb->reason)
		json_object_set_new(j, "reason", json_string(sb->reason));
	return j;
}

json_t *sandbox_list_json(const struct node *n)
{
	json_t *all = json_array();
	list_for_each (it, &n->sandboxes)
		json_array_append_new(all, sandbox_to_json(list_entry(it, struct sandbox, link)));
	return all;
}
