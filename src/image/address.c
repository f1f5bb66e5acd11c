/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 over a sequence of labelled, length-prefixed items, so that no two different inputs read
 * the same. The first item is the version of the builder: raise it when the same inputs would give
 * another image.
 */
#include "image/address.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include <openssl/evp.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#define BUILDER_VERSION "space-image 1"

#define RECIPE_FILE_MAX  (1u << 20) /* bytes */
#define RECIPE_FILES_MAX 64
#define AGENT_MAX        (64u << 20) /* bytes */

static int add(EVP_MD_CTX *md, const char *label, const void *p, size_t n, struct err *e)
{
	auto_free char *head = str_printf("%zu:%s%zu:", strlen(label), label, n);
	if (!head || !EVP_DigestUpdate(md, head, strlen(head)) || !EVP_DigestUpdate(md, p, n))
		return err_set(e, ENOMEM, "hashing the image's inputs failed");
	return 0;
}

static int add_file(EVP_MD_CTX *md, const char *label, int dirfd, const char *path, size_t max,
		    struct err *e)
{
	auto_free char *data = NULL;
	size_t len;
	int r = file_read_at(dirfd, path, max, &data, &len);
	if (r < 0)
		return err_sys(e, -r, "reading %s", path);
	return add(md, label, data, len, e);
}

static int is_visible(const struct dirent *d)
{
	return d->d_name[0] != '.' && !str_ends(d->d_name, "~");
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int add_entry(EVP_MD_CTX *md, int dirfd, const char *name, struct err *e)
{
	struct stat st;
	if (fstatat(dirfd, name, &st, 0) < 0)
		return err_sys(e, errno, "recipe file %s", name);
	if (!S_ISREG(st.st_mode))
		return err_set(e, EINVAL, "recipe file %s is not a plain file", name);
	auto_free char *label = str_printf("%s%s", st.st_mode & S_IXUSR ? "exec " : "file ", name);
	if (!label)
		return err_set(e, ENOMEM, "not enough memory");
	return add_file(md, label, dirfd, name, RECIPE_FILE_MAX, e);
}

static int add_recipe(EVP_MD_CTX *md, const char *dir, struct err *e)
{
	auto_fd int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, errno, "opening the recipe %s", dir);
	struct dirent **names = NULL;
	int count = scandir(dir, &names, is_visible, by_bytes);
	if (count < 0)
		return err_sys(e, errno, "reading the recipe %s", dir);
	int r = 0;
	if (count > RECIPE_FILES_MAX)
		r = err_set(e, E2BIG, "more than %d files in the recipe %s", RECIPE_FILES_MAX, dir);
	for (int i = 0; r == 0 && i < count; i++)
		r = add_entry(md, fd, names[i]->d_name, e);
	for (int i = 0; i < count; i++)
		free(names[i]);
	free(names);
	return r;
}

static int add_all(EVP_MD_CTX *md, const struct address_inputs *in, struct err *e)
{
	auto_free char *generation = str_printf("%" PRIu64, in->generation);
	if (!generation)
		return err_set(e, ENOMEM, "not enough memory");
	int r = add(md, "builder", BUILDER_VERSION, strlen(BUILDER_VERSION), e);
	if (r == 0)
		r = add(md, "generation", generation, strlen(generation), e);
	if (r == 0)
		r = add(md, "ca", in->ca_pem, strlen(in->ca_pem), e);
	if (r == 0)
		r = add_file(md, "agent", AT_FDCWD, in->agent, AGENT_MAX, e);
	if (r == 0)
		r = add_recipe(md, in->recipe_dir, e);
	return r;
}

int address_of(const struct address_inputs *in, char ret[ADDRESS_HEX_SIZE], struct err *e)
{
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	unsigned char digest[32];
	int r;
	if (!md || !EVP_DigestInit_ex(md, EVP_sha256(), NULL))
		r = err_set(e, ENOMEM, "SHA-256 is not to be had");
	else
		r = add_all(md, in, e);
	if (r == 0 && !EVP_DigestFinal_ex(md, digest, NULL))
		r = err_set(e, EIO, "SHA-256 failed");
	EVP_MD_CTX_free(md);
	if (r == 0)
		hex_encode(digest, sizeof(digest), ret);
	return r;
}
