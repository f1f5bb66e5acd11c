/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/paths.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/str.h"

static char *from_env(const char *name, const char *otherwise)
{
	const char *v = secure_getenv(name);
	return strdup(v && *v ? v : otherwise);
}

static int make_dir(const char *path, mode_t mode, struct err *e)
{
	int r = dir_make_all(path, mode);
	if (r == 0 && chmod(path, mode) < 0)
		r = -errno;
	return r < 0 ? err_sys(e, -r, "can't make directory %s", path) : 0;
}

int paths_init(struct paths *p, struct err *e)
{
	*p = (struct paths){
		.state = from_env("SPACE_STATE_DIR", "/var/lib/space"),
		.run = from_env("SPACE_RUN_DIR", "/run/space"),
		.libexec = from_env("SPACE_LIBEXEC", SPACE_LIBEXECDIR),
		.recipes = from_env("SPACE_RECIPES", SPACE_DATADIR "/images"),
		.config = from_env("SPACE_CONFIG", "/etc/space/spaced.yaml"),
	};
	if (!p->state || !p->run || !p->libexec || !p->recipes || !p->config)
		return err_set(e, ENOMEM, "no memory");
	p->images = str_printf("%s/images", p->state);
	p->audit = str_printf("%s/audit", p->state);
	p->ca = str_printf("%s/ca", p->state);
	p->db = str_printf("%s/space.db", p->state);
	p->scratch = str_printf("%s/scratch", p->state);
	p->socket = str_printf("%s/spaced.sock", p->run);
	p->lock = str_printf("%s/spaced.lock", p->run);
	p->sandboxes = str_printf("%s/sandboxes", p->state);
	p->places = str_printf("%s/places", p->state);
	p->templates = str_printf("%s/templates", p->state);
	p->snapshots = str_printf("%s/snapshots", p->state);
	if (!p->images || !p->audit || !p->ca || !p->db || !p->scratch || !p->socket || !p->lock ||
	    !p->sandboxes || !p->places || !p->templates || !p->snapshots)
		return err_set(e, ENOMEM, "no memory");

	/* A monitor opens kernel and initramfs by path as a uid of its own: it must be able to walk
	 * here. */
	const struct {
		const char *path;
		mode_t mode;
	} dirs[] = {
		{p->state, 0711}, {p->images, 0755},  {p->audit, 0700},     {p->ca, 0700},
		{p->run, 0711},   {p->scratch, 0700}, {p->sandboxes, 0700},
		{p->places, 0700}, {p->templates, 0700}, {p->snapshots, 0700},
	};
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		int r = make_dir(dirs[i].path, dirs[i].mode, e);
		if (r < 0)
			return r;
	}
	return 0;
}

void paths_done(struct paths *p)
{
	char *all[] = {p->state, p->run, p->libexec, p->recipes, p->images, p->audit,
		       p->ca, p->db, p->scratch, p->socket, p->lock, p->sandboxes,
		       p->places, p->templates, p->snapshots, p->config};
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		free(all[i]);
	*p = (struct paths){0};
}
