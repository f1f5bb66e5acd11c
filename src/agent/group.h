/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control group of all processes that the agent starts, and of what they start: so that they
 * can be made to stand still, all at once. One that root in the guest moves elsewhere is out of
 * reach.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* Descriptors of its files; -1: there is no group. */
struct group {
	int procs;
	int freeze;
	int events;
};

#define GROUP_NONE ((struct group){-1, -1, -1})

/* Makes the group, or opens the one that is there. 0, or -errno with e set and *ret none. */
int group_open(struct group *ret, struct err *e);
void group_close(struct group *g);

/* Asks all that are in the group to stand still, or lets them go on. Harmless when they do, and
   where there is no group. 0 or -errno. */
int group_freeze(const struct group *g, bool on);

/* Whether all have come to a stand. True where there is no group, or none any more. */
bool group_is_frozen(const struct group *g);
