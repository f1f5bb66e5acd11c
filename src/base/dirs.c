/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dirs.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

static const char *home(void)
{
	const char *dir = getenv("HOME");
	const struct passwd *pw = dir && *dir == '/' ? NULL : getpwuid(getuid());
	return pw ? pw->pw_dir : dir;
}

/* Sets name to $xdg/there, or to HOME/otherwise. */
static int set_one(const char *name, const char *xdg, const char *there, const char *otherwise,
		   struct err *e)
{
	const char *dir = getenv(name), *base = getenv(xdg), *user_home = home();
	auto_free char *path = NULL;
	if (dir && *dir)
		return 0;
	if (base && *base == '/')
		path = str_printf("%s/%s", base, there);
	else if (user_home && *user_home == '/')
		path = str_printf("%s/%s", user_home, otherwise);
	else
		return err_set(e, ENOENT, "uid %u has no home directory: set HOME, or %s", getuid(),
			       name);
	return path && setenv(name, path, true) == 0 ? 0 : err_set(e, ENOMEM, "no memory");
}

/* A session that was not made by the system's login (su, a container) may lack the variable. */
static void set_runtime_dir(void)
{
	struct stat st;
	auto_free char *dir = str_printf("/run/user/%u", getuid());
	if (dir && stat(dir, &st) == 0 && st.st_uid == getuid())
		setenv("XDG_RUNTIME_DIR", dir, false);
}

int dirs_set(struct err *e)
{
	if (geteuid() == 0)
		return 0;
	set_runtime_dir();
	int r = set_one("SPACE_STATE_DIR", "XDG_STATE_HOME", "space", ".local/state/space", e);
	if (r == 0)
		r = set_one("SPACE_RUN_DIR", "XDG_RUNTIME_DIR", "space", ".local/state/space/run",
			    e);
	if (r == 0)
		r = set_one("SPACE_CONFIG", "XDG_CONFIG_HOME", "space/spaced.yaml",
			    ".config/space/spaced.yaml", e);
	return r;
}
