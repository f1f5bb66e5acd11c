/* SPDX-License-Identifier: Apache-2.0 */
/* What the gateway of a sandbox decided, one line for each, as it is recorded. */
#pragma once

#include <stdbool.h>

#include "cli/cli.h"

/* Prints them, for people or (json) as they are recorded, until all are told, or, with follow,
 * until the sandbox has ended. Returns the exit code. */
int decisions_show(struct cli *cli, const char *ref, bool follow, bool json);
