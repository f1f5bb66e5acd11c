/* SPDX-License-Identifier: Apache-2.0 */
/* Loads modules by descriptor; dependencies were put in order when the image was made. */
#include "agent/modules.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"

#define ORDER_MAX (64 * 1024) /* bytes */

static int load(const char *dir, const char *name)
{
	auto_free char *path = str_printf("%s/%s", dir, name);
	if (!path)
		return -ENOMEM;
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST ? -errno : 0;
}

int modules_load(const char *dir, struct err *e)
{
	auto_free char *path = str_printf("%s/order", dir);
	auto_free char *text = NULL;
	size_t n;
	int r = path ? file_read(path, ORDER_MAX, &text, &n) : -ENOMEM;
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return err_sys(e, -r, "%s", path);

	char *rest = text, *name;
	while ((name = strsep(&rest, "\n"))) {
		r = *name ? load(dir, name) : 0;
		if (r < 0)
			log_warn("module %s: %s", name, strerrordesc_np(-r));
	}
	return 0;
}
