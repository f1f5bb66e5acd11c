/* SPDX-License-Identifier: Apache-2.0 */
/* spaced's configuration (spaced(8)): what is kept ready, how long what rests is kept. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define CONFIG_READY_MAX 32
#define CONFIG_POOLS_MAX 16
#define CONFIG_POOL_MAX  64 /* sandboxes of one pool */

struct config_pool {
	char *image;
	unsigned size, cpus;
	uint64_t memory_mib;
};

struct config {
	unsigned ready; /* prepared places */
	struct config_pool pools[CONFIG_POOLS_MAX];
	size_t pool_count;
	uint64_t memory_reserve_mib; /* available memory below which pools are drained */
	uint64_t template_age_days, template_max_mib;
	uint64_t compress_after_s; /* 0: never */
};

/* The values when nothing is said. */
void config_defaults(struct config *c);

/* text: YAML or JSON; name is for errors. 0; -EINVAL with e naming line and member; -ENOMEM. c has
   been filled with defaults, and is to be released also on failure. */
int config_parse(struct config *c, const char *name, const char *text, size_t len, struct err *e);

/* Reads path; a file that is not there is as good as an empty one. */
int config_load(struct config *c, const char *path, struct err *e);
void config_done(struct config *c);
