/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.yaml: what an image is made of (docs/images.md). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/doc.h"
#include "base/err.h"

#define RECIPE_MAX          (256u << 10) /* bytes of the file */
#define RECIPE_PACKAGES_MAX 512
#define RECIPE_ENV_MAX      256
#define RECIPE_CMDLINE_MAX  1024 /* bytes */
#define RECIPE_WARMUP_MAX   4096 /* bytes */

#define RECIPE_SCRATCH_MIN_MIB 64
#define RECIPE_SCRATCH_MAX_MIB (2u << 20)

/* All borrowed from doc; every string has been checked to be what it says. */
struct recipe {
	struct doc doc;
	const char *suite;   /* Debian's code name */
	const char *kernel;  /* package */
	const char *cmdline; /* "" when not given */
	const char *user;
	const char *workdir;    /* absolute */
	const char *warmup;     /* "" when not given */
	json_t *packages;       /* strings, no duplicates wanted */
	json_t *modules;        /* strings */
	json_t *env;            /* object of strings */
	uint64_t scratch_bytes; /* size of each sandbox's disk, sparse */
};

/* 0; -EINVAL with e saying where and what, -ENOMEM. ret is untouched on failure. */
int recipe_parse(const char *name, const char *text, size_t len, struct recipe *ret, struct err *e);

/* Reads dir/recipe.yaml. Also -errno of reading it. */
int recipe_load(const char *dir, struct recipe *ret, struct err *e);

void recipe_done(struct recipe *r);
