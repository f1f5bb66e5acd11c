/* SPDX-License-Identifier: Apache-2.0 */
/* Where a node is. Root's is in /var/lib/space and /run/space, another user's in the directories
 * that the XDG base directory specification names. */
#pragma once

#include "base/err.h"

/* Sets SPACE_STATE_DIR, SPACE_RUN_DIR and SPACE_CONFIG in the environment where they are not set
 * and the calling user is not root. 0 or -errno with e set. */
int dirs_set(struct err *e);
