/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store changes by renames alone: a version directory appears whole, the link to it is replaced
 * in one step. What a crash leaves is a build directory, swept by the next build.
 */
#include "image/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/doc.h"
#include "base/fd.h"
#include "base/str.h"

#define MOUNTINFO_MAX (8u << 20) /* bytes */
#define MANIFEST_MAX  (1u << 20)

static void cleanup_dir(DIR **d)
{
	if (*d)
		closedir(*d);
}
#define auto_dir __attribute__((cleanup(cleanup_dir)))

/* Where the "-HASH" at the end of s starts; NULL when there is none. */
static const char *hash_suffix(const char *s)
{
	size_t len = strlen(s);
	if (len <= STORE_HASH_DIGITS + 1)
		return NULL;
	const char *dash = s + len - STORE_HASH_DIGITS - 1;
	return *dash == '-' && strspn(dash + 1, "0123456789abcdef") == STORE_HASH_DIGITS ? dash
											 : NULL;
}

bool store_is_name(const char *name)
{
	return str_is_name(name) && !hash_suffix(name);
}

bool store_is_version(const char *entry, const char *name)
{
	const char *dash = hash_suffix(entry);
	size_t len = strlen(name);
	return dash && (size_t)(dash - entry) == len && memcmp(entry, name, len) == 0;
}

char *store_version(const char *name, const char *hash)
{
	return str_printf("%s-%.*s", name, STORE_HASH_DIGITS, hash);
}

int store_lock(const char *store, struct err *e)
{
	auto_free char *path = str_printf("%s/" STORE_LOCK, store);
	if (!path)
		return err_set(e, ENOMEM, "not enough memory");
	auto_fd int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, errno, "locking the image store %s", store);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return err_sys(e, errno, "locking the image store %s", store);
		fprintf(stderr, "waiting for another build in %s\n", store);
		int r;
		do
			r = flock(fd, LOCK_EX);
		while (r < 0 && errno == EINTR);
		if (r < 0)
			return err_sys(e, errno, "locking the image store %s", store);
	}
	return take_fd(fd);
}

static int sync_dir(const char *path)
{
	auto_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

int store_switch(const char *store, const char *name, const char *version, struct err *e)
{
	auto_free char *link = str_printf("%s/%s", store, name);
	auto_free char *fresh = str_printf("%s/.link-%s", store, name);
	if (!link || !fresh)
		return err_set(e, ENOMEM, "not enough memory");
	if (unlink(fresh) < 0 && errno != ENOENT)
		return err_sys(e, errno, "removing %s", fresh);
	if (symlink(version, fresh) < 0)
		return err_sys(e, errno, "making %s", fresh);
	if (rename(fresh, link) < 0) {
		int code = errno;
		unlink(fresh);
		return err_sys(e, code, "replacing %s", link);
	}
	int r = sync_dir(store);
	return r < 0 ? err_sys(e, -r, "syncing %s", store) : 0;
}

int store_present(const char *store, const char *name, char **ret_version)
{
	char target[NAME_MAX + 1];
	auto_free char *link = str_printf("%s/%s", store, name);
	if (!link)
		return -ENOMEM;
	ssize_t n = readlink(link, target, sizeof(target) - 1);
	if (n < 0)
		return errno == ENOTDIR ? -ENOENT : -errno;
	target[n] = '\0';
	if (!store_is_version(target, name))
		return -EINVAL;
	*ret_version = strdup(target);
	return *ret_version ? 0 : -ENOMEM;
}

/* mountinfo writes space, tab, newline and backslash as three octal digits. */
static void unescape(char *s)
{
	char *out = s;
	while (*s) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] && s[3]) {
			*out++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 4;
		} else {
			*out++ = *s++;
		}
	}
	*out = '\0';
}

/* Field 5 of a line of mountinfo, NUL-terminated in place; NULL for a line without. */
static char *mount_point(char *line)
{
	for (int field = 1; field < 5; field++) {
		line = strchr(line, ' ');
		if (!line)
			return NULL;
		line++;
	}
	line[strcspn(line, " ")] = '\0';
	unescape(line);
	return line;
}

