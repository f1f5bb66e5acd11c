/* SPDX-License-Identifier: Apache-2.0 */
/* Freezing a running sandbox: what pause, snapshot and fork have in common. */
#pragma once

#include "daemon/sandbox_state.h"

enum freeze_kind {
	FREEZE_PAUSE,
	FREEZE_SNAPSHOT,
	FREEZE_FORK,
};

struct freeze_request {
	enum freeze_kind kind;
	const char *parent; /* directory that gets PARENT/NAME; outlives the freeze */
	char *name;         /* copied */
	bool fleeting;      /* not to outlive this spaced: nothing is synced */
	sandbox_frozen_fn done;
	void *user;
};

/* Of one that runs, one at a time. 0: done follows; -EBUSY, -ENOSPC, -errno. */
int freeze_start(struct sandbox *sb, const struct freeze_request *q, struct err *e);
