/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes Start: what to run, with which arguments, variables and directory. */
#include "agent/start_request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/path.h"
#include "base/cleanup.h"
#include "base/str.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static int read_argv(json_t *process, struct start_request *req, struct err *e)
{
	json_t *args = NULL, *arg;
	const char *cmd = NULL;
	int r = doc_want_string(process, "cmd", &cmd, e);
	if (r == 0)
		r = doc_opt_array(process, "args", &args, e);
	if (r < 0)
		return r;
	if (!*cmd)
		return err_set(e, EINVAL, "cmd is empty");

	req->argv = calloc(json_array_size(args) + 2, sizeof(*req->argv));
	if (!req->argv)
		return err_set(e, ENOMEM, "out of memory");
	req->argv[0] = cmd;
	size_t i;
	json_array_foreach(args, i, arg)
	{
		const char *s = json_string_value(arg);
		if (!s)
			return err_set(e, EINVAL, "args[%zu] is not a string", i);
		if (strlen(s) != json_string_length(arg))
			return err_set(e, EINVAL, "args[%zu] holds a NUL", i);
		req->argv[i + 1] = s;
	}
	return 0;
}

static int read_message(struct start_request *req, struct err *e)
{
	json_t *pty = NULL;
	req->want_stdin = true;
	int r = doc_want_object(req->root, "process", &req->process, e);
	if (r == 0)
		r = doc_opt_bool(req->root, "stdin", &req->want_stdin, e);
	if (r == 0)
		r = doc_opt_string(req->root, "tag", &req->tag, e);
	if (r == 0)
		r = doc_opt_object(req->root, "pty", &pty, e);
	if (r == 0)
		r = doc_opt_string(req->process, "cwd", &req->cwd, e);
	if (r == 0)
		r = doc_opt_object(req->process, "envs", &req->envs, e);
	if (r == 0)
		r = read_argv(req->process, req, e);
	req->want_pty = pty != NULL;
	return r;
}

int start_request_read(const char *text, size_t n, struct start_request *ret, struct err *e)
{
	struct start_request req = {.root = doc_parse_json(text, n, e)};
	if (!req.root)
		return -EINVAL;
	int r = json_is_object(req.root) ? read_message(&req, e)
					 : err_set(e, EINVAL, "the message is not an object");
	if (r < 0)
		start_request_done(&req);
	else
		*ret = req;
	return r;
}

void start_request_done(struct start_request *r)
{
	free(r->argv);
	json_decref(r->root);
	*r = (struct start_request){0};
}

static int base_environment(const struct settings *settings, const struct user *user,
			    struct env *env)
{
	const char *id = settings->sandbox_id;
	int r = env_set(env, "PATH", DEFAULT_PATH);
	if (r == 0)
		r = env_set(env, "HOME", user->home);
	if (r == 0)
		r = env_set(env, "USER", user->name);
	if (r == 0)
		r = env_set(env, "LOGNAME", user->name);
	if (r == 0)
		r = env_set(env, "SHELL", user->shell);
	if (r == 0 && id)
		r = env_set(env, "E2B_SANDBOX", "true");
	if (r == 0 && id)
		r = env_set(env, "E2B_SANDBOX_ID", id);
	return r < 0 ? r : env_set_all(env, &settings->env);
}

int start_environment(const struct start_request *req, const struct settings *settings,
		      const struct user *user, struct env *ret, struct err *e)
{
	auto_env struct env env = {0};
	int r = base_environment(settings, user, &env);
	if (r < 0)
		return err_sys(e, -r, "environment");
	r = env_set_json(&env, req->envs, e);
	if (r < 0)
		return r;
	*ret = env;
	env = (struct env){0};
	return 0;
}

static bool is_directory(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int start_directory(const struct start_request *req, const struct settings *settings,
		    const struct user *user, char **ret, struct err *e)
{
	bool asked = req->cwd && *req->cwd;
	auto_free char *path = NULL;
	int r = path_resolve(asked ? req->cwd : "", user->home, settings->workdir, &path, e);
	if (r < 0)
		return r;
	if (!asked && !is_directory(path))
		strcpy(path, "/");
	*ret = take_ptr(path);
	return 0;
}
