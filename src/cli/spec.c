/* SPDX-License-Identifier: Apache-2.0 */
/* Command-line values into request members. JSON carries text, so what is not UTF-8 is refused here
 * with its name. */
#include "cli/spec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "cli/value.h"

#define FILE_MAX (1 << 20) /* bytes of a policy or of a file of variables */

static int put_env(json_t *envs, const char *name, const char *value, struct err *e)
{
	if (!str_is_env_name(name))
		return err_set(e, EINVAL, "'%.80s' is no name for a variable", name);
	if (!str_is_utf8(value, strlen(value)))
		return err_set(e, EINVAL, "the value of %s is not valid UTF-8", name);
	return json_object_set_new(envs, name, json_string(value)) < 0
		       ? err_set(e, ENOMEM, "out of memory")
		       : 0;
}

int spec_env(json_t *envs, const char *text, struct err *e)
{
	const char *eq = strchr(text, '=');
	if (eq) {
		auto_free char *name = strndup(text, (size_t)(eq - text));
		return name ? put_env(envs, name, eq + 1, e) : err_set(e, ENOMEM, "out of memory");
	}
	const char *value = getenv(text);
	if (value)
		return put_env(envs, text, value, e);
	return str_is_env_name(text)
		       ? 0
		       : err_set(e, EINVAL, "'%.80s' is no name for a variable", text);
}

int spec_env_file(json_t *envs, const char *path, struct err *e)
{
	auto_free char *text = NULL;
	size_t len;
	int r = file_read(path, FILE_MAX, &text, &len);
	if (r < 0)
		return err_sys(e, -r, "cannot read %.200s", path);
	if (strlen(text) != len)
		return err_set(e, EINVAL, "%.200s is no text file: it holds a NUL", path);
	unsigned line_no = 0;
	for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
		line_no++;
		line[strcspn(line, "\r")] = 0;
		if (!*line || *line == '#')
			continue;
		r = spec_env(envs, line, e);
		if (r < 0)
			return err_prefix(e, "%.200s:%u", path, line_no);
	}
	return 0;
}

int spec_list(json_t *list, const char *what, const char *text, struct err *e)
{
	auto_free char *copy = strdup(text);
	if (!copy)
		return err_set(e, ENOMEM, "out of memory");
	for (char *rest = copy, *word; (word = strsep(&rest, ","));) {
		if (!*word || !str_is_utf8(word, strlen(word)))
			return err_set(e, EINVAL, "an empty or unreadable %s in '%.200s'", what,
				       text);
		if (json_array_append_new(list, json_string(word)) < 0)
			return err_set(e, ENOMEM, "out of memory");
	}
	return 0;
}

static int add_secret(json_t *secrets, json_t *secret, struct err *e)
{
	return json_array_append_new(secrets, secret) < 0 ? err_set(e, ENOMEM, "out of memory") : 0;
}

int spec_secret(json_t *secrets, const char *text, struct err *e)
{
	size_t n = strcspn(text, "@");
	auto_free char *name = strndup(text, n);
	if (!name)
		return err_set(e, ENOMEM, "out of memory");
	/* NAME=value and NAME=value@host are easy slips; the text must not be repeated then. */
	if (!str_is_env_name(name) || (text[n] && !text[n + 1]))
		return err_set(
			e, EINVAL,
			"--secret takes NAME, of 'space secret ls', or NAME@HOST[,HOST], for "
			"the value of our variable NAME; never the value itself");
	if (!text[n])
		return add_secret(secrets, json_pack("{s:s, s:s}", "name", name, "stored", name),
				  e);
	auto_json json_t *values = NULL, *hosts = json_array();
	if (value_from_env(name, VALUE_TEXT, NULL, &values, e) < 0)
		return -EINVAL;
	int r = spec_list(hosts, "host", text + n + 1, e);
	if (r < 0)
		return r;
	auto_json json_t *value = value_of_entry(values);
	return add_secret(
		secrets, json_pack("{s:s, s:O, s:O}", "name", name, "hosts", hosts, "value", value),
		e);
}

int spec_user(const char *text, const char **ret, struct err *e)
{
	if (!*text || strchr(text, ':') || !str_is_utf8(text, strlen(text)))
		return err_set(
			e, EINVAL,
			"--user takes a name or a number of a user, and no group, not '%.40s'",
			text);
	*ret = text;
	return 0;
}

int spec_policy(const char *path, json_t **ret, struct err *e)
{
	auto_free char *text = NULL;
	size_t len;
	int r = file_read(path, FILE_MAX, &text, &len);
	if (r < 0)
		return err_sys(e, -r, "cannot read the policy %.200s", path);
	if (!str_is_utf8(text, len) || strlen(text) != len)
		return err_set(e, EINVAL, "the policy %.200s is not UTF-8 text", path);
	if (!str_is_utf8(path, strlen(path)))
		return err_set(e, EINVAL, "the policy's path is not valid UTF-8");
	*ret = json_pack("{s:s, s:s}", "name", path, "text", text);
	return *ret ? 0 : err_set(e, ENOMEM, "out of memory");
}

int spec_command(int argc, char **argv, json_t **ret, struct err *e)
{
	if (!*argv[0])
		return err_set(e, EINVAL, "the command is empty");
	auto_json json_t *args = json_array();
	for (int i = 0; i < argc; i++) {
		if (!str_is_utf8(argv[i], strlen(argv[i])))
			return err_set(e, EINVAL, "word %d of the command is not valid UTF-8",
				       i + 1);
		if (i > 0 && json_array_append_new(args, json_string(argv[i])) < 0)
			return err_set(e, ENOMEM, "out of memory");
	}
	*ret = json_pack("{s:s, s:O}", "cmd", argv[0], "args", args);
	return *ret ? 0 : err_set(e, ENOMEM, "out of memory");
}

int spec_place(const char *text, struct spec_place *ret, struct err *e)
{
	*ret = (struct spec_place){0};
	const char *colon = strchr(text, ':');
	auto_free char *name = colon ? strndup(text, (size_t)(colon - text)) : NULL;
	if (colon && !name)
		return err_set(e, ENOMEM, "out of memory");
	bool there = name && str_is_name(name);
	const char *path = there ? colon + 1 : text;
	if (!*path)
		return err_set(e, EINVAL, "'%.100s' names no file", text);
	ret->path = strdup(path);
	if (!ret->path)
		return err_set(e, ENOMEM, "out of memory");
	if (there)
		ret->sandbox = take_ptr(name);
	return 0;
}

void spec_place_done(struct spec_place *p)
{
	free(p->sandbox);
	free(p->path);
	*p = (struct spec_place){0};
}
