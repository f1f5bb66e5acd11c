/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_build(): checks before anything is made, the content address, the lock, then the steps in a
 * directory that becomes the version by one rename. The version before is kept until the next
 * build: a sandbox that is just starting may not have opened all of its files yet.
 */
#include "image/build.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "image/address.h"
#include "image/image.h"
#include "image/store.h"

#define FREE_MIN_MIB                                                                 \
	1536 /* what a build of the base image needs at its peak, with some to spare \
	      */

#define AGENT_ENV     "SPACE_AGENT" /* another path of the agent, for trees that are not installed */
#define AGENT_DEFAULT SPACE_LIBEXECDIR "/space-agent"

/* What image_build() finds out before it makes a directory. */
struct plan {
	char *store; /* canonical */
	char *recipe_dir;
	const char *agent;
	uint64_t generation;
	char hash[ADDRESS_HEX_SIZE];
	char *version;
	char *present; /* version; NULL when there is none */
};

static void cleanup_plan(struct plan *p)
{
	free(p->store);
	free(p->recipe_dir);
	free(p->version);
	free(p->present);
}

static void build_done(struct build *b)
{
	free(b->dir);
	recipe_done(&b->recipe);
	sources_done(&b->sources);
	for (size_t i = 0; b->env[i]; i++)
		free(b->env[i]);
	free(b->kernel_release);
	json_decref(b->guest_env);
}

static int check_ca(const char *pem, struct err *e)
{
	if (strstr(pem, "PRIVATE KEY"))
		return err_set(e, EINVAL, "the CA certificate's file holds a private key as well");
	if (!strstr(pem, "-----BEGIN CERTIFICATE-----"))
		return err_set(e, EINVAL, "the CA certificate is not PEM");
	return 0;
}

static int check_programs(struct err *e)
{
	static const char *const programs[][2] = {
		{"apt-get", "apt"}, {"mmdebstrap", "mmdebstrap"}, {"dpkg-deb", "dpkg"},
		{"depmod", "kmod"}, {"mke2fs", "e2fsprogs"},
	};
	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		int r = tools_want(programs[i][0], programs[i][1], e);
		if (r < 0)
			return r;
	}
	return 0;
}

static int check_space(const char *store, struct err *e)
{
	struct statvfs fs;
	if (statvfs(store, &fs) < 0)
		return err_sys(e, errno, "free space of %s", store);
	uint64_t mib = (uint64_t)fs.f_bavail * fs.f_frsize >> 20;
	if (mib < FREE_MIN_MIB)
		return err_set(e, ENOSPC,
			       "%s has %" PRIu64 " MiB free, a build needs %d: free some", store,
			       mib, FREE_MIN_MIB);
	return 0;
}

static int find_inputs(struct plan *p, const char *recipe_dir, struct err *e)
{
	if (geteuid() != 0)
		return err_set(e, EPERM, "building needs root: an image has files of other users");
	p->agent = getenv(AGENT_ENV) ? getenv(AGENT_ENV) : AGENT_DEFAULT;
	if (access(p->agent, R_OK) < 0)
		return err_sys(e, errno,
			       "the agent %s (installing SPACE puts it there, or set " AGENT_ENV
			       ")",
			       p->agent);
	p->recipe_dir = realpath(recipe_dir, NULL);
	if (!p->recipe_dir)
		return err_sys(e, errno, "the recipe %s", recipe_dir);
	auto_free char *script = str_printf("%s/customize", p->recipe_dir);
	if (!script)
		return err_set(e, ENOMEM, "not enough memory");
	if (access(script, X_OK) < 0)
		return err_sys(e, errno, "%s, which has to be a program", script);
	return 0;
}

static int find_store(struct plan *p, const char *store, struct err *e)
{
	int r = dir_make_all(store, 0755);
	if (r < 0)
		return err_sys(e, -r, "making the image store %s", store);
	p->store = realpath(store, NULL);
	return p->store ? 0 : err_sys(e, errno, "the image store %s", store);
}

/* Sets generation, hash and version for what is to be built; -EEXIST without e when that is there
 * already. */
static int address(struct plan *p, const char *name, const char *ca_pem, bool force, struct err *e)
{
	auto_json json_t *manifest = NULL;
	int r = store_present(p->store, name, &p->present);
	if (r == 0)
		(void)store_read_manifest(p->store, p->present, &manifest, NULL);
	json_int_t generation = json_integer_value(json_object_get(manifest, "generation"));
	p->generation = generation > 0 ? (uint64_t)generation : 0;
	if (force)
		p->generation++;
	struct address_inputs in = {p->recipe_dir, ca_pem, p->agent, p->generation};
	r = address_of(&in, p->hash, e);
	if (r < 0)
		return r;
	p->version = store_version(name, p->hash);
	if (!p->version)
		return err_set(e, ENOMEM, "not enough memory");
	struct image img;
	if (!str_eq(p->version, p->present) || image_open(p->store, name, &img, NULL) < 0)
		return 0;
	image_done(&img);
	return -EEXIST;
}

static int run_steps(struct build *b, struct err *e)
{
	int r = build_lay_out(b, e);
	if (r == 0)
		r = build_install_packages(b, e);
	if (r == 0)
		r = build_read_environment(b, e);
	if (r == 0)
		r = build_unpack_kernel(b, e);
	if (r == 0)
		r = build_make_initramfs(b, e);
	if (r == 0)
		r = build_make_disks(b, e);
	return r;
}

