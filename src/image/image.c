/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the store. Paths in a struct image go through the version directory, never the link, so
 * that they stay together. */
#include "image/image.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/doc.h"
#include "base/log.h"
#include "base/str.h"
#include "image/store.h"

void image_done(struct image *img)
{
	free(img->name);
	free(img->hash);
	free(img->kernel);
	free(img->initramfs);
	free(img->rootfs);
	free(img->scratch);
	free(img->cmdline);
	free(img->user);
	free(img->workdir);
	free(img->warmup);
	json_decref(img->env);
	*img = (struct image){0};
}

static int check_env(const json_t *env, struct err *e)
{
	const char *key;
	json_t *value;
	json_object_foreach((json_t *)env, key, value)
	{
		if (!str_is_env_name(key) || !json_is_string(value))
			return err_set(e, EINVAL, "env: %s is no variable", key);
	}
	return 0;
}

static int take_manifest(const json_t *j, struct image *img, struct err *e)
{
	uint64_t format;
	const char *hash = NULL;
	const char *cmdline = NULL;
	const char *user = NULL;
	const char *workdir = NULL;
	const char *warmup = ""; /* images built before it was there have none */
	json_t *env = NULL;
	int r = doc_want_uint(j, "format", 1, 1, &format, e);
	if (r == 0)
		r = doc_want_string(j, "hash", &hash, e);
	if (r == 0)
		r = doc_want_string(j, "cmdline", &cmdline, e);
	if (r == 0)
		r = doc_want_string(j, "user", &user, e);
	if (r == 0)
		r = doc_want_string(j, "workdir", &workdir, e);
	if (r == 0)
		r = doc_opt_string(j, "warmup", &warmup, e);
	if (r == 0)
		r = doc_want_object(j, "env", &env, e);
	if (r == 0)
		r = doc_want_uint(j, "built_ms", 0, INT64_MAX, &img->built_ms, e);
	if (r == 0)
		r = check_env(env, e);
	if (r < 0)
		return r;
	img->hash = strdup(hash);
	img->cmdline = strdup(cmdline);
	img->user = strdup(user);
	img->workdir = strdup(workdir);
	img->warmup = strdup(warmup);
	img->env = json_incref(env);
	if (!img->hash || !img->cmdline || !img->user || !img->workdir || !img->warmup)
		return err_set(e, ENOMEM, "not enough memory");
	return 0;
}

static int take_file(const char *dir, const char *file, char **ret, struct image *img,
		     struct err *e)
{
	struct stat st;
	*ret = str_printf("%s/%s", dir, file);
	if (!*ret)
		return err_set(e, ENOMEM, "not enough memory");
	if (stat(*ret, &st) < 0)
		return err_sys(e, errno, "%s", *ret);
	img->size_bytes += (uint64_t)st.st_blocks * 512;
	return 0;
}

static int take_files(const char *dir, struct image *img, struct err *e)
{
	int r = take_file(dir, STORE_KERNEL, &img->kernel, img, e);
	if (r == 0)
		r = take_file(dir, STORE_INITRAMFS, &img->initramfs, img, e);
	if (r == 0)
		r = take_file(dir, STORE_ROOTFS, &img->rootfs, img, e);
	if (r == 0)
		r = take_file(dir, STORE_SCRATCH, &img->scratch, img, e);
	return r;
}

static int open_version(const char *store, const char *name, const char *version, struct image *img,
			struct err *e)
{
	auto_json json_t *manifest = NULL;
	int r = store_read_manifest(store, version, &manifest, e);
	if (r == 0)
		r = take_manifest(manifest, img, e);
	if (r < 0)
		return r;
	img->name = strdup(name);
	auto_free char *dir = str_printf("%s/%s", store, version);
	if (!img->name || !dir)
		return err_set(e, ENOMEM, "not enough memory");
	return take_files(dir, img, e);
}

int image_open(const char *store, const char *name, struct image *ret, struct err *e)
{
	if (!store_is_name(name))
		return err_set(e, EINVAL, "'%s' is not the name of an image", name);
	auto_free char *version = NULL;
	int r = store_present(store, name, &version);
	if (r == -ENOENT)
		return err_set(e, ENOENT,
			       "there is no image '%s': build it with 'space image build %s'", name,
			       name);
	if (r < 0)
		return err_sys(e, -r, "image %s: reading %s/%s", name, store, name);
	struct image img = {0};
	r = open_version(store, name, version, &img, e);
	if (r < 0) {
		image_done(&img);
		err_prefix(e,
			   "image %s is damaged (rebuild it with 'space image build --force %s')",
			   name, name);
		return r;
	}
	*ret = img;
	return 0;
}

static int is_link_to_image(const struct dirent *d)
{
	return store_is_name(d->d_name) && (d->d_type == DT_LNK || d->d_type == DT_UNKNOWN);
}

int image_each(const char *store, void (*each)(void *user, const struct image *img), void *user,
	       struct err *e)
{
	struct dirent **names = NULL;
	int count = scandir(store, &names, is_link_to_image, alphasort);
	if (count < 0)
		return errno == ENOENT ? 0 : err_sys(e, errno, "reading the image store %s", store);
	for (int i = 0; i < count; i++) {
		struct image img;
		struct err why = {0};
		if (image_open(store, names[i]->d_name, &img, &why) == 0) {
			each(user, &img);
			image_done(&img);
		} else {
			log_warn("%s", why.text);
		}
		free(names[i]);
	}
	free(names);
	return 0;
}

int image_remove(const char *store, const char *name, struct err *e)
{
	if (!store_is_name(name))
		return err_set(e, EINVAL, "'%s' is not the name of an image", name);
	struct stat st;
	if (stat(store, &st) < 0 && errno == ENOENT)
		return err_set(e, ENOENT, "there is no image '%s'", name);
	auto_fd int lock = store_lock(store, e);
	if (lock < 0)
		return lock;
	auto_free char *link = str_printf("%s/%s", store, name);
	if (!link)
		return err_set(e, ENOMEM, "not enough memory");
	bool linked = unlink(link) == 0;
	if (!linked && errno != ENOENT)
		return err_sys(e, errno, "removing %s", link);
	int removed = store_prune(store, name, NULL, NULL, e);
	if (removed < 0)
		return removed;
	return linked || removed ? 0 : err_set(e, ENOENT, "there is no image '%s'", name);
}
