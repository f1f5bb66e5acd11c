/* SPDX-License-Identifier: Apache-2.0 */
/* What a sandbox has taught: the policy that spaced makes of its records. */
#pragma once

#include "cli/api.h"

/* As text, by name or id, also of a sandbox that is gone; heap. -ENOENT: nothing is on record. */
int learned_fetch(struct cli *cli, const char *ref, char **ret, struct err *e);

/* Whether path can be written, before anything is done for it: 0 or -errno with e set. */
int learned_check(const char *path, struct err *e);

/* Fetches it into a file, which it makes or replaces. */
int learned_save(struct cli *cli, const char *ref, const char *path, struct err *e);
