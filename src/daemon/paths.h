/* SPDX-License-Identifier: Apache-2.0 */
/* Where a node keeps things. Each may be moved by an environment variable, for tests and for
 * several nodes on one host. */
#pragma once

#include "base/err.h"

struct paths {
	char *state;     /* SPACE_STATE_DIR, /var/lib/space: lasts */
	char *run;       /* SPACE_RUN_DIR, /run/space: gone with the host's uptime */
	char *libexec;   /* SPACE_LIBEXEC: space-egress, space-agent */
	char *recipes;   /* SPACE_RECIPES: how images are built */
	char *images;    /* state/images */
	char *audit;     /* state/audit */
	char *ca;        /* state/ca */
	char *db;        /* state/space.db */
	char *scratch;   /* state/scratch: the filesystem that unnamed disks live on */
	char *socket;    /* run/spaced.sock */
	char *lock;      /* run/spaced.lock */
	char *sandboxes; /* state/sandboxes: one directory each, with its log and what it is paused to */
	char *places;    /* state/places: one directory for each place (place.h) */
	char *templates; /* state/templates */
	char *snapshots; /* state/snapshots */
	char *config;    /* SPACE_CONFIG, /etc/space/spaced.yaml */
};

/* Works them out, makes the directories. 0 or -errno. */
int paths_init(struct paths *p, struct err *e);
void paths_done(struct paths *p);
