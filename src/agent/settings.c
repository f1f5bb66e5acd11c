/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes and checks POST /init. All of it is checked before any of it takes effect. */
#include "agent/settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/text.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/doc.h"
#include "base/str.h"

static int opt_copy(const json_t *root, const char *key, char **ret, struct err *e)
{
	const char *s = NULL;
	int r = doc_opt_string(root, key, &s, e);
	if (r < 0 || !s)
		return r;
	*ret = strdup(s);
	return *ret ? 0 : err_set(e, ENOMEM, "out of memory");
}

static int read_env(const json_t *root, struct settings_request *req, struct err *e)
{
	json_t *vars = NULL;
	int r = doc_opt_object(root, "envVars", &vars, e);
	if (r < 0 || !vars)
		return r;
	req->has_env = true;
	return env_set_json(&req->env, vars, e);
}

static int read_time(const json_t *root, struct settings_request *req, struct err *e)
{
	const char *s = NULL;
	int r = doc_opt_string(root, "timestamp", &s, e);
	if (r < 0 || !s)
		return r;
	req->has_time = true;
	if (clock_from_rfc3339(s, &req->time_ns) < 0)
		return err_set(e, EINVAL, "timestamp is not an RFC 3339 time");
	return 0;
}

static int read_entropy(const json_t *root, struct settings_request *req, struct err *e)
{
	const char *s = NULL;
	int r = doc_opt_string(root, "entropy", &s, e);
	if (r < 0 || !s)
		return r;
	size_t n = strlen(s);
	if (n > base64_encoded_len(SETTINGS_ENTROPY_MAX))
		return err_set(e, EINVAL, "entropy is longer than %d bytes", SETTINGS_ENTROPY_MAX);
	req->entropy = malloc(n / 4 * 3 + 3);
	if (!req->entropy)
		return err_set(e, ENOMEM, "out of memory");
	ssize_t len = base64_decode(s, n, req->entropy);
	if (len < SETTINGS_ENTROPY_MIN)
		return err_set(e, EINVAL, "entropy is not base64 of at least %d bytes",
			       SETTINGS_ENTROPY_MIN);
	req->entropy_len = (size_t)len;
	return 0;
}

/* Only what can stand in /etc/hosts and be set as the kernel's name. */
static bool is_hostname(const char *s)
{
	size_t n = strlen(s);
	return n >= 1 && n <= 63 && s[0] != '-' &&
	       strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.") == n;
}

static bool is_machine_id(const char *s)
{
	return strlen(s) == 32 && strspn(s, "0123456789abcdef") == 32;
}

static int read_names(const json_t *root, struct settings_request *req, struct err *e)
{
	int r = opt_copy(root, "accessToken", &req->token, e);
	if (r == 0)
		r = opt_copy(root, "defaultUser", &req->user, e);
	if (r == 0)
		r = opt_copy(root, "defaultWorkdir", &req->workdir, e);
	if (r == 0)
		r = opt_copy(root, "hostname", &req->hostname, e);
	if (r == 0)
		r = opt_copy(root, "machineId", &req->machine_id, e);
	if (r == 0)
		r = opt_copy(root, "sandboxId", &req->sandbox_id, e);
	if (r < 0)
		return r;
	if (req->hostname && !is_hostname(req->hostname))
		return err_set(e, EINVAL, "hostname '%s' is no host name", req->hostname);
	if (req->machine_id && !is_machine_id(req->machine_id))
		return err_set(e, EINVAL, "machineId is not 32 digits of lower-case hex");
	if (req->sandbox_id && !str_is_name(req->sandbox_id))
		return err_set(e, EINVAL, "sandboxId '%s' is no name", req->sandbox_id);
	return 0;
}

int settings_read(const char *body, size_t n, struct settings_request *ret, struct err *e)
{
	struct settings_request req = {0};
	auto_json json_t *root = n ? doc_parse_json(body, n, e) : json_object();
	int r = 0;
	if (!root)
		return -EINVAL;
	if (!json_is_object(root))
		return err_set(e, EINVAL, "the body is not a JSON object");
	r = read_env(root, &req, e);
	if (r == 0)
		r = read_time(root, &req, e);
	if (r == 0)
		r = read_entropy(root, &req, e);
	if (r == 0)
		r = read_names(root, &req, e);
	if (r == 0)
		r = doc_opt_bool(root, "thawed", &req.thawed, e);
	if (r < 0)
		settings_request_done(&req);
	else
		*ret = req;
	return r;
}

void settings_request_done(struct settings_request *r)
{
	env_done(&r->env);
	if (r->entropy)
		explicit_bzero(r->entropy, r->entropy_len);
	free(r->entropy);
	free(r->token);
	free(r->user);
	free(r->workdir);
	free(r->hostname);
	free(r->machine_id);
	free(r->sandbox_id);
	*r = (struct settings_request){0};
}

/* Replaces *to by *from when that was given; an empty string clears it. */
static void take_string(char **to, char **from)
{
	if (!*from)
		return;
	free(*to);
	*to = take_ptr(*from);
	if (!**to) {
		free(*to);
		*to = NULL;
	}
}

bool settings_take(struct settings *s, struct settings_request *r)
{
	if (r->has_time && !r->thawed && r->time_ns < s->time_ns)
		return false;
	if (r->has_time)
		s->time_ns = r->time_ns;
	if (r->has_env) {
		env_done(&s->env);
		s->env = r->env;
		r->env = (struct env){0};
	}
	take_string(&s->token, &r->token);
	take_string(&s->user, &r->user);
	take_string(&s->workdir, &r->workdir);
	take_string(&s->sandbox_id, &r->sandbox_id);
	return true;
}

void settings_done(struct settings *s)
{
	env_done(&s->env);
	free(s->token);
	free(s->user);
	free(s->workdir);
	free(s->sandbox_id);
	*s = (struct settings){0};
}
