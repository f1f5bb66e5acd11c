/* SPDX-License-Identifier: Apache-2.0 */
/*
 * depmod writes one line per module, "path: path path …", paths of what it needs directly or not.
 * Their order within a line is not relied upon: dependencies are visited depth first, so that each
 * path comes after its own.
 */
#include "image/modules.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

#define DEPTH_MAX 32

struct resolver {
	const char *dep;
	struct modules *out;
};

static size_t stem_len(const char *base, size_t n)
{
	const char *ko = memmem(base, n, ".ko", 3);
	return ko ? (size_t)(ko - base) : n;
}

/* Whether the file at path[0 .. n) is module `name`. */
static bool path_is(const char *path, size_t n, const char *name)
{
	const char *slash = memrchr(path, '/', n);
	const char *base = slash ? slash + 1 : path;
	size_t len = stem_len(base, n - (size_t)(base - path));
	if (len != strlen(name))
		return false;
	for (size_t i = 0; i < len; i++)
		if (base[i] != name[i] && !(strchr("-_", base[i]) && strchr("-_", name[i])))
			return false;
	return true;
}

/* The line of dep whose path satisfies: equal to path[0 .. n), or, with path NULL, being module
 * `name`. */
static const char *find_line(const char *dep, const char *path, size_t n, const char *name)
{
	while (*dep) {
		size_t line = strcspn(dep, "\n");
		const char *colon = memchr(dep, ':', line);
		size_t len = colon ? (size_t)(colon - dep) : 0;
		bool hit = path ? len == n && memcmp(dep, path, n) == 0 : path_is(dep, len, name);
		if (colon && hit)
			return dep;
		dep += line + (dep[line] == '\n');
	}
	return NULL;
}

static bool is_builtin(const char *builtin, const char *name)
{
	while (*builtin) {
		size_t line = strcspn(builtin, "\n");
		if (path_is(builtin, line, name))
			return true;
		builtin += line + (builtin[line] == '\n');
	}
	return false;
}

static bool has_path(const struct modules *m, const char *path, size_t n)
{
	for (size_t i = 0; i < m->count; i++)
		if (strlen(m->paths[i]) == n && memcmp(m->paths[i], path, n) == 0)
			return true;
	return false;
}

static int add_path(struct modules *m, const char *path, size_t n, struct err *e)
{
	if (m->count == MODULES_MAX)
		return err_set(e, E2BIG, "more than %d modules", MODULES_MAX);
	m->paths[m->count] = strndup(path, n);
	if (!m->paths[m->count])
		return err_set(e, ENOMEM, "not enough memory");
	m->count++;
	return 0;
}

static int visit(const struct resolver *r, const char *line, int depth, struct err *e)
{
	size_t len = strcspn(line, "\n");
	size_t path_len = (size_t)((const char *)memchr(line, ':', len) - line);
	if (has_path(r->out, line, path_len))
		return 0;
	if (depth == DEPTH_MAX)
		return err_set(e, EINVAL, "modules.dep: %.*s needs itself", (int)path_len, line);
	const char *end = line + len;
	for (const char *p = line + path_len + 1; p < end;) {
		p += strspn(p, " ");
		size_t n = strcspn(p, " \n");
		if (n == 0)
			break;
		const char *need = find_line(r->dep, p, n, NULL);
		if (!need)
			return err_set(e, EINVAL, "modules.dep has no line for %.*s", (int)n, p);
		int rc = visit(r, need, depth + 1, e);
		if (rc < 0)
			return rc;
		p += n;
	}
	return add_path(r->out, line, path_len, e);
}

int modules_resolve(const char *dep, const char *builtin, const char *const *names, size_t count,
		    struct modules *ret, struct err *e)
{
	*ret = (struct modules){0};
	struct resolver r = {.dep = dep, .out = ret};
	for (size_t i = 0; i < count; i++) {
		int rc = 0;
		const char *line = find_line(dep, NULL, 0, names[i]);
		if (line)
			rc = visit(&r, line, 0, e);
		else if (!is_builtin(builtin, names[i]))
			rc = err_set(e, ENOENT, "the kernel has no module %s", names[i]);
		if (rc < 0) {
			modules_done(ret);
			return rc;
		}
	}
	return 0;
}

void modules_done(struct modules *m)
{
	for (size_t i = 0; i < m->count; i++)
		free(m->paths[i]);
	m->count = 0;
}

int modules_file_name(const char *path, char out[MODULE_FILE_MAX])
{
	const char *slash = strrchr(path, '/');
	const char *base = slash ? slash + 1 : path;
	const char *ko = strstr(base, ".ko");
	size_t len = ko ? (size_t)(ko - base) + 3 : 0;
	if (len <= 3 || len >= MODULE_FILE_MAX)
		return -EINVAL;
	memcpy(out, base, len);
	out[len] = '\0';
	return 0;
}
