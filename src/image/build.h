/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One build under way. Its directory, STORE/.build-XXXXXX:
 *
 *	ca.pem environment apt.conf	what the recipe's customize script and apt are given
 *	root/				the tree that becomes the root filesystem
 *	packages/ kernel/		the kernel's package, as downloaded and unpacked
 *	out/				what becomes the version directory
 */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "image/recipe.h"
#include "image/source.h"
#include "image/tool.h"

#define BUILD_ENV_MAX 24

struct build {
	const char *store; /* absolute */
	const char *name;
	const char *recipe_dir; /* absolute */
	const char *ca_pem;
	const char *agent;
	char *dir;
	struct recipe recipe;
	struct sources sources;
	struct tools tools;
	char *env[BUILD_ENV_MAX]; /* of the programs that it runs */
	char *kernel_release;     /* set by build_unpack_kernel() */
	json_t *guest_env;        /* set by build_read_environment() */
};

/* The steps, in this order; each returns 0 or a negative errno with e set, and leaves its mess in
 * dir. */
int build_lay_out(struct build *b, struct err *e);
int build_install_packages(struct build *b, struct err *e);
int build_read_environment(struct build *b, struct err *e);
int build_unpack_kernel(struct build *b, struct err *e);
int build_make_initramfs(struct build *b, struct err *e);
int build_make_disks(struct build *b, struct err *e);
