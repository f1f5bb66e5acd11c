/* SPDX-License-Identifier: Apache-2.0 */
/* Starting a process with as little as it needs: own uid, namespaces, no capabilities, no new
 * privileges, no core dumps. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define JAIL_FDS_MAX 64

struct jail_fd {
	int from; /* ours */
	int to; /* its number in the child, >= 3; the list is sorted by it; what it doesn't name is
		   closed */
};

struct jail_spec {
	const char *name;        /* for errors */
	const char *const *argv; /* argv[0] is a path; no PATH look-up */
	const char *const *env;  /* the whole environment; NULL: empty */
	const struct jail_fd *fds;
	size_t nfds;   /* <= JAIL_FDS_MAX */
	int stdout_fd; /* also standard error; -1: /dev/null. Standard input is /dev/null */
	uid_t uid;     /* and gid; not 0, and its alone: the limit on processes counts by uid */
	uint64_t file_bytes_max; /* no file that it writes grows past this; 0: no limit */
	int netns_fd;            /* -1: stay in ours */
	bool outlives_parent;    /* not tied to the calling thread */
	bool own_pid;            /* a new PID namespace, the child its init */
	bool own_mount; /* new mount, IPC and UTS namespaces; all mounts private and read-only, own
			   /proc with own_pid */
};

/* Starts it. Unless it is to outlive us it dies with the calling thread (PDEATHSIG), so call from
   the main thread. Any step that fails stops the start: e says which, and nothing is left. On
   success *ret_pid is running argv (exec has happened), *ret_pidfd is the caller's to close, and
   the caller reaps: waitid(P_PIDFD). 0 or -errno. */
int jail_spawn(const struct jail_spec *spec, pid_t *ret_pid, int *ret_pidfd, struct err *e);