static int sync_files(const char *dir, struct err *e)
{
	static const char *const files[] = {STORE_KERNEL,  STORE_INITRAMFS, STORE_ROOTFS,
					    STORE_SCRATCH, STORE_MANIFEST,  "."};
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		auto_free char *path = str_printf("%s/%s", dir, files[i]);
		if (!path)
			return err_set(e, ENOMEM, "not enough memory");
		auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || fsync(fd) < 0)
			return err_sys(e, errno, "syncing %s", path);
	}
	return 0;
}

/* Makes the build the present version. */
static int commit(const struct plan *p, const struct build *b, struct err *e)
{
	auto_free char *out = str_printf("%s/out", b->dir);
	auto_free char *to = str_printf("%s/%s", p->store, p->version);
	if (!out || !to)
		return err_set(e, ENOMEM, "not enough memory");
	struct image img = {
		.name = (char *)b->name,
		.hash = (char *)p->hash,
		.cmdline = (char *)b->recipe.cmdline,
		.user = (char *)b->recipe.user,
		.workdir = (char *)b->recipe.workdir,
		.warmup = (char *)b->recipe.warmup,
		.env = b->guest_env,
		.built_ms = clock_wall_ms(),
	};
	int r = store_write_manifest(out, &img, p->generation, b->kernel_release, e);
	if (r == 0)
		r = sync_files(out, e);
	if (r == 0)
		r = store_remove_tree(to, e); /* damaged, or never switched to */
	if (r < 0)
		return r;
	if (rename(out, to) < 0)
		return err_sys(e, errno, "making %s", to);
	r = store_switch(p->store, b->name, p->version, e);
	if (r < 0)
		return r;
	r = store_prune(p->store, b->name, p->version, p->present, e);
	return r < 0 ? r : 0;
}

static int build_in(struct plan *p, struct build *b, struct err *e)
{
	int r = sources_find(b->recipe.suite, &b->sources, e);
	if (r == 0)
		r = check_space(p->store, e);
	if (r < 0)
		return r;
	char *dir = str_printf("%s/" STORE_BUILD_PREFIX "XXXXXX", p->store);
	if (!dir)
		return err_set(e, ENOMEM, "not enough memory");
	if (!mkdtemp(dir)) {
		r = err_sys(e, errno, "making %s", dir);
		free(dir);
		return r;
	}
	b->dir = dir;
	/* apt's own user has to get in. */
	r = chmod(dir, 0755) < 0 ? err_sys(e, errno, "%s", dir) : run_steps(b, e);
	if (r == 0)
		r = commit(p, b, e);
	struct err why = {0};
	int removed = store_remove_tree(dir, &why);
	if (r == 0 && removed < 0)
		return err_set(e, why.code, "%s", why.text);
	return r;
}

static int build_new(struct plan *p, const char *name, const char *ca_pem,
		     const struct tools *tools, struct err *e)
{
	struct build b = {
		.store = p->store,
		.name = name,
		.recipe_dir = p->recipe_dir,
		.ca_pem = ca_pem,
		.agent = p->agent,
		.tools = *tools,
	};
	uint64_t start = clock_mono_ms();
	int r = recipe_load(p->recipe_dir, &b.recipe, e);
	if (r == 0)
		r = store_sweep(p->store, e);
	if (r >= 0)
		r = build_in(p, &b, e);
	build_done(&b);
	if (r < 0)
		return r;
	struct image img;
	r = image_open(p->store, name, &img, e);
	if (r < 0)
		return r;
	tools_say(tools, "ready in %" PRIu64 " s, %" PRIu64 " MiB",
		  (clock_mono_ms() - start) / 1000, img.size_bytes >> 20);
	image_done(&img);
	return 0;
}

static int build_locked(struct plan *p, const char *name, const char *ca_pem, bool force,
			const char *title, struct err *e)
{
	auto_fd int lock = store_lock(p->store, e);
	if (lock < 0)
		return lock;
	struct tools tools = {.title = title, .lock_fd = lock};
	int r = address(p, name, ca_pem, force, e);
	if (r == -EEXIST) {
		tools_say(&tools, "is up to date");
		return 0;
	}
	return r < 0 ? r : build_new(p, name, ca_pem, &tools, e);
}

int image_build(const char *store, const char *recipe_dir, const char *name, const char *ca_pem,
		bool force, struct err *e)
{
	if (!store_is_name(name))
		return err_set(e, EINVAL, "'%s' is not the name of an image", name);
	auto_free char *title = str_printf("image %s", name);
	if (!title)
		return err_set(e, ENOMEM, "not enough memory");
	struct plan p __attribute__((cleanup(cleanup_plan))) = {0};
	int r = check_ca(ca_pem, e);
	if (r == 0)
		r = find_inputs(&p, recipe_dir, e);
	if (r == 0)
		r = check_programs(e);
	if (r == 0)
		r = find_store(&p, store, e);
	if (r == 0)
		r = build_locked(&p, name, ca_pem, force, title, e);
	return r < 0 ? err_prefix(e, "%s", title) : 0;
}
