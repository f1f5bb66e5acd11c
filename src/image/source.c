/* SPDX-License-Identifier: Apache-2.0 */
/*
 * apt knows its sources in both file formats. Asked without release information it lists all that
 * are configured, by the name that the source gives (RELEASE); asked with, those whose lists are
 * there, with the archive's code name as well (CODENAME, unreplaced in the first answer), which is
 * how a source for "stable" is recognised.
 */
#include "image/source.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/proc.h"
#include "base/str.h"

#define TARGETS_MAX (1u << 20) /* bytes of apt's answer */
#define FIELDS      6

enum { TARGET_OF, CREATED_BY, COMPONENT, RELEASE, CODENAME, SITE };

static bool is_of_suite(const char *release, const char *suite)
{
	size_t len = strlen(suite);
	if (strncmp(release, suite, len) != 0)
		return false;
	return str_eq(release + len, "") || str_eq(release + len, "-updates") ||
	       str_eq(release + len, "-security");
}

/* Splits a line in place. */
static bool split(char *line, char *field[FIELDS])
{
	for (int i = 0; i < FIELDS; i++) {
		field[i] = line;
		line += strcspn(line, "|");
		if ((*line == '|') != (i < FIELDS - 1))
			return false;
		if (*line)
			*line++ = '\0';
	}
	return true;
}

static bool has_password(const char *uri)
{
	const char *host = strstr(uri, "://");
	host = host ? host + 3 : uri;
	return memchr(host, '@', strcspn(host, "/")) != NULL;
}

static int add(struct sources *s, const char *uri, const char *release, struct err *e)
{
	if (has_password(uri))
		return err_set(
			e, EINVAL,
			"the apt source for %s has a user in its URI, which an image would show",
			release);
	auto_free char *line = str_printf("deb %s %s main", uri, release);
	if (!line)
		return err_set(e, ENOMEM, "not enough memory");
	for (size_t i = 0; i < s->count; i++)
		if (str_eq(s->lines[i], line))
			return 0;
	if (s->count == SOURCES_MAX)
		return err_set(e, E2BIG, "more than %d apt sources for %s", SOURCES_MAX, release);
	s->lines[s->count++] = take_ptr(line);
	return 0;
}

static int pick_line(char *line, const char *suite, struct sources *s, bool *has_suite,
		     struct err *e)
{
	char *f[FIELDS];
	if (!split(line, f) || !str_eq(f[TARGET_OF], "deb") || !str_eq(f[CREATED_BY], "Packages") ||
	    !str_eq(f[COMPONENT], "main"))
		return 0;
	const char *release = is_of_suite(f[CODENAME], suite) ? f[CODENAME] : f[RELEASE];
	if (!is_of_suite(release, suite))
		return 0;
	*has_suite |= str_eq(release, suite);
	return add(s, f[SITE], release, e);
}

int sources_pick(const char *targets, const char *suite, struct sources *ret, struct err *e)
{
	*ret = (struct sources){0};
	bool has_suite = false;
	int r = 0;
	auto_free char *copy = strdup(targets);
	if (!copy)
		return err_set(e, ENOMEM, "not enough memory");
	char *next;
	for (char *line = copy; r == 0 && *line; line = next) {
		size_t n = strcspn(line, "\n");
		next = line + n + (line[n] == '\n');
		line[n] = '\0';
		r = pick_line(line, suite, ret, &has_suite, e);
	}
	if (r == 0 && !has_suite)
		r = err_set(e, ENOENT,
			    "no apt source of this machine has Debian %s main: add one to "
			    "/etc/apt/sources.list.d",
			    suite);
	if (r < 0)
		sources_done(ret);
	return r;
}

int sources_find(const char *suite, struct sources *ret, struct err *e)
{
	static const char *const configured[] = {"apt-get",  "indextargets", "--no-release-info",
						 "--format", SOURCES_FORMAT, NULL};
	static const char *const downloaded[] = {"apt-get", "indextargets", "--format",
						 SOURCES_FORMAT, NULL};
	auto_free char *first = NULL;
	auto_free char *second = NULL;
	int r = proc_output(configured, TARGETS_MAX, &first, e);
	if (r == 0)
		r = proc_output(downloaded, TARGETS_MAX, &second, e);
	if (r < 0)
		return r;
	auto_free char *targets = str_printf("%s%s", first, second);
	if (!targets)
		return err_set(e, ENOMEM, "not enough memory");
	return sources_pick(targets, suite, ret, e);
}

void sources_done(struct sources *s)
{
	for (size_t i = 0; i < s->count; i++)
		free(s->lines[i]);
	s->count = 0;
}
