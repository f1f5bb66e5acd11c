/* SPDX-License-Identifier: Apache-2.0 */
/* One file between here and a sandbox, through its agent's /files. */
#pragma once

#include "base/buf.h"
#include "cli/api.h"

struct copy_spec {
	const char *sandbox_id;
	const char *user;       /* as whom the agent reads or writes; NULL: whom tasks run as */
	const char *guest_path; /* a directory when it ends with '/' or is one there */
	const char *path;       /* here; "-" for a standard stream */
};

/* Each returns 0, 128 + the number of a signal that broke it off, or -errno with e set. Nothing
 * half done is left here. */
int copy_in(struct cli *cli, const struct copy_spec *spec, struct err *e);
int copy_out(struct cli *cli, const struct copy_spec *spec, struct err *e);

/* The target behind /files for a path there; heap, NULL: no memory. */
char *copy_target(const struct copy_spec *spec, const char *guest_path);

/* The last component of a path, borrowed; "" when it ends with '/'. */
const char *copy_basename(const char *path);
