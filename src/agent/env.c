/* SPDX-License-Identifier: Apache-2.0 */
/* Environment lists, kept in the form that execve() takes. */
#include "agent/env.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

/* Index of the entry for the n bytes of name, count when there is none. */
static size_t find(const struct env *env, const char *name, size_t n)
{
	size_t i = 0;
	while (i < env->count && (strncmp(env->list[i], name, n) != 0 || env->list[i][n] != '='))
		i++;
	return i;
}

int env_set(struct env *env, const char *name, const char *value)
{
	if (!*name || strchr(name, '='))
		return -EINVAL;
	size_t i = find(env, name, strlen(name));
	if (i == ENV_VARIABLES_MAX)
		return -E2BIG;

	auto_free char *entry = str_printf("%s=%s", name, value);
	if (!entry)
		return -ENOMEM;
	if (i == env->count) {
		char **list = reallocarray(env->list, env->count + 2, sizeof(*list));
		if (!list)
			return -ENOMEM;
		env->list = list;
		env->list[i] = NULL;
		env->list[++env->count] = NULL;
	}
	free(env->list[i]);
	env->list[i] = take_ptr(entry);
	return 0;
}

const char *env_get(const struct env *env, const char *name)
{
	size_t n = strlen(name);
	size_t i = find(env, name, n);
	return i < env->count ? env->list[i] + n + 1 : NULL;
}

int env_set_json(struct env *env, json_t *object, struct err *e)
{
	const char *name;
	json_t *value;
	json_object_foreach(object, name, value)
	{
		const char *text = json_string_value(value);
		if (!text)
			return err_set(e, EINVAL, "environment variable '%s' is not a string",
				       name);
		if (strlen(text) != json_string_length(value))
			return err_set(e, EINVAL, "environment variable '%s' holds a NUL", name);
		int r = env_set(env, name, text);
		if (r == -EINVAL)
			return err_set(e, EINVAL, "'%s' can't be the name of a variable", name);
		if (r < 0)
			return err_sys(e, -r, "environment");
	}
	return 0;
}

int env_set_all(struct env *env, const struct env *other)
{
	int r = 0;
	for (size_t i = 0; r == 0 && i < other->count; i++) {
		const char *entry = other->list[i];
		size_t n = strcspn(entry, "=");
		auto_free char *name = strndup(entry, n);
		r = name ? env_set(env, name, entry + n + 1) : -ENOMEM;
	}
	return r;
}

void env_done(struct env *env)
{
	for (size_t i = 0; i < env->count; i++)
		free(env->list[i]);
	free(env->list);
	*env = (struct env){0};
}
