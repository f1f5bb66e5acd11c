/* SPDX-License-Identifier: Apache-2.0 */
/* Uploads write in place, as envd does: watchers, links and permissions of the file stay as they
 * are. */
#include "agent/file_sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"

#define OPEN_FLAGS (O_WRONLY | O_NONBLOCK | O_NOCTTY)

static int make_parents(const char *path)
{
	const char *slash = strrchr(path, '/');
	if (slash == path)
		return 0;
	auto_free char *parent = strndup(path, (size_t)(slash - path));
	return parent ? dir_make_all(parent, 0755) : -ENOMEM;
}

/* With the user's rights. Nothing that was there is touched before it is known to be a file. */
static int open_file(struct file_sink *s, const char *path, mode_t mode)
{
	struct stat st;
	s->fd = open(path, OPEN_FLAGS | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	s->made = s->fd >= 0;
	if (s->fd < 0 && errno == EEXIST)
		s->fd = open(path, OPEN_FLAGS | O_CLOEXEC);
	if (s->fd < 0 && errno == ENOENT && !s->made)
		s->fd = open(path, OPEN_FLAGS | O_CREAT | O_CLOEXEC, 0666); /* a link to nowhere */
	if (s->fd < 0)
		return -errno;
	if (fstat(s->fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EISDIR;
	if (!s->made && ftruncate(s->fd, 0) < 0)
		return -errno;
	return mode != FILE_MODE_KEEP && fchmod(s->fd, mode) < 0 ? -errno : 0;
}

static int open_as(struct file_sink *s, const struct user *u, const char *path, mode_t mode)
{
	int r = user_enter(u);
	if (r < 0)
		return r;
	r = make_parents(path);
	if (r == 0)
		r = open_file(s, path, mode);
	user_leave();
	return r;
}

int file_sink_open(struct file_sink *s, const struct user *u, const char *path, mode_t mode,
		   struct err *e)
{
	*s = (struct file_sink){.fd = -1, .path = strdup(path)};
	if (!s->path)
		return err_set(e, ENOMEM, "out of memory");
	int r = open_as(s, u, path, mode);
	if (r == 0)
		return 0;
	file_sink_close(s, u, false);
	if (r == -EISDIR)
		return err_set(e, EISDIR, "path '%s' is not a file", path);
	return err_sys(e, -r, "path '%s'", path);
}

int file_sink_write(struct file_sink *s, const void *p, size_t n, struct err *e)
{
	int r = fd_write_all(s->fd, p, n);
	return r < 0 ? err_sys(e, -r, "path '%s'", s->path) : 0;
}

void file_sink_close(struct file_sink *s, const struct user *u, bool keep)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	if (!keep && s->path && s->made && user_enter(u) == 0) {
		unlink(s->path);
		user_leave();
	}
	free(s->path);
	s->path = NULL;
}