/* Detaches the last mount below dir; false when there is none. */
static int unmount_one(const char *dir)
{
	auto_free char *info = NULL;
	size_t len;
	int r = file_read("/proc/self/mountinfo", MOUNTINFO_MAX, &info, &len);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	char *last = NULL;
	size_t dir_len = strlen(dir);
	char *next;
	for (char *line = info; *line; line = next) {
		size_t n = strcspn(line, "\n");
		next = line + n + (line[n] == '\n');
		line[n] = '\0';
		char *at = mount_point(line);
		if (at && strncmp(at, dir, dir_len) == 0 && at[dir_len] == '/')
			last = at;
	}
	if (!last)
		return 0;
	return umount2(last, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 ? -errno : 1;
}

int store_remove_tree(const char *path, struct err *e)
{
	auto_free char *real = realpath(path, NULL);
	if (!real)
		return errno == ENOENT ? 0 : err_sys(e, errno, "removing %s", path);
	int r;
	while ((r = unmount_one(real)) > 0)
		;
	if (r < 0)
		return err_sys(e, -r, "unmounting what is below %s", real);
	r = dir_remove_all(real);
	return r < 0 ? err_sys(e, -r, "removing %s", real) : 0;
}

/* Removes the entries of the store that unwanted() picks; returns how many. */
static int remove_entries(const char *store, bool (*unwanted)(const char *, const void *),
			  const void *user, struct err *e)
{
	auto_dir DIR *d = opendir(store);
	if (!d)
		return err_sys(e, errno, "reading the image store %s", store);
	int count = 0;
	for (struct dirent *entry; (entry = readdir(d));) {
		if (!unwanted(entry->d_name, user))
			continue;
		auto_free char *path = str_printf("%s/%s", store, entry->d_name);
		if (!path)
			return err_set(e, ENOMEM, "not enough memory");
		int r = store_remove_tree(path, e);
		if (r < 0)
			return r;
		count++;
	}
	return count;
}

struct prune {
	const char *name;
	const char *keep;
	const char *keep_too;
};

static bool is_prunable(const char *entry, const void *user)
{
	const struct prune *p = user;
	return store_is_version(entry, p->name) && !str_eq(entry, p->keep) &&
	       !str_eq(entry, p->keep_too);
}

int store_prune(const char *store, const char *name, const char *keep, const char *keep_too,
		struct err *e)
{
	struct prune p = {name, keep, keep_too};
	return remove_entries(store, is_prunable, &p, e);
}

static bool is_build(const char *entry, const void *user)
{
	(void)user;
	return str_starts(entry, STORE_BUILD_PREFIX);
}

int store_sweep(const char *store, struct err *e)
{
	return remove_entries(store, is_build, NULL, e);
}

int store_write_manifest(const char *dir, const struct image *img, uint64_t generation,
			 const char *kernel_release, struct err *e)
{
	auto_free char *path = str_printf("%s/" STORE_MANIFEST, dir);
	auto_json json_t *j = json_pack("{s:i,s:s,s:s,s:I,s:s,s:s,s:s,s:s,s:s,s:O,s:I}", "format",
					1, "name", img->name, "hash", img->hash, "generation",
					(json_int_t)generation, "kernel_release", kernel_release,
					"cmdline", img->cmdline, "user", img->user, "workdir",
					img->workdir, "warmup", img->warmup ? img->warmup : "",
					"env", img->env, "built_ms", (json_int_t)img->built_ms);
	auto_free char *text = j ? doc_to_text(j) : NULL;
	if (!path || !text)
		return err_set(e, ENOMEM, "not enough memory for %s", STORE_MANIFEST);
	int r = file_write_atomic(path, text, strlen(text), 0644);
	return r < 0 ? err_sys(e, -r, "writing %s", path) : 0;
}

int store_read_manifest(const char *store, const char *version, json_t **ret, struct err *e)
{
	auto_free char *path = str_printf("%s/%s/" STORE_MANIFEST, store, version);
	if (!path)
		return err_set(e, ENOMEM, "not enough memory");
	auto_free char *text = NULL;
	size_t len;
	int r = file_read(path, MANIFEST_MAX, &text, &len);
	if (r < 0)
		return err_sys(e, -r, "reading %s", path);
	*ret = doc_parse_json(text, len, e);
	return *ret ? 0 : err_prefix(e, "%s", path);
}
