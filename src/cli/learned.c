/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/learned.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

int learned_fetch(struct cli *cli, const char *ref, char **ret, struct err *e)
{
	auto_free char *target = api_sandbox_path(ref, "/learned");
	auto_json json_t *reply = NULL;
	const char *text = NULL;
	if (!target)
		return err_set(e, ENOMEM, "out of memory");
	int r = api_call(cli, "GET", target, NULL, &reply, e);
	if (r == 0 && doc_want_string(reply, "text", &text, e) < 0)
		r = err_prefix(e, "spaced's answer cannot be read");
	if (r < 0)
		return r;
	*ret = strdup(text);
	return *ret ? 0 : err_set(e, ENOMEM, "out of memory");
}

static int open_file(const char *path, int flags, struct err *e)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0644);
	return fd < 0 ? err_sys(e, errno, "cannot write %.200s", path) : fd;
}

int learned_check(const char *path, struct err *e)
{
	bool new = access(path, F_OK) < 0 && errno == ENOENT;
	auto_fd int fd = open_file(path, new ? O_CREAT | O_EXCL : 0, e);
	if (fd >= 0 && new)
		unlink(path);
	return fd < 0 ? fd : 0;
}

int learned_save(struct cli *cli, const char *ref, const char *path, struct err *e)
{
	auto_free char *text = NULL;
	int r = learned_fetch(cli, ref, &text, e);
	if (r < 0)
		return r;
	auto_fd int fd = open_file(path, O_CREAT | O_TRUNC, e);
	if (fd < 0)
		return fd;
	r = fd_write_all(fd, text, strlen(text));
	return r < 0 ? err_sys(e, -r, "cannot write %.200s", path) : 0;
}
