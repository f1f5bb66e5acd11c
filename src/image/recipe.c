/* SPDX-License-Identifier: Apache-2.0 */
/* A recipe's strings become arguments of programs and lines of files, so each is held to its
 * alphabet here, once. */
#include "image/recipe.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#define LOWER  "abcdefghijklmnopqrstuvwxyz"
#define UPPER  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

/* Starts with one of `first`, goes on with those and `more`, at most max bytes. */
static bool is_made_of(const char *s, const char *first, const char *more, size_t max)
{
	size_t len = strlen(s);
	if (len == 0 || len > max || !strchr(first, s[0]))
		return false;
	for (size_t i = 1; i < len; i++)
		if (!strchr(first, s[i]) && !strchr(more, s[i]))
			return false;
	return true;
}

static bool is_package(const char *s)
{
	return is_made_of(s, LOWER DIGITS, "+-.", 128);
}

static bool is_module(const char *s)
{
	return is_made_of(s, LOWER UPPER DIGITS, "_-", 64);
}

/* Printable ASCII, so neither line ends nor NUL. */
static bool is_line(const char *s, size_t max)
{
	size_t len = strlen(s);
	for (size_t i = 0; i < len; i++)
		if (s[i] < ' ' || s[i] > '~')
			return false;
	return len <= max;
}

static int check_list(const struct doc *doc, const json_t *list, bool (*valid)(const char *),
		      const char *what, struct err *e)
{
	size_t i;
	json_t *item;
	if (json_array_size(list) > RECIPE_PACKAGES_MAX)
		return doc_error(doc, list, e, "more than %d entries", RECIPE_PACKAGES_MAX);
	json_array_foreach(list, i, item)
	{
		const char *s = json_string_value(item);
		if (!s || !valid(s))
			return doc_error(doc, item, e, "not the name of a %s", what);
	}
	return 0;
}

static int check_env(const struct doc *doc, json_t *env, struct err *e)
{
	const char *key;
	json_t *value;
	if (json_object_size(env) > RECIPE_ENV_MAX)
		return doc_error(doc, env, e, "more than %d variables", RECIPE_ENV_MAX);
	json_object_foreach(env, key, value)
	{
		const char *s = json_string_value(value);
		if (!str_is_env_name(key))
			return doc_error(doc, value, e, "not the name of a variable");
		if (!s || !is_line(s, 4096))
			return doc_error(doc, value, e, "not a string of printable ASCII");
	}
	return 0;
}

static int check_string(const struct recipe *r, const char *key, bool valid, const char *what,
			struct err *e)
{
	if (valid)
		return 0;
	return doc_error(&r->doc, json_object_get(r->doc.root, key), e, "%s must be %s", key, what);
}

static int check(struct recipe *r, const char *scratch, struct err *e)
{
	uint64_t mib = 0;
	if (str_to_mib(scratch, &mib) < 0 || mib < RECIPE_SCRATCH_MIN_MIB ||
	    mib > RECIPE_SCRATCH_MAX_MIB)
		return check_string(r, "scratch", false, "a size from 64M to 2048G", e);
	r->scratch_bytes = mib << 20;

	int rc = check_string(r, "suite", is_made_of(r->suite, LOWER, LOWER DIGITS "-", 32),
			      "a code name of Debian", e);
	if (rc == 0)
		rc = check_string(r, "kernel", is_package(r->kernel), "the name of a package", e);
	if (rc == 0)
		rc = check_string(r, "user", is_made_of(r->user, LOWER "_", DIGITS "-", 32),
				  "a user name", e);
	if (rc == 0)
		rc = check_string(r, "workdir", r->workdir[0] == '/' && is_line(r->workdir, 255),
				  "an absolute path", e);
	if (rc == 0)
		rc = check_string(r, "cmdline", is_line(r->cmdline, RECIPE_CMDLINE_MAX),
				  "a line of printable ASCII", e);
	if (rc == 0)
		rc = check_string(r, "warmup", strlen(r->warmup) <= RECIPE_WARMUP_MAX,
				  "a shell command of at most 4096 bytes", e);
	if (rc == 0)
		rc = check_list(&r->doc, r->packages, is_package, "package", e);
	if (rc == 0)
		rc = check_list(&r->doc, r->modules, is_module, "module", e);
	if (rc == 0 && r->env)
		rc = check_env(&r->doc, r->env, e);
	return rc;
}

static int read_members(struct recipe *r, struct err *e)
{
	static const char *const known[] = {"suite",   "packages", "kernel", "modules",
					    "cmdline", "scratch",  "user",   "workdir",
					    "warmup",  "env",      NULL};
	const json_t *root = r->doc.root;
	const char *scratch = NULL;
	r->cmdline = "";
	r->warmup = "";
	int rc = doc_only(root, known, e);
	if (rc == 0)
		rc = doc_want_string(root, "suite", &r->suite, e);
	if (rc == 0)
		rc = doc_want_array(root, "packages", &r->packages, e);
	if (rc == 0)
		rc = doc_want_string(root, "kernel", &r->kernel, e);
	if (rc == 0)
		rc = doc_want_array(root, "modules", &r->modules, e);
	if (rc == 0)
		rc = doc_opt_string(root, "cmdline", &r->cmdline, e);
	if (rc == 0)
		rc = doc_want_string(root, "scratch", &scratch, e);
	if (rc == 0)
		rc = doc_want_string(root, "user", &r->user, e);
	if (rc == 0)
		rc = doc_want_string(root, "workdir", &r->workdir, e);
	if (rc == 0)
		rc = doc_opt_string(root, "warmup", &r->warmup, e);
	if (rc == 0)
		rc = doc_opt_object(root, "env", &r->env, e);
	if (rc < 0)
		return err_prefix(e, "%s", r->doc.name);
	return check(r, scratch, e);
}

int recipe_parse(const char *name, const char *text, size_t len, struct recipe *ret, struct err *e)
{
	struct recipe r = {0};
	int rc = doc_load(&r.doc, name, text, len, e);
	if (rc < 0)
		return rc;
	if (!json_is_object(r.doc.root))
		rc = doc_error(&r.doc, r.doc.root, e, "a recipe is a mapping");
	else
		rc = read_members(&r, e);
	if (rc < 0) {
		recipe_done(&r);
		return rc;
	}
	*ret = r;
	return 0;
}

int recipe_load(const char *dir, struct recipe *ret, struct err *e)
{
	auto_free char *path = str_printf("%s/recipe.yaml", dir);
	if (!path)
		return err_set(e, ENOMEM, "not enough memory");
	auto_free char *text = NULL;
	size_t len;
	int rc = file_read(path, RECIPE_MAX, &text, &len);
	if (rc < 0)
		return err_sys(e, -rc, "reading the recipe %s", path);
	return recipe_parse(path, text, len, ret, e);
}

void recipe_done(struct recipe *r)
{
	doc_done(&r->doc);
	*r = (struct recipe){0};
}
