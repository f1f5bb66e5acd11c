/* SPDX-License-Identifier: Apache-2.0 */
/* The path rules of envd: lexical, so that the answer names the path that the caller meant. */
#include "agent/path.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

void path_clean(char *path)
{
	char *out = path; /* what is kept ends here, without a slash */
	for (const char *p = path; *p;) {
		while (*p == '/')
			p++;
		size_t n = strcspn(p, "/");
		if (n == 2 && p[0] == '.' && p[1] == '.') {
			while (out > path && *--out != '/')
				;
		} else if (n && !(n == 1 && p[0] == '.')) {
			*out++ = '/';
			memmove(out, p, n);
			out += n;
		}
		p += n;
	}
	if (out == path)
		*out++ = '/';
	*out = '\0';
}

int path_resolve(const char *path, const char *home, const char *workdir, char **ret, struct err *e)
{
	auto_free char *full = NULL;
	if (!*path && workdir && *workdir)
		return path_resolve(workdir, home, NULL, ret, e);

	if (path[0] == '/')
		full = strdup(path);
	else if (path[0] != '~')
		full = str_printf("%s/%s", home, path);
	else if (path[1] == '\0' || path[1] == '/')
		full = str_printf("%s/%s", home, path + 1);
	else
		return err_set(e, EINVAL, "path '%s': only ~ and ~/ are understood", path);
	if (!full)
		return err_set(e, ENOMEM, "out of memory");

	path_clean(full);
	if (strlen(full) >= PATH_MAX)
		return err_set(e, ENAMETOOLONG, "path is longer than %d bytes", PATH_MAX - 1);
	*ret = take_ptr(full);
	return 0;
}
