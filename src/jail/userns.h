/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is not root becomes it in a user namespace: the caller's own uid is 0 there, and the uids
 * that /etc/subuid and /etc/subgid give to the caller (uidmap's newuidmap and newgidmap map them)
 * are 1 and more. What is started there has no rights over anything that is not the caller's.
 *
 * Processes outlive a daemon, and only from within their user namespace may they be ended or their
 * network namespaces be entered: the next daemon joins the one that still has processes. A note
 * tells which one that is.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* For a process with one thread and another uid than 0: makes it root in the namespace that note (a
 * file's path, which need not exist) tells of and that still has a process, or in a new one. The
 * mount namespace is a new one. 0 or -errno with e set, which says what to install or to set. */
int userns_enter(const char *note, struct err *e);

/* Writes the calling process's user namespace into note. 0 or -errno with e set. */
int userns_write_note(const char *note, struct err *e);

/* Whether root is another user outside: the calling process is in a user namespace, whose 0 is
 * *ret_outside. */
bool userns_is_other(uid_t *ret_outside);

/* The lowest of count successive ids that are there both as uids and gids: preferred, or, in a user
 * namespace without those, the highest ones that are mapped. 0 or -errno with e set. */
int userns_ids(uint32_t count, uid_t preferred, uid_t *ret, struct err *e);
