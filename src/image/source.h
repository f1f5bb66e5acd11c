/* SPDX-License-Identifier: Apache-2.0 */
/* Where Debian's packages come from: the apt sources of this machine, never a list of ours. */
#pragma once

#include <stddef.h>

#include "base/err.h"

#define SOURCES_MAX 16

/* Lines for sources.list: "deb URI SUITE main". */
struct sources {
	char *lines[SOURCES_MAX];
	size_t count;
};

/* What apt-get is asked for, one target a line. */
#define SOURCES_FORMAT "$(TARGET_OF)|$(CREATED_BY)|$(COMPONENT)|$(RELEASE)|$(CODENAME)|$(SITE)"

/*
 * Picks the sources of component main for suite, suite-updates and suite-security out of apt's list
 * in SOURCES_FORMAT. 0; -ENOENT when there is none for suite itself; -EINVAL for a URI that carries
 * a password (it would end up in the image); -ENOMEM. On failure ret is empty.
 */
int sources_pick(const char *targets, const char *suite, struct sources *ret, struct err *e);

/* Asks apt-get and picks. Works with and without downloaded package lists. */
int sources_find(const char *suite, struct sources *ret, struct err *e);

void sources_done(struct sources *s);
