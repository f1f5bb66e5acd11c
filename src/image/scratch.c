/* SPDX-License-Identifier: Apache-2.0 */
/* A sandbox's first disk: a copy of the image's empty filesystem. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/sparse.h"
#include "image/image.h"

int image_copy_scratch(const struct image *img, int disk_fd, struct err *e)
{
	auto_fd int from = open(img->scratch, O_RDONLY | O_CLOEXEC);
	if (from < 0)
		return err_sys(e, errno, "image %s: opening %s", img->name, img->scratch);
	int r = sparse_copy(from, disk_fd);
	if (r == -ENOSPC || r == -EDQUOT)
		return err_set(e, -r, "no space left for a sandbox's disk: free some");
	if (r < 0)
		return err_sys(e, -r, "image %s: copying its disk", img->name);
	return 0;
}
